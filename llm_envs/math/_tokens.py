"""Tokens of an answer, with thousands separators resolved and the size of numbers bounded."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from llm_envs.math._nodes import ParseError, TooComplex

MAX_DIGITS = 1000
MAX_TOKENS = 1500
MAX_EXPONENT_LITERAL = 4000


class Token(NamedTuple):
    """A token: its kind (``num``, ``word``, ``cmd``, ``text`` or the operator itself) and its text."""

    kind: str
    text: str
    spaced: bool  # whether a space stands before it


_TOKEN = re.compile(
    r"""(?P<space>\s+)
      |(?P<text>\\text\s*\{(?P<inner>[^{}]*)\})
      |(?P<cmd>\\(?:[A-Za-z]+|[{}%$|\\&\#]))
      |(?P<num>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
      |(?P<word>[A-Za-z]+)
      |(?P<op>\*\*|<=|>=|!=|==|[-+*/^_=<>!()\[\]{}|,;:%&])""",
    re.VERBOSE | re.ASCII,
)
_THOUSANDS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9,])", re.ASCII)
_DECIMALS = re.compile(r"\.[0-9]+", re.ASCII)


def number(text: str) -> Fraction:
    """Return the exact value of a decimal literal such as ``12``, ``.5`` or ``1.6e-19``.

    Raises:
        TooComplex: If it has more than `MAX_DIGITS` digits or an exponent beyond `MAX_EXPONENT_LITERAL`.
    """
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or len(exponent) > 6 or (exponent and abs(int(exponent)) > MAX_EXPONENT_LITERAL):
        raise TooComplex(f"a number of {len(mantissa)} digits with exponent {exponent[:12] or 0}")
    return Fraction(mantissa.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)


def tokenize(text: str, *, thousands: bool = True) -> list[Token]:
    """Split a cleaned text into tokens; thousands separators outside brackets become part of their number, if asked.

    Raises:
        ParseError: At a character that is not in the grammar.
        TooComplex: If there are more than `MAX_TOKENS` tokens.
    """
    tokens: list[Token] = []
    position, brackets, spaced = 0, 0, False
    while position < len(text):
        if thousands and not brackets and (grouped := _THOUSANDS.match(text, position)):
            tail = _DECIMALS.match(text, grouped.end())
            end = tail.end() if tail else grouped.end()
            tokens.append(Token("num", text[position:end].replace(",", ""), spaced))
            position, spaced = end, False
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise ParseError(f"unexpected character {text[position]!r}")
        position = match.end()
        kind = match.lastgroup if match.lastgroup != "inner" else "text"
        found = match.group()
        if kind == "space":
            spaced = True
            continue
        if kind == "text":
            tokens.append(Token("text", match.group("inner").strip(), spaced))
        elif kind == "op":
            tokens.append(Token(found, found, spaced))
        else:
            tokens.append(Token(str(kind), found, spaced))
        brackets += (found in ("(", "[", r"\{")) - (found in (")", "]", r"\}"))
        spaced = False
        if len(tokens) > MAX_TOKENS:
            raise TooComplex(f"more than {MAX_TOKENS} tokens")
    return tokens
