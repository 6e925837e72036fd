"""Test cases and the rules of comparison. Nothing here runs a program.

The rules are exact. Text: blanks at line ends and empty lines at the end do not count, everything else does. Data (the
result of a call): equal as Python's plain data, except that True is not 1 and a NaN is never equal. Where, and only
where, a task gives a tolerance, numbers may differ by it, absolutely or relative to the expected one.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_SHOWN = 600
"""Characters of an input or output that are shown to an agent."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        input: Standard input; or, for a call, its arguments as a Python literal: ``"([1, 2], 3)"``.
        output: Expected standard output; or the expected result as a Python literal.
    """

    input: str
    output: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Case:
        """The case in an entry of ``Task.data``."""
        return cls(row["input"], row["output"])


def literal(text: str) -> Any:
    """The value of a Python literal.

    Raises:
        ValueError: ``text`` is not a literal.
    """
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"not a Python literal: {text:.80}") from error


def is_literal(text: str) -> bool:
    """Whether ``text`` is a Python literal."""
    try:
        literal(text)
    except ValueError:
        return False
    return True


def same_text(expected: str, got: str, tolerance: float | None = None) -> bool:
    r"""Whether an output is the expected one.

    >>> same_text("1 2\n3\n", "1 2  \n3\n\n\n"), same_text("1 2", "1  2"), same_text("0.5", "0.5000001")
    (True, False, False)
    >>> same_text("0.5 a", "0.5000001 a", tolerance=1e-6)
    True
    """
    theirs, ours = _lines(got), _lines(expected)
    if theirs == ours:
        return True
    if tolerance is None or len(theirs) != len(ours):
        return False
    for one, other in zip(ours, theirs, strict=True):
        if one == other:
            continue
        words = one.split(), other.split()
        if len(words[0]) != len(words[1]):
            return False
        if not all(a == b or _close(_number(a), _number(b), tolerance) for a, b in zip(*words, strict=True)):
            return False
    return True


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _close(expected: float | None, got: float | None, tolerance: float) -> bool:
    if expected is None or got is None:
        return False
    if math.isinf(expected) or math.isinf(got):
        return expected == got
    return abs(expected - got) <= tolerance * max(1.0, abs(expected))  # False for a NaN


def same_value(expected: Any, got: Any, tolerance: float | None = None) -> bool:
    """Whether a result is the expected one. Both are plain data.

    >>> same_value([1, 2.0], [1, 2]), same_value((1,), [1]), same_value(1, True), same_value(0.5, 0.50001)
    (True, False, False, False)
    """
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int | float) and isinstance(got, int | float):
        if expected == got:
            return True
        try:
            return tolerance is not None and _close(float(expected), float(got), tolerance)
        except OverflowError:  # An integer too large for a float.
            return False
    if type(expected) is not type(got):
        return False
    if isinstance(expected, list | tuple):
        return len(expected) == len(got) and all(
            same_value(one, other, tolerance) for one, other in zip(expected, got, strict=True)
        )
    if isinstance(expected, dict):
        return (
            expected.keys() == got.keys()
            and all(_twin(key, got) for key in expected)
            and all(same_value(item, got[key], tolerance) for key, item in expected.items())
        )
    if isinstance(expected, set | frozenset):
        return bool(expected == got) and all(_twin(key, got) for key in expected)
    return bool(expected == got)


def _twin(key: Any, others: Any) -> bool:
    """Whether the key of ``others`` that equals ``key`` is a bool only if ``key`` is."""
    if isinstance(key, int | float) and key in (0, 1):
        return any(other == key and isinstance(other, bool) == isinstance(key, bool) for other in others)
    return True


def shown(text: str) -> str:
    """``text`` as far as an agent is shown it."""
    text = text.rstrip("\n")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"


def call_text(entry_point: str, arguments: str) -> str:
    """How a call is written: ``f([1, 2], 3)`` for the arguments ``([1, 2], 3)``."""
    return f"{entry_point}({', '.join(map(repr, literal(arguments)))})"
