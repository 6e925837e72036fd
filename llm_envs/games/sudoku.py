"""The rules of sudoku on 4×4, 6×6 and 9×9 grids: cells, units, text forms, fills.

A grid is immutable: `bytes` of N·N cell values in row-major order, 0 where a cell is blank. Boxes are 2×2 (N = 4), 2×3
(N = 6: two rows, three columns) and 3×3 (N = 9). Every row, column and box holds each of 1…N once in a solved grid. A
puzzle is a grid of clues; clues stay where they are.

>>> clues = parse_grid("1..4 ..1. .1.. 4..1")
>>> apply_fill(clues, clues, parse_fill("r1c2=3", 4))[:4]
b'\\x01\\x03\\x00\\x04'
>>> apply_fill(clues, clues, parse_fill("r1c2=4", 4))
Traceback (most recent call last):
    ...
llm_envs.games.sudoku.IllegalFill: row 1 already holds a 4, in r1c4
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import isqrt
from typing import NamedTuple

from gymnasium import error

__all__ = [
    "BOXES",
    "Fill",
    "Geometry",
    "Grid",
    "IllegalFill",
    "apply_fill",
    "cell_name",
    "conflict",
    "fill_text",
    "geometry",
    "grid_line",
    "grid_text",
    "is_solved",
    "parse_fill",
    "parse_grid",
    "read_fill",
]

Grid = bytes
"""N·N cell values in row-major order, 0 = blank."""

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Rows and columns of a box, by the size N of the grid."""

_SYMBOLS = {".": 0} | {str(value): value for value in range(10)}
_LINE = bytes.maketrans(bytes(range(10)), b".123456789")
_FILL = re.compile(r"r([0-9]{1,2})c([0-9]{1,2}) ?= ?([0-9]{1,2})", re.IGNORECASE)


class IllegalFill(Exception):
    """A fill that the rules do not allow. The message is the reason."""


@dataclass(frozen=True)
class Geometry:
    """Which cells belong together in a grid of one size. Cells are numbered from 0 in row-major order.

    Attributes:
        size: N.
        rows: N tuples of N cells.
        columns: N tuples of N cells.
        boxes: N tuples of N cells.
        peers: For each cell the others of its row, column and box: those must differ from it.
    """

    size: int
    rows: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, ...], ...]
    peers: tuple[tuple[int, ...], ...]

    @property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """All rows, columns and boxes: 3·N tuples of N cells."""
        return self.rows + self.columns + self.boxes


@cache
def geometry(size: int) -> Geometry:
    """Returns the geometry of a ``size`` × ``size`` grid.

    Raises:
        gymnasium.error.Error: There is no sudoku of this size here.
    """
    if isinstance(size, bool) or size not in BOXES:
        raise error.Error(f"The size of a sudoku grid is one of {', '.join(map(str, BOXES))}, actual value: {size!r}.")
    height, width = BOXES[size]
    rows = tuple(tuple(range(size * r, size * r + size)) for r in range(size))
    columns = tuple(tuple(range(c, size * size, size)) for c in range(size))
    boxes = tuple(
        tuple(size * (top + r) + left + c for r in range(height) for c in range(width))
        for top in range(0, size, height)
        for left in range(0, size, width)
    )
    units = rows + columns + boxes
    peers = tuple(
        tuple(sorted({other for unit in units if cell in unit for other in unit} - {cell}))
        for cell in range(size * size)
    )
    return Geometry(size, rows, columns, boxes, peers)


# ---- text ----------------------------------------------------------------------------------------------------------


def parse_grid(text: str) -> Grid:
    """Reads a grid: one character a cell, ``.`` or ``0`` for a blank; white space between them is ignored.

    Both :func:`grid_line` and :func:`grid_text` are read back.

    Raises:
        gymnasium.error.Error: Another character, a number of cells that is no grid of :data:`BOXES`, or a value beyond
            the grid's size.
    """
    characters = "".join(text.split())
    unknown = sorted(set(characters) - _SYMBOLS.keys())
    if unknown:
        raise error.Error(f"a sudoku grid is written with the digits and `.` for a blank, found {unknown[0]!r}")
    size = isqrt(len(characters))
    if size not in BOXES or size * size != len(characters):
        sizes = ", ".join(f"{n * n} ({n}×{n})" for n in BOXES)
        raise error.Error(f"a sudoku grid has one of {sizes} cells, found {len(characters)}")
    grid = bytes(_SYMBOLS[character] for character in characters)
    if max(grid) > size:
        raise error.Error(f"a {size}×{size} sudoku holds the values 1 to {size}, found {max(grid)}")
    return grid


