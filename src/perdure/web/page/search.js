import{j as r}from"./page.js";function a(e){return r.jsx("p",{children:"Search"})}export{a as default};
