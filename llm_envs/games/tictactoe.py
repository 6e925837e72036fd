"""Rules of tic-tac-toe, with the value of every position. Knows nothing of environments.

A position is two 9-bit masks, the cells of the first and of the second player; cell ``c`` is bit ``1 << c``, numbered
0 to 8 row by row. Who is to move follows from the number of marks.

>>> board_text(0b000010000, 0b000000001).splitlines()[0]
' O | 1 | 2'
>>> legal_cells(0b000010000, 0b000000001)
(1, 2, 3, 5, 6, 7, 8)
"""

from __future__ import annotations

import random
from functools import cache

CELLS = 9
FULL = (1 << CELLS) - 1
LINES = (0b000000111, 0b000111000, 0b111000000, 0b001001001, 0b010010010, 0b100100100, 0b100010001, 0b001010100)
"""The three rows, the three columns and the two diagonals."""

HAS_LINE = bytes(any(mask & line == line for line in LINES) for mask in range(FULL + 1))
"""Whether the cells of a mask hold a line, by mask."""


@cache
def free_cells(occupied: int) -> tuple[int, ...]:
    """The cells that are not in the mask ``occupied``, in order."""
    return tuple(cell for cell in range(CELLS) if not occupied >> cell & 1)


def is_over(first: int, second: int) -> bool:
    """Whether the position is won or full."""
    return bool(HAS_LINE[first] or HAS_LINE[second]) or first | second == FULL


def legal_cells(first: int, second: int) -> tuple[int, ...]:
    """The cells that may be marked now: the free ones, and none once the game is over."""
    return () if is_over(first, second) else free_cells(first | second)


@cache
def score(own: int, other: int) -> int:
    """The result of the position under perfect play, for the player to move, whose cells are ``own``.

    0 for a draw; a win counts 10 less the number of marks on the final board, a loss the negative of that: the sooner a
    game is won the better, and the later it is lost.
    """
    if HAS_LINE[other]:
        return (own | other).bit_count() - 10
    free = free_cells(own | other)
    return max((-score(other, own | 1 << cell) for cell in free), default=0)


def value(own: int, other: int) -> int:
    """1, 0 or -1: whether the player to move, whose cells are ``own``, wins, draws or loses under perfect play."""
    found = score(own, other)
    return (found > 0) - (found < 0)


@cache
def best_cell(own: int, other: int) -> int:
    """The best cell for the player to move; of equally good ones the first.

    Raises:
        ValueError: The game is over.
    """
    if is_over(own, other):
        raise ValueError("there is no move: the game is over")
    return max(free_cells(own | other), key=lambda cell: -score(other, own | 1 << cell))


def board_text(first: int, second: int) -> str:
    """The board as text: X for the first player, O for the second, the number of a free cell."""
    cells = ["X" if first >> c & 1 else "O" if second >> c & 1 else str(c) for c in range(CELLS)]
    return "\n---+---+---\n".join(" " + " | ".join(cells[row : row + 3]) for row in (0, 3, 6))


def random_opening(rng: random.Random, plies: int) -> list[int]:
    """``plies`` random legal moves (at most 4, so that no game is over after them)."""
    return rng.sample(range(CELLS), plies)
