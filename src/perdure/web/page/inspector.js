import{j as r}from"./page.js";function n(t){return r.jsx("p",{children:"Inspector"})}export{n as default};
