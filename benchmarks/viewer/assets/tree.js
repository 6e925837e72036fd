// The candidates of an AT-GRPO rollout: one line a turn, its candidates side by side, the chosen one leading on.

import { h, replace, s, signed } from "./dom.js";
import { inline, plain } from "./text.js";

const BEGINNING = 120; // characters of a candidate that its box shows

const reward = (turn) => Object.values(turn.reward_parts).reduce((sum, value) => sum + value, 0);

// show(turn) gives the content for the candidate that is looked at.
export function treeView(record, show) {
  const rows = levels(record.turns);
  const detail = h("ol", { class: "turns", "aria-live": "polite" });
  const items = rows.map((row, depth) => row.map((turn) => item(turn, row, depth)));
  let at = { depth: 0, place: Math.max(0, rows[0]?.findIndex((turn) => turn.chosen !== false) ?? 0) };

  const select = (depth, place, focus = true) => {
    items[at.depth][at.place].tabIndex = -1;
    items[at.depth][at.place].setAttribute("aria-selected", "false");
    at = { depth, place };
    const element = items[depth][place];
    element.tabIndex = 0;
    element.setAttribute("aria-selected", "true");
    if (focus) element.focus();
    replace(detail, show(rows[depth][place]));
  };

  const onkey = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    let { depth, place } = at;
    if (event.key === "ArrowLeft") place -= 1;
    else if (event.key === "ArrowRight") place += 1;
    else if (event.key === "ArrowUp") depth -= 1;
    else if (event.key === "ArrowDown") depth += 1;
    else if (event.key === "Home") place = 0;
    else if (event.key === "End") place = rows[depth].length - 1;
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (!rows[depth]) return;
    if (depth !== at.depth) place = Math.max(0, rows[depth].findIndex((turn) => turn.chosen !== false));
    if (rows[depth][place]) select(depth, place);
  };

  items.flat().forEach((element) => {
    const depth = items.findIndex((row) => row.includes(element));
    element.addEventListener("click", () => select(depth, items[depth].indexOf(element)));
  });
  if (!rows.length) return h("p", { class: "note" }, "No turn was played.");
  select(at.depth, at.place, false);
  const lines = items.map((row, depth) => h(
    "div",
    { class: "level", role: "presentation" },
    depth ? links(rows[depth - 1], rows[depth]) : null,
    h("div", { class: "turn-name", role: "presentation" }, `${depth + 1} `, inline(rows[depth][0].agent)),
    h("div", { class: "candidates", role: "presentation", style: { "grid-template-columns": `repeat(${row.length}, minmax(0, 1fr))` } }, row),
  ));
  return h(
    "div",
    { class: "tree-view" },
    h("p", { class: "note" }, `Each candidate with the reward of its one step${record.update === undefined ? "" : ", the advantage A that it was trained with,"} and how its text begins; the framed one was chosen and leads on. ← → among candidates, ↑ ↓ among turns.`),
    h("div", { class: "scroll" }, h("div", { class: "tree", role: "tree", "aria-label": "Candidates by turn", onkeydown: onkey }, lines)),
    detail,
  );
}

// Turns by their place in the episode, siblings in the order of their candidates.
function levels(turns) {
  const found = new Map();
  for (const turn of turns) {
    if (!found.has(turn.index)) found.set(turn.index, []);
    found.get(turn.index).push(turn);
  }
  return [...found.entries()].sort(([a], [b]) => a - b).map(([, row]) => row.sort((a, b) => (a.candidate ?? 0) - (b.candidate ?? 0)));
}

function item(turn, row, depth) {
  const value = reward(turn);
  const best = Math.max(...row.map(reward));
  const worst = Math.min(...row.map(reward));
  const share = best > worst ? (value - worst) / (best - worst) : 0.5;
  const chosen = turn.chosen !== false;
  const k = (turn.candidate ?? 0) + 1;
  const told = [
    `Turn ${depth + 1}, ${plain(turn.agent)}, candidate ${k} of ${row.length}, reward ${signed(value)}`,
    turn.advantage !== undefined && `advantage ${signed(turn.advantage)}`,
    chosen && "chosen",
    turn.invalid !== null && "invalid",
  ];
  return h(
    "div",
    {
      class: `candidate ${chosen ? "chosen" : ""}`, role: "treeitem", tabindex: "-1", "aria-level": depth + 1, "aria-posinset": k,
      "aria-setsize": row.length, "aria-selected": "false", "aria-label": told.filter(Boolean).join(", "),
    },
    h("span", { class: "worth" }, h("span", { class: "reward" }, signed(value)), turn.advantage !== undefined && h("span", { class: "small" }, `A ${signed(turn.advantage, 2)}`)),
    h("span", { class: "meter", style: { width: `${8 + 92 * share}%` } }),
    h("span", { class: "begins" }, inline(turn.action.replace(/\s+/g, " ").trim() || "(nothing)", BEGINNING)),
    h("span", { class: "small" }, [chosen && "chosen", turn.invalid !== null && "invalid"].filter(Boolean).join(", ")),
  );
}

// Lines from the chosen candidate above to all candidates below.
function links(above, below) {
  const from = (100 * (above.findIndex((turn) => turn.chosen !== false) + 0.5)) / above.length;
  return s(
    "svg",
    { class: "links", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" },
    below.map((turn, k) => s("line", {
      x1: from, y1: 0, x2: (100 * (k + 0.5)) / below.length, y2: 20, class: turn.chosen !== false ? "on" : "off",
      "vector-effect": "non-scaling-stroke",
    })),
  );
}
