import{a}from"./chunk-K5WDYIWF.js";import"./chunk-NNXESKHI.js";import"./chunk-OOJM4CTU.js";export{a as CodeEditor};
