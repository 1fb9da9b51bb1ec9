import{c as n}from"./chunk-H2TKVRVB.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
