"""Blocks world: states, operators and goals. Pure rules.

The domain is the one with four operators, as PDDL files have it (STRIPS; Gupta and Nau, "On the complexity of
blocks-world planning", Artificial Intelligence 56, 1992):

=================  =============================================  =============================================
operator           needs                                          does
=================  =============================================  =============================================
``pick-up x``      hand empty, x clear, x on the table            hand holds x
``put-down x``     hand holds x                                   x on the table, hand empty
``stack x y``      hand holds x, y clear                          x on y, hand empty
``unstack x y``    hand empty, x clear, x on y                    hand holds x
=================  =============================================  =============================================

A state is a tuple: entry ``i`` is what block ``i`` rests on, as the number of a block, :data:`TABLE` or :data:`HAND`.
At most one block is in the hand. A block is clear when it is not in the hand and nothing is on it.

>>> tower = (TABLE, 0)  # block 1 on block 0
>>> illegal(tower, Operator("pick-up", 0), "ab")
'a is not clear: b is on it'
>>> apply(tower, Operator("unstack", 1, 0)), Goal((None, TABLE)).holds((TABLE, TABLE))
((-1, -2), True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "ARITY",
    "HAND",
    "TABLE",
    "Goal",
    "Operator",
    "State",
    "apply",
    "clear_blocks",
    "held_block",
    "illegal",
    "legal_operators",
]

State = tuple[int, ...]
TABLE, HAND = -1, -2

ARITY = {"pick-up": 1, "put-down": 1, "stack": 2, "unstack": 2}
"""The operators and how many blocks each names."""


class Operator(NamedTuple):
    """An operator with its blocks.

    Attributes:
        name: A key of :data:`ARITY`.
        block: The block that is moved.
        other: The block that it is stacked on or unstacked from, None for the other operators.
    """

    name: str
    block: int
    other: int | None = None


def held_block(state: State) -> int | None:
    """The block in the hand, None if it is empty."""
    return state.index(HAND) if HAND in state else None


def clear_blocks(state: State) -> list[int]:
    """The blocks that are not in the hand and have nothing on them, in order."""
    return [block for block, support in enumerate(state) if support != HAND and block not in state]


def legal_operators(state: State) -> list[Operator]:
    """Every operator that is legal in ``state``, in a fixed order."""
    clear = clear_blocks(state)
    held = held_block(state)
    if held is not None:
        return [Operator("put-down", held), *(Operator("stack", held, other) for other in clear)]
    return [
        Operator("pick-up", block) if state[block] == TABLE else Operator("unstack", block, state[block])
        for block in clear
    ]


def apply(state: State, operator: Operator) -> State:
    """The state after ``operator``, which must be legal (see :func:`illegal`): it is not checked here."""
    name, block, other = operator
    if name == "put-down":
        support = TABLE
    elif name == "stack" and other is not None:
        support = other
    else:
        support = HAND
    return (*state[:block], support, *state[block + 1 :])


def illegal(state: State, operator: Operator, names: Sequence[str]) -> str | None:
    """Why ``operator`` cannot be applied in ``state``, None if it can.

    Args:
        state: The state.
        operator: The operator.
        names: The names of the blocks, for the reason.
    """
    name, block, other = operator
    held = held_block(state)
    if name in ("put-down", "stack"):
        if held != block:
            return f"the hand does not hold {names[block]}: it {_hand(held, names)}"
        if other is None:
            return None
        return f"{names[other]} cannot be stacked on itself" if other == block else _covered(state, other, names)
    if held is not None:
        return f"the hand is not empty: it {_hand(held, names)}"
    support = state[block]
    if name == "pick-up" and support != TABLE:
        return f"{names[block]} is not on the table but on {names[support]}: it takes an unstack"
    if name == "unstack" and support != other:
        where = "on the table" if support == TABLE else f"on {names[support]}"
        return f"{names[block]} is not on {names[other or 0]} but {where}"
    return _covered(state, block, names)


def _hand(held: int | None, names: Sequence[str]) -> str:
    return "is empty" if held is None else f"holds {names[held]}"


def _covered(state: State, block: int, names: Sequence[str]) -> str | None:
    return f"{names[block]} is not clear: {names[state.index(block)]} is on it" if block in state else None


@dataclass(frozen=True, slots=True)
class Goal:
    """What a final state must fulfil; it may leave blocks free.

    Attributes:
        place: For each block what it must rest on (a block, or :data:`TABLE`), None where the goal does not say.
        clear: The blocks that must be clear.
        handempty: Whether the hand must be empty.
    """

    place: tuple[int | None, ...]
    clear: tuple[int, ...] = ()
    handempty: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Goal:
        return self

    def holds(self, state: State) -> bool:
        """Whether ``state`` fulfils the goal."""
        for support, wanted in zip(state, self.place, strict=True):
            if wanted is not None and support != wanted:
                return False
        if self.handempty and HAND in state:
            return False
        return all(block not in state and state[block] != HAND for block in self.clear)
