import{j as e}from"./page.js";function t(r){return e.jsx("p",{children:"Usage"})}export{t as default};
