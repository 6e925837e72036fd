// The curves of a training run, and the way to what it was trained on.

import { count, h, replace } from "./dom.js";
import { curves } from "./lines.js";
import { inline, plain } from "./text.js";
import { shortName, updatesOf } from "./filters.js";

// A panel: title, metrics of the run, metrics of each agent (the part of the name after it), and what it shows.
const PANELS = [
  ["Success", ["train/success", "eval/success"], [], "of the batch, and of held-out tasks"],
  ["Success of tree paths", ["train/path_success"], [], "not how the policies play: each path was chosen by reward among candidates"],
  ["Against the opponent", ["eval/win", "eval/draw", "eval/loss", "eval/forfeit"], [], "share of the evaluation games; forfeits are losses too"],
  ["Return", ["train/team_return", "eval/team_return"], ["return"], "of the team, and by agent"],
  ["Gradient norm", [], ["grad_norm"], "before clipping, by agent"],
  ["Inflation factor", [], ["inflation"], "Dr. MAS, lemma 4.2, by agent"],
  ["Entropy", [], ["entropy"], "nats a token, by agent"],
  ["Invalid actions", [], ["invalid"], "share, by agent"],
  ["Answer length", [], ["length"], "tokens, by agent"],
];

// runs: those whose curves are drawn, each in every panel. openUpdate(run, update) shows what was recorded of an update.
export function training(runs, { openUpdate }) {
  const named = runs.length > 1;
  const names = [...new Set(runs.flatMap((run) => run.metrics.flatMap(Object.keys)))].filter((name) => name !== "update").sort();
  // Colours tell metrics apart, dashes runs.
  const series = (metrics) => runs.flatMap((run, dash) => metrics.map((metric, colour) => ({
    name: named ? `${shortName(run)}: ${short(metric)}` : short(metric),
    points: run.metrics.filter((row) => metric in row).map((row) => [row.update, row[metric]]),
    colour,
    dash,
  }))).filter(({ points }) => points.some(([, value]) => value !== null));
  const panels = PANELS.map(([title, shared, own, note]) => {
    const metrics = [...shared, ...own.flatMap((part) => names.filter((name) => /^agent\/[^/]+\//.test(name) && name.split("/").slice(2).join("/") === part))];
    const found = series(metrics);
    return found.length ? curves(title, found, { note }) : null;
  });
  const other = h("div", { class: "plots" });
  const choice = h(
    "select",
    { onchange: () => replace(other, choice.value && curves(choice.value, series([choice.value]))) },
    h("option", { value: "" }, "choose one of all metrics"),
    names.map((name) => h("option", { value: name }, plain(name))),
  );
  return h(
    "div",
    { class: "page" },
    h("h2", { class: "title", tabindex: "-1" }, "Training: ", runs.map((run, i) => [i ? ", " : "", inline(run.name, 300)])),
    runs.map((run) => run.stopped && h("p", { class: "refusal", role: "note" }, h("strong", {}, named ? [inline(shortName(run)), " stopped itself"] : "The run stopped itself", ` in update ${run.stopped.update}. `), inline(`${run.stopped.error}: ${run.stopped.message}`, 2000))),
    runs.map((run) => recorded(run, named, openUpdate)),
    names.length ? [h("div", { class: "plots" }, panels), h("label", { class: "choice" }, h("span", {}, "Another metric"), choice), other] : h("p", { class: "note" }, "No update is logged yet."),
  );
}

// Where the episodes of an update are.
function recorded(run, named, openUpdate) {
  const updates = updatesOf(run);
  if (!updates.length) return null;
  const what = run.columns.tree.some(Boolean) ? "tree" : "episode";
  const counts = new Map();
  for (const update of run.columns.update) counts.set(update, (counts.get(update) ?? 0) + 1);
  const choice = h(
    "select",
    { onchange: () => choice.value && openUpdate(run, choice.value) },
    h("option", { value: "" }, "choose an update"),
    updates.map((update) => h("option", { value: update }, `update ${update}: ${count(counts.get(update), what)}`)),
  );
  return h("label", { class: "choice" }, h("span", {}, named ? ["What ", inline(shortName(run)), " was trained on in"] : "What it was trained on in"), choice);
}

// A panel has one metric of each agent, so the agent's name tells its curves apart.
function short(metric) {
  const [group, name] = metric.split("/");
  if (group === "agent") return name;
  const games = ["win", "draw", "loss", "forfeit"].includes(name);
  return (group === "eval" && !games ? `held-out ${name}` : (name ?? group)).replaceAll("_", " ");
}
