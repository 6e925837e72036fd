// The list of episodes with its filters, and beside it (or instead of it, where there is no room) the one that is open.

import { announce, count, h, number, replace, seconds, signed } from "./dom.js";
import { badge, episodeView } from "./episode.js";
import { ERROR, NO_FILTER, pointOfView, returnOf, select, sorts, statuses, statusOf, updatesOf } from "./filters.js";
import { VirtualList } from "./list.js";
import { inline, plain } from "./text.js";

export const ROW_HEIGHT = 58;
const TYPING_MS = 250;

// Who plays the agents of an episode, where that differs by episode: {agent: player}.
export function seatsOf(run, n) {
  const match = run.matches[run.columns.sample[n]];
  return match ? Object.fromEntries(Object.keys(run.agents).map((agent, i) => [agent, match[i]])) : {};
}

// How a game ended for each agent; nothing of an episode that is no game, or failed.
export function outcomesOf(run, n) {
  if (!run.zero_sum || run.columns.status[n] === ERROR) return {};
  return Object.fromEntries(Object.entries(run.agents).map(([agent, { columns }]) => [agent, columns.outcome[n] + (columns.forfeit[n] ? " (forfeit)" : "")]));
}

export function heading(run, n) {
  const update = run.columns.update[n];
  return [inline(run.columns.task[n]), h("span", { class: "sample" }, ` #${run.columns.sample[n]}${update === null ? "" : `, update ${update}`}`)];
}

export class EpisodesView {
  // app: {store, go(changes)}; number is the run's.
  constructor(app, number_) {
    this.app = app;
    this.number = number_;
    this.run = app.store.runs[number_];
    this.filter = { ...NO_FILTER };
    this.hits = null;
    this.shown = [];
    this.open = null;
    this.list = new VirtualList({
      label: "Episodes",
      rowHeight: ROW_HEIGHT,
      render: (n) => this.row(n),
      open: (n) => app.go({ ep: n }),
    });
    this.detail = h("div", { class: "detail", role: "region", "aria-label": "Episode" });
    this.found = h("p", { class: "found", role: "status" });
    this.fields = this.makeFields();
    this.element = h("div", { class: "episodes" }, h("section", { class: "side", "aria-label": "List of episodes" }, this.fields, this.found, this.list.element), this.detail);
  }

  // Show what the address says: filters, and an open episode or none.
  update(route) {
    const filter = Object.fromEntries(Object.keys(NO_FILTER).map((key) => [key, route[key] ?? NO_FILTER[key]]));
    if (!Object.keys(this.run.agents).includes(filter.agent)) filter.agent = "";
    if (!updatesOf(this.run).map(String).includes(filter.update)) filter.update = "";
    const asked = filter.q !== this.filter.q;
    this.filter = filter;
    for (const [key, input] of Object.entries(this.inputs)) {
      if (input.type === "checkbox") input.checked = filter[key] === "1";
      else if (document.activeElement !== input || input.tagName === "SELECT") input.value = filter[key];
    }
    const narrowed = Object.entries(filter).filter(([key, value]) => !["q", "sort"].includes(key) && value !== NO_FILTER[key]).length;
    this.more.textContent = narrowed ? `Filters and order (${narrowed} set)` : "Filters and order";
    if (asked) this.search();
    else this.refresh();
    const n = route.ep === undefined ? null : Number(route.ep);
    if (n !== this.open) this.show(n);
  }

  refresh() {
    this.shown = select(this.run, this.filter, this.hits);
    this.list.set(this.shown);
    const all = this.run.columns.id.length;
    this.found.textContent = `${number(this.shown.length, 0)} of ${count(all, "episode")}${this.run.zero_sum ? `, as ${plain(pointOfView(this.run, this.filter.agent))} sees them` : ""}${this.progress ?? ""}`;
  }

  async search() {
    this.running?.abort();
    this.progress = "";
    const { q } = this.filter;
    if (!q) {
      this.hits = null;
      this.refresh();
      return;
    }
    const control = new AbortController();
    this.running = control;
    this.hits = new Set();
    this.progress = ", searching …";
    this.refresh();
    let drawn = 0;
    try {
      await this.app.store.search(this.number, q, control.signal, (found, done) => {
        for (const n of found) this.hits.add(n);
        this.progress = done < 1 ? `, searching … ${Math.floor(100 * done)} %` : "";
        if (done < 1 && performance.now() - drawn < 200) return;
        this.refresh();
        drawn = performance.now();
      });
    } catch (problem) {
      if (control.signal.aborted) return;
      this.progress = `. The search failed: ${problem.message}`;
      this.refresh();
    }
  }

  async show(n) {
    this.open = n;
    this.element.classList.toggle("open", n !== null);
    this.list.show(n);
    if (n === null) {
      replace(this.detail, h("p", { class: "note empty" }, "Choose an episode: arrow keys or j and k, then Enter."));
      this.list.element.focus({ preventScroll: true });
      return;
    }
    if (!(n >= 0 && n < this.run.columns.id.length)) {
      replace(this.detail, this.bar(n), h("p", { class: "refusal" }, `This run has no episode ${n}.`));
      return;
    }
    const status = statusOf(this.run, n, this.filter.agent);
    let content;
    try {
      const record = await this.app.store.episode(this.number, n);
      content = episodeView(record, { title: heading(this.run, n), status, seats: seatsOf(this.run, n), outcomes: outcomesOf(this.run, n) });
    } catch (problem) {
      content = h("p", { class: "refusal", role: "alert" }, `The episode cannot be shown: ${problem.message}`);
    }
    if (this.open !== n) return; // another one was opened meanwhile
    replace(this.detail, this.bar(n), content);
    this.detail.scrollTop = 0;
    if (this.app.wide() === false) window.scrollTo(0, 0);
    this.detail.querySelector(".title")?.focus({ preventScroll: true });
    announce(`Episode ${n + 1} of ${this.run.columns.id.length}, ${status}`);
  }

