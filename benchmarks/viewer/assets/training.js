// The curves of a training run.

import { h, replace } from "./dom.js";
import { curves } from "./lines.js";
import { inline, plain } from "./text.js";
import { shortName } from "./filters.js";

const PANELS = [
  ["Success", ["train/success", "eval/success", "train/path_success"], "", "of the batch, and of held-out tasks"],
  ["Return", ["train/team_return"], "return", "of the team, and by agent"],
  ["Gradient norm", [], "grad_norm", "before clipping, by agent"],
  ["Inflation factor", [], "inflation", "Dr. MAS, lemma 4.2, by agent"],
  ["Invalid actions", [], "invalid", "share, by agent"],
  ["Answer length", [], "length", "tokens, by agent"],
];

// numbers: the runs whose curves are drawn, each in every panel.
export function training(runs) {
  const named = runs.length > 1;
  const names = [...new Set(runs.flatMap((run) => run.metrics.flatMap(Object.keys)))].filter((name) => name !== "update").sort();
  const series = (metrics) => runs.flatMap((run) => metrics.map((metric) => ({
    name: named ? `${shortName(run)}: ${short(metric)}` : short(metric),
    points: run.metrics.filter((row) => metric in row).map((row) => [row.update, row[metric]]),
  }))).filter(({ points }) => points.some(([, value]) => value !== null));
  const panels = PANELS.map(([title, shared, own, note]) => {
    const metrics = [...shared, ...(own ? names.filter((name) => new RegExp(`^agent/[^/]+/${own}$`).test(name)) : [])];
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
    names.length ? [h("div", { class: "plots" }, panels), h("label", { class: "choice" }, h("span", {}, "Another metric"), choice), other] : h("p", { class: "note" }, "No update is logged yet."),
  );
}

// A panel has one metric of each agent, so the agent's name tells its curves apart.
function short(metric) {
  const [group, name] = metric.split("/");
  if (group === "agent") return name;
  return (group === "eval" ? `held-out ${name}` : (name ?? group)).replaceAll("_", " ");
}
