// Plots as SVG, drawn again when their width changes so that letters keep their size. Each has its numbers as a table.

import { freshId, h, replace, s } from "./dom.js";
import { inline, plain } from "./text.js";

export const SERIES = 8; // colours there are: s1 … s8 in the style sheet

// A figure. `draw(width)` gives {height, shapes}; `table` is {head: [...], rows: [[...]]}.
export function plot({ title, note = "", label, table, draw, extra = [] }) {
  const canvas = h("div", { class: "canvas" });
  const key = freshId("plot");
  let last = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width === last || width < 40) return;
    last = width;
    const { height, shapes } = draw(width);
    replace(canvas, s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, shapes));
  }).observe(canvas);
  return h(
    "figure",
    { class: "plot", "aria-labelledby": key },
    h("figcaption", { id: key }, title, note && h("span", { class: "note" }, note)),
    canvas,
    extra,
    h("details", {}, h("summary", {}, "Numbers"), dataTable(table, title)),
  );
}

export function dataTable({ head, rows }, caption) {
  const cell = (value, i) => h(i ? "td" : "th", i ? {} : { scope: "row" }, typeof value === "string" ? inline(value, 300) : value);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${caption}` },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, inline(text))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell)))),
    ),
  );
}

// Labels above bars: they have the whole width, so that they fit a telephone.
const ROW = 38;

function rowLabel(text, value, y, width) {
  const room = Math.max(4, Math.floor((width - 8 * value.length - 10) / 7.5));
  return [
    s("text", { x: 0, y, class: "label" }, plain(text, room)),
    s("text", { x: width, y, "text-anchor": "end", class: "value" }, value),
  ];
}

// Values in [0, 1] with their intervals: rows of {label, value, low, high, text}.
export function intervals(title, rows, { note = "", head = ["", "mean", "95 % interval"] } = {}) {
  const draw = (width) => {
    const x = (value) => 6 + value * (width - 12);
    const shapes = rows.flatMap((row, i) => {
      const y = i * ROW + 14;
      return [
        rowLabel(row.label, row.text, y, width),
        s("rect", { x: x(0), y: y + 7, width: x(1) - x(0), height: 10, class: "track" }),
        s("rect", { x: x(row.low), y: y + 7, width: Math.max(1, x(row.high) - x(row.low)), height: 10, class: "interval" }),
        s("circle", { cx: x(row.value), cy: y + 12, r: 5, class: "estimate" }),
      ];
    });
    return { height: rows.length * ROW, shapes };
  };
  const table = { head, rows: rows.map((row) => [row.label, row.text.split(" [")[0], `[${row.text.split(" [")[1] ?? ""}`]) };
  return plot({ title, note, label: `${title}. ${rows.map((row) => `${plain(row.label)}: ${row.text}`).join(". ")}`, table, draw });
}

// Stacked bars that start at zero, to the right for positive parts and to the left for negative ones: rows of
// {label, text, parts: [{name, value}]}. Names have the same colour in all rows; a legend tells
// them if there are several, or if `named`. The scale reaches at least to `full`.
export function bars(title, rows, { note = "", format = String, full = 0, named = false } = {}) {
  const names = [...new Set(rows.flatMap((row) => row.parts.map((part) => part.name)))].sort();
  const sum = (row, sign) => row.parts.reduce((total, part) => total + Math.max(0, sign * part.value), 0);
  const most = Math.max(...rows.map((row) => sum(row, 1)), full);
  const least = Math.max(...rows.map((row) => sum(row, -1)), 0);
  const draw = (width) => {
    const scale = (width - 2) / (most + least || 1);
    const zero = 1 + least * scale;
    const shapes = rows.flatMap((row, i) => {
      const y = i * ROW + 14;
      let right = zero;
      let left = zero;
      const rects = row.parts.filter((part) => part.value).map((part) => {
        const w = Math.abs(part.value) * scale;
        const x = part.value > 0 ? right : left - w;
        if (part.value > 0) right += w;
        else left -= w;
        const hint = `${plain(part.name)}: ${format(part.value)}`;
        return s("rect", { x, y: y + 6, width: Math.max(w, 0.5), height: 13, class: colour(names, part.name) }, s("title", {}, hint));
      });
      return [rowLabel(row.label, row.text, y, width), rects, s("line", { x1: zero, x2: zero, y1: y + 4, y2: y + 21, class: "axis" })];
    });
    return { height: rows.length * ROW, shapes };
  };
  const table = {
    head: ["", ...names],
    rows: rows.map((row) => [row.label, ...names.map((name) => format(row.parts.find((part) => part.name === name)?.value ?? 0))]),
  };
  const legend = names.length > 1 || named ? h("ul", { class: "legend" }, names.map((name) => h("li", {}, swatch(names, name), inline(name)))) : [];
  const label = `${title}. ${rows.map((row) => `${plain(row.label)}: ${row.text}`).join(". ")}`;
  return plot({ title, note, label, table, draw, extra: legend });
}

const colour = (names, name) => `s${(names.indexOf(name) % SERIES) + 1}`;

function swatch(names, name) {
  return s("svg", { width: 12, height: 12, "aria-hidden": "true" }, s("rect", { width: 12, height: 12, class: colour(names, name) }));
}

// How often values occur, one strip a series: {name, values}. All strips share their bins.
export function histograms(title, series, { note = "", format = String, whole = false } = {}) {
  const all = series.map(({ values }) => values.filter((value) => value !== null));
  const bins = makeBins(all, whole);
  const counts = all.map((values) => tally(values, bins));
  const strip = series.length > 1 ? 74 : 110;
  const draw = (width) => {
    const shapes = counts.flatMap((row, i) => {
      const top = i * strip + (series.length > 1 ? 18 : 4);
      const base = (i + 1) * strip - 4;
      const most = Math.max(...row, 1);
      const w = width / row.length;
      const rects = row.map((found, k) => {
        if (!found) return null;
        const tall = Math.max(2, (found / most) * (base - top));
        const hint = `${binName(bins, k, format)}: ${found}`;
        return s("rect", { x: k * w + 0.5, y: base - tall, width: Math.max(1, w - 1), height: tall, class: `s${(i % SERIES) + 1}` }, s("title", {}, hint));
      });
      const name = series.length > 1 ? rowLabel(series[i].name, `at most ${most}`, i * strip + 12, width) : [];
      return [name, rects, s("line", { x1: 0, x2: width, y1: base, y2: base, class: "axis" })];
    });
    const bottom = counts.length * strip + 14;
    shapes.push(s("text", { x: 0, y: bottom, class: "label" }, format(bins.low)));
    const high = bins.whole ? bins.low + bins.step * bins.count - 1 : bins.high;
    shapes.push(s("text", { x: width, y: bottom, "text-anchor": "end", class: "label" }, format(high)));
    return { height: bottom + 4, shapes };
  };
  const names = series.map(({ name }) => name);
  const rows = Array.from({ length: bins.count }, (_, k) => [binName(bins, k, format), ...counts.map((row) => String(row[k]))]);
  const spread = names.map((name, i) => `${plain(name)}: ${count(all[i])} values`).join("; ");
  return plot({ title, note, label: `Histogram: ${title}. ${spread}, from ${format(bins.low)} to ${format(bins.high)}.`, table: { head: ["", ...names], rows }, draw });
}

const count = (values) => values.length;

function makeBins(all, whole) {
  let low = Infinity;
  let high = -Infinity;
  for (const values of all) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return { low: 0, high: 1, step: 1, count: 1, whole };
  if (whole) {
    const step = Math.max(1, Math.ceil((high - low + 1) / 24));
    return { low, high, step, count: Math.floor((high - low) / step) + 1, whole };
  }
  const bins = low === high ? 1 : 24;
  return { low, high, step: (high - low) / bins || 1, count: bins, whole };
}

function tally(values, bins) {
  const row = new Array(bins.count).fill(0);
  for (const value of values) row[Math.min(bins.count - 1, Math.floor((value - bins.low) / bins.step))] += 1;
  return row;
}

function binName(bins, k, format) {
  const from = bins.low + k * bins.step;
  if (bins.whole) return bins.step === 1 ? format(from) : `${format(from)} to ${format(from + bins.step - 1)}`;
  return bins.count === 1 ? format(from) : `${format(from)} to ${format(from + bins.step)}`;
}
