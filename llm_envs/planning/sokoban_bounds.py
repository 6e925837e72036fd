"""How far the boxes of a Sokoban room are from its goals, and positions that are lost.

Everything here holds for a room as such and is computed once for each (:func:`bounds`): how many pushes a box that is
alone in the room needs from a cell to a goal, and from which cells it cannot be brought to any. The cheapest assignment
of boxes to goals under these distances is a lower bound on the number of pushes that are left. Junghanns and Schaeffer,
"Sokoban: Enhancing general single-agent search methods using domain knowledge", Artificial Intelligence 129 (2001),
describe the bound and the deadlocks.
"""

from __future__ import annotations

from functools import lru_cache

from llm_envs.planning.sokoban import Room, bits

__all__ = ["Bounds", "assignment", "bounds", "reachable"]


def reachable(start: int, free: int, stride: int) -> int:
    """The cells that can be walked to from ``start`` without leaving ``free``; all three are sets of cells."""
    region = start
    while True:
        wider = (region | region << 1 | region >> 1 | region << stride | region >> stride) & free
        if wider == region:
            return region
        region = wider


def assignment(costs: list[list[int | None]]) -> int | None:
    """The least total cost of giving each row a column of its own, None if that cannot be done.

    The Hungarian method by shortest augmenting paths, O(n³).

    Args:
        costs: A square matrix; None where a row cannot have a column.
    """
    size = len(costs)
    row_of = [size] * (size + 1)  # the row that has a column; column `size` stands for "none yet"
    row_price, column_price = [0] * (size + 1), [0] * (size + 1)
    for new in range(size):
        row_of[size] = new
        column = size
        slack: list[int | None] = [None] * size
        via = [size] * size
        done = [False] * (size + 1)
        while row_of[column] < size:
            done[column] = True
            row = row_of[column]
            best, best_column = None, size
            for other in range(size):
                if done[other]:
                    continue
                cost = costs[row][other]
                if cost is not None:
                    reduced = cost - row_price[row] - column_price[other]
                    known = slack[other]
                    if known is None or reduced < known:
                        slack[other], via[other] = reduced, column
                least = slack[other]
                if least is not None and (best is None or least < best):
                    best, best_column = least, other
            if best is None:
                return None
            for other in range(size + 1):
                if done[other]:
                    row_price[row_of[other]] += best
                    column_price[other] -= best
                elif other < size:
                    least = slack[other]
                    if least is not None:
                        slack[other] = least - best
            column = best_column
        while column != size:
            row_of[column] = row_of[via[column]]
            column = via[column]
    return -column_price[size]


class Bounds:
    """Distances and deadlocks of one room.

    Attributes:
        room: The room.
        live: The cells from which a box alone in the room can be brought to some goal, as bits.
        distances: By cell number, the pushes to each goal (in ascending order of goals); None where it cannot be had.
            Only live cells have an entry.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        goals = list(bits(room.goals))
        table: dict[int, list[int | None]] = {}
        for index, goal in enumerate(goals):
            for cell, pushes in _pushes_to(room, goal).items():
                table.setdefault(cell, [None] * len(goals))[index] = pushes
        self.distances = table
        self.live = sum(1 << cell for cell in table)

    def pushes(self, boxes: int) -> int | None:
        """A lower bound on the pushes that bring ``boxes`` to the goals, None if they cannot be brought there.

        None is certain: the boxes are lost. A number is no promise that they are not.
        """
        if boxes & ~self.live or self._frozen_off_goal(boxes):
            return None
        return assignment([self.distances[box] for box in bits(boxes)])

    def _frozen_off_goal(self, boxes: int) -> bool:
        """Whether one of ``boxes`` stands off the goals and can never move again."""
        return any(self._frozen(box, boxes, 0) for box in bits(boxes & ~self.room.goals))

    def _frozen(self, cell: int, boxes: int, fixed: int) -> bool:
        """Whether the box on ``cell`` can move along neither axis if the boxes ``fixed`` cannot move."""
        fixed |= 1 << cell
        walls = ~self.room.floor | fixed
        for shift in (1, self.room.stride):
            sides = 1 << (cell - shift) | 1 << (cell + shift)
            if sides & walls or not sides & self.live:
                continue  # a wall on one side, or a cell on both where the box would be lost
            if not any(self._frozen(box, boxes, fixed) for box in bits(sides & boxes)):
                return False
        return True


@lru_cache(maxsize=1024)
def bounds(room: Room) -> Bounds:
    """The :class:`Bounds` of ``room``; those of the rooms that were used last are kept."""
    return Bounds(room)


def _pushes_to(room: Room, goal: int) -> dict[int, int]:
    """By cell, the least pushes that bring a box alone in the room from there to ``goal``, the worker where it helps.

    Breadth first from the goal, backwards, over (cell of the box, region of the worker): which side of the box the
    worker can come to is part of the position.
    """
    floor, stride = room.floor, room.stride
    found: dict[int, int] = {goal: 0}
    around = sum(1 << (goal + shift) for shift in room.shifts.values()) & floor
    layer: list[tuple[int, int]] = []
    seen: set[tuple[int, int]] = set()
    for side in bits(around):
        position = goal, reachable(1 << side, floor & ~(1 << goal), stride)
        if position not in seen:
            seen.add(position)
            layer.append(position)
    pushes = 0
    while layer:
        pushes += 1
        following = []
        for box, region in layer:
            for shift in room.shifts.values():
                before, worker = box - shift, box - 2 * shift
                # Pushed from `before` to `box`, the worker ends where the box was.
                if not region >> before & 1 or not floor >> worker & 1:
                    continue
                position = before, reachable(1 << worker, floor & ~(1 << before), stride)
                if position not in seen:
                    seen.add(position)
                    following.append(position)
                    found.setdefault(before, pushes)
        layer = following
    return found
