// Making elements. Text is only ever set as text: nothing here, or anywhere in this page, makes markup from a string.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child); // a string becomes a text node
  }
}

// An HTML element: h("button", { class: "quiet", onclick: open }, "Open").
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// An SVG element.
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

let ids = 0;

// An id that no other element has.
export function freshId(name) {
  ids += 1;
  return `${name}-${ids}`;
}

// What a screen reader says next, without moving the focus.
export function announce(message) {
  const region = document.getElementById("status");
  if (region) region.textContent = message;
}

export function number(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { minimumFractionDigits: 0, maximumFractionDigits: digits });
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const shown = number(Math.abs(value), digits);
  return value < 0 && shown !== "0" ? `−${shown}` : shown;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.001) return `${number(1e6 * value, 0)} µs`;
  return value < 1 ? `${number(1000 * value, value < 0.01 ? 2 : 0)} ms` : `${number(value, value < 10 ? 2 : 0)} s`;
}

// "1 turn", "3 turns".
export function count(n, noun) {
  return `${number(n, 0)} ${noun}${n === 1 ? "" : "s"}`;
}
