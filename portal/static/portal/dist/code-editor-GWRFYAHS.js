import{a}from"./chunk-KXIUTVAB.js";import"./chunk-NNXESKHI.js";import"./chunk-OOJM4CTU.js";export{a as CodeEditor};
