// Which episodes are shown, and in which order. Works on the index alone; a text search gives its hits as a set.

export const ERROR = 2;

export const NO_FILTER = { status: "all", agent: "", update: "", invalid: "", min: "", max: "", q: "", sort: "order" };

const SORTS = {
  order: ["as stored", null],
  "return-up": ["return, lowest first", (run, f) => (n) => returnOf(run, f.agent, n)],
  "return-down": ["return, highest first", (run, f) => (n) => -returnOf(run, f.agent, n)],
  turns: ["most turns first", (run) => (n) => -run.columns.turns[n]],
  tokens: ["most tokens first", (run) => (n) => -run.columns.tokens_out[n]],
  slow: ["slowest first", (run) => (n) => -(run.columns.wall_s[n] ?? -1)],
  invalid: ["most invalid actions first", (run) => (n) => -run.columns.invalid[n]],
};

export const sorts = () => Object.entries(SORTS).map(([key, [name]]) => [key, name]);

// The statuses that a run can be filtered by.
export function statuses(run) {
  const found = run.zero_sum
    ? [["win", "win"], ["draw", "draw"], ["loss", "loss"], ["forfeit", "forfeit"]]
    : [["success", "success"], ["failure", "failure"]];
  return [["all", "all"], ...found, ["error", "error"]];
}

// The agent that outcomes and returns are of: in a game somebody's, elsewhere the team's unless one is chosen ("").
export const pointOfView = (run, agent) => agent || (run.zero_sum ? (Object.keys(run.agents)[0] ?? "") : "");

// The return of an agent, or the mean over the agents; null where an episode failed.
export function returnOf(run, who, n) {
  const agent = pointOfView(run, who);
  if (agent) return run.agents[agent]?.columns.return[n] ?? null;
  let sum = 0;
  let agents = 0;
  for (const { columns } of Object.values(run.agents)) {
    const value = columns.return[n];
    if (value === null) continue;
    sum += value;
    agents += 1;
  }
  return agents ? sum / agents : null;
}

// The updates of a training run that episodes were recorded in, in order.
export const updatesOf = (run) => [...new Set(run.columns.update)].filter((update) => update !== null);

// What an episode ended with for a person to read: success, failure, error, or of a game how it went for an agent.
export function statusOf(run, n, agent = "") {
  if (run.columns.status[n] === ERROR) return "error";
  if (!run.zero_sum) return run.columns.status[n] ? "success" : "failure";
  return run.agents[pointOfView(run, agent)]?.columns.outcome[n] ?? "failure";
}

// Numbers of the episodes that pass, in order. `hits` is what a text search found, or null where there is none.
export function select(run, filter, hits) {
  const { columns, agents } = run;
  const min = filter.min === "" ? -Infinity : Number(filter.min);
  const max = filter.max === "" ? Infinity : Number(filter.max);
  const ranged = filter.min !== "" || filter.max !== "";
  const own = agents[filter.agent]?.columns;
  const found = [];
  for (let n = 0; n < columns.id.length; n += 1) {
    if (hits && !hits.has(n)) continue;
    if (own && own.turns[n] === null) continue;
    if (filter.update && String(columns.update[n]) !== filter.update) continue;
    if (filter.invalid && !(own ? own.invalid[n] : columns.invalid[n])) continue;
    if (filter.status !== "all" && !hasStatus(run, n, filter, own)) continue;
    if (ranged) {
      const value = returnOf(run, filter.agent, n);
      if (value === null || value < min || value > max) continue;
    }
    found.push(n);
  }
  const key = (SORTS[filter.sort] ?? SORTS.order)[1]?.(run, filter);
  if (key) found.sort((a, b) => key(a) - key(b) || a - b);
  return found;
}

function hasStatus(run, n, filter, own) {
  if (filter.status !== "forfeit") return statusOf(run, n, filter.agent) === filter.status;
  return own ? Boolean(own.forfeit[n]) : Object.values(run.agents).some(({ columns }) => columns.forfeit[n]);
}

// The name of a run that is short enough for a tab.
export function shortName(run) {
  const parts = run.name.split("/").filter(Boolean);
  return parts.at(-1) ?? run.name;
}
