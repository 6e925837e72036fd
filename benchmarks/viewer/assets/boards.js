// Boards as pictures: recognised in the text of a prompt, drawn beside it. What is not recognised stays text.

import { h, s } from "./dom.js";
import { blank, block } from "./text.js";
import { blocksworld } from "./blocks.js";

const CELL = 24;
const LARGEST = 40; // rows or columns

// A prompt as texts and boards: [{text}] or [{board: {name, draw}, text}].
export function withBoards(text) {
  const lines = text.split("\n");
  const parts = [];
  let plain = [];
  let at = 0;
  while (at < lines.length) {
    const found = recognise(lines, at);
    if (!found) {
      plain.push(lines[at]);
      at += 1;
      continue;
    }
    if (!blank(plain.join("\n"))) parts.push({ text: plain.join("\n") });
    plain = [];
    parts.push({ board: found, text: lines.slice(at, at + found.lines).join("\n") });
    at += found.lines;
  }
  if (!blank(plain.join("\n"))) parts.push({ text: plain.join("\n") });
  return parts;
}

// A board with its text at hand.
export function boardFigure(board, text) {
  return h(
    "figure",
    { class: "board", "aria-label": `${board.name} board` },
    board.draw(),
    h("details", {}, h("summary", {}, "Board as text"), block(text)),
  );
}

function recognise(lines, at) {
  for (const read of [ticTacToe, coordinates, sokoban, sudoku, chess, blocksworld]) {
    const found = read(lines, at);
    if (found) return found;
  }
  return null;
}

const tokens = (line) => line.trim().split(/ +/);

function ticTacToe(lines, at) {
  const row = /^ ?([XO\d]) \| ([XO\d]) \| ([XO\d])$/;
  const rows = [row.exec(lines[at]), row.exec(lines[at + 2] ?? ""), row.exec(lines[at + 4] ?? "")];
  if (rows.includes(null) || !/^[-+]+$/.test(lines[at + 1]) || !/^[-+]+$/.test(lines[at + 3])) return null;
  return grid("Tic-tac-toe", rows.map((found) => found.slice(1)), marks, { lines: 5 });
}

