import{b as n}from"./chunk-LTA6WIAN.js";function a(t,e){t.dataset.state=e,t.textContent=n(e)}export{a};
