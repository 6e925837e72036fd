// A run as a whole: what it is, how it went, and where tokens and time went.

import { count, h, number, percent, replace, seconds, signed } from "./dom.js";
import { bars, dataTable, histograms, intervals } from "./charts.js";
import { inline } from "./text.js";
import { ERROR, returnOf } from "./filters.js";

const estimate = (value) => `${percent(value.value)} [${value.interval.map((end) => (100 * end).toFixed(1)).join(", ")}]`;

const row = (label, value) => ({ label, value: value.value, low: value.interval[0], high: value.interval[1], text: estimate(value) });

export function overview(run, loadSummary, { openStatus }) {
  const headline = h("div", { class: "headline" });
  loadSummary().then(
    (summary) => replace(headline, standing(summary), headlinePlots(run, summary)),
    (problem) => replace(headline, h("p", { class: "refusal" }, String(problem.message))),
  );
  const agents = Object.entries(run.agents);
  return h(
    "div",
    { class: "page" },
    h("h2", { class: "title", tabindex: "-1" }, inline(run.name, 300)),
    about(run),
    run.columns.id.length ? [tiles(run, openStatus), h("div", { class: "plots" }, headline, plots(run, agents))] : h("p", { class: "note" }, "No episode is stored yet."),
    run.config && settings(run.config),
  );
}

function about(run) {
  const protocol = run.protocol && `protocol ${run.protocol.name} (${run.protocol.run})`;
  const facts = [run.env, run.policy, protocol, run.tasks].filter(Boolean);
  return h("p", { class: "facts" }, facts.map((text) => h("span", {}, inline(text))));
}

function tiles(run, openStatus) {
  const { status, turns, invalid, tokens_out: tokens, wall_s: wall } = run.columns;
  const n = status.length;
  const sum = (values) => values.reduce((total, value) => total + (value ?? 0), 0);
  const errors = status.filter((value) => value === ERROR).length;
  const solved = status.filter((value) => value === 1).length;
  const played = n - errors;
  const all = sum(turns);
  const planned = run.planned === null || run.planned === played ? "" : ` of ${number(run.planned, 0)}`;
  const timed = wall.filter((value) => value !== null);
  const found = [
    ["episodes", `${number(played, 0)}${planned}`, "all"],
    run.zero_sum || run.kind === "training" || run.columns.tree.some(Boolean) ? null : ["success", played ? percent(solved / played) : "–", "success"],
    ["errors", number(errors, 0), "error"],
    ["turns an episode", number(n ? all / n : null)],
    ["invalid actions", all ? percent(sum(invalid) / all) : "–", "invalid"],
    sum(tokens) > 0 && ["tokens written an episode", number(sum(tokens) / n, 0)],
    timed.length > 0 && ["time an episode", seconds(sum(timed) / timed.length)],
  ].filter(Boolean);
  return h("dl", { class: "tiles" }, found.map(([name, value, target]) => h(
    "div",
    {},
    h("dt", {}, name),
    h("dd", {}, target ? h("button", { type: "button", class: "link", onclick: () => openStatus(target), "aria-label": `${value} ${name}: list them` }, value) : value),
  )));
}

// Whether somebody is playing it, or it ended before its end.
function standing(summary) {
  if (!summary || summary.state === "complete") return null;
  const missing = `${number(summary.planned - summary.episodes, 0)} of ${number(summary.planned, 0)}`;
  const process = summary.writer ? `process ${summary.writer}` : "another process";
  const text = {
    running: `Being played: ${process} was writing it when it was read; ${missing} are to come.`,
    killed: `Not complete: ${process} was killed, or its machine went down; ${missing} are missing. --resume plays them.`,
    stopped: `Not complete: ${missing} are missing. --resume plays them.`,
  }[summary.state];
  return h("p", { class: "note" }, text);
}

function headlinePlots(run, summary) {
  if (run.kind === "training") {
    const updates = [...new Set(run.columns.update)].filter((update) => update !== null);
    return h("p", { class: "note" }, `These episodes were recorded in ${count(updates.length, "update")} of a training run, between which the policies changed, so their success has no single value; see its curves.${run.columns.tree.some(Boolean) ? " They are trees, whose paths were chosen by reward." : ""}`);
  }
  if (run.columns.tree.some(Boolean)) {
    return h("p", { class: "note" }, "These are trees: their path was chosen by reward among several candidates, so their success says nothing about how a policy plays.");
  }
  if (summary?.players) return tournament(summary);
  const outcomes = summary?.outcomes;
  if (outcomes) {
    return ["wins", "draws", "losses", "forfeits"].map((name) => intervals(
      name[0].toUpperCase() + name.slice(1),
      Object.entries(outcomes).map(([agent, found]) => row(`${agent} (${summary.agents[agent].policy || "–"})`, found[name])),
      { note: "share of the games, 95 % intervals" },
    ));
  }
  const found = [];
  if (summary?.avg_at_k) found.push(row(`avg@${summary.samples ?? "k"}`, summary.avg_at_k));
  for (const [k, value] of Object.entries(summary?.pass_at_k ?? {})) if (value && k !== "1") found.push(row(`pass@${k}`, value));
  if (!found.length && run.success) found.push(row("success", run.success));
  return [
    found.length && intervals("Success", found, { note: "95 % intervals" }),
    run.difficulty.length > 0 && intervals(
      "Success by difficulty of the task",
      run.difficulty.map((level) => row(`${span(level)} (${count(level.episodes, "episode")})`, level)),
      { note: "as the environment measures it, 95 % intervals", head: ["difficulty", "mean", "95 % interval"] },
    ),
  ];
}

