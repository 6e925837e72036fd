"""Blocks world in words: problems from facts such as ``on a b``, and operators from what an agent writes.

>>> from llm_envs.planning.blocksworld import apply
>>> problem = Problem.from_facts(["a", "b"], ["on b a", "ontable a", "clear b", "handempty"], ["on a b"])
>>> problem.initial
(-1, 0)
>>> state = problem.initial
>>> for text in ("unstack b a", "put-down b", "pick-up a", "stack a b"):
...     state = apply(state, problem.operator(text))
>>> problem.goal.holds(state), problem.facts(state)
(True, ('on a b', 'ontable b', 'clear a', 'handempty'))
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llm_envs.planning.blocksworld import ARITY, HAND, TABLE, Goal, Operator, State, clear_blocks, held_block

__all__ = ["FactError", "OperatorError", "Problem"]

BLOCK_NAME = re.compile(r"[a-z][a-z0-9_-]*")

# Names as in the natural language of LLMs-Planning: "unstack the red block from on top of the blue block".
_ONE, _FILLERS = r"(?:the )?(\S+)(?: block)?", frozenset({"the", "block", "on", "onto", "top", "of", "from", "off"})
_NATURAL = {
    "pick-up": re.compile(rf"pick[ -]?up {_ONE}"),
    "put-down": re.compile(rf"put[ -]?down {_ONE}"),
    "stack": re.compile(rf"stack {_ONE} (?:on top of|onto|on) {_ONE}"),
    "unstack": re.compile(rf"unstack {_ONE} (?:from on top of|from|off) {_ONE}"),
}


class FactError(ValueError):
    """Facts that describe no state, or a goal that no state fulfils. The message names the fact."""


class OperatorError(ValueError):
    """A text that is no operator. The message says what is expected."""


@dataclass(frozen=True)
class Problem:
    """Blocks with names, an initial state and a goal.

    Attributes:
        names: The names of the blocks, in lower case; block ``i`` is ``names[i]``.
        initial: The initial state.
        goal: The goal.
    """

    names: tuple[str, ...]
    initial: State
    goal: Goal

    def __deepcopy__(self, memo: dict[int, Any]) -> Problem:
        return self

    @classmethod
    def from_facts(cls, blocks: Iterable[str], initial: Iterable[str], goal: Iterable[str]) -> Problem:
        """A problem from facts such as ``"on a b"``, ``"ontable b"``, ``"clear a"``, ``"holding c"``, ``"handempty"``.

        Args:
            blocks: The names of the blocks.
            initial: Exactly the facts that hold at first, in any order. A fact may stand in brackets, as in PDDL.
            goal: At least one fact, and one that does not hold at first; ``holding`` is not offered.

        Raises:
            FactError: A name or a fact is malformed, the facts describe no single state, or the goal holds at first or
                in no state.
        """
        names = tuple(name.lower() for name in blocks)
        if not names:
            raise FactError("there are no blocks")
        for name in names:
            if not BLOCK_NAME.fullmatch(name) or names.count(name) > 1:
                raise FactError(f"{name!r} cannot name one block: use a-z, digits, - and _, and each name once")
        number = {name: index for index, name in enumerate(names)}
        given = [_fact(text, number) for text in initial]
        wanted = [_fact(text, number) for text in goal]
        problem = cls(names, _state(given, names), _goal(wanted, names))
        if problem.goal.holds(problem.initial):
            raise FactError("the goal holds in the initial state: there is nothing to plan")
        return problem

    def facts(self, state: State) -> tuple[str, ...]:
        """The facts that hold in ``state``: positions in the order of the blocks, what is clear, the hand."""
        positions = [self._position(block, support) for block, support in enumerate(state) if support != HAND]
        held = held_block(state)
        hand = "handempty" if held is None else f"holding {self.names[held]}"
        return (*positions, *(f"clear {self.names[block]}" for block in clear_blocks(state)), hand)

    @property
    def goal_facts(self) -> tuple[str, ...]:
        """The facts of the goal."""
        positions = [self._position(block, place) for block, place in enumerate(self.goal.place) if place is not None]
        clear = [f"clear {self.names[block]}" for block in self.goal.clear]
        return (*positions, *clear, *(["handempty"] if self.goal.handempty else []))

    def _position(self, block: int, support: int) -> str:
        return f"ontable {self.names[block]}" if support == TABLE else f"on {self.names[block]} {self.names[support]}"

    @cached_property
    def _number(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def _natural(self) -> bool:
        return not _FILLERS & self._number.keys()

    def text(self, operator: Operator) -> str:
        """``operator`` as an agent writes it: ``"stack a b"``."""
        name, block, other = operator
        return f"{name} {self.names[block]}" + ("" if other is None else f" {self.names[other]}")

    def operator(self, text: str) -> Operator:
        """The operator that ``text`` names.

        Case and spacing do not matter, one pair of round brackets may stand around it, and the sentences of
        LLMs-Planning (``"stack the a block on top of the b block"``) are understood unless a block has a name such as
        ``on`` or ``the`` that makes them ambiguous.

        Raises:
            OperatorError: It names none.
        """
        plain = text.strip().lower()
        if plain.startswith("(") and plain.endswith(")"):
            plain = plain[1:-1]
        words = plain.split()
        if words and words[0] in ARITY and len(words) == 1 + ARITY[words[0]]:
            return Operator(words[0], *(self._block(name, text) for name in words[1:]))
        if self._natural:
            sentence = " ".join(words)
            for name, pattern in _NATURAL.items():
                if match := pattern.fullmatch(sentence):
                    return Operator(name, *(self._block(block, text) for block in match.groups()))
        raise OperatorError(
            f"{text.strip()[:60]!r} is not an operator; write pick-up x, put-down x, stack x y or unstack x y."
        )

    def _block(self, name: str, text: str) -> int:
        number = self._number.get(name)
        if number is None:
            raise OperatorError(
                f"{text.strip()[:60]!r}: there is no block {name[:30]!r}. Blocks: {', '.join(self.names)}."
            )
        return number


_FACTS = {"on": 2, "ontable": 1, "clear": 1, "holding": 1, "handempty": 0}
_Fact = tuple[str, tuple[int, ...], str]


def _fact(text: str, number: dict[str, int]) -> _Fact:
    words = text.lower().replace("(", " ").replace(")", " ").split()
    if not words or _FACTS.get(words[0]) != len(words) - 1:
        raise FactError(f"{text!r} is not a fact; write on x y, ontable x, clear x, holding x or handempty")
    unknown = [word for word in words[1:] if word not in number]
    if unknown:
        raise FactError(f"the fact {text!r} names {unknown[0]!r}, which is not one of the blocks: {', '.join(number)}")
    return words[0], tuple(number[word] for word in words[1:]), " ".join(words)


def _supports(facts: Sequence[_Fact]) -> dict[int, int]:
    """What each block rests on by ``facts``: at most one thing, at most one block on another, and no circle."""
    support: dict[int, int] = {}
    for name, blocks, text in facts:
        if name not in ("on", "ontable", "holding"):
            continue
        place = {"on": blocks[-1], "ontable": TABLE, "holding": HAND}[name]
        if support.get(blocks[0], place) != place:
            raise FactError(f"the fact {text!r} puts a block in a second place")
        if place != TABLE and any(other == place and block != blocks[0] for block, other in support.items()):
            raise FactError(f"the fact {text!r} needs a place that another block has")
        support[blocks[0]] = place
    for start in support:
        block, steps = start, 0
        while block in support and steps <= len(support):
            block, steps = support[block], steps + 1
        if steps > len(support):
            raise FactError("the facts put blocks on one another in a circle")
    return support


def _state(facts: Sequence[_Fact], names: Sequence[str]) -> State:
    support = _supports(facts)
    missing = [name for block, name in enumerate(names) if block not in support]
    if missing:
        raise FactError(f"the initial facts do not say where {missing[0]} is: on, ontable or holding")
    state = tuple(support[block] for block in range(len(names)))
    stated = {(name, blocks) for name, blocks, _ in facts}
    for block in clear_blocks(state):
        if ("clear", (block,)) not in stated:
            raise FactError(f"nothing is on {names[block]}, but the initial facts do not have 'clear {names[block]}'")
    for name, blocks, text in facts:
        if name == "clear" and blocks[0] not in clear_blocks(state):
            raise FactError(f"the initial facts have {text!r}, but that block is covered or held")
    if (HAND in state) == (("handempty", ()) in stated):
        raise FactError("the initial facts must have either 'handempty' or one 'holding' fact")
    for block, place in enumerate(state):
        if HAND in state and place == state.index(HAND):
            raise FactError(f"{names[block]} is on {names[place]}, which is in the hand")
    return state


def _goal(facts: Sequence[_Fact], names: Sequence[str]) -> Goal:
    if not facts:
        raise FactError("the goal has no facts")
    if held := [text for name, _, text in facts if name == "holding"]:
        raise FactError(f"the goal {held[0]!r} is not offered: goals are on, ontable, clear and handempty facts")
    support = _supports(facts)
    clear = tuple(sorted({blocks[0] for name, blocks, _ in facts if name == "clear"}))
    for block in clear:
        if block in support.values():
            raise FactError(f"no state fulfils the goal: {names[block]} is to be clear and to carry a block")
    place = tuple(support.get(block) for block in range(len(names)))
    return Goal(place, clear, any(name == "handempty" for name, _, _ in facts))
