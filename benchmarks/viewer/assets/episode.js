// An episode as a conversation: who was shown what, what it did, and what that was worth.

import { count, h, number, replace, seconds, signed } from "./dom.js";
import { boardFigure, withBoards } from "./boards.js";
import { fences, passages, promptParts, whatIsNew } from "./segments.js";
import { blank, block, inline, plain, strip } from "./text.js";
import { treeView } from "./tree.js";

const HUES = 6; // colours for agents: a1 … a6 in the style sheet

export const hue = (agents, agent) => `a${(Math.max(0, agents.indexOf(agent)) % HUES) + 1}`;

// The whole episode. `title` is its heading; `seats` names who plays an agent, where that differs by episode; `outcomes`
// says of a game how it ended for each agent.
export function episodeView(record, { title, status, seats = {}, outcomes = {} }) {
  const agents = Object.keys(record.returns);
  const path = record.turns.filter((turn) => turn.chosen !== false);
  const turns = h("ol", { class: "turns" }, conversation(path, agents, seats, record.update !== undefined));
  const body = h("div", { class: "body" }, turns);
  return h(
    "article",
    { class: "episode", "aria-label": `Episode ${plain(record.id)}` },
    h(
      "header",
      {},
      h("h2", { class: "title", tabindex: "-1" }, title, " ", badge(status, record.tree)),
      h("p", { class: "facts" }, facts(record, path).map((fact) => h("span", {}, fact))),
      record.error !== null && h("div", { class: "refusal", role: "note" }, h("strong", {}, "The episode failed. "), inline(record.error, 2000)),
      rewardTable(record, agents, seats, outcomes),
    ),
    record.tree && treeTabs(record, agents, turns, body),
    body,
  );
}

// `tree`: the path of a tree was chosen by reward, so its success is none of the policy's.
export function badge(status, tree = false) {
  const sign = { success: "✓", win: "✓", failure: "✗", loss: "✗", draw: "=", error: "!" }[status] ?? "";
  return h("span", { class: `badge ${status}` }, h("span", { "aria-hidden": "true" }, `${sign} `), tree ? ({ success: "path solved", failure: "path failed" }[status] ?? status) : status);
}

function facts(record, path) {
  const trained = record.turns.filter((turn) => turn.advantage !== undefined).length;
  const latency = path.reduce((sum, turn) => sum + (turn.latency_s ?? 0), 0);
  const tokens = record.turns.reduce((sum, turn) => sum + turn.completion_tokens, 0);
  return [
    inline(record.env),
    `seed ${record.seed}`,
    count(path.length, "turn"),
    record.update !== undefined ? `trained on in update ${record.update}: ${number(trained, 0)} of ${count(record.turns.length, "answer")}` : null,
    record.terminated ? "ended by its rules" : record.truncated ? "cut off by a limit" : null,
    tokens ? `${number(tokens, 0)} tokens written` : null,
    latency ? `${seconds(latency)} of answers` : null,
  ].filter(Boolean);
}

function rewardTable(record, agents, seats, outcomes) {
  const parts = [...new Set(agents.flatMap((agent) => Object.keys(record.reward_parts[agent] ?? {})))].sort();
  const game = Object.keys(outcomes).length > 0;
  const head = ["agent", ...(game ? ["outcome"] : []), "return", ...parts];
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rewards by agent" },
    h(
      "table",
      { class: "rewards" },
      h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, inline(text))))),
      h("tbody", {}, agents.map((agent) => h(
        "tr",
        {},
        h("th", { scope: "row", class: hue(agents, agent) }, inline(agent), seats[agent] && [" ", h("span", { class: "note" }, inline(seats[agent]))]),
        game && h("td", {}, outcomes[agent]),
        h("td", {}, signed(record.returns[agent])),
        parts.map((part) => h("td", {}, signed(record.reward_parts[agent]?.[part] ?? null))),
      ))),
    ),
  );
}

function treeTabs(record, agents, turns, body) {
  const path = record.turns.filter((turn) => turn.chosen !== false).sort((a, b) => a.index - b.index);
  const tree = treeView(record, (turn) => turnView(turn, { agents, ...whatLedTo(turn, path), seats: {}, trained: record.update !== undefined }));
  const choices = [["Tree", tree], ["Chosen path", turns]];
  const buttons = choices.map(([name, content]) => h("button", {
    type: "button",
    onclick: () => {
      replace(body, content);
      buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === name)));
    },
  }, name));
  buttons[0].click();
  return h("div", { class: "tabs", role: "group", "aria-label": "How to show the tree" }, buttons);
}

// What is new in the prompt of a turn after the turns of a path before it, and what was answered in these.
function whatLedTo(turn, path) {
  const before = path.filter((one) => one.index < turn.index);
  const own = before.findLast((one) => one.agent === turn.agent);
  return {
    shown: whatIsNew(turn.observation, before.map((one) => one.observation), own?.observation ?? null),
    actions: before.map((one) => ({ agent: one.agent, action: one.action.trim(), index: one.index })),
  };
}

function conversation(path, agents, seats, trained) {
  return path.map((turn, i) => turnView(turn, { agents, ...whatLedTo(turn, path.slice(0, i)), seats, trained }));
}

