"""A solver for Sokoban: any solution fast, or a shortest one.

Both searches go from push to push, so that walking costs no search; positions that
:mod:`llm_envs.planning.sokoban_bounds` knows to be lost are cut off, and its lower bound on the pushes guides the
search. How much a search may do is counted in positions, never in seconds: the result is the same on every machine.

>>> from llm_envs.planning.sokoban import parse_level
>>> start = parse_level("######\\n#@ $.#\\n######")
>>> solve(start)
Solution(status='solved', moves=('R', 'R'), positions=1)
"""

from __future__ import annotations

import heapq
from typing import Literal, NamedTuple

from llm_envs.planning.sokoban import MOVES, Room, State
from llm_envs.planning.sokoban_bounds import bounds, reachable

__all__ = ["DEFAULT_POSITIONS", "Solution", "shortest", "solve"]

DEFAULT_POSITIONS = 200_000
"""Positions that a search expands before it gives up."""

_WEIGHT = 5
"""Weight of the lower bound against the pushes made (weighted A*; 1 would be A*)."""


_Position = tuple[int, int]
"""The boxes, and the cells where the worker may be."""
_Parents = dict[_Position, tuple[_Position, int, int] | None]
"""Where a position was reached from: the position before, the cell of the box that was pushed, and by how much."""


class Solution(NamedTuple):
    """What a search found.

    Attributes:
        status: ``"solved"``; ``"unsolvable"``, which is certain; or ``"undecided"`` when the budget is used up.
        moves: If solved, the moves from the state asked about to a solved one; else moves towards the most promising
            position that was seen (perhaps none), which solve nothing.
        positions: How many positions were expanded.
    """

    status: Literal["solved", "unsolvable", "undecided"]
    moves: tuple[str, ...]
    positions: int


def solve(start: State, *, max_positions: int = DEFAULT_POSITIONS) -> Solution:
    """Find a solution, not necessarily a short one: weighted A* on pushes.

    A position is the boxes and the region that the worker can walk in.

    Args:
        start: Where to start.
        max_positions: The budget.
    """
    room, table = start.room, bounds(start.room)
    stride, floor, live, goals = room.stride, room.floor, table.live, room.goals
    shifts = tuple(room.shifts.values())
    estimates: dict[int, int | None] = {start.boxes: table.pushes(start.boxes)}
    first = estimates[start.boxes]
    if first is None:
        return Solution("unsolvable", (), 0)
    root = start.boxes, reachable(1 << start.worker, floor & ~start.boxes, stride)
    parents: _Parents = {root: None}
    queue = [(_WEIGHT * first, first, 0, 0, root)]
    best, best_estimate = root, first
    order = expanded = 0
    while queue:
        _, estimate, _, pushes, position = heapq.heappop(queue)
        boxes, region = position
        if estimate < best_estimate:
            best, best_estimate = position, estimate
        if boxes == goals:
            return Solution("solved", _walk(start, parents, position), expanded)
        if expanded >= max_positions:
            return Solution("undecided", _walk(start, parents, best), expanded)
        expanded += 1
        pushes += 1
        room_for_box = live & ~boxes
        for shift in shifts:
            movable = _pushable(boxes, region, room_for_box, shift)
            while movable:
                low = movable & -movable
                movable ^= low
                after = boxes ^ low ^ (low << shift if shift > 0 else low >> -shift)
                if after in estimates:
                    left = estimates[after]
                else:
                    left = estimates[after] = table.pushes(after)
                if left is None:
                    continue
                following = after, reachable(low, floor & ~after, stride)
                if following in parents:
                    continue
                parents[following] = position, low.bit_length() - 1, shift
                order += 1
                # Of equals, the one nearer to the goals, then the newest: depth first where the bound is exact.
                heapq.heappush(queue, (pushes + _WEIGHT * left, left, -order, pushes, following))
    return Solution("unsolvable", _walk(start, parents, best), expanded)


