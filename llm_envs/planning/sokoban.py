"""The rules of Sokoban, and levels as text in the format of Boxoban.

A worker walks on the floor of a warehouse and pushes boxes, one at a time and never pulling, until every box stands on
a goal. A :class:`Room` is what does not change (floor and goals), a :class:`State` is a room with the worker and the
boxes in it. Both are immutable. A set of cells is one integer with a bit for each cell.

The text format is that of Boxoban and most level collections::

    #  wall        $  box        @  worker
       floor       *  box on a goal
    .  goal        +  worker on a goal

>>> state = parse_level("#####\\n#@$.#\\n#####")
>>> solved(apply(state, "R"))
True
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

__all__ = [
    "LEGEND",
    "MOVES",
    "IllegalMove",
    "LevelError",
    "Room",
    "State",
    "apply",
    "bits",
    "illegal_reason",
    "parse_level",
    "render",
    "solved",
]

MOVES = ("U", "D", "L", "R")
"""Up, down, left, right."""

LEGEND = "# wall, (space) floor, . goal, $ box, * box on a goal, @ you, + you on a goal"

_NAMES = {"U": "up", "D": "down", "L": "left", "R": "right"}
_SYMBOLS = "# .$*@+"


class LevelError(ValueError):
    """A level cannot be read. The message says where and why."""


class IllegalMove(ValueError):
    """A move that the rules do not allow. The message is the reason as an agent reads it."""


class _Immutable:
    """Copies of what cannot change are the thing itself, so that forking an environment costs nothing."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed (attribute {name!r})")


class Room(_Immutable):
    """Floor and goals.

    Cell (row, column) of the text has the number ``(row + 1) * stride + column + 1``, where ``stride`` is the width
    plus 2: the ring of cells around the text is never floor, so that shifting a set of cells by ``±1`` or ``±stride``
    moves all of them and none comes in again on the other side.

    Attributes:
        widths: Length of each row of the text. What lies beyond the end of a row is outside and counts as wall.
        stride: Distance between the numbers of a cell and the one below.
        floor: The cells that are not wall, as bits.
        goals: The goal cells, as bits.
        shifts: By how much each of :data:`MOVES` changes the number of a cell.
    """

    __slots__ = ("_hash", "floor", "goals", "shifts", "stride", "widths")

    widths: tuple[int, ...]
    stride: int
    floor: int
    goals: int
    shifts: dict[str, int]

    def __init__(self, widths: Iterable[int], floor: int, goals: int) -> None:
        widths = tuple(widths)
        stride = max(widths, default=0) + 2
        shifts = {"U": -stride, "D": stride, "L": -1, "R": 1}
        values = (hash((widths, floor, goals)), floor, goals, shifts, stride, widths)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Room):
            return NotImplemented
        return (self.widths, self.floor, self.goals) == (other.widths, other.floor, other.goals)

    def __hash__(self) -> int:
        return int(self._hash)  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[object, ...]:
        return Room, (self.widths, self.floor, self.goals)

    def __repr__(self) -> str:
        return f"Room({len(self.widths)}×{self.stride - 2}, {self.goals.bit_count()} goals)"

    def cell(self, row: int, column: int) -> int:
        """The number of the cell at (row, column) of the text, both from 0."""
        return (row + 1) * self.stride + column + 1


