// Curves over updates, with a cursor that the arrow keys and the pointer move.

import { announce, h, number, s } from "./dom.js";
import { plot, SERIES } from "./charts.js";
import { inline, plain } from "./text.js";

const HEIGHT = 200;
const LEFT = 52;
const BOTTOM = 20;

// Strokes that tell apart what has the same colour.
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];

// series: [{name, points: [[x, y]], colour, dash}], points in order of x. A value that is null leaves a gap. Colours and
// dashes are numbers from 0; without, each series has the next colour.
export function curves(title, series, { note = "", x = "update" } = {}) {
  const names = series.map(({ name }) => name);
  const points = series.flatMap((one) => one.points);
  const xs = [...new Set(points.map(([at]) => at))].sort((a, b) => a - b);
  const readout = h("p", { class: "readout" });
  const cursor = { at: null, draw: () => {} };
  const scale = makeScale(points);

  const draw = (width) => {
    const w = Math.max(20, width - LEFT - 8);
    const px = (at) => LEFT + (xs.length > 1 ? ((at - xs[0]) / (xs.at(-1) - xs[0])) * w : w / 2);
    const py = (value) => 8 + (1 - scale.place(value)) * (HEIGHT - 8 - BOTTOM);
    const shapes = scale.ticks.flatMap((value) => [
      s("line", { x1: LEFT, x2: LEFT + w, y1: py(value), y2: py(value), class: "rule" }),
      s("text", { x: LEFT - 6, y: py(value) + 4, "text-anchor": "end", class: "label" }, scale.label(value)),
    ]);
    shapes.push(s("text", { x: LEFT, y: HEIGHT - 4, class: "label" }, String(xs[0])));
    shapes.push(s("text", { x: LEFT + w, y: HEIGHT - 4, "text-anchor": "end", class: "label" }, `${x} ${xs.at(-1)}`));
    series.forEach((one, i) => shapes.push(line(thin(one.points, px, w), px, py, one, i)));
    const mark = s("line", { y1: 8, y2: HEIGHT - BOTTOM, class: "cursor", visibility: "hidden" });
    shapes.push(mark);
    cursor.draw = () => {
      const at = xs[cursor.at];
      mark.setAttribute("visibility", "visible");
      mark.setAttribute("x1", px(at));
      mark.setAttribute("x2", px(at));
    };
    cursor.find = (offset) => {
      const wanted = xs[0] + ((offset - LEFT) / w) * (xs.at(-1) - xs[0]);
      return xs.reduce((best, at, i) => (Math.abs(at - wanted) < Math.abs(xs[best] - wanted) ? i : best), 0);
    };
    if (cursor.at !== null) cursor.draw();
    return { height: HEIGHT, shapes };
  };

  const show = (place) => {
    cursor.at = Math.max(0, Math.min(xs.length - 1, place));
    cursor.draw();
    const at = xs[cursor.at];
    const values = series.map((one) => [one.name, one.points.find((point) => point[0] === at)?.[1] ?? null]);
    tell(`${x} ${at}`, values.map(([, value]) => value));
    return `${x} ${at}: ${values.map(([name, value]) => `${plain(name)} ${brief(value)}`).join(", ")}`;
  };
  const latest = series.map((one) => `${plain(one.name)} ${brief(one.points.at(-1)?.[1] ?? null)}`).join(", ");
  const figures = series.map(() => h("span", { class: "figure" }));
  const legend = h("ul", { class: "legend" }, series.map((one, i) => h("li", {}, swatch(one, i), inline(one.name), " ", figures[i])));
  const tell = (when, values) => {
    readout.textContent = when;
    figures.forEach((figure, i) => { figure.textContent = brief(values[i]); });
  };
  tell("last values", series.map((one) => one.points.at(-1)?.[1] ?? null));
  const figure = plot({
    title,
    note: [note, scale.log && "logarithmic scale"].filter(Boolean).join("; "),
    label: `${title}, over ${xs.length} values of ${x}. Last: ${latest}.`,
    table: { head: [x, ...names], rows: xs.slice(-500).map((at) => row(at, series)) },
    draw,
    extra: [readout, legend],
  });
  const canvas = figure.querySelector(".canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "group");
  canvas.setAttribute("aria-label", `${title}: move along with the left and right arrow keys`);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    announce(show((cursor.at ?? (step < 0 ? xs.length : -1)) + step));
  });
  canvas.addEventListener("pointermove", (event) => show(cursor.find(event.offsetX)));
  return figure;
}

