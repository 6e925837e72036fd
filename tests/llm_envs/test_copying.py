"""Copies of episode state are independent, and share only what cannot change."""

from __future__ import annotations

import enum
import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest

from llm_envs.copying import copy_state
from llm_envs.outcome import Outcome
from llm_envs.tasks import Task


class Side(enum.Enum):
    LEFT = 1


class Cell(NamedTuple):
    row: int
    column: int


class Bag(NamedTuple):
    name: str
    items: list


@dataclass
class Notes:
    lines: list = field(default_factory=list)


class Table(dict):
    pass


def shout():
    return "!"


@pytest.mark.parametrize(
    "value",
    ["text", 7, 2.5, None, True, (1, ("a", b"b"), frozenset()), (), Side.LEFT, Cell(1, 2), Task("t", "?", ""), shout],
    ids=str,
)  # fmt: skip
def test_what_cannot_change_is_shared(value):
    assert copy_state(value) is value
    assert copy_state([value])[0] is value
    assert copy_state({"key": value})["key"] is value


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, [2]], lambda v: v[1].append(3)),
        ({"a": {"b": [1]}}, lambda v: v["a"]["b"].append(2)),
        (([1], 2), lambda v: v[0].append(2)),
        ((1, (2, ([3],))), lambda v: v[1][1][0].append(4)),
        ({1, 2}, lambda v: v.add(3)),
        (deque([[1]], maxlen=3), lambda v: v[0].append(2)),
        (bytearray(b"ab"), lambda v: v.append(99)),
        (Bag("b", [1]), lambda v: v.items.append(2)),
        (Notes(["x"]), lambda v: v.lines.append("y")),
        (Table(a=[1]), lambda v: v["a"].append(2)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_can_change_is_copied(value, change):
    before = repr(value)
    copied = copy_state(value)
    assert type(copied) is type(value)
    assert repr(copied) == before
    change(copied)
    assert repr(value) == before
    assert repr(copied) != before


def test_a_deque_keeps_its_bound():
    assert copy_state(deque([1], maxlen=2)).maxlen == 2


def test_arrays_are_copied_with_what_they_hold():
    numbers, objects = np.arange(3), np.array([[1], None], dtype=object)
    state = copy_state({"numbers": numbers, "objects": objects})
    state["numbers"][0] = 9
    state["objects"][0].append(2)
    assert numbers[0] == 0
    assert objects[0] == [1]


@pytest.mark.parametrize("make", [lambda: random.Random(5), lambda: np.random.default_rng(5)], ids=["random", "numpy"])
def test_generators_go_on_alike_and_apart(make):
    generator, reference = make(), make()
    assert generator.random() == reference.random()
    copied = copy_state(generator)
    assert [copied.random() for _ in range(3)] == [reference.random() for _ in range(3)]
    again = make()
    again.random()
    assert generator.random() == again.random()


def test_an_outcome_that_an_environment_keeps_is_copied():
    outcome = Outcome(next="player_0", info={"player_0": {"seen": [1]}})
    copied = copy_state(outcome)
    assert copied == outcome
    copied.info["player_0"]["seen"].append(2)
    assert outcome.info["player_0"]["seen"] == [1]
