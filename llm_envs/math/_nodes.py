r"""The expression tree of an answer.

Node kinds (``args`` / ``value``):

=============  ==========================================================================================
``num``        value: Fraction
``sym``        value: name, subscript included (``x_1``)
``const``      value: ``pi``, ``e``, ``i`` or ``oo``
``add mul``    args: two or more
``neg``        args: one
``div pow``    args: two
``root``       args: radicand; value: degree
``fn``         args: one or two; value: function name
``app``        args: function symbol, variable: ``f(x)``, which also reads as a product
``deg pct``    args: one; degrees and per cent inside an expression
``unit``       args: one; value: `Unit` (whole elements only)
``pair``       args: two; value: brackets (``"(]"``): an interval or a point
``tuple``      args: three or more (an ordered list); value: brackets
``set list``   args: any number; braces / bare commas, ``or``, ``\pm`` (order does not count)
``matrix``     args: rows (``row`` nodes)
``setop``      args: two; value: ``cup``, ``cap`` or ``setminus``
``named``      value: ``Reals``, ``Integers``, …
``ratio``      args: two or more: ``3:4``, or a time of day
``rel``        args: two or more; value: tuple of operators ``= != < <= > >= in``
``and or``     args: relations joined by a word
=============  ==========================================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ParseError(ValueError):
    """The text is not an expression of the grammar."""


class TooComplex(ValueError):
    """The text or its value is larger than the grader decides on."""


class Node(NamedTuple):
    """One node of an expression tree; see the module's table of kinds."""

    kind: str
    args: tuple[Any, ...] = ()
    value: Any = None