  // The next or previous episode of the list.
  step(by) {
    const at = this.shown.indexOf(this.open);
    const next = this.shown[at < 0 ? 0 : at + by];
    if (next !== undefined) this.app.go({ ep: next });
  }

  bar(n) {
    const at = this.shown.indexOf(n);
    const button = (label, shortcut, act, off = false) => h("button", { type: "button", onclick: act, disabled: off, "aria-keyshortcuts": shortcut, title: `Shortcut: ${shortcut}` }, label);
    return h(
      "div",
      { class: "bar", role: "toolbar", "aria-label": "Episode" },
      button("← List", "Escape", () => this.app.go({ ep: undefined })),
      button("Previous", "p", () => this.step(-1), at === 0),
      button("Next", "n", () => this.step(1), at >= 0 && at === this.shown.length - 1),
      this.app.counterpart(this.number, n) !== null && button("Side by side", "b", () => this.app.beside(n)),
    );
  }

  row(n) {
    const { columns } = this.run;
    const value = returnOf(this.run, this.filter.agent, n);
    const seats = Object.values(seatsOf(this.run, n));
    const facts = [
      columns.update[n] === null ? null : `update ${columns.update[n]}`,
      value === null ? null : `${signed(value, 2)}`,
      count(columns.turns[n], "turn"),
      columns.tokens_out[n] ? `${number(columns.tokens_out[n], 0)} tok` : null,
      columns.wall_s[n] ? seconds(columns.wall_s[n]) : null,
    ];
    return [
      h("div", { class: "first" }, badge(statusOf(this.run, n, this.filter.agent), columns.tree[n]), h("span", { class: "task" }, inline(columns.task[n])), h("span", { class: "sample" }, `#${columns.sample[n]}`), columns.invalid[n] ? h("span", { class: "badge warning" }, `${columns.invalid[n]} invalid`) : null),
      h("div", { class: "second" }, h("span", { class: "figures" }, facts.filter(Boolean).join(" · ")), h("span", { class: "excerpt" }, inline(this.excerpt(n, seats), 90))),
    ];
  }

  excerpt(n, seats) {
    const { columns } = this.run;
    if (columns.status[n] === ERROR) return columns.error[n];
    return (seats.length ? `${seats.join(" – ")} ` : "") + columns.last[n].replace(/\s+/g, " ");
  }

  makeFields() {
    const set = (key, value) => this.app.go({ [key]: value === NO_FILTER[key] ? undefined : value }, { replace: true });
    const choice = (key, options) => h("select", { onchange: (event) => set(key, event.target.value) }, options.map(([value, name]) => h("option", { value }, name)));
    const amount = (key) => h("input", { type: "number", step: "any", oninput: (event) => set(key, event.target.value) });
    const agents = Object.keys(this.run.agents);
    const updates = updatesOf(this.run);
    let typing;
    this.inputs = {
      q: h("input", {
        type: "search", placeholder: "Search all texts", "aria-label": "Search all texts", "aria-keyshortcuts": "/", maxlength: 1000,
        oninput: (event) => {
          clearTimeout(typing);
          typing = setTimeout(() => set("q", event.target.value), TYPING_MS);
        },
        onkeydown: (event) => {
          if (event.key !== "Enter" && event.key !== "ArrowDown") return;
          event.preventDefault();
          clearTimeout(typing);
          set("q", event.target.value);
          this.list.element.focus();
        },
      }),
      status: choice("status", statuses(this.run)),
      agent: choice("agent", [["", "any agent"], ...agents.map((agent) => [agent, plain(agent)])]),
      ...(updates.length && { update: choice("update", [["", "any update"], ...updates.map((update) => [update, `update ${update}`])]) }),
      min: amount("min"),
      max: amount("max"),
      invalid: h("input", { type: "checkbox", onchange: (event) => set("invalid", event.target.checked ? "1" : "") }),
      sort: choice("sort", sorts()),
    };
    this.more = h("summary", {}, "Filters and order");
    const labelled = (text, key) => h("label", {}, h("span", {}, text), this.inputs[key]);
    const clear = h("button", { type: "button", onclick: () => {
      this.inputs.q.value = "";
      this.app.go(Object.fromEntries(Object.keys(NO_FILTER).map((key) => [key, undefined])), { replace: true });
    } }, "Clear");
    this.box = h(
      "details",
      { class: "filters", open: this.app.wide() },
      this.more,
      h("div", { class: "fields" }, labelled("Outcome", "status"), labelled("Agent", "agent"), updates.length > 0 && labelled("Update", "update"), labelled("Return from", "min"), labelled("to", "max"), labelled("Order", "sort"), h("label", { class: "check" }, this.inputs.invalid, h("span", {}, "with invalid actions")), clear),
    );
    return h("div", { class: "finder", role: "search" }, this.inputs.q, this.box);
  }
}
