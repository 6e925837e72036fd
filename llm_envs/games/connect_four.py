"""Rules of connect four on a board of any size, as bit masks. Knows nothing of environments.

A position is two masks, the discs of the first and of the second player. Column ``c`` of a board of height ``h`` holds
the bits ``c * (h + 1)`` (bottom) to ``c * (h + 1) + h - 1``; the bit above them stays empty, so that a line shifted by
a row or a diagonal never runs from one column's top into the next one's bottom.

>>> game = ConnectFour()
>>> first, second = game.play(0, 0, 3)
>>> game.legal_columns(first, second)
(0, 1, 2, 3, 4, 5, 6)
>>> game.board_text(first, second).splitlines()[-1]
'. . . X . . .'
"""

from __future__ import annotations

import random
from typing import Any

WIDTH, HEIGHT, CONNECT = 7, 6, 4


class ConnectFour:
    """The rules on one size of board. Immutable: games and forks share it.

    Args:
        width: Number of columns.
        height: Number of rows.
        connect: Length of a winning line.

    Raises:
        ValueError: A number is not positive, or no line of that length fits on the board.
    """

    def __init__(self, width: int = WIDTH, height: int = HEIGHT, connect: int = CONNECT) -> None:
        if min(width, height, connect) < 1:
            raise ValueError(f"width, height and connect must be positive, got {width}, {height}, {connect}")
        if connect > max(width, height):
            raise ValueError(f"no line of {connect} fits on a board of {width} columns and {height} rows")
        self.width, self.height, self.connect = width, height, connect
        stride = height + 1
        self.bottoms = tuple(1 << column * stride for column in range(width))
        self.columns = tuple(((1 << height) - 1) << column * stride for column in range(width))
        self.tops = tuple(1 << column * stride + height - 1 for column in range(width))
        self.full = sum(self.columns)
        self.top_row = sum(self.tops)
        # Up, right, and the two diagonals. Each turns a mask of discs into the starts of lines by halving and overlap.
        self._shifts = tuple(_doubling(step, connect) for step in (1, stride, stride - 1, stride + 1))

    def __copy__(self) -> ConnectFour:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ConnectFour:
        return self

    def has_line(self, discs: int) -> bool:
        """Whether the discs of one player hold a line of ``connect``: up, across, or diagonal."""
        for shifts in self._shifts:
            starts = discs
            for shift in shifts:
                starts &= starts >> shift
            if starts:
                return True
        return False

    def is_over(self, first: int, second: int) -> bool:
        """Whether the position is won or full."""
        return first | second == self.full or self.has_line(first) or self.has_line(second)

    def legal_columns(self, first: int, second: int) -> tuple[int, ...]:
        """The columns that take a disc now: those that are not full, and none once the game is over."""
        if self.is_over(first, second):
            return ()
        return tuple(c for c in range(self.width) if not (first | second) & self.tops[c])

    def cell(self, occupied: int, column: int) -> int:
        """The bit in which a disc that is dropped into ``column`` comes to rest; 0 if the column is full."""
        return (occupied + self.bottoms[column]) & self.columns[column]

    def play(self, first: int, second: int, column: int) -> tuple[int, int]:
        """The position after the player to move drops a disc into ``column``.

        Raises:
            ValueError: The column is full or not on the board, or the game is over.
        """
        if column not in self.legal_columns(first, second):
            raise ValueError(f"column {column} takes no disc now; legal: {self.legal_columns(first, second)}")
        cell = self.cell(first | second, column)
        return (first | cell, second) if first.bit_count() == second.bit_count() else (first, second | cell)

    def rows(self, first: int, second: int) -> list[str]:
        """The rows from the top down, a character a cell: ``X`` the first player's disc, ``O`` the second's, ``.``."""
        stride = self.height + 1
        bits = [[1 << c * stride + r for c in range(self.width)] for r in reversed(range(self.height))]
        return ["".join("X" if first & bit else "O" if second & bit else "." for bit in row) for row in bits]

    def board_text(self, first: int, second: int) -> str:
        """The board as text, column numbers on top."""
        return "\n".join(" ".join(row) for row in [[str(c % 10) for c in range(self.width)], *self.rows(first, second)])

    def random_opening(self, rng: random.Random, plies: int) -> list[int]:
        """``plies`` random legal columns after which the game is not over.

        Raises:
            ValueError: There is no such opening (1,000 random ones were tried).
        """
        for _ in range(1_000):
            first = second = 0
            played: list[int] = []
            while len(played) < plies and (legal := self.legal_columns(first, second)):
                played.append(rng.choice(legal))
                first, second = self.play(first, second, played[-1])
            if len(played) == plies and not self.is_over(first, second):
                return played
        raise ValueError(f"every game that was tried is over within {plies} moves; open with fewer")


def _doubling(step: int, length: int) -> tuple[int, ...]:
    """Shifts that leave, one after the other, the starts of the runs of ``length`` cells ``step`` apart."""
    shifts, covered = [], 1
    while covered < length:
        add = min(covered, length - covered)
        shifts.append(add * step)
        covered += add
    return tuple(shifts)