// `trained`: it is the record of a training run, which says of each turn what it was trained with.
function turnView(turn, { agents, shown, actions, seats, trained = false }) {
  const reward = Object.values(turn.reward_parts).reduce((sum, value) => sum + value, 0);
  return h(
    "li",
    { class: `turn ${hue(agents, turn.agent)}`, tabindex: "-1", "data-turn": turn.index, "aria-label": `Turn ${turn.index + 1}, ${plain(turn.agent)}, reward ${signed(reward)}` },
    h(
      "div",
      { class: "who" },
      h("span", { class: "number" }, `${turn.index + 1}`),
      h("strong", { class: "name" }, inline(turn.agent)),
      h("span", { class: "note" }, inline(seats[turn.agent] ?? turn.policy)),
      turn.prompt_tokens || turn.completion_tokens ? h("span", { class: "note" }, `${number(turn.prompt_tokens, 0)} → ${count(turn.completion_tokens, "token")}`) : null,
      turn.latency_s ? h("span", { class: "note" }, seconds(turn.latency_s)) : null,
      turn.finish_reason === "length" && h("span", { class: "badge warning" }, "cut off"),
      turn.invalid !== null && h("span", { class: "badge failure" }, "invalid"),
    ),
    h("div", { class: "prompt", role: "group", "aria-label": "Prompt" }, promptView(shown, turn.agent, agents, actions)),
    h(
      "div",
      { class: "answer", role: "group", "aria-label": "Action" },
      h("div", { class: "caption" }, "Action"),
      blank(turn.action) ? h("p", { class: "note" }, turn.action ? "(blanks only)" : "(nothing was written)") : written(turn.action),
      turn.invalid !== null && h("div", { class: "refusal", role: "note" }, h("strong", {}, "Refused: "), inline(turn.invalid, 2000)),
      chips("Reward", Object.entries(turn.reward_parts).map(([name, value]) => [name, signed(value), value < 0 ? "minus" : value > 0 ? "plus" : ""])),
      trained && chips("Training", [turn.advantage === undefined ? ["not trained on", "", ""] : ["advantage", signed(turn.advantage), ""]]),
      chips("Said by the environment", Object.entries(turn.info).map(([name, value]) => [name, told(value), ""])),
    ),
  );
}

function chips(label, items) {
  if (!items.length) return null;
  return h("ul", { class: "chips", "aria-label": label }, items.map(([name, value, kind]) => h(
    "li",
    { class: kind },
    h("span", { class: "key" }, inline(name)),
    " ",
    typeof value === "string" ? inline(value, 400) : value,
  )));
}

function told(value) {
  if (typeof value === "number") return number(value, 4);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function promptView({ same, fresh, again }, agent, agents, actions) {
  return [
    same && repeated(same, "As before"),
    !blank(fresh) ? h("div", { class: "caption" }, same ? "New in the prompt" : "Prompt") : null,
    promptParts(fresh, agent, agents, actions).map((part) => partView(part, agents)),
    again && repeated(again, "Instructions as before"),
  ];
}

// What was there before is made only when somebody wants to see it.
function repeated(text, name) {
  const box = h("details", { class: "same" }, h("summary", {}, `${name}: ${count(text.split("\n").length - 1 || 1, "line")}`));
  box.addEventListener("toggle", () => box.append(block(text)), { once: true });
  return box;
}

function partView(part, agents) {
  if (part.kind === "said") {
    const name = h("strong", { class: hue(agents, part.title) }, inline(part.title));
    if (part.index !== undefined) {
      const box = h("details", { class: "same" }, h("summary", {}, name, ` in turn ${part.index + 1}: ${count(part.text.split("\n").length, "line")}`));
      box.addEventListener("toggle", () => box.append(written(part.text)), { once: true });
      return box;
    }
    return h("div", { class: "part" }, h("div", { class: "caption" }, name), written(part.text));
  }
  if (part.kind === "passages") return passagesView(part);
  if (part.kind === "output") return h("div", { class: "part output" }, h("div", { class: "caption" }, "Output of the program"), block(part.text));
  const pieces = withBoards(part.text).map((piece) => (piece.board ? boardFigure(piece.board, piece.text) : block(strip(piece.text))));
  return part.kind === "note" ? h("div", { class: "part" }, h("div", { class: "caption" }, inline(part.title)), pieces) : pieces;
}

function passagesView(part) {
  const found = passages(part.text);
  return h(
    "div",
    { class: "part passages" },
    h("div", { class: "caption" }, "Passages for ", h("q", {}, inline(part.title))),
    found ? h("ol", {}, found.map(({ title, text }) => h("li", {}, h("strong", {}, inline(title)), block(text)))) : block(part.text),
  );
}

// What an agent wrote: prose as it stands, fenced code as code.
export function written(text) {
  return fences(text).map((part) => (part.kind === "prose" ? block(strip(part.text)) : h(
    "div",
    { class: "part code" },
    h("div", { class: "caption" }, part.language || "code"),
    block(part.text, { dir: "ltr" }),
  )));
}

