// The page: navigation, keys and colours. The address after # says what is shown, so that Back and bookmarks work.

import { announce, h, replace } from "./dom.js";
import { CompareView } from "./compare.js";
import { EpisodesView } from "./episodes.js";
import { shortName } from "./filters.js";
import { helpDialog } from "./help.js";
import { overview } from "./overview.js";
import { allRuns } from "./runs.js";
import { makeStore } from "./store.js";
import { plain } from "./text.js";
import { training } from "./training.js";

const THEMES = ["auto", "light", "dark"];
const TABS = [["runs", "All runs", "a"], ["overview", "Overview", "o"], ["episodes", "Episodes", "e"], ["compare", "Compare", "c"], ["training", "Training", "t"]];
const MANY = 2; // more runs than this are first shown together

const settings = { keys: true, after: null };
const main = h("main", { id: "main", tabindex: "-1" });
const nav = h("nav", { "aria-label": "Views" });
const dialog = helpDialog(settings);
const theme = h("button", { type: "button", "aria-keyshortcuts": "d", onclick: nextTheme });
const help = h("button", { type: "button", "aria-keyshortcuts": "?", "aria-label": "Keyboard shortcuts", onclick: openHelp }, "?");
let shown = null; // the address that is shown
let view = null; // what main shows: {key, element, update(route), step(by)}

const app = { store: makeStore(), go, beside, counterpart, wide: () => window.matchMedia("(min-width: 1000px)").matches };

function route() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

// Go where the present address leads with these changes; undefined takes a part out.
function go(changes, { replace: inPlace = false } = {}) {
  const next = new URLSearchParams(Object.entries({ ...route(), ...changes }).filter(([, value]) => value !== undefined && value !== ""));
  if (inPlace) location.replace(`#${next}`);
  else location.hash = `#${next}`;
  show(); // at once: the next key must find what this one has led to
}

const pages = (run) => ({
  runs: app.store.runs.length > 1,
  overview: run.kind !== "training" || run.columns.id.length > 0,
  episodes: run.columns.id.length > 0,
  compare: app.store.runs.filter((one) => one.columns.id.length).length > 1 || new Set(run.columns.task).size < run.columns.task.length,
  training: app.store.runs.some((one) => one.metrics.length > 0),
});

function show() {
  shown = location.hash;
  const now = route();
  const { runs } = app.store;
  const number = Number(now.run ?? 0) in runs ? Number(now.run ?? 0) : 0;
  const run = runs[number];
  const open = pages(run);
  const first = run.kind === "training" ? "training" : runs.length > MANY && now.run === undefined ? "runs" : "overview";
  const name = open[now.view] ? now.view : first;
  const other = name === "compare" ? partner(number, now.other) : null;
  const key = [name, name === "training" || name === "runs" ? "" : number, other].join(" ");
  const fresh = view?.key !== key;
  if (fresh) {
    view = { key, name, number, ...make(name, run, number, other) };
    replace(main, view.element);
    window.scrollTo(0, 0);
  }
  document.title = `${name === "runs" ? "All runs" : plain(shortName(run), 60)} – llm-bench view`;
  drawNav(name, number, open);
  view.update?.(now);
  // A page that has just been opened begins at its top, but a list is there to be moved in.
  if (fresh && (show.before || view.made) && !now.ep && !now.pair && document.activeElement?.tagName !== "SELECT") focusMain();
  show.before = true;
}

function make(name, run, number, other) {
  if (name === "episodes") {
    const made = new EpisodesView(app, number);
    return { element: made.element, made, update: (now) => made.update(now), step: (by) => made.step(by) };
  }
  if (name === "compare") {
    const made = new CompareView(app, number, other);
    return { element: made.element, made, update: (now) => made.update(now), step: (by) => made.step(by) };
  }
  if (name === "training") {
    const openUpdate = (of, update) => go({ view: "episodes", run: app.store.runs.indexOf(of), update, ep: undefined });
    return { element: training(app.store.runs.filter((one) => one.metrics.length), { openUpdate }) };
  }
  if (name === "runs") {
    return { element: allRuns(app.store.runs, (n) => app.store.summary(n), { openRun: (n) => go({ view: "overview", run: n }) }) };
  }
  const openStatus = (target) => go({ view: "episodes", ep: undefined, ...(target === "invalid" ? { invalid: "1" } : target === "all" ? {} : { status: target }) });
  return { element: overview(run, () => app.store.summary(number), { openStatus }) };
}

// The run to compare with: the one that is asked for, another one, or else the run itself (its samples).
function partner(number, asked) {
  const fits = (n) => app.store.runs[n]?.columns.id.length > 0;
  if (asked !== undefined && fits(Number(asked))) return Number(asked);
  const found = app.store.runs.findIndex((_, n) => n !== number && fits(n));
  return found < 0 ? number : found;
}

// The run to see an episode side by side with: another one that has it, or its own if that has the task once more.
function counterpart(number, n) {
  const { id, task } = app.store.runs[number].columns;
  const found = app.store.runs.findIndex((run, other) => other !== number && run.columns.id.includes(id[n]));
  if (found >= 0) return found;
  return task.indexOf(task[n]) === task.lastIndexOf(task[n]) ? null : number;
}

