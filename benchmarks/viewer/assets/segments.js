// Taking texts apart: what is new in a prompt, who said what in it, and where code begins and ends.

import { blank, strip } from "./text.js";

const WORTH_HIDING = 80; // characters that a repeated passage must have
const LOOK_BACK = 8; // turns that a prompt is compared with

// What a prompt has in common with those before: {same, fresh, again}, three consecutive parts of `text`. `same` is the
// beginning that some prompt before had, `again` the end that the agent's own last prompt had (its instructions).
export function whatIsNew(text, before, own) {
  let start = 0;
  for (const other of before.slice(-LOOK_BACK)) start = Math.max(start, commonStart(text, other));
  start = start === text.length ? start : text.lastIndexOf("\n", start - 1) + 1;
  if (start < WORTH_HIDING) start = 0;
  let end = text.length;
  if (own !== null && start < text.length) {
    // Instructions begin like this in all environments. A shared end that begins elsewhere may be half of an answer.
    const line = text.lastIndexOf("\nYou are ");
    const fits = line >= 0 && text.length - line - 1 <= commonEnd(text, own, start);
    if (fits && text.length - line - 1 >= WORTH_HIDING) end = line + 1;
  }
  return { same: text.slice(0, start), fresh: text.slice(start, end), again: text.slice(end) };
}

function commonStart(one, other) {
  const most = Math.min(one.length, other.length);
  let i = 0;
  while (i < most && one.charCodeAt(i) === other.charCodeAt(i)) i += 1;
  return i;
}

function commonEnd(one, other, start) {
  const most = Math.min(one.length - start, other.length);
  let i = 0;
  while (i < most && one.charCodeAt(one.length - 1 - i) === other.charCodeAt(other.length - 1 - i)) i += 1;
  return i;
}

const HEADER = /^\[([a-z][a-z]+(?:_\d+)?(?: [a-z]+)*|passages for: .*)\](.*)$/;

// The parts of a prompt: [{kind, title, text}]. Kinds are plain, said (title is the agent), passages (title is the
// query), output and note. A text that an agent said is followed to its end even if it imitates a heading. `agent` is the
// one that the prompt is for: the line that addresses it begins its instructions.
export function promptParts(text, agent, agents, actions) {
  const parts = [];
  let lines = [];
  let open = { kind: "plain", title: "" };
  const close = () => {
    const body = strip(lines.join("\n"));
    if (body || open.kind !== "plain") parts.push({ ...open, text: body });
    lines = [];
  };
  let at = 0;
  while (at < text.length) {
    let end = text.indexOf("\n", at);
    if (end < 0) end = text.length;
    const line = text.slice(at, end);
    const found = HEADER.exec(line);
    if (open.kind !== "plain" && line.startsWith(`You are ${agent}`)) {
      close();
      open = { kind: "plain", title: "" };
    }
    at = end + 1;
    if (!found || !opens(found, agents)) {
      lines.push(line);
      continue;
    }
    close();
    open = kindOf(found, agents);
    if (found[2].trim()) lines.push(found[2].trim());
    if (open.kind !== "said") continue;
    const known = actions.findLast((one) => one.agent === open.title && one.action && text.startsWith(one.action, at));
    if (known) {
      parts.push({ ...open, text: known.action, index: known.index });
      open = { kind: "plain", title: "" };
      at += known.action.length + 1;
    }
  }
  close();
  return parts;
}

function opens([, name, rest], agents) {
  if (agents.includes(name)) return rest === "";
  return name.startsWith("passages for: ") || name.includes(" ") || name === "result";
}

function kindOf([, name], agents) {
  if (agents.includes(name)) return { kind: "said", title: name };
  if (name.startsWith("passages for: ")) return { kind: "passages", title: name.slice(14) };
  if (name.startsWith("output of")) return { kind: "output", title: name };
  return { kind: "note", title: name };
}

// Passages as the environments number them: [{title, text}], or null if the text is something else.
export function passages(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const head = /^\((\d+)\) (.*)$/.exec(line);
    if (head && Number(head[1]) === found.length + 1) found.push({ title: head[2], lines: [] });
    else if (found.length) found.at(-1).lines.push(line);
    else return null;
  }
  return found.length ? found.map(({ title, lines }) => ({ title, text: strip(lines.join("\n")) })) : null;
}

// A text as prose and fenced code: [{kind: "prose" | "code", language, text}].
export function fences(text) {
  const parts = [];
  const fence = /^```([A-Za-z0-9_+-]*)[ \t]*\n([\s\S]*?)(?:^```[ \t]*$|$(?![\s\S]))/gm;
  let from = 0;
  for (const found of text.matchAll(fence)) {
    if (found.index > from) parts.push({ kind: "prose", text: text.slice(from, found.index) });
    parts.push({ kind: "code", language: found[1], text: found[2].replace(/\n$/, "") });
    from = found.index + found[0].length;
  }
  if (from < text.length) parts.push({ kind: "prose", text: text.slice(from) });
  return parts.filter((part) => part.kind === "code" || !blank(part.text));
}