// A row of column numbers, then rows of cells, each with its row number or without.
function coordinates(lines, at) {
  const head = tokens(lines[at]);
  if (head.length < 3 || !head.every((text, i) => text === String(i))) return null;
  const rows = [];
  let numbered = null;
  for (let i = at + 1; i < lines.length && rows.length < LARGEST; i += 1) {
    const cells = tokens(lines[i]);
    const own = cells.length === head.length + 1 && cells[0] === String(rows.length);
    if (numbered === null) numbered = own;
    if (own !== numbered || cells.length !== head.length + Number(own)) break;
    if (own) cells.shift();
    if (!cells.every((cell) => /^[.#AGXO]$/.test(cell))) break;
    rows.push(cells);
  }
  if (rows.length < 2) return null;
  const discs = rows.flat().every((cell) => ".XO".includes(cell)) && !numbered;
  return grid(discs ? "Connect four" : "Map", rows, discs ? disc : place, {
    lines: rows.length + 1,
    columns: head,
    rows: numbered ? rows.map((_, i) => String(i)) : null,
  });
}

function sokoban(lines, at) {
  const line = /^[#\-.$*@+ ]{3,}$/;
  const rows = [];
  for (let i = at; i < lines.length && line.test(lines[i]) && rows.length < LARGEST; i += 1) {
    if (lines[i].length !== lines[at].length) break;
    rows.push([...lines[i]]);
  }
  if (rows.length < 3 || !rows.every((row) => row.includes("#")) || !rows.flat().some((cell) => "@+".includes(cell))) return null;
  return grid("Sokoban", rows, crate, { lines: rows.length });
}

function sudoku(lines, at) {
  const size = tokens(lines[at]).length;
  const box = { 4: [2, 2], 6: [2, 3], 9: [3, 3] }[size];
  if (!box) return null;
  const rows = [];
  for (let i = at; i < at + size && i < lines.length; i += 1) rows.push(tokens(lines[i]));
  const legal = (cell) => cell === "." || (/^\d$/.test(cell) && cell >= "1" && Number(cell) <= size);
  if (rows.length < size || !rows.every((row) => row.length === size && row.every(legal))) return null;
  return grid("Sudoku", rows, (cell) => (cell === "." ? [] : [letter(cell)]), { lines: size, box });
}

const PIECES = { k: "king", q: "queen", r: "rook", b: "bishop", n: "knight", p: "pawn" };

function chess(lines, at) {
  const rows = [];
  for (let i = 0; i < 8; i += 1) {
    const cells = tokens(lines[at + i] ?? "");
    if (cells.length !== 9 || cells.shift() !== String(8 - i) || !cells.every((cell) => cell === "." || PIECES[cell.toLowerCase()])) return null;
    rows.push(cells);
  }
  const named = tokens(lines[at + 8] ?? "").join("") === "abcdefgh";
  return grid("Chess", rows, piece, {
    lines: named ? 9 : 8, checkered: true, columns: [..."abcdefgh"], rows: [..."87654321"],
  });
}

// One board: `draw` makes its picture. `paint(cell)` gives what is in a cell of CELL × CELL around (0, 0).
function grid(name, cells, paint, { lines, rows = null, columns = null, box = null, checkered = false }) {
  const height = cells.length;
  const width = cells[0].length;
  const left = rows ? CELL : 1;
  const top = columns ? CELL : 1;
  const draw = () => {
    const all = [];
    cells.forEach((row, r) => {
      row.forEach((cell, c) => {
        const x = left + c * CELL;
        const y = top + r * CELL;
        const kind = checkered ? ((r + c) % 2 ? "dark" : "light") : cell === "#" ? "wall" : "free";
        all.push(s("rect", { x, y, width: CELL, height: CELL, class: `cell ${kind}` }));
        const shapes = paint(cell);
        if (shapes.length) all.push(s("g", { transform: `translate(${x + CELL / 2} ${y + CELL / 2})` }, shapes));
      });
    });
    if (box) all.push(...boxes(width, box, left, top));
    columns?.forEach((text, c) => all.push(coordinate(text, left + (c + 0.5) * CELL, top / 2)));
    rows?.forEach((text, r) => all.push(coordinate(text, left / 2, top + (r + 0.5) * CELL)));
    const w = left + width * CELL + 1;
    const t = top + height * CELL + 1;
    const label = `${name} board of ${height} rows and ${width} columns. ${spoken(cells)}`;
    return s("svg", { viewBox: `0 0 ${w} ${t}`, width: w, height: t, role: "img", "aria-label": label, class: "grid" }, all);
  };
  return { name, lines, draw };
}

function spoken(cells) {
  return cells.length * cells[0].length > 100 ? "" : cells.map((row, i) => `Row ${i + 1}: ${row.join(" ")}`).join(". ");
}

function boxes(size, [down, across], left, top) {
  const lines = [];
  for (let c = 0; c <= size; c += across) {
    const x = left + c * CELL;
    lines.push(s("line", { x1: x, x2: x, y1: top, y2: top + size * CELL, class: "box" }));
  }
  for (let r = 0; r <= size; r += down) {
    const y = top + r * CELL;
    lines.push(s("line", { y1: y, y2: y, x1: left, x2: left + size * CELL, class: "box" }));
  }
  return lines;
}

function letter(text, kind = "letter") {
  return s("text", { class: kind, "text-anchor": "middle", y: 5 }, text);
}

function coordinate(text, x, y) {
  return s("text", { class: "coordinate", "text-anchor": "middle", x, y: y + 4 }, text);
}

function marks(cell) {
  if (cell === "X") return [s("path", { d: "M-7-7 7 7M7-7-7 7", class: "stroke one" })];
  if (cell === "O") return [s("circle", { r: 8, class: "stroke two" })];
  return [letter(cell, "coordinate")];
}

function disc(cell) {
  return cell === "." ? [] : [s("circle", { r: 10, class: cell === "X" ? "fill one" : "fill two" }), letter(cell, "on")];
}

function place(cell) {
  if (cell === "A") return [s("circle", { r: 10, class: "fill one" }), letter("A", "on")];
  if (cell === "G") return [s("circle", { r: 9, class: "stroke goal" }), letter("G")];
  return cell === "X" || cell === "O" ? marks(cell) : [];
}

function crate(cell) {
  const shapes = [];
  if (".+*".includes(cell)) shapes.push(s("circle", { r: cell === "." ? 4 : 11, class: cell === "." ? "fill goal" : "stroke goal" }));
  if ("$*".includes(cell)) shapes.push(s("rect", { x: -7, y: -7, width: 14, height: 14, rx: 2, class: "fill two" }));
  if ("@+".includes(cell)) shapes.push(s("circle", { r: 8, class: "fill one" }), letter("@", "on"));
  return shapes;
}

function piece(cell) {
  if (cell === ".") return [];
  const white = cell === cell.toUpperCase();
  return [s("circle", { r: 10, class: white ? "fill white" : "fill black" }), letter(cell.toUpperCase(), white ? "black" : "white")];
}
