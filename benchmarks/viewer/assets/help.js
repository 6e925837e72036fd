// The keyboard shortcuts, and the dialog that lists them.

import { h } from "./dom.js";

const SHORTCUTS = [
  ["j, ↓ / k, ↑", "next / previous row of a list; in an episode j / k: next / previous turn"],
  ["Enter", "open the row"],
  ["Esc", "back: from an episode to the list, from a field to the page"],
  ["n / p", "next / previous episode"],
  ["/", "search"],
  ["f", "filters"],
  ["x", "open or close all that is folded up in the episode"],
  ["b", "the episode side by side with another run's"],
  ["← ↑ → ↓", "in a tree: candidates and turns; in curves: updates"],
  ["a, o, e, c, t", "all runs, overview, episodes, compare, training"],
  ["r", "read the runs again (with a server)"],
  ["d", "light, dark or as the system says"],
  ["?", "this list"],
];

export function helpDialog(settings) {
  const box = h("input", { type: "checkbox", checked: settings.keys, onchange: () => { settings.keys = box.checked; } });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", { class: "keys" }, SHORTCUTS.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)))),
    h("label", { class: "check" }, box, h("span", {}, "Single letters are shortcuts")),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  dialog.addEventListener("close", () => settings.after?.focus());
  return dialog;
}
