// Two runs on the same tasks: where they differ, and both episodes of a task side by side.

import { count, h, number, replace, signed } from "./dom.js";
import { badge, episodeView } from "./episode.js";
import { heading, outcomesOf, ROW_HEIGHT, seatsOf } from "./episodes.js";
import { ERROR, returnOf, shortName, statusOf } from "./filters.js";
import { VirtualList } from "./list.js";
import { inline, plain } from "./text.js";

const KINDS = {
  all: "all pairs",
  differ: "outcomes differ",
  first: "only the first solved it",
  second: "only the second solved it",
  both: "both solved it",
  neither: "neither solved it",
};

export class CompareView {
  constructor(app, one, two) {
    this.app = app;
    this.numbers = [one, two];
    this.runs = this.numbers.map((n) => app.store.runs[n]);
    this.pairs = pair(...this.runs);
    this.list = new VirtualList({ label: "Pairs of episodes", rowHeight: ROW_HEIGHT, render: (p) => this.row(this.pairs[p]), open: (p) => app.go({ pair: p }) });
    this.detail = h("div", { class: "detail wide", role: "region", "aria-label": "Both episodes" });
    this.found = h("p", { class: "found", role: "status" });
    const runs = app.store.runs.map((run, n) => [n, plain(shortName(run), 60)]).filter(([n]) => app.store.runs[n].columns.id.length);
    const select = (key, value, label, options) => h(
      "label",
      {},
      h("span", {}, label),
      h("select", { value, onchange: (event) => app.go({ [key]: event.target.value, pair: undefined }) }, options.map(([n, name]) => h("option", { value: n, selected: String(n) === String(value) }, name))),
    );
    this.kind = h("select", { onchange: (event) => app.go({ kind: event.target.value }, { replace: true }) }, Object.entries(KINDS).map(([key, name]) => h("option", { value: key }, name)));
    this.element = h(
      "div",
      { class: "episodes compare" },
      h(
        "section",
        { class: "side", "aria-label": "Pairs of episodes" },
        h("div", { class: "finder" }, h("div", { class: "fields" }, select("run", one, "First run", runs), select("other", two, "Second run", runs), h("label", {}, h("span", {}, "Show"), this.kind))),
        this.table(),
        this.found,
        this.list.element,
      ),
      this.detail,
    );
    this.open = undefined;
  }

  update(route) {
    const kind = route.kind in KINDS ? route.kind : "all";
    this.kind.value = kind;
    const shown = this.pairs.map((_, p) => p).filter((p) => kind === "all" || kindsOf(this.runs, this.pairs[p]).includes(kind));
    this.shown = shown;
    this.list.set(shown);
    this.found.textContent = `${number(shown.length, 0)} of ${count(this.pairs.length, "pair")}`;
    const p = route.pair === undefined ? null : Number(route.pair);
    if (p !== this.open) this.show(p);
  }

