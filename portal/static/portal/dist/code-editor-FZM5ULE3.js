import{a}from"./chunk-BHCNMZP2.js";import"./chunk-NNXESKHI.js";import"./chunk-OOJM4CTU.js";export{a as CodeEditor};
