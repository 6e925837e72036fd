// Showing text that a model wrote: all of it, as it is, without letting it do anything to the page or to the reader.

import { h, number } from "./dom.js";

const FIRST = 6000; // characters shown before "Show more"
const FIRST_LINES = 150;
const MORE = 100000;

// What would be invisible, or would change how its surroundings are shown: control characters but tab and newline,
// lone surrogates, directional formatting, zero-width and tag characters, and characters without a meaning. The
// zero-width joiners stay: Persian, Hindi and emoji are spelled with them.
const HIDDEN = new RegExp(
  "[\\u{0}-\\u{8}\\u{b}-\\u{1f}\\u{7f}-\\u{9f}\\u{ad}\\u{61c}\\u{180e}\\u{200b}\\u{200e}\\u{200f}\\u{2028}-\\u{202e}" +
    "\\u{2060}-\\u{206f}\\u{feff}\\u{fff0}-\\u{fffb}\\u{fffe}\\u{ffff}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}" +
    "\\p{Surrogate}]",
  "u",
);
const HIDDEN_ALL = new RegExp(HIDDEN.source, "gu");

function picture(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

function mark(character) {
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return h("span", { class: "mark", title: `The character U+${code}` }, picture(character));
}

// The same text with visible stand-ins, for titles and accessible names, which hold no elements.
export function plain(text, limit = 200) {
  const cut = text.length > limit ? `${text.slice(0, whole(text, limit))}…` : text;
  return cut.replace(/[\n\t]/g, " ").replace(HIDDEN_ALL, picture);
}

// Nodes that show a text.
export function visible(text) {
  if (!HIDDEN.test(text)) return [text];
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN_ALL)) {
    if (found[0] === "\r" && text[found.index + 1] === "\n") continue; // a line end of another system
    if (found.index > from) nodes.push(text.slice(from, found.index));
    nodes.push(mark(found[0]));
    from = found.index + found[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

// Whether there is nothing to see in a text. JavaScript's own trim() would also take characters that must be shown.
export const blank = (text) => /^[ \t\n]*$/.test(text);

// A text without empty lines before and after it.
export const strip = (text) => text.replace(/^\n+|[ \t\n]+$/g, "");

// A short text within a line. Its direction is its own business.
export function inline(text, limit = 200) {
  const cut = text.length > limit ? `${text.slice(0, whole(text, limit))}…` : text;
  return h("bdi", {}, visible(cut));
}

// A text of any length, in a box of its own. The rest of a long one follows on request.
export function block(text, attributes = {}) {
  const pre = h("pre", { dir: "auto", ...attributes, class: `text ${attributes.class || ""}` });
  let shown = firstCut(text);
  pre.append(...visible(text.slice(0, shown)));
  if (shown >= text.length) return pre;
  const box = h("div", { class: "long" }, pre);
  const button = h("button", { type: "button", class: "more" });
  const label = () => {
    button.textContent = `Show ${number(Math.min(MORE, text.length - shown), 0)} more of ${number(text.length, 0)} characters`;
  };
  button.addEventListener("click", () => {
    const next = whole(text, shown + MORE);
    pre.append(...visible(text.slice(shown, next)));
    shown = next;
    if (shown < text.length) label();
    else {
      button.remove();
      pre.tabIndex = -1;
      pre.focus({ preventScroll: true });
    }
  });
  label();
  box.append(button);
  return box;
}

function firstCut(text) {
  let at = whole(text, FIRST);
  let lines = 0;
  for (let i = text.indexOf("\n"); i >= 0 && i < at; i = text.indexOf("\n", i + 1)) {
    lines += 1;
    if (lines === FIRST_LINES) at = i;
  }
  // A button for a last few characters would be sillier than the characters.
  return text.length - at < 400 && lines < FIRST_LINES ? text.length : at;
}

// The nearest place at or before `at` that does not cut a character in two.
function whole(text, at) {
  if (at >= text.length) return text.length;
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code <= 0xdbff ? at - 1 : at;
}
