// All runs at once: what each is and how it went, one row a run.

import { h, number, percent, replace, signed } from "./dom.js";
import { dataTable, intervals } from "./charts.js";
import { shortName } from "./filters.js";
import { inline, plain } from "./text.js";

const interval = (value) => `[${value.interval.map((end) => (100 * end).toFixed(1)).join(", ")}]`;

const row = (label, value) => ({ label, value: value.value, low: value.interval[0], high: value.interval[1], text: `${percent(value.value)} ${interval(value)}` });

export function allRuns(runs, loadSummary, { openRun }) {
  const page = h("div", { class: "page" }, h("h2", { class: "title", tabindex: "-1" }, "All runs"), h("p", { class: "note" }, "Reading the runs …"));
  Promise.all(runs.map((_, n) => loadSummary(n).catch((problem) => ({ problem })))).then((summaries) => {
    const all = runs.map((run, n) => ({ run, n, label: plain(shortName(run), 60), summary: summaries[n] ?? {} }));
    replace(page, h("h2", { class: "title", tabindex: "-1" }, "All runs"), table(all, openRun), h("div", { class: "plots" }, plots(all)));
  });
  return page;
}

function table(all, openRun) {
  const head = ["run", "result", "episodes", "environment", "policy", "turns", "tokens written"];
  const rows = all.map(({ run, n, label, summary }) => [
    h("button", { type: "button", class: "link", onclick: () => openRun(n), "aria-label": `Open ${label}` }, inline(label, 60)),
    result(summary),
    `${number(summary.episodes ?? run.columns.id.length, 0)}${run.planned === null ? "" : ` of ${number(run.planned, 0)}`}`,
    run.env,
    run.policy,
    number(summary.turns ?? null),
    number(summary.tokens_out ?? null, 0),
  ]);
  return dataTable({ head, rows }, "All runs");
}

// What came out, in words: ratings, wins, or success.
function result(summary) {
  if (summary.problem) return String(summary.problem.message);
  if (summary.players) {
    const ranked = Object.entries(summary.players).sort((a, b) => (b[1].elo?.value ?? 0) - (a[1].elo?.value ?? 0));
    return ranked.map(([name, player]) => `${name} ${signed(player.elo?.value ?? null, 0)}`).join(", ");
  }
  if (summary.outcomes) {
    return Object.entries(summary.outcomes).map(([agent, { wins, draws, losses }]) => `${agent} ${wins.count}/${draws.count}/${losses.count}`).join(", ");
  }
  if (!summary.avg_at_k) return "–";
  return `${percent(summary.avg_at_k.value)} ${interval(summary.avg_at_k)}`;
}

function plots(all) {
  const solved = all.filter(({ summary }) => summary.avg_at_k).map(({ label, summary }) => row(label, summary.avg_at_k));
  const won = all.flatMap(({ label, summary }) => Object.entries(summary.outcomes ?? {}).map(([agent, { wins }]) => row(`${label}: ${agent}`, wins)));
  return [
    solved.length > 0 && intervals("Success", solved, { note: "mean over tasks, 95 % intervals", head: ["run", "mean", "95 % interval"] }),
    won.length > 0 && intervals("Wins", won, { note: "share of the games, 95 % intervals", head: ["run and agent", "share", "95 % interval"] }),
  ];
}