function beside(n) {
  const { number } = view;
  const other = counterpart(number, n);
  if (other === null) {
    announce("No other episode of this task is loaded.");
    return;
  }
  const { pairs } = new CompareView(app, number, other);
  const at = pairs.findIndex((pair) => pair.at[0] === n || (other === number && pair.at[1] === n));
  go({ view: "compare", run: number, other, pair: at, ep: undefined });
}

function focusMain() {
  (main.querySelector(".virtual") ?? main.querySelector(".title") ?? main).focus({ preventScroll: true });
}

function drawNav(name, number, open) {
  const { runs } = app.store;
  const choose = h(
    "label",
    { class: "runs" },
    h("span", { class: "hidden" }, "Run"),
    h(
      "select",
      { onchange: (event) => go({ view: name === "runs" ? "overview" : name, run: event.target.value, ep: undefined, pair: undefined, agent: undefined }) },
      name === "runs" && h("option", { value: "", selected: true, disabled: true }, "Choose a run"),
      runs.map((run, n) => h("option", { value: n, selected: name !== "runs" && n === number, title: plain(run.name) }, plain(shortName(run), 60))),
    ),
  );
  const tabs = TABS.filter(([key]) => open[key]).map(([key, label, letter]) => h("a", { href: address(key, number), "aria-current": key === name ? "page" : null, "aria-keyshortcuts": letter }, label));
  const had = nav.contains(document.activeElement) ? [...nav.querySelectorAll("a, select")].indexOf(document.activeElement) : -1;
  replace(nav, runs.length > 1 && name !== "compare" && name !== "training" && choose, tabs);
  if (had >= 0) [...nav.querySelectorAll("a, select")][had]?.focus();
}

const address = (key, number) => `#${new URLSearchParams({ view: key, run: number })}`;

function storedTheme() {
  try {
    return localStorage.getItem("llm-bench-theme") ?? "auto";
  } catch {
    return "auto"; // storage may be switched off
  }
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
  theme.setAttribute("aria-label", `Colours: ${name === "auto" ? "as the system says" : name}`);
  theme.title = theme.getAttribute("aria-label");
  try {
    localStorage.setItem("llm-bench-theme", name);
  } catch {
    // then it is for this visit only
  }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme;
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  announce(theme.getAttribute("aria-label"));
}

function openHelp() {
  settings.after = document.activeElement;
  dialog.showModal();
}

async function reload() {
  if (!app.store.live) return;
  await app.store.load();
  view = null;
  show();
  announce("The runs were read again.");
}

const KEYS = {
  "/": () => view.made?.inputs?.q.focus(),
  "?": openHelp,
  d: nextTheme,
  r: reload,
  f: () => {
    if (!view.made?.box) return;
    view.made.box.open = true;
    view.made.inputs.status.focus();
  },
  n: () => view.step?.(1),
  p: () => view.step?.(-1),
  b: () => view.name === "episodes" && view.made.open !== null && beside(view.made.open),
  j: () => move(1),
  k: () => move(-1),
  x: unfold,
  ...Object.fromEntries(TABS.map(([key, , letter]) => [letter, () => pages(app.store.runs[view.number])[key] && go({ view: key, ep: undefined, pair: undefined })])),
};

// The next turn of an open episode, or the next row of the list.
function move(by) {
  const turns = [...main.querySelectorAll(".detail .turn")];
  if (!turns.length) {
    view.made?.list.element.focus();
    if (view.made) view.made.list.move((view.made.list.active < 0 ? -1 : view.made.list.active) + by);
    return;
  }
  const at = turns.findIndex((turn) => turn.contains(document.activeElement));
  const next = turns[Math.max(0, Math.min(turns.length - 1, at < 0 ? (by > 0 ? 0 : turns.length - 1) : at + by))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "start" });
}

function unfold() {
  const boxes = [...main.querySelectorAll(".detail .same")];
  const open = boxes.some((box) => !box.open);
  for (const box of boxes) box.open = open;
}

function onkey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || dialog.open) return;
  const field = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape") {
    if (field) focusMain();
    else if (view.name === "episodes") go({ ep: undefined });
    else if (view.name === "compare") go({ pair: undefined });
    return;
  }
  const typing = field && !["checkbox", "button"].includes(field.type);
  if (typing || !settings.keys || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
}

async function start() {
  setTheme(storedTheme());
  document.body.append(
    h("a", { class: "skip", href: "#main", onclick: (event) => {
      event.preventDefault();
      focusMain();
    } }, "Skip to the content"),
    h("header", { class: "top" }, h("h1", {}, "llm-bench"), nav, h("div", { class: "tools" }, app.store.live && h("button", { type: "button", "aria-label": "Read the runs again", title: "Read the runs again (r)", onclick: reload }, "↻"), theme, help)),
    main,
    h("div", { id: "status", class: "hidden", role: "status" }),
    dialog,
  );
  replace(main, h("p", { class: "note empty" }, "Reading the runs …"));
  try {
    await app.store.load();
    show();
  } catch (problem) {
    replace(main, h("p", { class: "refusal", role: "alert" }, `The runs cannot be shown: ${problem.message}`));
    throw problem;
  }
  window.addEventListener("hashchange", () => location.hash !== shown && show());
  document.addEventListener("keydown", onkey);
  document.documentElement.dataset.ready = "yes";
}

start();
