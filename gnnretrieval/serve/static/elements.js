"use strict";
// Elements of a page, for all pages.

const SVG = "http://www.w3.org/2000/svg";
const find = (id) => document.getElementById(id);

function make(name, attributes = {}, ...children) {
  const element = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const short = (text, most) => (text.length <= most ? text : text.slice(0, most - 1).trimEnd() + "…");
