import{a}from"./chunk-JMVXNQ4S.js";import"./chunk-BHHYOZE3.js";import"./chunk-TLM4AFNY.js";import"./chunk-OOJM4CTU.js";export{a as CodeEditor};
