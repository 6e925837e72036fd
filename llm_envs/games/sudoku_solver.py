"""An exact sudoku solver: all solutions of a grid, up to a limit.

The candidates of a grid are N integers, one a value: bit i of ``places[v - 1]`` is set where cell i may hold v. Looking
at all cells at once is then a handful of bit operations. The solver fills what is forced (naked and hidden singles)
and, where nothing is, branches on a cell with the fewest candidates.

>>> from llm_envs.games.sudoku import grid_line, parse_grid
>>> [grid_line(solution) for solution in solutions(parse_grid("1... ..3. .4.. ...2"))]
['1324423124133142']
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import isqrt

from llm_envs.games.sudoku import Grid, geometry

__all__ = [
    "Masks",
    "count_solutions",
    "has_other_value",
    "initial_places",
    "masks",
    "propagate",
    "solution_of",
    "solutions",
]

Places = list[int]
"""For each value (from 1) the cells that may hold it, as bits."""


@dataclass(frozen=True)
class Masks:
    """The geometry of a grid as bit masks over its cells.

    Attributes:
        size: N.
        full: All cells.
        rows: The cells of each row.
        columns: The cells of each column.
        boxes: The cells of each box.
        units: Rows, columns and boxes.
        not_peers: For each cell all cells but those of its row, column and box; the cell itself is kept.
    """

    size: int
    full: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    boxes: tuple[int, ...]
    units: tuple[int, ...]
    not_peers: tuple[int, ...]


@cache
def masks(size: int) -> Masks:
    """The bit masks of a ``size`` × ``size`` grid."""
    shape = geometry(size)
    full = (1 << size * size) - 1
    rows, columns, boxes = (tuple(_bits(unit) for unit in units) for units in (shape.rows, shape.columns, shape.boxes))
    return Masks(size, full, rows, columns, boxes, rows + columns + boxes, tuple(full ^ _bits(p) for p in shape.peers))


def _bits(cells: Sequence[int]) -> int:
    return sum(1 << cell for cell in cells)


def initial_places(grid: Grid) -> Places:
    """The candidates before any rule is applied: a filled cell has its value, a blank one has all."""
    size = isqrt(len(grid))
    blank = _bits([cell for cell, value in enumerate(grid) if value == 0])
    places = [blank] * size
    for cell, value in enumerate(grid):
        if value:
            places[value - 1] |= 1 << cell
    return places


def propagate(places: Places, done: int, shape: Masks, *, hidden: bool) -> int | None:
    """Fill what is forced, in place, until nothing is.

    Args:
        places: The candidates; changed.
        done: The cells whose value was already taken from their peers' candidates.
        shape: The masks of the grid's size.
        hidden: Also fill hidden singles (a value with one place left in a row, column or box), not only naked ones (a
            cell with one candidate left).

    Returns:
        The cells that are filled now; None if the candidates contradict each other.
    """
    full, units, not_peers = shape.full, shape.units, shape.not_peers
    while True:
        once = twice = 0
        for cells in places:
            twice |= once & cells
            once |= cells
        if once != full:
            return None  # a cell without a candidate
        fresh = once & ~twice & ~done
        if fresh:
            done |= fresh
            for index, cells in enumerate(places):
                single = cells & fresh
                while single:
                    bit = single & -single
                    single ^= bit
                    places[index] &= not_peers[bit.bit_length() - 1]
            continue
        if done == full or not hidden:
            return done
        for index, cells in enumerate(places):
            forced, left = 0, cells & ~done
            if not left:
                continue
            for unit in units:
                place = left & unit
                if not place & (place - 1):  # one place is left in the unit, or none
                    if place:
                        forced |= place
                    elif not cells & unit:
                        return None
            if forced:
                places[:] = [other & ~forced for other in places]
                places[index] = cells
                break
        else:
            return done


def solutions(grid: Grid, *, rng: random.Random | None = None) -> Iterator[Grid]:
    """Yields every solution of ``grid``: full grids that keep its values. Lazily, so that asking for two is cheap.

    Args:
        grid: Any grid, also one that contradicts itself (no solution).
        rng: Decides the order of values at every branch; ascending without it. The first solution of the empty grid is
            then a random full grid (every one can come, not all equally often).
    """
    shape = masks(isqrt(len(grid)))
    yield from _search(initial_places(grid), 0, shape, rng)


def _search(places: Places, done: int, shape: Masks, rng: random.Random | None) -> Iterator[Grid]:
    filled = propagate(places, done, shape, hidden=True)
    if filled is None:
        return
    if filled == shape.full:
        yield _grid(places, shape.size)
        return
    bit = _branch_cell(places, shape)
    values = [index for index, cells in enumerate(places) if cells & bit]
    if rng is not None:
        rng.shuffle(values)
    for chosen in values:
        branch = [cells & ~bit for cells in places]
        branch[chosen] |= bit
        yield from _search(branch, filled, shape, rng)


def _branch_cell(places: Places, shape: Masks) -> int:
    """A cell with the fewest candidates that is not filled, as a bit; the first of those."""
    exactly = [shape.full] + [0] * shape.size  # exactly[k]: the cells with k candidates, of the values so far
    for cells in places:
        for count in range(shape.size, 0, -1):
            exactly[count] = exactly[count] & ~cells | exactly[count - 1] & cells
        exactly[0] &= ~cells
    fewest = next(cells for cells in exactly[2:] if cells)
    return fewest & -fewest


def _grid(places: Places, size: int) -> Grid:
    grid = bytearray(size * size)
    for value, cells in enumerate(places, 1):
        while cells:
            bit = cells & -cells
            cells ^= bit
            grid[bit.bit_length() - 1] = value
    return bytes(grid)


def count_solutions(grid: Grid, limit: int = 2) -> int:
    """How many solutions ``grid`` has, counted up to ``limit``: 0, 1 and 2 tell impossible, unique and ambiguous."""
    return sum(1 for _ in islice(solutions(grid), limit))


def solution_of(grid: Grid) -> Grid | None:
    """A solution of ``grid`` (the one, where it is unique), or None if there is none."""
    return next(solutions(grid), None)


def has_other_value(grid: Grid, cell: int, value: int) -> bool:
    """Whether ``grid``, in which ``cell`` is blank, has a solution with another value than ``value`` in that cell.

    If it has none and ``grid`` with ``value`` in ``cell`` has one solution, then ``grid`` has one solution too: that is
    how a generator leaves out clues.
    """
    places = initial_places(grid)
    places[value - 1] &= ~(1 << cell)
    return next(_search(places, 0, masks(isqrt(len(grid))), None), None) is not None