function row(at, series) {
  return [String(at), ...series.map((one) => brief(one.points.find((point) => point[0] === at)?.[1] ?? null))];
}

export function brief(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 0.001 || size >= 1e6) ? value.toExponential(2) : number(value, size < 1 ? 4 : 2);
  return text.replace(/^-/, "−");
}

// Linear, or logarithmic where all values are positive and span more than two orders of magnitude.
function makeScale(points) {
  let low = Infinity;
  let high = -Infinity;
  for (const [, value] of points) {
    if (value === null) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = [0, 1];
  if (low === high) [low, high] = [Math.min(0, low), Math.max(0, high) || Number(low === 0)];
  if (low > 0 && high / low > 200) {
    const [from, to] = [Math.log10(low), Math.log10(high)];
    return { log: true, label: brief, ticks: [low, 10 ** ((from + to) / 2), high], place: (value) => (Math.log10(value) - from) / (to - from) };
  }
  const step = nice((high - low) / 3);
  const from = Math.floor(low / step + 1e-9) * step;
  const to = Math.ceil(high / step - 1e-9) * step;
  const ticks = Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => from + i * step);
  // As many digits as tell two ticks apart.
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const label = (value) => (digits > 6 || Math.abs(value) >= 1e6 ? brief(value) : number(value, digits).replace(/^-/, "−"));
  return { log: false, label, ticks, place: (value) => (value - from) / (to - from) };
}

function nice(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return [1, 2, 5, 10].find((factor) => factor * power >= size) * power;
}

// No more points than can be told apart: of each pixel's the lowest and the highest.
function thin(points, px, width) {
  if (points.length <= 2 * width) return points;
  const kept = [];
  let pixel = null;
  let group = [];
  const flush = () => {
    const real = group.filter(([, value]) => value !== null);
    if (!real.length) return;
    const low = real.reduce((best, point) => (point[1] < best[1] ? point : best));
    const high = real.reduce((best, point) => (point[1] > best[1] ? point : best));
    kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
  };
  for (const point of points) {
    if (Math.floor(px(point[0])) !== pixel) {
      flush();
      group = [];
      pixel = Math.floor(px(point[0]));
    }
    group.push(point);
  }
  flush();
  return kept;
}

const stroke = ({ colour, dash = 0 }, i) => ({ class: `curve c${((colour ?? i) % SERIES) + 1}`, "stroke-dasharray": DASHES[dash % DASHES.length] || null });

function swatch(one, i) {
  return s("svg", { width: 22, height: 12, "aria-hidden": "true" }, s("path", { d: "M0 6H22", ...stroke(one, i) }));
}

function line(points, px, py, one, i) {
  let path = "";
  let pen = "M";
  for (const [at, value] of points) {
    if (value === null) {
      pen = "M";
      continue;
    }
    path += `${pen}${px(at).toFixed(1)} ${py(value).toFixed(1)}`;
    pen = "L";
  }
  const dots = points.length <= 60 ? points.filter(([, value]) => value !== null) : [];
  const kind = ((one.colour ?? i) % SERIES) + 1;
  return [
    s("path", { d: path, ...stroke(one, i) }),
    dots.map(([at, value]) => s("circle", { cx: px(at), cy: py(value), r: 2.5, class: `s${kind}` })),
  ];
}
