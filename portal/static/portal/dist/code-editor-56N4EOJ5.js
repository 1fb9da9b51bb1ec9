import{a}from"./chunk-PJH34VBK.js";import"./chunk-NNXESKHI.js";import"./chunk-OOJM4CTU.js";export{a as CodeEditor};
