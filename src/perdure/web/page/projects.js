import{j as r}from"./page.js";function o(t){return r.jsx("p",{children:"Projects"})}export{o as default};
