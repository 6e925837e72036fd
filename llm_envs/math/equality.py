r"""Decide whether two parsed answers are the same answer.

Structure (lists, sets, points, matrices, relations, units) and rational values are decided here, exactly and without
sympy. What is left, scalars with roots, symbols or transcendental constants and sets of reals, is asked of an `Algebra`
(`llm_envs.math.algebra`), which lives in a worker process. Without one, `NeedsAlgebra` is raised.

What counts as the same, beyond equal values:

- No tolerance anywhere: ``0.33`` is not ``1/3`` and ``3.14`` is not ``\pi``. Decimals are read as exact fractions.
- A unit counts only if both sides have one; then values are compared in the common base (``1 m`` is ``100 cm``) and
  different dimensions differ.
- ``p\%`` is ``p/100``, and also the bare number ``p`` if ``|p| >= 1``.
- ``x = v`` is ``v`` where ``x`` is one symbol or ``f(x)``; ``x \in S`` is ``S``. Equations in full are equal up to a
  constant factor.
- Bare lists and sets have no order; points, intervals, tuples and vectors do. A list never equals one of its items.
  A set of one is its item. A row or column vector is the tuple of its entries.
- ``x = 5`` and ``x > 5`` are not ``2x = 10`` and ``2x > 10``: those may be the question.
- Ratios are equal term by term; ``3:4`` is also ``3/4``.
- Numerals with a base (``52_8``) equal only the same numeral in the same base.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from llm_envs.math._rational import SCALARS, Undefined, infinite, rational, symbols
from llm_envs.math.expressions import Node, TooComplex
from llm_envs.math.units import PERCENT, Unit

MAX_ITEMS = 64
MAX_ENTRIES = 100


class NeedsAlgebra(Exception):
    """The answers cannot be compared by structure and rational arithmetic alone."""


class Algebra(Protocol):
    """What a worker can decide. Each method may raise TooComplex for "undecided"."""

    def scalars_equal(self, left: Node, right: Node) -> bool:
        """Whether two scalars are the same constant or function."""
        ...

    def proportional(self, left: Node, right: Node, *, positive: bool) -> bool:
        """Whether one scalar is the other times a constant that is not zero (and positive, if asked)."""
        ...

    def sets_equal(self, left: Node, right: Node) -> bool:
        """Whether two sets of reals are the same set."""
        ...


_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_INEQUALITIES = frozenset(("<", "<=", ">", ">="))


def equal(gold: Node, answer: Node, algebra: Algebra | None = None) -> bool:
    """Whether two answers are the same.

    Args:
        gold: The parsed reference.
        answer: The parsed answer.
        algebra: Decides what needs symbolic work; None to decide only what rational arithmetic can.

    Raises:
        NeedsAlgebra: If ``algebra`` is None and it is needed.
        TooComplex: If the values are too large, or the equality could neither be proved nor refuted.
    """
    gold, answer = _unwrap(gold), _unwrap(answer)
    if gold == answer:
        return True
    if gold.kind == "unit" or answer.kind == "unit":
        return _with_units(gold, answer, algebra)
    if "ratio" in (gold.kind, answer.kind):
        return _ratios(gold, answer, algebra)
    if gold.kind in SCALARS and answer.kind in SCALARS:
        return _scalars(gold, answer, algebra)
    if "rel" in (gold.kind, answer.kind) and not (_is_set(gold) and _is_set(answer)):
        return _relations(gold, answer, algebra)
    if gold.kind in ("list", "set") and answer.kind in ("list", "set"):
        return _unordered(gold, answer, algebra)
    if gold.kind == answer.kind == "pair" and gold.value == answer.value:
        return _ordered(gold.args, answer.args, algebra)
    if gold.kind in ("pair", "tuple") and gold.kind == answer.kind == "tuple":
        return _ordered(gold.args, answer.args, algebra)
    if "matrix" in (gold.kind, answer.kind):
        return _matrices(gold, answer, algebra)
    if _is_set(gold) and _is_set(answer) and (_is_region(gold) or _is_region(answer)):
        names = [_variables(gold), _variables(answer)]
        if gold.kind == answer.kind == "pair" or (all(names) and names[0] != names[1]):
            return False
        if algebra is None:
            raise NeedsAlgebra
        return algebra.sets_equal(gold, answer)
    return False


def _unwrap(node: Node) -> Node:
    r"""Take the answer out of ``x = v`` (below: `_relations`), ``x \in S``, sets of one, and ``x = 1 or x = 2``."""
    if node.kind == "rel" and node.value == ("in",) and _is_name(node.args[0]):
        return _unwrap(node.args[1])
    if (
        node.kind == "rel"
        and node.value == ("=",)
        and all(side.kind in ("pair", "tuple") for side in node.args)
        and all(_is_name(entry) for entry in node.args[0].args)
    ):  # "(x, y) = (1, 2)"
        return _unwrap(node.args[1])
    if node.kind == "set" and len(node.args) == 1 and node.args[0].kind in SCALARS | {"unit"}:
        return node.args[0]
    if node.kind in ("or", "list") and all(item.kind == "rel" and item.value == ("=",) for item in node.args):
        names = {item.args[0] for item in node.args}
        if len(names) == 1 and _is_name(next(iter(names))):
            return Node("list", tuple(item.args[1] for item in node.args))
    if (
        node.kind == "list"
        and node.args[0].kind == "rel"
        and node.args[0].value == ("=",)
        and _is_name(node.args[0].args[0])
        and all(item.kind in SCALARS for item in node.args[1:])
    ):  # "x = 1, 2"
        return Node("list", (node.args[0].args[1], *node.args[1:]))
    if (
        node.kind == "rel"
        and node.value == ("=",)
        and _is_name(node.args[0])
        and node.args[1].kind not in SCALARS | {"unit"}
    ):
        return _unwrap(node.args[1])
    return node


def _is_name(node: Node) -> bool:
    return node.kind in ("sym", "app")


def _mentions_infinity(node: Node) -> bool:
    return (node.kind == "const" and node.value == "oo") or any(_mentions_infinity(child) for child in node.args)


def _scalars(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    if _mentions_infinity(gold) or _mentions_infinity(answer):
        return infinite(gold) != 0 and infinite(gold) == infinite(answer)
    try:
        left, right = rational(gold), rational(answer)
    except Undefined:
        return False
    if left is not None and right is not None:
        return left == right
    if algebra is None:
        raise NeedsAlgebra
    return algebra.scalars_equal(gold, answer)


def _with_units(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    left_unit: Unit | None = gold.value if gold.kind == "unit" else None
    right_unit: Unit | None = answer.value if answer.kind == "unit" else None
    left = gold.args[0] if left_unit is not None else gold
    right = answer.args[0] if right_unit is not None else answer
    if left_unit is not None and right_unit is not None and left_unit.dimensions and right_unit.dimensions:
        if left_unit.dimensions != right_unit.dimensions:
            return False
        if left_unit.scale != right_unit.scale:
            left = Node("mul", (left, Node("num", (), left_unit.scale)))
            right = Node("mul", (right, Node("num", (), right_unit.scale)))
        return equal(left, right, algebra)
    if PERCENT in (left_unit, right_unit):
        share, bare = (left, right) if left_unit == PERCENT else (right, left)
        if equal(Node("div", (share, Node("num", (), Fraction(100)))), bare, algebra):
            return True
        value = rational(share)
        if value is not None and abs(value) < 1:
            return False
    return equal(left, right, algebra)


def _ratios(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    """Ratios are equal term by term (``4:20`` may be a time of day, which ``2:10`` is not); ``3:4`` is also ``3/4``."""
    if gold.kind == answer.kind:
        return _ordered(gold.args, answer.args, algebra)
    ratio, other = (gold, answer) if gold.kind == "ratio" else (answer, gold)
    return len(ratio.args) == 2 and other.kind in SCALARS and _scalars(Node("div", ratio.args), other, algebra)


def _ordered(gold: tuple[Node, ...], answer: tuple[Node, ...], algebra: Algebra | None) -> bool:
    return len(gold) == len(answer) and all(equal(g, a, algebra) for g, a in zip(gold, answer, strict=True))


def _unordered(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    left, right = list(gold.args), list(answer.args)
    if max(len(left), len(right)) > MAX_ITEMS:
        raise TooComplex(f"a list of more than {MAX_ITEMS} items")
    if "set" in (gold.kind, answer.kind):
        left, right = _distinct(left, algebra), _distinct(right, algebra)
    if len(left) != len(right):
        return False
    for items, others in ((left, right), (right, left)):
        if _several_names(items) and any(other.kind != "rel" for other in others):
            return False
    for item in left:
        match = next((k for k, other in enumerate(right) if equal(item, other, algebra)), None)
        if match is None:
            return False
        del right[match]
    return True


def _several_names(items: list[Node]) -> bool:
    """Whether the items are assignments to different letters (``x = 1, y = 2``): bare values cannot stand for those."""
    names = [item.args[0] for item in items if item.kind == "rel"]
    return len({str(name.value).partition("_")[0] if name.kind == "sym" else name for name in names}) > 1


def _distinct(items: list[Node], algebra: Algebra | None) -> list[Node]:
    kept: list[Node] = []
    for item in items:
        if not any(equal(item, other, algebra) for other in kept):
            kept.append(item)
    return kept


def _matrices(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    left, right = _entries(gold), _entries(answer)
    if left is None or right is None or len(left) != len(right):
        return False
    if (
        gold.kind == "matrix"
        and answer.kind == "matrix"
        and [len(r.args) for r in gold.args] != [len(r.args) for r in answer.args]
    ):
        return False
    if len(left) > MAX_ENTRIES:
        raise TooComplex(f"a matrix of more than {MAX_ENTRIES} entries")
    return _ordered(left, right, algebra)


def _entries(node: Node) -> tuple[Node, ...] | None:
    """The entries of a matrix row by row, or of a point or tuple."""
    if node.kind == "matrix":
        return tuple(entry for row in node.args for entry in row.args)
    return node.args if node.kind in ("pair", "tuple") and node.value == "()" else None


# Relations


def _relations(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    if gold.kind != "rel" or answer.kind != "rel":
        relation, other = (gold, answer) if gold.kind == "rel" else (answer, gold)
        value = _assigned(relation, algebra)
        return value is not None and other.kind not in ("list", "or", "and") and equal(value, other, algebra)
    if _is_solved(gold) != _is_solved(answer):
        return False
    left, right = _oriented(gold), _oriented(answer)
    if set(left.value) == set(right.value) == {"="}:
        return _equations(left, right, algebra)
    if left.value != right.value or len(left.value) > 1:
        return left.value == right.value and _ordered(left.args, right.args, algebra)
    if not all(side.kind in SCALARS for side in (*left.args, *right.args)):
        return False
    return _differences(left, right, algebra, positive=left.value != ("!=",))


def _is_solved(relation: Node) -> bool:
    """Whether it says what a symbol is (``x = 5``, ``x > 5``); ``2x = 10``, which may be the question, does not."""
    if set(relation.value) == {"="}:
        return any(_is_name(side) for side in relation.args) and any(not symbols(side) for side in relation.args)
    return interval_of(relation) is not None


def _oriented(node: Node) -> Node:
    """The relation with > and >= turned round."""
    if ">" in node.value or ">=" in node.value:
        return Node("rel", node.args[::-1], tuple(_FLIP.get(operator, operator) for operator in node.value[::-1]))
    return node


def _assigned(relation: Node, algebra: Algebra | None) -> Node | None:
    """The value ``v`` of ``x = v``, ``v = x`` or ``x = u = v`` with ``u`` equal to ``v``; None for other relations."""
    if set(relation.value) != {"="}:
        return None
    sides = relation.args if _is_name(relation.args[0]) else relation.args[::-1]
    name, values = sides[0], sides[1:]
    if not _is_name(name) or any(_names_of(name) & symbols(value) for value in values if name.kind == "sym"):
        return None
    if any(not equal(values[0], value, algebra) for value in values[1:]):
        return None
    return values[-1]


def _names_of(name: Node) -> set[str]:
    return {str(name.value)} if name.kind == "sym" else set()


def _equations(gold: Node, answer: Node, algebra: Algebra | None) -> bool:
    names = [relation.args[0] if _is_name(relation.args[0]) else relation.args[-1] for relation in (gold, answer)]
    if names[0] == names[1] and _is_name(names[0]):
        left, right = _assigned(gold, algebra), _assigned(answer, algebra)
        if left is not None and right is not None:
            return equal(left, right, algebra)
    if (
        len(gold.args) != 2
        or len(answer.args) != 2
        or not all(side.kind in SCALARS for side in (*gold.args, *answer.args))
    ):
        return _ordered(gold.args, answer.args, algebra)
    return _differences(gold, answer, algebra, positive=False)


def _differences(gold: Node, answer: Node, algebra: Algebra | None, *, positive: bool) -> bool:
    left, right = (Node("add", (relation.args[0], Node("neg", (relation.args[1],)))) for relation in (gold, answer))
    if symbols(left) != symbols(right):
        return False
    if algebra is None:
        raise NeedsAlgebra
    return algebra.proportional(left, right, positive=positive)


# Sets of reals


def _is_region(node: Node) -> bool:
    if node.kind in ("and", "or"):
        return len(_variables(node)) == 1 and all(interval_of(child) is not None for child in node.args)
    return node.kind in ("setop", "named", "pair") or interval_of(node) is not None


def _is_set(node: Node) -> bool:
    return (node.kind == "set" and all(item.kind in SCALARS for item in node.args)) or _is_region(node)


def _variables(node: Node) -> set[str]:
    """The symbols that inequalities in ``node`` are about."""
    if node.kind in ("and", "or"):
        return set().union(*(_variables(child) for child in node.args))
    interval = interval_of(node)
    return {interval[3]} if interval is not None else set()


def interval_of(node: Node) -> tuple[str, Node, Node, str] | None:
    r"""``a < x \leq b``, ``x > a`` and so on as (brackets, lower end, upper end, symbol); None for other relations."""
    if node.kind != "rel" or not set(node.value) <= _INEQUALITIES:
        return None
    relation = _oriented(node)
    if set(relation.value) & {">", ">="} or len(relation.args) > 3:
        return None
    infinity = Node("const", (), "oo")
    sides, operators = relation.args, relation.value
    if len(sides) == 3:
        lower, name, upper = sides
        brackets = ("(" if operators[0] == "<" else "[") + (")" if operators[1] == "<" else "]")
    elif sides[0].kind == "sym":
        lower, name, upper = Node("neg", (infinity,)), sides[0], sides[1]
        brackets = "(" + (")" if operators[0] == "<" else "]")
    else:
        lower, name, upper = sides[0], sides[1], infinity
        brackets = ("(" if operators[0] == "<" else "[") + ")"
    if name.kind != "sym" or lower.kind not in SCALARS or upper.kind not in SCALARS or symbols(lower) | symbols(upper):
        return None
    return brackets, lower, upper, str(name.value)