const span = ({ from, to }) => (from === to ? number(from) : `${number(from)} to ${number(to)}`);

function tournament(summary) {
  const head = ["player", "Elo", "95 % interval", "score", "games", "wins", "draws", "losses", "forfeits"];
  const rows = Object.entries(summary.players).map(([name, player]) => [
    name,
    signed(player.elo?.value ?? null, 0),
    player.elo ? `[${player.elo.interval.map((end) => signed(end, 0)).join(", ")}]` : "–",
    player.score ? estimate(player.score) : "–",
    ...["games", "wins", "draws", "losses", "forfeits"].map((key) => number(player[key], 0)),
  ]);
  return h("figure", { class: "plot", "aria-label": "Ratings" }, h("figcaption", {}, "Ratings"), dataTable({ head, rows }, "Ratings"));
}

function plots(run, agents) {
  const fixed = (value) => number(value);
  const n = run.columns.id.length;
  const played = run.columns.status.filter((value) => value !== ERROR).length;
  const perAgent = (column) => agents.map(([name, agent]) => ({ name, values: agent.columns[column] }));
  const total = (values) => values.reduce((all, value) => all + (value ?? 0), 0);
  const written = agents.map(([name, agent]) => [name, total(agent.columns.tokens_out) / n]);
  const timed = agents.filter(([, agent]) => agent.latency_s);
  return [
    played > 0 && bars("Reward parts by agent", agents.map(([label, agent]) => {
      const parts = Object.entries(agent.reward_parts).map(([name, value]) => ({ name, value: value / played }));
      return { label, text: signed(parts.reduce((all, part) => all + part.value, 0)), parts };
    }), { note: "means an episode; their sum is the return", format: (value) => signed(value), named: true }),
    played > 0 && histograms("Returns", perAgent("return"), { note: "episodes by the return of each agent", format: (value) => signed(value, 2) }),
    agents.length > 1 && played > 0 && !run.zero_sum && histograms("Mean return of the agents", [
      { name: "mean of the agents", values: run.columns.id.map((_, i) => returnOf(run, "", i)) },
    ], { note: "episodes by the mean over their agents", format: (value) => signed(value, 2) }),
    histograms("Turns", [{ name: "turns", values: run.columns.turns }], { note: "episodes by their number of turns", format: fixed, whole: true }),
    bars("Invalid actions by agent", agents.map(([label, agent]) => {
      const share = total(agent.columns.invalid) / (total(agent.columns.turns) || 1);
      return { label, text: percent(share), parts: [{ name: "invalid", value: share }] };
    }), { note: "share of the actions that were refused", format: percent, full: 1 }),
    run.reasons.length > 0 && h(
      "figure",
      { class: "plot", "aria-label": "Why actions were refused" },
      h("figcaption", {}, "Why actions were refused"),
      dataTable({ head: ["reason", "agent", "times"], rows: run.reasons.map(([agent, reason, times]) => [reason, agent, number(times, 0)]) }, "Why actions were refused"),
    ),
    written.some(([, value]) => value) && bars("Tokens written by agent", written.map(([label, value]) => ({
      label, text: number(value, 0), parts: [{ name: "tokens", value }],
    })), { note: "means an episode", format: (value) => number(value, 0) }),
    total(run.columns.tokens_out) > 0 && histograms("Tokens written", [{ name: "tokens", values: run.columns.tokens_out }], { note: "episodes by the tokens of all answers", format: (value) => number(value, 0), whole: true }),
    timed.length > 0 && bars("Seconds an answer took", timed.flatMap(([label, { latency_s: time }]) => [
      { label: `${label}, median`, text: seconds(time.median), parts: [{ name: "seconds", value: time.median }] },
      { label: `${label}, 90th percentile`, text: seconds(time.p90), parts: [{ name: "seconds", value: time.p90 }] },
    ]), { note: "waiting in a queue included", format: seconds }),
    run.columns.wall_s.some((value) => value !== null) && histograms("Duration", [{ name: "duration", values: run.columns.wall_s }], { note: "episodes by their duration", format: seconds }),
  ];
}

function settings(config) {
  const rows = [];
  const walk = (value, name) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      for (const [key, inner] of Object.entries(value)) walk(inner, name ? `${name}.${key}` : key);
    } else rows.push([name, typeof value === "string" ? value : JSON.stringify(value)]);
  };
  walk(config, "");
  return h("details", { class: "settings" }, h("summary", {}, "Settings of this run"), dataTable({ head: ["setting", "value"], rows }, "Settings of this run"));
}
