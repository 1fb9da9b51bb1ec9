import{a}from"./chunk-YLHX4UVS.js";import"./chunk-NNXESKHI.js";import"./chunk-OOJM4CTU.js";export{a as CodeEditor};
