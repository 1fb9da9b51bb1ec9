import{b as n}from"./chunk-T2YLHMH6.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
