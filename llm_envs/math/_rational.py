"""Exact values of trees that are built from rational numbers alone, within bounds on their size."""

from __future__ import annotations

import math
from fractions import Fraction

from llm_envs.math._nodes import Node, TooComplex

MAX_BITS = 20_000
MAX_FACTORIAL = 1000

SCALARS = frozenset("num sym const add mul neg div pow root fn app deg pct".split())
"""The kinds of node that stand for one value."""


class Undefined(ArithmeticError):
    """The expression has no value (division by zero)."""


def rational(node: Node) -> Fraction | None:
    """The exact value of ``node`` if it is built from rational numbers alone, else None.

    Raises:
        TooComplex: If numerator or denominator would exceed `MAX_BITS` bits.
        Undefined: On division by zero.
    """
    kind, args = node.kind, node.args
    if kind == "num":
        return _bounded(node.value)
    if kind in ("sym", "const", "app", "root", "deg") or kind not in SCALARS:
        return None
    values = []
    for argument in args:
        value = rational(argument)
        if value is None:
            return None
        values.append(value)
    if kind == "add":
        total = Fraction(0)
        for value in values:
            total = _bounded(total + value)
        return total
    if kind == "mul":
        total = Fraction(1)
        for value in values:
            total = _bounded(total * value)
        return total
    if kind == "neg":
        return -values[0]
    if kind == "div":
        if values[1] == 0:
            raise Undefined("division by zero")
        return _bounded(values[0] / values[1])
    if kind == "pct":
        return values[0] / 100
    if kind == "pow":
        return _power(values[0], values[1])
    return _function(str(node.value), values)


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise TooComplex(f"a number of more than {MAX_BITS} bits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return None
    power = exponent.numerator
    if base in (0, 1, -1):
        if base == 0 and power <= 0:
            if power == 0:
                return Fraction(1)
            raise Undefined("a negative power of zero")
        return base if power % 2 or base != -1 else Fraction(1)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if power.bit_length() > 32 or abs(power) * bits > MAX_BITS + bits:
        raise TooComplex(f"a power of about {bits} x {power.bit_length()}-bit size")
    return base**power


def _function(name: str, values: list[Fraction]) -> Fraction | None:
    if name == "abs":
        return abs(values[0])
    if name == "floor":
        return Fraction(values[0].__floor__())
    if name == "ceil":
        return Fraction(values[0].__ceil__())
    if name in ("factorial", "binomial"):
        if any(value.denominator != 1 or value < 0 for value in values):
            return None
        if any(value > MAX_FACTORIAL for value in values):
            raise TooComplex(f"a {name} of more than {MAX_FACTORIAL}")
        integers = [value.numerator for value in values]
        return Fraction(math.factorial(integers[0]) if name == "factorial" else math.comb(*integers))
    return None


def symbols(node: Node) -> set[str]:
    """The names of the symbols in ``node``."""
    if node.kind == "sym":
        return {str(node.value)}
    found: set[str] = set()
    for child in node.args:
        found |= symbols(child)
    return found


def infinite(node: Node) -> int:
    """+1 or -1 if ``node`` is plus or minus infinity, 0 if it is anything else."""
    if node.kind == "const" and node.value == "oo":
        return 1
    return -infinite(node.args[0]) if node.kind == "neg" else 0