def grid_line(grid: Grid) -> str:
    """The grid as one line of N·N characters, ``.`` for a blank: the usual format of puzzle files."""
    return grid.translate(_LINE).decode("ascii")


def grid_text(grid: Grid) -> str:
    """The grid as N lines of N characters separated by spaces, ``.`` for a blank."""
    line, size = grid_line(grid), isqrt(len(grid))
    return "\n".join(" ".join(line[start : start + size]) for start in range(0, len(line), size))


def cell_name(cell: int, size: int) -> str:
    """The cell as it is written in a fill: ``r1c2`` is the second cell of the first row."""
    row, column = divmod(cell, size)
    return f"r{row + 1}c{column + 1}"


# ---- fills ---------------------------------------------------------------------------------------------------------


class Fill(NamedTuple):
    """One change of a grid: ``value`` into ``cell``, or with value 0 nothing."""

    cell: int
    value: int


def fill_text(fill: Fill, size: int) -> str:
    """The fill as text: ``r1c2=3``."""
    return f"{cell_name(fill.cell, size)}={fill.value}"


def read_fill(text: str) -> str | None:
    """The usual spelling (``r1c2=3``) of a fill that may be written ``R1C2 = 3``, or None if it is no fill.

    Whether the grid has such a cell and value is for :func:`parse_fill` to say.
    """
    match = _FILL.fullmatch(text)
    return None if match is None else "r{}c{}={}".format(*map(int, match.groups()))


def parse_fill(text: str, size: int) -> Fill:
    """Reads a fill in its usual spelling: row and column from 1, value 0 clears the cell.

    Raises:
        IllegalFill: The text is no fill, or names a cell or a value outside the grid.
    """
    fill = _fills(size).get(text)
    if fill is not None:
        return fill
    if read_fill(text) is None:
        raise IllegalFill(f"{text[:40]!r} is not written like r1c2=3")
    raise IllegalFill(f"rows, columns and values are 1 to {size} (value 0 clears a cell)")


@cache
def _fills(size: int) -> dict[str, Fill]:
    fills = (Fill(cell, value) for cell in range(size * size) for value in range(size + 1))
    return {fill_text(fill, size): fill for fill in fills}


def conflict(grid: Grid, fill: Fill) -> int | None:
    """A cell of the fill's row, column or box that already holds its value, or None. Rows come first, then columns."""
    if fill.value == 0 or fill.value not in grid:
        return None
    size = isqrt(len(grid))
    clashing = [cell for cell in geometry(size).peers[fill.cell] if grid[cell] == fill.value]
    if not clashing:
        return None
    return min(clashing, key=lambda cell: (_shared_unit(cell, fill.cell, size)[0], cell))


def _shared_unit(cell: int, other: int, size: int) -> tuple[int, str]:
    """The first unit that both cells belong to, ranked row, column, box, and its name."""
    row, column = divmod(cell, size)
    if row == other // size:
        return 0, f"row {row + 1}"
    if column == other % size:
        return 1, f"column {column + 1}"
    return 2, "the box"


def apply_fill(grid: Grid, clues: Grid, fill: Fill) -> Grid:
    """The grid after a fill.

    A cell that is not a clue may be filled, filled anew and cleared as often as one likes; only the rules of the grid
    as it stands count, not whether the value belongs to the solution. So a legal fill that was wrong is no dead end.

    Args:
        grid: The grid as it stands.
        clues: The puzzle, of the same size.
        fill: What changes.

    Raises:
        IllegalFill: The cell is a clue, is to be cleared and is blank, or its row, column or box holds the value.
    """
    cell, value = fill
    if clues[cell]:
        raise IllegalFill("the cell is a clue and cannot be changed")
    if value == 0 and grid[cell] == 0:
        raise IllegalFill("the cell is blank, there is nothing to clear")
    clashing = conflict(grid, fill)
    if clashing is not None:
        size = isqrt(len(grid))
        unit = _shared_unit(clashing, cell, size)[1]
        raise IllegalFill(f"{unit} already holds a {value}, in {cell_name(clashing, size)}")
    return grid[:cell] + bytes((value,)) + grid[cell + 1 :]


def is_solved(grid: Grid, clues: Grid) -> bool:
    """Whether every row, column and box of ``grid`` holds each value once, and every clue is kept."""
    if len(grid) != len(clues) or any(clue not in (0, value) for value, clue in zip(grid, clues, strict=True)):
        return False
    shape = geometry(isqrt(len(grid)))
    whole = set(range(1, shape.size + 1))
    return all({grid[cell] for cell in unit} == whole for unit in shape.units)
