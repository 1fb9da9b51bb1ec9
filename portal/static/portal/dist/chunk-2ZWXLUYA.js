import{b as n}from"./chunk-VOFGGWXT.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
