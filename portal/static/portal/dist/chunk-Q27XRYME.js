import{b as n}from"./chunk-WOA7UNMW.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
