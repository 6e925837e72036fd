"""A bound below which an algebraic constant is zero.

C. Burnikel, S. Funke, K. Mehlhorn, S. Schirra, S. Schmitt, "A separation bound for real algebraic
expressions" (Algorithmica 55, 2009), Theorem 1. Its proof bounds all conjugates of numerator and denominator (by u and
l), so it holds for complex roots too.
"""

from __future__ import annotations

import math
from fractions import Fraction

from llm_envs.math._nodes import Node
from llm_envs.math._rational import rational

MAX_SEPARATION_BITS = 20_000


def separation_bits(node: Node) -> int | None:
    """A number b such that ``node`` is zero or larger than 2^-b; None unless it is an algebraic constant."""
    roots: dict[tuple[Node, int], int] = {}
    bounds = _bounds(node, roots)
    if bounds is None:
        return None
    degree = math.prod(roots.values())
    if degree > MAX_SEPARATION_BITS:
        return MAX_SEPARATION_BITS + 1
    upper, lower = bounds
    return math.ceil((degree - 1) * max(upper, 0.0) + lower) + 8


def _bounds(node: Node, roots: dict[tuple[Node, int], int]) -> tuple[float, float] | None:
    """log2 of the bounds (u, l) of the numerator's and denominator's conjugates; collects the root operations."""
    kind, args = node.kind, node.args
    if kind == "num":
        return math.log2(max(abs(node.value.numerator), 1)), math.log2(node.value.denominator)
    if kind == "const" and node.value == "i":
        roots[(Node("num", (), Fraction(-1)), 2)] = 2
        return 0.0, 0.0
    if kind not in ("add", "mul", "neg", "div", "pow", "root", "pct"):
        return None
    if kind == "pow":
        return _power_bounds(node, roots)
    children = []
    for argument in args:
        bounds = _bounds(argument, roots)
        if bounds is None:
            return None
        children.append(bounds)
    upper, lower = children[0]
    if kind == "root":
        return _root_bounds(args[0], int(node.value), (upper, lower), roots)
    if kind == "pct":
        return upper, lower + math.log2(100)
    for next_upper, next_lower in children[1:]:
        if kind == "add":
            upper, lower = max(upper + next_lower, next_upper + lower) + 1, lower + next_lower
        elif kind == "mul":
            upper, lower = upper + next_upper, lower + next_lower
        else:
            upper, lower = upper + next_lower, lower + next_upper
    return upper, lower


def _power_bounds(node: Node, roots: dict[tuple[Node, int], int]) -> tuple[float, float] | None:
    exponent = rational(node.args[1])
    bounds = _bounds(node.args[0], roots)
    if exponent is None or bounds is None:
        return None
    if exponent.denominator > 1:
        bounds = _root_bounds(node.args[0], exponent.denominator, bounds, roots)
    upper, lower = (abs(exponent.numerator) * bound for bound in bounds)
    return (upper, lower) if exponent > 0 else (lower, upper)


def _root_bounds(
    radicand: Node, degree: int, bounds: tuple[float, float], roots: dict[tuple[Node, int], int]
) -> tuple[float, float]:
    roots[(radicand, degree)] = degree
    upper, lower = bounds
    if upper >= lower:
        return (upper + (degree - 1) * lower) / degree, lower
    return upper, ((degree - 1) * upper + lower) / degree
