import{j as t}from"./page.js";function r(e){return t.jsx("p",{children:"Agents"})}export{r as default};