class State(_Immutable):
    """A room with the worker and the boxes in it.

    Attributes:
        room: What does not change.
        worker: The number of the worker's cell.
        boxes: The cells with a box, as bits.
    """

    __slots__ = ("boxes", "room", "worker")

    room: Room
    worker: int
    boxes: int

    def __init__(self, room: Room, worker: int, boxes: int) -> None:
        object.__setattr__(self, "room", room)
        object.__setattr__(self, "worker", worker)
        object.__setattr__(self, "boxes", boxes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self.worker == other.worker and self.boxes == other.boxes and self.room == other.room

    def __hash__(self) -> int:
        return hash((self.room, self.worker, self.boxes))

    def __reduce__(self) -> tuple[object, ...]:
        return State, (self.room, self.worker, self.boxes)

    def __repr__(self) -> str:
        return f"State({render(self)!r})"


def bits(cells: int) -> Iterator[int]:
    """The numbers of the cells in a set, in ascending order."""
    while cells:
        low = cells & -cells
        yield low.bit_length() - 1
        cells ^= low


# ---- rules ---------------------------------------------------------------------------------------------------------


def illegal_reason(state: State, move: str) -> str | None:
    """Why ``move`` is not legal in ``state``, or None if it is.

    Args:
        state: Where the move is made.
        move: One of :data:`MOVES`; anything else is illegal.
    """
    room = state.room
    shift = room.shifts.get(move)
    if shift is None:
        return f"{move!r} is not a move; the moves are {', '.join(MOVES)}"
    target = state.worker + shift
    if not room.floor >> target & 1:
        return f"there is a wall {_where(move)}"
    if not state.boxes >> target & 1:
        return None
    beyond = target + shift
    if not room.floor >> beyond & 1:
        return f"the box {_where(move)} would be pushed into a wall"
    if state.boxes >> beyond & 1:
        return f"the box {_where(move)} has another box behind it, and only one can be pushed"
    return None


def apply(state: State, move: str) -> State:
    """The state after ``move``: one step, which pushes the box that stands there, if one does.

    Args:
        state: Where the move is made.
        move: One of :data:`MOVES`.

    Raises:
        IllegalMove: The way is blocked by a wall, or by a box that cannot be pushed; or there is no such move.
    """
    reason = illegal_reason(state, move)
    if reason is not None:
        raise IllegalMove(reason)
    shift = state.room.shifts[move]
    target = state.worker + shift
    boxes = state.boxes
    if boxes >> target & 1:
        boxes ^= 1 << target | 1 << (target + shift)
    return State(state.room, target, boxes)


def solved(state: State) -> bool:
    """Whether every box stands on a goal."""
    return state.boxes == state.room.goals


def _where(move: str) -> str:
    return {"U": "above you", "D": "below you"}.get(move) or f"to your {_NAMES[move]}"


# ---- text ----------------------------------------------------------------------------------------------------------


def parse_level(text: str, *, place: str = "level", first_line: int = 1) -> State:
    """The start of the one level in ``text``.

    Rows may differ in length: what lies beyond the end of a row is outside, which nothing can enter.

    Args:
        text: Rows in the format above.
        place: File or other origin, for messages.
        first_line: Number of the first row in it, for messages.

    Raises:
        LevelError: There are no rows, an unknown character, not exactly one worker, no box, or not as many boxes as
            goals.
    """
    rows = text.rstrip("\n").split("\n") if text.strip() else []
    if not rows:
        raise LevelError(f"{place}:{first_line}: the level has no rows")
    stride = max(map(len, rows)) + 2
    cells = dict.fromkeys(_SYMBOLS, 0)
    for number, row in enumerate(rows):
        for column, symbol in enumerate(row):
            if symbol not in cells:
                raise LevelError(
                    f"{place}:{first_line + number}: unknown character {symbol!r} in column {column + 1}; a level is "
                    f"written with {LEGEND}"
                )
            cells[symbol] |= 1 << ((number + 1) * stride + column + 1)
    workers, boxes, goals = cells["@"] | cells["+"], cells["$"] | cells["*"], cells["."] | cells["*"] | cells["+"]
    lines = f"{place}:{first_line}" if len(rows) == 1 else f"{place}:{first_line}-{first_line + len(rows) - 1}"
    if workers.bit_count() != 1:
        raise LevelError(f"{lines}: a level has exactly one worker (@ or +), found {workers.bit_count()}")
    if boxes.bit_count() != goals.bit_count():
        raise LevelError(
            f"{lines}: a level has as many boxes ($ or *) as goals (., * or +), found {boxes.bit_count()} and "
            f"{goals.bit_count()}"
        )
    if not boxes:
        raise LevelError(f"{lines}: a level has at least one box ($ or *), found none")
    floor = workers | boxes | goals | cells[" "]
    return State(Room(map(len, rows), floor, goals), workers.bit_length() - 1, boxes)


def render(state: State, *, floor: str = " ") -> str:
    """The text of ``state``: rows joined by line ends. ``render(parse_level(text)) == text``.

    Args:
        state: What to write.
        floor: How empty floor is written, where spaces could get lost.
    """
    room, boxes, worker = state.room, state.boxes, state.worker
    rows = []
    for number, width in enumerate(room.widths):
        start = (number + 1) * room.stride + 1
        row = []
        for cell in range(start, start + width):
            goal = room.goals >> cell & 1
            if cell == worker:
                row.append("@+"[goal])
            elif boxes >> cell & 1:
                row.append("$*"[goal])
            elif room.floor >> cell & 1:
                row.append("." if goal else floor)
            else:
                row.append("#")
        rows.append("".join(row))
    return "\n".join(rows)
