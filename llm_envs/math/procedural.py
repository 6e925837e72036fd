"""Generated math problems: one answer each, computed exactly, from the standard library alone.

Every ``draw_*`` function takes a generator and the options of its set and returns a :class:`~llm_envs.tasks.Draft`. The
statement says everything that the answer depends on (which kind of sequence, which ends count), so that there is one
right answer. What a function draws from a given generator is fixed: a change of it raises :data:`VERSION`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from llm_envs.math.word_problems import draw_word_problem
from llm_envs.tasks import Draft, ProceduralTaskSet, TaskError, TaskSet, enumerate_tasks, reject_options

__all__ = ["PROCEDURAL", "VERSION", "Generator", "load_procedural"]

VERSION = 1

Number = int | Fraction


class _Term(NamedTuple):
    """An expression: its text, its exact value, and how tightly its outermost operator binds (3 for a number)."""

    text: str
    value: Number
    binding: int


_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}


def _expression(
    rng: random.Random, leaves: int, operators: str, leaf: Callable[[random.Random], _Term], signs: dict[str, str]
) -> _Term:
    """Returns a random expression tree of ``leaves`` numbers, written with no more brackets than it needs.

    Args:
        rng: Source of randomness.
        leaves: How many numbers it has.
        operators: Which of ``+-*/`` to draw from.
        leaf: Draws one number.
        signs: How each operator is written.
    """
    if leaves == 1:
        return leaf(rng)
    split = rng.randint(1, leaves - 1)
    left = _expression(rng, split, operators, leaf, signs)
    right = _expression(rng, leaves - split, operators, leaf, signs)
    operator = rng.choice(operators)
    if operator == "/" and right.value == 0:
        operator = operators[0] if operators[0] != "/" else "*"
    binding = _BINDING[operator]
    # a - (b + c) and a / (b * c) need brackets on the right where a + (b + c) does not.
    strict = operator in "-/"
    left_text = f"({left.text})" if left.binding < binding else left.text
    right_text = f"({right.text})" if right.binding < binding or (strict and right.binding == binding) else right.text
    value: Number
    if operator == "+":
        value = left.value + right.value
    elif operator == "-":
        value = left.value - right.value
    elif operator == "*":
        value = left.value * right.value
    else:
        value = Fraction(left.value) / right.value
    return _Term(f"{left_text} {signs[operator]} {right_text}", value, binding)


_PLAIN = {"+": "+", "-": "-", "*": "*", "/": "/"}
_LATEX = {"+": "+", "-": "-", "*": r"\times", "/": r"\div"}


def one_digit(operators: str = "+-") -> Iterator[Draft]:
    """All sums, differences (not negative) and products of two one-digit numbers.

    Args:
        operators: Which of ``+-*``.
    """
    for operator in operators:
        for a in range(10):
            for b in range(a + 1 if operator == "-" else 10):
                value = a + b if operator == "+" else a - b if operator == "-" else a * b
                yield Draft(f"What is {a} {operator} {b}?", str(value))


def draw_arithmetic(
    rng: random.Random, *, min_operands: int = 3, max_operands: int = 4, max_value: int = 99, operators: str = "+-*"
) -> Draft:
    """An expression of whole numbers.

    Args:
        rng: Source of randomness.
        min_operands: Fewest numbers in it.
        max_operands: Most numbers in it.
        max_value: The numbers are 0 to this.
        operators: Which of ``+-*``.
    """

    def leaf(rng: random.Random) -> _Term:
        number = rng.randint(0, max_value)
        return _Term(str(number), number, 3)

    term = _expression(rng, rng.randint(min_operands, max_operands), operators, leaf, _PLAIN)
    return Draft(f"What is {term.text}?", str(term.value))


def draw_fractions(rng: random.Random, *, max_denominator: int = 30) -> Draft:
    """Two or three fractions, added, subtracted, multiplied or divided.

    Args:
        rng: Source of randomness.
        max_denominator: Largest numerator and denominator in the statement.
    """

    def leaf(rng: random.Random) -> _Term:
        value = Fraction(rng.randint(1, max_denominator), rng.randint(2, max_denominator))
        if value.denominator == 1:
            return _Term(str(value.numerator), value, 3)
        return _Term(rf"\frac{{{value.numerator}}}{{{value.denominator}}}", value, 3)

    term = _expression(rng, rng.choice((2, 3, 3)), "+-*/", leaf, _LATEX)
    return Draft(
        f"Compute ${term.text}$. Give the exact value as a fraction in lowest terms or an integer.", str(term.value)
    )


def _linear(slope: int, constant: int) -> str:
    """Returns ``slope x + constant`` as it is written by hand."""
    head = "x" if slope == 1 else "-x" if slope == -1 else f"{slope}x" if slope else ""
    if not head:
        return str(constant)
    return head if not constant else f"{head} {'+' if constant > 0 else '-'} {abs(constant)}"


def draw_linear_equation(rng: random.Random, *, max_coefficient: int = 12) -> Draft:
    """A linear equation in x with one solution, a whole number in half of them.

    Args:
        rng: Source of randomness.
        max_coefficient: Largest absolute value of a coefficient of x.
    """
    limit = max_coefficient
    a = rng.choice((-1, 1)) * rng.randint(1, limit)
    c = rng.choice([value for value in range(-limit, limit + 1) if value != a])
    b = rng.randint(-60, 60)
    if rng.random() < 0.5:
        d = (a - c) * rng.randint(-20, 20) + b
    else:
        d = rng.randint(-60, 60)
    if rng.random() < 0.5:
        left, value = _linear(a, b), Fraction(d - b, a - c)
    else:
        shift = rng.choice((-1, 1)) * rng.randint(1, 12)
        d += a * shift
        left = f"{'' if a == 1 else '-' if a == -1 else a}({_linear(1, shift)})" + (
            f" {'+' if b > 0 else '-'} {abs(b)}" if b else ""
        )
        value = Fraction(d - b - a * shift, a - c)
    return Draft(f"Solve for x: {left} = {_linear(c, d)}. Give the exact value of x.", str(value))


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def draw_number_theory(rng: random.Random) -> Draft:
    """Greatest common divisors, least common multiples, remainders, powers modulo m, divisors.

    Args:
        rng: Source of randomness.
    """
    kind = rng.choices(("gcd", "lcm", "remainder", "power", "count", "sum"), (25, 20, 25, 24, 3, 3))[0]
    if kind == "gcd":
        common = rng.randint(2, 60)
        a, b = common * rng.randint(2, 150), common * rng.randint(2, 150)
        return Draft(f"What is the greatest common divisor of {a} and {b}?", str(math.gcd(a, b)))
    if kind == "lcm":
        a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 99)
        return Draft(f"What is the least common multiple of {a}, {b} and {c}?", str(math.lcm(a, b, c)))
    if kind == "remainder":
        a, m = rng.randint(1000, 99_999), rng.randint(3, 199)
        return Draft(f"What is the remainder when {a} is divided by {m}?", str(a % m))
    if kind == "power":
        a, exponent, m = rng.randint(2, 99), rng.randint(5, 99), rng.randint(3, 99)
        return Draft(f"What is the remainder when {a}^{exponent} is divided by {m}?", str(pow(a, exponent, m)))
    n = rng.randint(100, 99_999)
    if kind == "count":
        return Draft(f"How many positive divisors does {n} have, counting 1 and {n}?", str(len(_divisors(n))))
    return Draft(f"What is the sum of all positive divisors of {n}, including 1 and {n}?", str(sum(_divisors(n))))


def draw_counting(rng: random.Random) -> Draft:
    """Counting letters, multiples, arrangements, subsets and paths.

    Args:
        rng: Source of randomness.
    """
    kind = rng.choices(("letter", "multiples", "neither", "arrange", "committee"), (28, 28, 20, 22, 2))[0]
    if kind == "letter":
        letters = "".join(rng.choices("abcdefgh", k=rng.randint(10, 24)))
        letter = rng.choice(letters)
        return Draft(f'How many times does the letter "{letter}" occur in "{letters}"?', str(letters.count(letter)))
    if kind == "arrange":
        letters = "".join(rng.choices("ABCDEFGH", k=rng.randint(6, 8)))
        ways = math.factorial(len(letters))
        for letter in set(letters):
            ways //= math.factorial(letters.count(letter))
        return Draft(
            f"In how many different orders can the letters of {letters} be written, using all of them?", str(ways)
        )
    if kind == "committee":
        n, k, m, j = rng.randint(4, 25), rng.randint(1, 4), rng.randint(4, 25), rng.randint(1, 4)
        return Draft(
            f"From {n} teachers and {m} students, in how many ways can a committee of exactly {k} "
            f"teacher{'s' * (k > 1)} and exactly {j} student{'s' * (j > 1)} be chosen?",
            str(math.comb(n, k) * math.comb(m, j)),
        )
    low = rng.randint(1, 300)
    high = low + rng.randint(20, 700)
    if kind == "multiples":
        step = rng.randint(2, 20)
        return Draft(
            f"How many multiples of {step} are there from {low} to {high}, both ends included?",
            str(high // step - (low - 1) // step),
        )
    p, q = rng.sample((2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), 2)
    both = math.lcm(p, q)
    divisible = sum(sign * (high // m - (low - 1) // m) for m, sign in ((p, 1), (q, 1), (both, -1)))
    return Draft(
        f"How many integers from {low} to {high}, both ends included, are divisible by neither {p} nor {q}?",
        str(high - low + 1 - divisible),
    )


_TH = {1: "st", 2: "nd", 3: "rd"}


def _ordinal(n: int) -> str:
    return f"{n}{'th' if n % 100 in (11, 12, 13) else _TH.get(n % 10, 'th')}"


def draw_sequence(rng: random.Random) -> Draft:
    """A term or a sum of a sequence whose rule is stated.

    Args:
        rng: Source of randomness.
    """
    kind = rng.choices(("term", "sum", "geometric", "fibonacci", "recurrence"), (25, 25, 4, 23, 23))[0]
    first = rng.randint(-200, 200)
    if kind in ("term", "sum"):
        step, n = rng.choice((-1, 1)) * rng.randint(2, 25), rng.randint(8, 60)
        start = f"{first}, {first + step}, {first + 2 * step}, ..."
        if kind == "term":
            return Draft(
                f"An arithmetic sequence begins {start} What is its {_ordinal(n)} term?", str(first + (n - 1) * step)
            )
        return Draft(
            f"An arithmetic sequence begins {start} What is the sum of its first {n} terms?",
            str(n * (2 * first + (n - 1) * step) // 2),
        )
    if kind == "geometric":
        first, ratio, n = (
            rng.choice((-1, 1)) * rng.randint(1, 500),
            rng.choice((-3, -2, 2, 3, 4, 5)),
            rng.randint(5, 10),
        )
        return Draft(
            f"A geometric sequence begins {first}, {first * ratio}, {first * ratio**2}, ... What is its {_ordinal(n)} "
            "term?",
            str(first * ratio ** (n - 1)),
        )
    n = rng.randint(5, 12)
    if kind == "fibonacci":
        a, b = first, rng.randint(-200, 200)
        question = (
            f"A sequence begins {a}, {b}, and each later term is the sum of the two terms before it. "
            f"What is its {_ordinal(n)} term?"
        )
        for _ in range(n - 1):
            a, b = b, a + b
        return Draft(question, str(a))
    factor, shift, n = rng.choice((-3, -2, 2, 3, 4)), rng.choice((-1, 1)) * rng.randint(1, 60), rng.randint(4, 8)
    value = first
    for _ in range(n - 1):
        value = factor * value + shift
    return Draft(
        f"The first term of a sequence is {first}. Each later term is {factor} times the term before it, "
        f"{'plus' if shift > 0 else 'minus'} {abs(shift)}. What is its {_ordinal(n)} term?",
        str(value),
    )


class Generator(NamedTuple):
    """A procedural set.

    Attributes:
        draw: Returns a draft; for a listed set, all of them.
        options: Its options and their defaults.
        listed: Whether ``draw`` returns the whole domain.
    """

    draw: Callable[..., Any]
    options: dict[str, Any]
    listed: bool = False


PROCEDURAL: dict[str, Generator] = {
    "one-digit": Generator(one_digit, {"operators": "+-"}, listed=True),
    "arithmetic": Generator(
        draw_arithmetic, {"min_operands": 3, "max_operands": 4, "max_value": 99, "operators": "+-*"}
    ),
    "fractions": Generator(draw_fractions, {"max_denominator": 30}),
    "linear-equations": Generator(draw_linear_equation, {"max_coefficient": 12}),
    "word-problems": Generator(draw_word_problem, {}),
    "number-theory": Generator(draw_number_theory, {}),
    "counting": Generator(draw_counting, {}),
    "sequences": Generator(draw_sequence, {}),
}
"""The procedural sets by name."""


def load_procedural(
    name: str, split: str | None = None, *, size: int | None = None, seed: int = 0, **options: Any
) -> TaskSet:
    """Returns a set of :data:`PROCEDURAL`.

    Args:
        name: Its name.
        split: ``"train"`` (also for None) or ``"test"``.
        size: Number of tasks.
        seed: Another seed gives other tasks of the same kind.
        **options: Options of the set.

    Raises:
        TaskError: If the split or an option is not valid.
    """
    generator = PROCEDURAL[name]
    reject_options(name, options, (*generator.options, "size", "seed"))
    _check_options(name, {**generator.options, **options})
    if generator.listed:
        return enumerate_tasks(name, split, generator.draw(**options), size=size, seed=seed)
    return ProceduralTaskSet(
        name, split, generator.draw, options={**generator.options, **options}, size=size, seed=seed, version=VERSION
    )


def _check_options(name: str, options: dict[str, Any]) -> None:
    for option, value in options.items():
        if option == "operators":
            if not isinstance(value, str) or not value or set(value) - set("+-*") or len(set(value)) < len(value):
                raise TaskError(f"{name}: operators must be some of '+-*', each at most once, got {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 2:
            raise TaskError(f"{name}: {option} must be a whole number of at least 2, got {value!r}")
    if options.get("min_operands", 2) > options.get("max_operands", 2):
        raise TaskError(
            f"{name}: min_operands={options['min_operands']} is more than max_operands={options['max_operands']}"
        )
