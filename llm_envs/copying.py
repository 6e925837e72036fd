"""Copies of episode state, for forks: fast for what episodes are made of, right for everything else."""

from __future__ import annotations

import copy
import enum
import random
from collections import deque
from typing import Any

import numpy as np

from llm_envs.tasks import Task, TaskSet

__all__ = ["copy_state"]

_IMMUTABLE = frozenset({str, int, float, bool, type(None), bytes, complex, frozenset, range, Task})


def copy_state(value: Any) -> Any:
    """An independent copy of ``value``.

    Containers are copied all the way down, and generators with their state. What cannot change is shared: numbers,
    texts, tuples of such, tasks and task sets, members of enumerations, functions. Anything else goes through
    ``copy.deepcopy``, so that a class decides for itself (``__deepcopy__``) how much of it is copied.

    >>> state = {"board": ("X", "O"), "said": ["yes"]}
    >>> copied = copy_state(state)
    >>> copied["said"].append("no")
    >>> state["said"], copied["board"] is state["board"]
    (['yes'], True)
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    copier = _COPIERS.get(kind)
    if copier is not None:
        return copier(value)
    if isinstance(value, TaskSet | Task | enum.Enum) or callable(value):
        return value
    if isinstance(value, tuple):  # a named tuple: share it if nothing in it can change
        copied = [copy_state(item) for item in value]
        if all(new is old for new, old in zip(copied, value, strict=True)):
            return value
    return copy.deepcopy(value)


def _tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    for item in value:
        if type(item) not in _IMMUTABLE:
            break
    else:
        return value
    copied = tuple([copy_state(item) for item in value])
    return value if all(map(_same, copied, value)) else copied


def _same(new: Any, old: Any) -> bool:
    return new is old


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    copied = value.copy()
    for key, item in value.items():
        if type(item) not in _IMMUTABLE:
            copied[key] = copy_state(item)
    return copied


def _list(value: list[Any]) -> list[Any]:
    return [item if type(item) in _IMMUTABLE else copy_state(item) for item in value]


def _array(value: np.ndarray) -> np.ndarray:
    return copy.deepcopy(value) if value.dtype.hasobject else value.copy()


def _random(value: random.Random) -> random.Random:
    other = random.Random.__new__(random.Random)  # no seed is drawn: the state is set at once
    other.setstate(value.getstate())
    return other


_COPIERS: dict[type, Any] = {
    dict: _dict,
    list: _list,
    tuple: _tuple,
    set: set.copy,
    deque: lambda value: deque(map(copy_state, value), value.maxlen),
    bytearray: bytearray.copy,
    np.ndarray: _array,
    random.Random: _random,
}
