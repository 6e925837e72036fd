// Blocks world: the facts of a state as stacks on a table.

import { s } from "./dom.js";

const WIDTH = 44;
const HEIGHT = 26;
const MOST = 40; // blocks

// Recognises a line `State: (on a b) (ontable b) …`; see boards.js for what it gives.
export function blocksworld(lines, at) {
  const line = /^State: ((?:\([a-z-]+(?: [\w-]+){0,2}\) ?)+)$/.exec(lines[at]);
  if (!line) return null;
  const facts = [...line[1].matchAll(/\(([^)]*)\)/g)].map((found) => found[1].split(" "));
  const under = new Map(facts.filter((fact) => fact[0] === "on").map(([, upper, lower]) => [lower, upper]));
  const stacks = facts.filter((fact) => fact[0] === "ontable").map(([, block]) => tower(block, under));
  const held = facts.find((fact) => fact[0] === "holding")?.[1] ?? null;
  if (!stacks.length || stacks.flat().length > MOST) return null;
  return { name: "Blocks", lines: 1, draw: () => picture(stacks, held) };
}

function tower(block, under) {
  const blocks = [];
  for (let at = block; at !== undefined && !blocks.includes(at); at = under.get(at)) blocks.push(at);
  return blocks;
}

function picture(stacks, held) {
  const tallest = Math.max(...stacks.map((stack) => stack.length), 1);
  const height = (tallest + (held ? 1.5 : 0)) * HEIGHT + 6;
  const width = stacks.length * (WIDTH + 10) + 10;
  const shapes = stacks.flatMap((stack, i) =>
    stack.map((name, level) => block(name, 10 + i * (WIDTH + 10), height - 4 - (level + 1) * HEIGHT)),
  );
  if (held) shapes.push(block(held, 10, 1));
  shapes.push(s("line", { x1: 2, x2: width - 2, y1: height - 2, y2: height - 2, class: "box" }));
  const told = stacks.map((stack) => stack.join(" under ")).join("; ");
  const label = `Blocks, from the table upwards: ${told}.${held ? ` The hand holds ${held}.` : ""}`;
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, class: "grid" }, shapes);
}

function block(name, x, y) {
  return s(
    "g",
    { transform: `translate(${x} ${y})` },
    s("rect", { width: WIDTH, height: HEIGHT - 2, rx: 3, class: "cell free" }),
    s("text", { class: "letter", "text-anchor": "middle", x: WIDTH / 2, y: HEIGHT / 2 + 4 }, name.slice(0, 5)),
  );
}
