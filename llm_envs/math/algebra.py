"""Exact decisions about scalars and sets of reals, for the grading worker.

Imports sympy: never import this in a trainer's process.

A difference is first evaluated numerically with 1,300 bits. Far from zero (beyond any rounding), the answers differ.
Near zero, equality has to be *proved*: for algebraic constants by a separation bound (a number built from integers by
+ - * / and roots is zero if it is smaller than a bound computed from the expression), for the rest by sympy's exact
arithmetic. What is neither refuted nor proved raises TooComplex.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath  # type: ignore[import-untyped]
import sympy
from mpmath import mpf

from llm_envs.math._numeric import NOISE_BITS, Evaluator, as_real, magnitude
from llm_envs.math._rational import Undefined, infinite, rational, symbols
from llm_envs.math._separation import MAX_SEPARATION_BITS, separation_bits
from llm_envs.math.equality import interval_of
from llm_envs.math.expressions import Node, TooComplex

BITS = 1300
MAX_TERMS = 2000
MAX_SIMPLIFY_OPERATIONS = 150
# Where expressions with symbols are compared: every point gives each symbol another sign and size.
_POINTS = 4


# Zero tests


def constant_is_zero(node: Node) -> bool:
    """Whether a tree without symbols is exactly zero.

    Raises:
        TooComplex: If it cannot be told.
        Undefined: If it has no value.
    """
    if not _looks_zero(node, {}, BITS):
        return False
    needed = separation_bits(node)
    if needed is not None and needed <= MAX_SEPARATION_BITS:
        return _below(node, needed)
    return _proved_zero(node)


def _below(node: Node, bits: int) -> bool:
    """Whether the value is below 2^-bits, evaluated with enough precision to see it."""
    with mpmath.workprec(2 * bits + BITS):
        evaluator = Evaluator(2 * bits + BITS, {})
        return magnitude(evaluator(node)) <= -bits


def _looks_zero(node: Node, point: dict[str, Fraction], bits: int) -> bool:
    with mpmath.workprec(bits):
        evaluator = Evaluator(bits, point)
        value = evaluator(node)
        return magnitude(value) < max(evaluator.scale, 0) - NOISE_BITS


def _point(names: set[str], index: int) -> dict[str, Fraction]:
    """Fixed rational values for the symbols, of both signs and no special relation to each other."""
    return {
        name: Fraction(
            (-1 if (rank + index) % 2 else 1) * (10007 + 6389 * rank + 4447 * index + 211 * rank * rank),
            8191 + 1021 * index,
        )
        for rank, name in enumerate(sorted(names))
    }


def _refuted(node: Node) -> bool:
    """Whether the tree is not zero at some point where it has a value."""
    names = symbols(node)
    for index in range(_POINTS if names else 1):
        try:
            if not _looks_zero(node, _point(names, index), BITS):
                return True
        except Undefined:
            if not names:
                raise
    return False


def _proved_zero(node: Node) -> bool:
    """Prove by sympy that the tree, which is numerically next to zero, is zero or a rational number that is not.

    Raises:
        TooComplex: If no proof was found.
    """
    if _terms(node) > MAX_TERMS:
        raise TooComplex(f"an expansion of more than {MAX_TERMS} terms")
    difference = to_sympy(node)
    for step in (lambda d: d, sympy.expand, lambda d: sympy.cancel(sympy.together(d))):
        reduced = step(difference)
        if reduced == 0:
            return True
        if reduced.is_Rational:
            return False
    if sympy.count_ops(difference) <= MAX_SIMPLIFY_OPERATIONS and sympy.simplify(difference) == 0:
        return True
    raise TooComplex("numerically equal, but no proof was found")


def _terms(node: Node) -> int:
    """An upper bound of the number of terms after expansion."""
    counts = [_terms(child) for child in node.args]
    if node.kind == "add":
        return sum(counts)
    if node.kind == "pow":
        exponent = rational(node.args[1])
        if exponent is not None and exponent.denominator == 1 and counts[0] > 1:
            power = min(abs(exponent.numerator), 10**6)
            return (
                min(math.comb(power + counts[0] - 1, counts[0] - 1), 10**9)
                if power < 10**4 and counts[0] < 100
                else 10**9
            )
    return min(math.prod(counts), 10**9)


# Trees to sympy


def to_sympy(node: Node) -> sympy.Expr:
    """The sympy expression of a scalar tree; numbers become exact Rationals, symbols are real."""
    kind = node.kind
    if kind in ("pow", "fn"):
        rational(node)  # raises TooComplex for an integer that sympy must not be given to write out
    if kind == "num":
        return sympy.Rational(node.value.numerator, node.value.denominator)
    if kind == "sym":
        return sympy.Symbol(str(node.value), real=True)
    if kind == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "oo": sympy.oo}[node.value]
    values = [to_sympy(argument) for argument in node.args]
    if kind == "add":
        return sympy.Add(*values)
    if kind in ("mul", "app"):
        return sympy.Mul(*values)
    if kind == "neg":
        return -values[0]
    if kind == "div":
        return values[0] / values[1]
    if kind == "deg":
        return values[0] * sympy.pi / 180
    if kind == "pct":
        return values[0] / 100
    if kind == "root":
        return _sympy_root(values[0], int(node.value))
    if kind == "pow":
        exponent = values[1]
        if exponent.is_Rational and exponent.q % 2 and exponent.q > 1:
            return _sympy_root(values[0], exponent.q) ** exponent.p
        return values[0] ** exponent
    return _sympy_function(str(node.value), values)


def _sympy_root(value: sympy.Expr, degree: int) -> sympy.Expr:
    if degree % 2 and value.is_real:
        return (
            sympy.sign(value) * sympy.root(sympy.Abs(value), degree)
            if not value.is_nonnegative
            else sympy.root(value, degree)
        )
    return sympy.root(value, degree)


_SYMPY_FUNCTIONS = {
    **{
        name: getattr(sympy, name)
        for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "exp", "floor")
    },
    **{"arc" + name: getattr(sympy, "a" + name) for name in ("sin", "cos", "tan")},
    "arccot": lambda x: sympy.pi / 2 - sympy.atan(x),
    "ln": sympy.log,
    "log": sympy.log,
    "lg": lambda x: sympy.log(x, 10),
    "abs": sympy.Abs,
    "ceil": sympy.ceiling,
    "factorial": sympy.factorial,
    "binomial": sympy.binomial,
}


def _sympy_function(name: str, values: list[sympy.Expr]) -> sympy.Expr:
    return _SYMPY_FUNCTIONS[name](*values)


# What the equality rules ask


class SympyAlgebra:
    """The `llm_envs.math.equality.Algebra` of the worker."""

    def scalars_equal(self, left: Node, right: Node) -> bool:
        """Whether two scalars are the same constant, or the same function of their symbols (as real variables)."""
        return _is_zero(Node("add", (left, Node("neg", (right,)))))

    def proportional(self, left: Node, right: Node, *, positive: bool) -> bool:
        """Whether ``left = c * right`` for a constant c that is not zero (and positive, if asked)."""
        names = symbols(left) | symbols(right)
        if not names:
            return _is_zero(left) == _is_zero(right)
        for index in range(_POINTS):
            point = {name: Node("num", (), value) for name, value in _point(names, index).items()}
            here_left, here_right = _substitute(left, point), _substitute(right, point)
            try:
                if _refuted(here_left) and _refuted(here_right):
                    break
            except Undefined:
                continue
        else:
            return False
        if not _is_zero(
            Node("add", (Node("mul", (left, here_right)), Node("neg", (Node("mul", (right, here_left)),))))
        ):
            return False
        with mpmath.workprec(BITS):
            evaluator = Evaluator(BITS, {})
            ratio = as_real(evaluator(here_left) / evaluator(here_right))
        return not positive or (isinstance(ratio, mpf) and ratio > 0)

    def sets_equal(self, left: Node, right: Node) -> bool:
        """Whether two sets of reals (intervals, unions, finite sets, inequalities in one symbol) are the same set."""
        first, second = _to_set(left), _to_set(right)
        if first == second:
            return True
        for difference in (first - second, second - first):
            empty = difference.is_empty
            if empty is None:
                raise TooComplex("sets whose difference cannot be decided")
            if not empty:
                return False
        return True


def _is_zero(node: Node) -> bool:
    try:
        if not symbols(node):
            return constant_is_zero(node)
        return not _refuted(node) and _proved_zero(node)
    except Undefined:
        return False


def _substitute(node: Node, point: dict[str, Node]) -> Node:
    if node.kind == "sym":
        return point[str(node.value)]
    return Node(node.kind, tuple(_substitute(child, point) for child in node.args), node.value)


def _to_set(node: Node) -> sympy.Set:
    if node.kind == "named":
        return getattr(sympy.S, str(node.value))
    if node.kind == "set":
        return sympy.FiniteSet(*(_real(item) for item in node.args))
    if node.kind == "pair":
        return _interval(node.value, *node.args)
    if node.kind == "setop":
        left, right = (_to_set(child) for child in node.args)
        if node.value == "cup":
            return left | right
        return left & right if node.value == "cap" else left - right
    if node.kind in ("and", "or"):
        sets = [_to_set(child) for child in node.args]
        return sympy.Union(*sets) if node.kind == "or" else sympy.Intersection(*sets)
    interval = interval_of(node)
    if interval is None:
        raise TooComplex(f"a {node.kind} as a set")
    return _interval(*interval[:3])


def _interval(brackets: str, lower: Node, upper: Node) -> sympy.Set:
    return sympy.Interval(_real(lower), _real(upper), left_open=brackets[0] == "(", right_open=brackets[1] == ")")


def _real(node: Node) -> sympy.Expr:
    if sign := infinite(node):
        return sign * sympy.oo
    if symbols(node):
        raise TooComplex("a set with a symbol in an end")
    with mpmath.workprec(BITS):
        Evaluator(BITS, {})(node)  # raises where the value is too large or there is none
    value = to_sympy(node)
    if value.is_real is not True:
        raise TooComplex("a set with an end that is no real constant")
    return value
