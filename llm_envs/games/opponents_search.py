"""Minimax over an OpenSpiel position: deepened step by step until the position is solved or a budget is spent.

The budget counts positions, not seconds, so that a move does not depend on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyspiel

_MARGIN = 1e-9
_EXACT, _AT_LEAST, _AT_MOST = 0, 1, 2


class OutOfPositions(Exception):
    """The search may visit no further position."""


class Search:
    """Alpha-beta search with a transposition table, for deterministic two-player games of perfect information.

    What lies beyond the horizon counts as a draw. A position is taken for the same as another one if it looks the same
    and the same player is to move: repetitions, which some games forbid or count, are not seen.

    Args:
        state: The position, of a player who is to move.
        draw: What a draw pays.
        nodes: How many positions may be visited in all.
    """

    def __init__(self, state: pyspiel.State, *, draw: float, nodes: int) -> None:
        self._state = state
        self._me = state.current_player()
        self._draw = draw
        self._left = nodes
        self._cut = False
        self._table: dict[tuple[int, str], tuple[int, int, float]] = {}  # depth, kind of bound, value
        self._best: dict[tuple[int, str], int] = {}  # also of lesser depths: tried first, it cuts most

    def best_moves(self, depth: int | None = None) -> list[int]:
        """Return the moves of equally high value at the greatest depth that was finished, in ascending order.

        The search ends early where it is complete, and at the first depth that finds a won move or only lost ones: it
        thus takes the shortest win that it sees, and of lost positions the moves that lose last.

        Args:
            depth: Moves to look ahead at most; None goes on until the position is solved.
        """
        moves: list[int] = sorted(self._state.legal_actions())
        best, win, loss = moves, self._state.get_game().max_utility(), self._state.get_game().min_utility()
        reached = 0
        while len(best) > 1 and (depth is None or reached < depth):
            reached += 1
            self._cut = False
            self._table.clear()  # what a lesser depth saw may have been cut off at its horizon
            try:
                value, found = self._rank(moves, reached)
            except OutOfPositions:
                break
            if value <= loss + _MARGIN and reached > 1:
                break
            best = found
            if value >= win - _MARGIN or not self._cut:
                break
            # The best moves of this depth first: the next one then cuts more.
            moves = [*found, *(move for move in moves if move not in found)]
        return sorted(best)

    def _rank(self, moves: list[int], depth: int) -> tuple[float, list[int]]:
        value, found = -float("inf"), []
        for move in moves:
            # A window just below the best value so far: a move of that very value is told from a worse one.
            got = self._value(self._state.child(move), depth - 1, value - _MARGIN, float("inf"))
            if got > value + _MARGIN / 2:
                value, found = got, [move]
            elif got > value - _MARGIN / 2:
                found.append(move)
        return value, found

    def _value(self, state: pyspiel.State, depth: int, low: float, high: float) -> float:
        """Return the value for the searching player, exact between ``low`` and ``high``, else a bound."""
        if self._left <= 0:
            raise OutOfPositions
        self._left -= 1
        if state.is_terminal():
            return float(state.player_return(self._me))
        if depth == 0:
            self._cut = True
            return self._draw
        player = state.current_player()
        key = (player, str(state))
        known = self._table.get(key)
        if known is not None and known[0] == depth:
            _, kind, value = known
            if kind == _EXACT or (kind == _AT_LEAST and value >= high) or (kind == _AT_MOST and value <= low):
                return value
        sign = 1.0 if player == self._me else -1.0
        moves = state.legal_actions()
        first = self._best.get(key)
        if first is not None:
            moves = [first, *(move for move in moves if move != first)]
        best, best_move = -float("inf"), moves[0]
        floor, ceiling = (low, high) if sign > 0 else (-high, -low)
        alpha = floor
        for move in moves:
            window = (alpha, ceiling) if sign > 0 else (-ceiling, -alpha)
            got = sign * self._value(state.child(move), depth - 1, *window)
            if got > best:
                best, best_move = got, move
            alpha = max(alpha, got)
            if alpha >= ceiling:
                break
        value = sign * best
        if best <= floor:
            kind = _AT_MOST if sign > 0 else _AT_LEAST
        elif best >= ceiling:
            kind = _AT_LEAST if sign > 0 else _AT_MOST
        else:
            kind = _EXACT
        self._table[key] = (depth, kind, value)
        self._best[key] = best_move
        return value
