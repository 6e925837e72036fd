"""Exact decisions about scalars and sets of reals, for the grading worker.

Imports sympy: never import this in a trainer's process.

A difference is first evaluated numerically with 1,300 bits. Far from zero (beyond any rounding), the answers differ.
Near zero, equality has to be *proved*: for algebraic constants by a separation bound (a number built from integers by
+ - * / and roots is zero if it is smaller than a bound computed from the expression), for the rest by sympy's exact
arithmetic. What is neither refuted nor proved raises TooComplex.

Separation bound: C. Burnikel, S. Funke, K. Mehlhorn, S. Schirra, S. Schmitt, "A separation bound for real algebraic
expressions" (Algorithmica 55, 2009), Theorem 1. Its proof bounds all conjugates of numerator and denominator (by u and
l), so it holds for complex roots too.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath  # type: ignore[import-untyped]
import sympy
from mpmath import mpc, mpf

from llm_envs.math.equality import Undefined, infinite, interval_of, rational, symbols
from llm_envs.math.expressions import Node, TooComplex

BITS = 1300
NOISE_BITS = 600
MAX_SEPARATION_BITS = 20_000
MAX_MAGNITUDE_BITS = 100_000
MAX_FACTORIAL_BITS = 10
MAX_TERMS = 2000
MAX_SIMPLIFY_OPERATIONS = 150
# Where expressions with symbols are compared: every point gives each symbol another sign and size.
_POINTS = 4


class Evaluator:
    """Numerical value of a tree at a point, with ``bits`` of working precision.

    Odd roots of negative reals are real; other powers and roots are principal values.

    Attributes:
        scale: The largest magnitude of any intermediate value, log2: rounding errors are relative to it.
    """

    def __init__(self, bits: int, point: dict[str, Fraction]) -> None:
        self.bits = bits
        self.point = point
        self.scale = 0

    def __call__(self, node: Node) -> mpf | mpc:
        """The value of ``node``; raises Undefined or TooComplex where it has none within bounds."""
        value = self._value(node)
        if not mpmath.isfinite(value):
            raise Undefined("an infinite value")
        magnitude = _magnitude(value)
        if magnitude > MAX_MAGNITUDE_BITS:
            raise TooComplex(f"a value of about 2^{magnitude}")
        self.scale = max(self.scale, magnitude)
        return value

    def _value(self, node: Node) -> mpf | mpc:
        kind, args = node.kind, node.args
        if kind == "num":
            return mpf(node.value.numerator) / node.value.denominator
        if kind == "sym":
            value = self.point[str(node.value)]
            return mpf(value.numerator) / value.denominator
        if kind == "const":
            if node.value == "oo":
                raise Undefined("infinity inside an expression")
            return {"pi": mpmath.pi, "e": mpmath.e}[node.value] + 0 if node.value != "i" else mpc(0, 1)
        values = [self(argument) for argument in args]
        if kind == "add":
            return mpmath.fsum(values)
        if kind in ("mul", "app"):
            return mpmath.fprod(values)
        if kind == "neg":
            return -values[0]
        if kind == "div":
            return values[0] / self._nonzero(values[1])
        if kind == "deg":
            return values[0] * mpmath.pi / 180
        if kind == "pct":
            return values[0] / 100
        if kind == "root":
            return self._root(values[0], int(node.value))
        if kind == "pow":
            return self._power(values[0], values[1], args[1])
        return self._function(str(node.value), values)

    def _nonzero(self, value: mpf | mpc) -> mpf | mpc:
        if _magnitude(value) < -NOISE_BITS:
            raise Undefined("division by zero, or by a number that cannot be told from it")
        return value

    def _root(self, value: mpf | mpc, degree: int) -> mpf | mpc:
        value = _as_real(value)
        if degree % 2 and isinstance(value, mpf) and value < 0:
            return -mpmath.root(-value, degree)
        return mpmath.root(value, degree)

    def _power(self, base: mpf | mpc, exponent: mpf | mpc, node: Node) -> mpf | mpc:
        exact = rational(node)
        if base == 0:
            if exact is None or exact < 0:
                raise Undefined("a power of zero")
            return mpf(1) if exact == 0 else mpf(0)
        size = abs(exponent) * abs(mpmath.log(abs(base)) if abs(base) != 1 else 0)
        if size > MAX_MAGNITUDE_BITS or _magnitude(exponent) > 40:
            raise TooComplex(f"a power of magnitude e^{mpmath.nstr(size, 5)}")
        if exact is not None and exact.denominator == 1:
            return base**exact.numerator
        if exact is not None and exact.denominator % 2 and exact.denominator <= 100:
            return self._root(base, exact.denominator) ** exact.numerator
        return mpmath.power(base, exponent)

    def _function(self, name: str, values: list[mpf | mpc]) -> mpf | mpc:
        value = values[0]
        if name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "exp"):
            if _magnitude(value) > 14:
                raise TooComplex(f"{name} of a number beyond 2^14")
            if name in ("tan", "sec"):
                self._nonzero(mpmath.cos(value))
            if name in ("cot", "csc"):
                self._nonzero(mpmath.sin(value))
            if name == "coth":
                self._nonzero(value)
            return getattr(mpmath, name)(value)
        if name in ("arcsin", "arccos", "arctan"):
            return getattr(mpmath, name.replace("arc", "a"))(value)
        if name == "arccot":
            return mpmath.pi / 2 - mpmath.atan(value)
        if name in ("ln", "log", "lg"):
            result = mpmath.log(self._nonzero(value))
            base = mpf(10) if name == "lg" else values[1] if len(values) == 2 else None
            return result if base is None else result / self._nonzero(mpmath.log(self._nonzero(base)))
        if name == "abs":
            return abs(value)
        if name in ("floor", "ceil"):
            value = _as_real(value)
            if isinstance(value, mpc) or abs(value - mpmath.nint(value)) < mpf(2) ** -NOISE_BITS:
                raise TooComplex(f"the {name} of a number next to an integer")
            return getattr(mpmath, name)(value)
        values = [_as_real(value) for value in values]
        if any(isinstance(value, mpc) or _magnitude(value) > MAX_FACTORIAL_BITS for value in values):
            raise TooComplex(f"a {name} of a complex number or one beyond 2^{MAX_FACTORIAL_BITS}")
        try:
            return mpmath.factorial(values[0]) if name == "factorial" else mpmath.binomial(*values)
        except ValueError as error:  # a pole
            raise Undefined(f"a {name} without a value") from error


def _magnitude(value: mpf | mpc) -> int:
    """log2 of the magnitude, rounded up; very small for zero."""
    return int(mpmath.mag(value)) if value != 0 else -(10**9)


def _as_real(value: mpf | mpc) -> mpf | mpc:
    """Drop an imaginary part that is rounding noise."""
    if isinstance(value, mpc) and _magnitude(value.imag) < _magnitude(value.real) - NOISE_BITS:
        return value.real
    return value


# Zero tests


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
        return _magnitude(evaluator(node)) <= -bits


def _looks_zero(node: Node, point: dict[str, Fraction], bits: int) -> bool:
    with mpmath.workprec(bits):
        evaluator = Evaluator(bits, point)
        value = evaluator(node)
        return _magnitude(value) < max(evaluator.scale, 0) - NOISE_BITS


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
            ratio = _as_real(evaluator(here_left) / evaluator(here_right))
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