  // How often which of the two solved the task.
  table() {
    const changed = this.pairs.filter((one) => one.changed).length;
    const counted = Object.fromEntries(["both", "first", "second", "neither"].map((kind) => [kind, 0]));
    for (const one of this.pairs) for (const kind of kindsOf(this.runs, one)) if (kind in counted) counted[kind] += 1;
    const unsaid = this.runs.some((run) => run.zero_sum || run.columns.tree.some(Boolean));
    return [
      changed > 0 && h("p", { class: "refusal", role: "note" }, `${count(changed, "task")} of the same name differ in content between the two runs.`),
      !this.pairs.length && h("p", { class: "refusal", role: "note" }, "The two runs have no task and sample in common."),
      !unsaid && this.pairs.length > 0 && h(
        "table",
        { class: "cross", "aria-label": "Episodes by who solved them" },
        h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "second ✓"), h("th", { scope: "col" }, "second ✗"))),
        h("tbody", {}, h("tr", {}, h("th", { scope: "row" }, "first ✓"), h("td", {}, number(counted.both, 0)), h("td", {}, number(counted.first, 0))), h("tr", {}, h("th", { scope: "row" }, "first ✗"), h("td", {}, number(counted.second, 0)), h("td", {}, number(counted.neither, 0)))),
      ),
    ];
  }

  row({ at, changed }) {
    const [run] = this.runs;
    const side = (i) => h("span", { class: "pair" }, badge(statusOf(this.runs[i], at[i]), this.runs[i].columns.tree[at[i]]), ` ${signed(returnOf(this.runs[i], "", at[i]), 2)}`);
    return [
      h("div", { class: "first" }, h("span", { class: "task" }, heading(run, at[0])), changed && h("span", { class: "badge warning" }, "task differs")),
      h("div", { class: "second" }, side(0), side(1)),
    ];
  }

  async show(p) {
    this.open = p;
    this.element.classList.toggle("open", p !== null);
    this.list.show(p);
    if (p === null || !this.pairs[p]) {
      replace(this.detail, h("p", { class: "note empty" }, "Choose a pair: arrow keys or j and k, then Enter."));
      this.list.element.focus({ preventScroll: true });
      return;
    }
    const { at } = this.pairs[p];
    let content;
    try {
      const records = await Promise.all(at.map((n, i) => this.app.store.episode(this.numbers[i], n)));
      content = h("div", { class: "beside" }, records.map((record, i) => h(
        "section",
        { "aria-label": `${i ? "Second" : "First"} run` },
        h("p", { class: "run-name" }, h("strong", {}, i ? "Second: " : "First: "), inline(this.runs[i].name)),
        episodeView(record, { title: heading(this.runs[i], at[i]), status: statusOf(this.runs[i], at[i]), seats: seatsOf(this.runs[i], at[i]), outcomes: outcomesOf(this.runs[i], at[i]) }),
      )));
    } catch (problem) {
      content = h("p", { class: "refusal", role: "alert" }, `The episodes cannot be shown: ${problem.message}`);
    }
    if (this.open !== p) return;
    const button = (label, shortcut, act) => h("button", { type: "button", onclick: act, "aria-keyshortcuts": shortcut, title: `Shortcut: ${shortcut}` }, label);
    replace(
      this.detail,
      h("div", { class: "bar", role: "toolbar", "aria-label": "Pair" }, button("← List", "Escape", () => this.app.go({ pair: undefined })), button("Previous", "p", () => this.step(-1)), button("Next", "n", () => this.step(1))),
      content,
    );
    this.detail.scrollTop = 0;
    this.detail.querySelector(".title")?.focus({ preventScroll: true });
  }

  step(by) {
    const at = this.shown.indexOf(this.open);
    const next = this.shown[at < 0 ? 0 : at + by];
    if (next !== undefined) this.app.go({ pair: next });
  }
}

// Episodes of the same task and sample, of training runs where possible of the same update too; of one run with itself,
// neighbouring samples of a task.
function pair(one, two) {
  const found = [];
  if (one === two) {
    const last = new Map();
    one.columns.task.forEach((task, n) => {
      if (last.has(task)) found.push({ at: [last.get(task), n], changed: false });
      last.set(task, n);
    });
    return found;
  }
  const places = new Map();
  two.columns.id.forEach((id, n) => {
    if (!places.has(id)) places.set(id, []);
    places.get(id).push(n);
  });
  one.columns.id.forEach((id, n) => {
    const others = places.get(id) ?? [];
    const other = others.find((at) => two.columns.update[at] === one.columns.update[n]) ?? others[0];
    if (other !== undefined) found.push({ at: [n, other], changed: one.columns.hash[n] !== two.columns.hash[other] });
  });
  return found;
}

function kindsOf(runs, { at }) {
  const [one, two] = at.map((n, i) => statusOf(runs[i], n));
  const solved = at.map((n, i) => runs[i].columns.status[n] === 1);
  const failed = at.some((n, i) => runs[i].columns.status[n] === ERROR);
  const kinds = one === two ? [] : ["differ"];
  if (!failed) kinds.push(solved[0] ? (solved[1] ? "both" : "first") : solved[1] ? "second" : "neither");
  return kinds;
}
