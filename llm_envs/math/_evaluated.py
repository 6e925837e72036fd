"""Whether an answer leaves arithmetic to do, such as ``3+4`` where ``7`` is asked for."""

from __future__ import annotations

import math
from fractions import Fraction

from llm_envs.math._nodes import Node
from llm_envs.math._rational import SCALARS, Undefined, infinite, rational

_OPERATIONS = frozenset(("add", "mul", "pow", "root", "fn", "div"))


def leaves_arithmetic(node: Node) -> bool:
    r"""Whether some part of the tree is an operation on rational numbers that has a rational value.

    Numbers in their usual forms leave nothing to do: ``-7``, ``3/4``, ``6/8``, ``2.5``, ``6 \times 10^{-5}``, ``50\%``.
    A fraction or ratio that is an integer (``12/4``, ``12:4``), a division sign (``7 \div 3``), a power (``2^3``), a
    root of a perfect power (``\sqrt{4}``), sums, products and functions of numbers do.
    """
    if node.kind == "ratio" and len(node.args) == 2:
        return leaves_arithmetic(Node("div", node.args))
    if node.kind in _OPERATIONS and not _is_number(node):
        if node.kind == "root":
            if _rational_root(node):
                return True
        else:
            try:
                if rational(node) is not None:
                    return True
            except Undefined:
                return True
    return not _is_number(node) and any(leaves_arithmetic(child) for child in node.args)


def is_numeric(node: Node) -> bool:
    r"""Whether all values in the tree are rational numbers or infinite; names in ``x = 7``, ``x \in S`` do not count.

    Where the gold is numeric, an answer that is not (``3+4+\pi-\pi``, ``7x/x``, ``\log_{10} 10^7``) hides the number.
    """
    if node.kind in SCALARS:
        try:
            return infinite(node) != 0 or rational(node) is not None
        except Undefined:
            return False
    return all(is_numeric(child) for child in node.args if not (node.kind == "rel" and child.kind in ("sym", "app")))


def _is_integer(node: Node) -> bool:
    if node.kind == "neg":
        return _is_integer(node.args[0])
    return node.kind == "num" and node.value.denominator == 1


def _is_number(node: Node) -> bool:
    """An integer, a decimal, a fraction of integers that is no integer, or a number in scientific notation."""
    if node.kind == "neg":
        return _is_number(node.args[0])
    if node.kind == "num":
        return True
    if node.kind == "div" and node.value is None and all(_is_integer(child) for child in node.args):
        bottom = rational(node.args[1])
        value = None if not bottom else rational(node)
        return value is not None and value.denominator != 1
    if node.kind == "mul" and len(node.args) == 2 and node.args[0].kind == "num":
        power = node.args[1]
        return power.kind == "pow" and power.args[0] == Node("num", (), Fraction(10)) and _is_integer(power.args[1])
    return False


def _rational_root(node: Node) -> bool:
    value = rational(node.args[0])
    if value is None:
        return False
    return all(_is_power(abs(part), int(node.value)) for part in (value.numerator, value.denominator))


def _is_power(number: int, degree: int) -> bool:
    """Whether ``number``, which is not negative, is the ``degree``-th power of an integer; by Newton's method."""
    if number < 2:
        return True
    if degree == 2:
        return math.isqrt(number) ** 2 == number
    root = 1 << -(-number.bit_length() // degree)  # not below the root
    while True:
        smaller = ((degree - 1) * root + number // root ** (degree - 1)) // degree
        if smaller >= root:
            return root**degree == number
        root = smaller