def shortest(start: State, *, max_positions: int = DEFAULT_POSITIONS) -> Solution:
    """Find a solution with the fewest moves (steps of the worker, pushes included): A*.

    Exact: a result that is solved has no shorter one. It takes far more positions than :func:`solve`, because where the
    worker stands is part of a position; meant for small rooms and few boxes.

    Args:
        start: Where to start.
        max_positions: The budget.
    """
    room, table = start.room, bounds(start.room)
    stride, floor, live, goals = room.stride, room.floor, table.live, room.goals
    shifts = tuple(room.shifts.values())
    estimates: dict[int, int | None] = {start.boxes: table.pushes(start.boxes)}
    first = estimates[start.boxes]
    if first is None:
        return Solution("unsolvable", (), 0)
    root = start.boxes, 1 << start.worker
    parents: _Parents = {root: None}
    length = {root: 0}
    queue = [(first, first, 0, 0, root)]
    best, best_estimate = root, first
    order = expanded = 0
    while queue:
        _, estimate, _, moves, position = heapq.heappop(queue)
        if moves > length[position]:
            continue
        boxes, worker = position
        if estimate < best_estimate:
            best, best_estimate = position, estimate
        if boxes == goals:
            return Solution("solved", _walk(start, parents, position), expanded)
        if expanded >= max_positions:
            return Solution("undecided", _walk(start, parents, best), expanded)
        expanded += 1
        room_for_box = live & ~boxes
        free = floor & ~boxes
        region = ring = worker
        while ring:  # the cells that are exactly so many steps away
            moves += 1
            for shift in shifts:
                movable = _pushable(boxes, ring, room_for_box, shift)
                while movable:
                    low = movable & -movable
                    movable ^= low
                    after = boxes ^ low ^ (low << shift if shift > 0 else low >> -shift)
                    if after in estimates:
                        left = estimates[after]
                    else:
                        left = estimates[after] = table.pushes(after)
                    following = after, low
                    if left is None or length.get(following, moves + 1) <= moves:
                        continue
                    parents[following] = position, low.bit_length() - 1, shift
                    length[following] = moves
                    order += 1
                    heapq.heappush(queue, (moves + left, left, -order, moves, following))
            ring = (ring << 1 | ring >> 1 | ring << stride | ring >> stride) & free & ~region
            region |= ring
    return Solution("unsolvable", _walk(start, parents, best), expanded)


def _pushable(boxes: int, region: int, room_for_box: int, shift: int) -> int:
    """The boxes that a worker who walks in ``region`` can push by ``shift`` onto one of the cells ``room_for_box``."""
    if shift > 0:
        return boxes & region << shift & room_for_box >> shift
    return boxes & region >> -shift & room_for_box << -shift


def _walk(
    start: State,
    parents: _Parents,
    position: _Position,
) -> tuple[str, ...]:
    """The moves that make the pushes on the way to ``position``, with the shortest walks between them."""
    pushes = []
    while (entry := parents[position]) is not None:
        position, cell, shift = entry
        pushes.append((position[0], cell, shift))
    room, worker = start.room, start.worker
    letters = {shift: move for move, shift in room.shifts.items()}
    moves: list[str] = []
    for boxes, cell, shift in reversed(pushes):
        moves += path(room, boxes, worker, cell - shift)
        moves.append(letters[shift])
        worker = cell
    return tuple(moves)


def path(room: Room, boxes: int, worker: int, target: int) -> list[str]:
    """A shortest walk from ``worker`` to ``target``: of several the first in the order of the moves, U, D, L, R.

    Raises:
        ValueError: There is no way.
    """
    free = room.floor & ~boxes
    layers = [(1 << target) & free]
    while not layers[-1] >> worker & 1:
        ahead = layers[-1]
        wider = (ahead << 1 | ahead >> 1 | ahead << room.stride | ahead >> room.stride) & free
        if len(layers) > 1:
            wider &= ~layers[-2]
        if not wider:
            raise ValueError(f"no way from cell {worker} to cell {target}")
        layers.append(wider)
    moves = []
    for layer in reversed(layers[:-1]):
        move = next(move for move in MOVES if layer >> worker + room.shifts[move] & 1)
        moves.append(move)
        worker += room.shifts[move]
    return moves
