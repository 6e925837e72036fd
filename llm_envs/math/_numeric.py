"""Numerical values of trees at high precision, for the grading worker. Imports mpmath."""

from __future__ import annotations

from fractions import Fraction

import mpmath  # type: ignore[import-untyped]
from mpmath import mpc, mpf

from llm_envs.math._nodes import Node, TooComplex
from llm_envs.math._rational import Undefined, rational

NOISE_BITS = 600
MAX_MAGNITUDE_BITS = 100_000
MAX_FACTORIAL_BITS = 10


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
        size = magnitude(value)
        if size > MAX_MAGNITUDE_BITS:
            raise TooComplex(f"a value of about 2^{size}")
        self.scale = max(self.scale, size)
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
        if magnitude(value) < -NOISE_BITS:
            raise Undefined("division by zero, or by a number that cannot be told from it")
        return value

    def _root(self, value: mpf | mpc, degree: int) -> mpf | mpc:
        value = as_real(value)
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
        if size > MAX_MAGNITUDE_BITS or magnitude(exponent) > 40:
            raise TooComplex(f"a power of magnitude e^{mpmath.nstr(size, 5)}")
        if exact is not None and exact.denominator == 1:
            return base**exact.numerator
        if exact is not None and exact.denominator % 2 and exact.denominator <= 100:
            return self._root(base, exact.denominator) ** exact.numerator
        return mpmath.power(base, exponent)

    def _function(self, name: str, values: list[mpf | mpc]) -> mpf | mpc:
        value = values[0]
        if name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "exp"):
            if magnitude(value) > 14:
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
            value = as_real(value)
            if isinstance(value, mpc) or abs(value - mpmath.nint(value)) < mpf(2) ** -NOISE_BITS:
                raise TooComplex(f"the {name} of a number next to an integer")
            return getattr(mpmath, name)(value)
        values = [as_real(value) for value in values]
        if any(isinstance(value, mpc) or magnitude(value) > MAX_FACTORIAL_BITS for value in values):
            raise TooComplex(f"a {name} of a complex number or one beyond 2^{MAX_FACTORIAL_BITS}")
        try:
            return mpmath.factorial(values[0]) if name == "factorial" else mpmath.binomial(*values)
        except ValueError as error:  # a pole
            raise Undefined(f"a {name} without a value") from error


def magnitude(value: mpf | mpc) -> int:
    """log2 of the magnitude, rounded up; very small for zero."""
    return int(mpmath.mag(value)) if value != 0 else -(10**9)


def as_real(value: mpf | mpc) -> mpf | mpc:
    """Drop an imaginary part that is rounding noise."""
    if isinstance(value, mpc) and magnitude(value.imag) < magnitude(value.real) - NOISE_BITS:
        return value.real
    return value
