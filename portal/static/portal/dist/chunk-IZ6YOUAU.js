import{c as n}from"./chunk-TH3ZVUKJ.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
