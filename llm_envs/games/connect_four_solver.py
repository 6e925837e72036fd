"""A connect-four player: alpha-beta search, deeper and deeper, within a number of positions.

The budget counts positions, not time: the same position gives the same move on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from llm_envs.games.connect_four import ConnectFour

WIN = 1_000_000
"""A win counts this less the number of discs on the final board, a loss the negative of that."""

DEFAULT_POSITIONS = 2_000
_LEAST_DEPTH = 2
"""Searched whatever it costs: winning at once, and not letting the other one win at once."""


class Found(NamedTuple):
    """What a search found.

    Attributes:
        column: The best move; of equally good ones the most central, then the leftmost.
        score: For the player to move: beyond ``WIN / 2`` in size a forced win or loss, 0 a draw if ``exact``, else an
            estimate.
        exact: Whether the score is the value of the position under perfect play.
        depth: How many moves ahead the search went to the end.
    """

    column: int
    score: int
    exact: bool
    depth: int


class _OutOfPositions(Exception):
    """The budget is used up: the iteration that it happened in is dropped."""


@lru_cache(maxsize=4_096)
def search(game: ConnectFour, first: int, second: int, positions: int | None = DEFAULT_POSITIONS) -> Found:
    """The best move for the player to move.

    Args:
        game: The rules.
        first: Discs of the first player.
        second: Discs of the second player.
        positions: Look at about so many positions; None: at as many as it takes to solve the game.

    Raises:
        ValueError: The game is over.
    """
    if game.is_over(first, second):
        raise ValueError("there is no move: the game is over")
    own, other = (first, second) if first.bit_count() == second.bit_count() else (second, first)
    left = (game.full & ~(own | other)).bit_count()
    looker = _Search(game, positions)
    found = looker.root(own, other, min(_LEAST_DEPTH, left), left)
    while not found.exact and found.depth < left:
        try:
            found = looker.root(own, other, found.depth + 1, left, limited=True, hint=found.column)
        except _OutOfPositions:
            break
    return found


class _Search:
    def __init__(self, game: ConnectFour, positions: int | None) -> None:
        self.game = game
        self.budget = positions
        self.seen = 0
        self.limited = False
        middle = (game.width - 1) / 2
        self.order = sorted(range(game.width), key=lambda column: (abs(column - middle), column))
        self.weights = _weights(game)
        self.table: dict[tuple[int, int], tuple[int, int]] = {}

    def root(
        self, own: int, other: int, depth: int, left: int, *, limited: bool = False, hint: int | None = None
    ) -> Found:
        """Search ``depth`` moves ahead, trying the column ``hint`` first."""
        self.limited = limited
        self.table.clear()
        game, occupied = self.game, own | other
        best, chosen = -2 * WIN, -1
        # The hint goes first only to narrow the window early; ties still go to the central column.
        for column in sorted(self.order, key=lambda c: c != hint):
            cell = game.cell(occupied, column)
            if not cell:
                continue
            # One less than the best so far: an equally good, more central column is to be recognised.
            score = self.after(own | cell, other, depth - 1, -2 * WIN, -(best - 1))
            if score > best or (score == best and self.order.index(column) < self.order.index(chosen)):
                best, chosen = score, column
        return Found(chosen, best, abs(best) > WIN // 2 or depth == left, depth)

    def after(self, own: int, other: int, depth: int, alpha: int, beta: int) -> int:
        """The score of a move that led to (``own``, ``other``), for the player who made it."""
        if self.game.has_line(own):
            return WIN - (own | other).bit_count()
        return -self.negamax(other, own, depth, alpha, beta)

    def negamax(self, own: int, other: int, depth: int, alpha: int, beta: int) -> int:
        """The score of a position in which nobody has won, for the player to move (fail-soft alpha-beta)."""
        self.seen += 1
        if self.limited and self.budget is not None and self.seen > self.budget:
            raise _OutOfPositions
        game, occupied = self.game, own | other
        if occupied == game.full:
            return 0
        if depth == 0:
            return self.estimate(own, other)
        known = self.table.get((own, other))
        if known is not None:
            low, high = known
            if low >= beta or low == high:
                return low
            if high <= alpha:
                return high
            alpha, beta = max(alpha, low), min(beta, high)
        moves = []
        for column in self.order:
            cell = game.cell(occupied, column)
            if cell:
                if game.has_line(own | cell):
                    return WIN - occupied.bit_count() - 1
                moves.append(cell)
        best, start = -2 * WIN, alpha
        for cell in moves:
            score = -self.negamax(other, own | cell, depth - 1, -beta, -max(alpha, best))
            if score > best:
                best = score
                if best >= beta:
                    break
        low, high = (-2 * WIN, 2 * WIN) if known is None else known
        if best > start:
            low = best
        if best < beta:
            high = best
        self.table[own, other] = (low, high)
        return best

    def estimate(self, own: int, other: int) -> int:
        """Cells through which more lines run are worth more."""
        return sum(w * ((own & mask).bit_count() - (other & mask).bit_count()) for w, mask in self.weights)


def _weights(game: ConnectFour) -> list[tuple[int, int]]:
    """(number of lines, mask of the cells that so many lines run through)."""
    stride = game.height + 1
    lines: dict[int, int] = {}
    for column in range(game.width):
        for row in range(game.height):
            for right, up in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(column + i * right, row + i * up) for i in range(game.connect)]
                if all(0 <= c < game.width and 0 <= r < game.height for c, r in cells):
                    for c, r in cells:
                        bit = 1 << c * stride + r
                        lines[bit] = lines.get(bit, 0) + 1
    weights: dict[int, int] = {}
    for bit, number in lines.items():
        weights[number] = weights.get(number, 0) | bit
    return sorted(weights.items())
