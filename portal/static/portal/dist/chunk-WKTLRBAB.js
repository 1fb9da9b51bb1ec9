import{b as n}from"./chunk-WDME5TL4.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
