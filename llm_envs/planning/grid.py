"""Plan-path: the shortest way through a grid with walls.

The rules, the solver (breadth-first search from the goal) and the generator of maps. A :class:`Grid` does not change; a
position in it is the number of a cell, counted from the top left row by row.

>>> grid = Grid(("A.#", ".#G", "..."))
>>> grid.shortest(grid.start)
['D', 'D', 'R', 'R', 'U']
>>> grid.after(grid.start, "R"), grid.after(grid.start, "U") is None
(1, True)
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["LEGEND", "MOVES", "Grid", "MapError", "draw_grid"]

MOVES = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
"""Rows down and columns to the right that a move leads."""
_DIRECTIONS = {delta: move for move, delta in MOVES.items()}

START, GOAL, WALL, FREE = "A", "G", "#", "."
LEGEND = f"{START} is you, {GOAL} the goal, {WALL} a wall, {FREE} a free cell"

MAX_SIDE = 100
_MAX_DRAWS = 10_000


class MapError(ValueError):
    """A map that cannot be played, or bounds that no map keeps. The message says why."""


class Grid:
    """A rectangular map with walls, a start and a goal that can be reached from it.

    Attributes:
        rows: The map, one string a row: ``A`` start, ``G`` goal, ``#`` wall, ``.`` free.
        height: Number of rows.
        width: Number of columns.
        start: Cell of the start.
        goal: Cell of the goal.
        distances: For every cell, the moves of a shortest way to the goal; -1 if there is none.

    Args:
        rows: The map.

    Raises:
        MapError: The map is empty, too large, not a rectangle, has other characters, not exactly one start and one
            goal, or no way between them.
    """

    __slots__ = ("_after", "_offsets", "_picture", "distances", "goal", "height", "rows", "start", "width")

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = tuple(rows)
        self.height, self.width = len(self.rows), len(self.rows[0]) if self.rows else 0
        cells = "".join(self.rows)
        _check_map(self.rows, cells)
        self.start, self.goal = cells.index(START), cells.index(GOAL)
        self._after = _targets(cells, self.height, self.width)
        self.distances = _distances(self._after, self.goal)
        if self.distances[self.start] < 0:
            raise MapError(f"no way leads from the start {self.name(self.start)} to the goal {self.name(self.goal)}")
        self._picture, self._offsets = self._draw()

    def __copy__(self) -> Grid:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Grid:
        return self

    def __repr__(self) -> str:
        return f"Grid({self.rows!r})"

    # ---- rules -----------------------------------------------------------------------------------------------------

    def after(self, cell: int, move: str) -> int | None:
        """The cell that ``move`` leads to from ``cell``; None if a wall or the edge is in the way.

        Raises:
            KeyError: ``move`` is none of :data:`MOVES`.
        """
        target = self._after[move][cell]
        return None if target < 0 else target

    def obstacle(self, cell: int, move: str) -> str:
        """Why ``move`` is illegal from ``cell``."""
        down, right = MOVES[move]
        row, column = cell // self.width + down, cell % self.width + right
        if 0 <= row < self.height and 0 <= column < self.width:
            return f"there is a wall at r{row}c{column}"
        return f"{self.name(cell)} is at the edge of the map"

    def direction(self, cell: int, row: int, column: int) -> str | None:
        """The move that leads from ``cell`` towards the neighbour at ``row`` and ``column``; None if that is none."""
        return _DIRECTIONS.get((row - cell // self.width, column - cell % self.width))

    def shortest(self, cell: int) -> list[str]:
        """The moves of a shortest way from ``cell`` to the goal: of several the first in the order of :data:`MOVES`.

        Raises:
            MapError: There is no way from ``cell``.
        """
        left = self.distances[cell]
        if left < 0:
            raise MapError(f"no way leads from {self.name(cell)} to the goal")
        path = []
        while left:
            left -= 1
            for move, targets in self._after.items():
                target = targets[cell]
                if target >= 0 and self.distances[target] == left:
                    path.append(move)
                    cell = target
                    break
        return path

    def cells(self, cell: int, path: Sequence[str]) -> list[str]:
        """The names of the cells that the legal moves ``path`` lead to from ``cell``."""
        names = []
        for move in path:
            cell = self._after[move][cell]
            names.append(self.name(cell))
        return names

    # ---- texts -----------------------------------------------------------------------------------------------------

    def name(self, cell: int) -> str:
        """``r2c5`` for row 2, column 5."""
        return f"r{cell // self.width}c{cell % self.width}"

    def text(self, cell: int) -> str:
        """The map with coordinates, and you in ``cell``."""
        at = self._offsets[cell]
        picture = self._picture
        return (
            f"{picture[:at]}{START}{picture[at + 1 :]}\n"
            f"You are at {self.name(cell)}, the goal is at {self.name(self.goal)}."
        )

    def plain(self, cell: int) -> str:
        """The map as it stands in a file, and you in ``cell``: one line a row, without coordinates."""
        lines = [line.replace(START, FREE) for line in self.rows]
        row, column = divmod(cell, self.width)
        lines[row] = f"{lines[row][:column]}{START}{lines[row][column + 1 :]}"
        return "\n".join(lines)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _draw(self) -> tuple[str, tuple[int, ...]]:
        """The map with coordinates and without you, and where in it each cell stands."""
        pad = len(str(max(self.height, self.width) - 1))
        header = " " * pad + "".join(f" {column:>{pad}}" for column in range(self.width))
        lines = [
            f"{number:>{pad}}" + "".join(f" {char:>{pad}}" for char in row.replace(START, FREE))
            for number, row in enumerate(self.rows)
        ]
        line = len(header) + 1
        offsets = tuple(
            line * (1 + row) + pad + (column + 1) * (pad + 1) - 1
            for row in range(self.height)
            for column in range(self.width)
        )
        return "\n".join([header, *lines]), offsets


@lru_cache(maxsize=256)
def _edges(height: int, width: int) -> dict[str, tuple[int, ...]]:
    """For every move and cell, where the move leads in a map without walls; -1 off the map."""
    cells = [divmod(cell, width) for cell in range(height * width)]
    return {
        move: tuple(
            (row + down) * width + column + right if 0 <= row + down < height and 0 <= column + right < width else -1
            for row, column in cells
        )
        for move, (down, right) in MOVES.items()
    }


def _targets(cells: Sequence[str], height: int, width: int) -> dict[str, tuple[int, ...]]:
    """For every move and cell, where the move leads; -1 if it is illegal. No move leads out of a wall either."""
    return {
        move: tuple(
            target if target >= 0 and cells[target] != WALL and here != WALL else -1
            for here, target in zip(cells, targets, strict=True)
        )
        for move, targets in _edges(height, width).items()
    }


def _distances(after: Mapping[str, Sequence[int]], goal: int) -> tuple[int, ...]:
    """Breadth-first search from the goal: a way back is as long as the way there. -1 where no way leads."""
    distances = [-1] * len(after["U"])
    distances[goal] = 0
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for targets in after.values():
            target = targets[cell]
            if target >= 0 and distances[target] < 0:
                distances[target] = distances[cell] + 1
                queue.append(target)
    return tuple(distances)


def _check_map(rows: tuple[str, ...], cells: str) -> None:
    if not cells:
        raise MapError("the map is empty")
    if len({len(row) for row in rows}) > 1:
        raise MapError(f"the rows of a map must be equally long, these have {[len(row) for row in rows]} characters")
    if max(len(rows), len(rows[0])) > MAX_SIDE:
        raise MapError(f"a map has at most {MAX_SIDE} rows and columns, this one {len(rows)} and {len(rows[0])}")
    strange = sorted(set(cells) - {START, GOAL, WALL, FREE})
    if strange:
        raise MapError(
            f"a map is written with {START} {GOAL} {WALL} {FREE}, this one has {' '.join(map(repr, strange))}"
        )
    for char, what in ((START, "start"), (GOAL, "goal")):
        if cells.count(char) != 1:
            raise MapError(f"a map has exactly one {what} ({char}), this one {cells.count(char)}")


def draw_grid(
    rng: random.Random,
    *,
    grid_size: int | Sequence[int] = 10,
    wall_ratio: float = 0.22,
    min_length: int = 2,
    max_length: int | None = None,
) -> Grid:
    """A random map whose goal can be reached.

    Walls and goal are drawn uniformly, the start uniformly among the cells whose shortest way to the goal keeps the
    bounds; maps without such a cell are drawn again.

    Args:
        rng: Source of randomness.
        grid_size: Number of rows and columns, or both as a pair.
        wall_ratio: Share of the cells that are walls (rounded to a whole number of cells).
        min_length: Least length of the shortest way.
        max_length: Greatest length of the shortest way; None for no bound.

    Raises:
        MapError: An argument is out of range, or no map was found that keeps the bounds.
    """
    height, width = _check_bounds(grid_size, wall_ratio, min_length, max_length)
    count = height * width
    walls = min(round(wall_ratio * count), count - 2)
    longest = count if max_length is None else max_length
    for _ in range(_MAX_DRAWS):
        goal, *blocked = rng.sample(range(count), walls + 1)
        cells = [FREE] * count
        cells[goal] = GOAL
        for cell in blocked:
            cells[cell] = WALL
        lengths = _distances(_targets(cells, height, width), goal)
        starts = [cell for cell, length in enumerate(lengths) if min_length <= length <= longest]
        if starts:
            cells[rng.choice(starts)] = START
            return Grid(["".join(cells[row * width : (row + 1) * width]) for row in range(height)])
    bounds = f"at least {min_length}" if max_length is None else f"{min_length} to {max_length}"
    raise MapError(
        f"no map of {height}×{width} cells with {walls} walls and a shortest way of {bounds} moves "
        f"in {_MAX_DRAWS} draws; widen the bounds, or change grid_size or wall_ratio"
    )


def _check_bounds(
    grid_size: int | Sequence[int], wall_ratio: float, min_length: int, max_length: int | None
) -> tuple[int, int]:
    sides = (grid_size, grid_size) if isinstance(grid_size, int) else tuple(grid_size)
    if len(sides) != 2 or not all(type(side) is int and 1 <= side <= MAX_SIDE for side in sides) or max(sides) < 2:
        raise MapError(f"grid_size must be 2 to {MAX_SIDE}, or a pair of numbers up to that, got {grid_size!r}")
    if not 0 <= wall_ratio < 1:
        raise MapError(f"wall_ratio must be at least 0 and less than 1, got {wall_ratio!r}")
    if type(min_length) is not int or min_length < 1:
        raise MapError(f"min_length must be a whole number of at least 1, got {min_length!r}")
    if max_length is not None and (type(max_length) is not int or max_length < min_length):
        raise MapError(f"max_length must be a whole number of at least min_length ({min_length}), got {max_length!r}")
    return sides[0], sides[1]
