import{b as n}from"./chunk-WJSE5EKX.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
