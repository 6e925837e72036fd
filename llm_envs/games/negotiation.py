"""Rules of a trading game for two with private values, and a sensible trader. Knows nothing of environments.

Each player holds some of every resource and has its own value for a unit of each. In turn they offer trades, which the
other may accept; after a fixed number of turns the player whose holding gained more, by its own values, wins. Holdings
are public, values are private; what everyone knows of the values is what a resource is usually worth
(:data:`USUAL_VALUES`). After the negotiation game of SPIRAL (arXiv 2506.24119) and TextArena, with numbers of our own.

A trade is written from the side of who offers it: what it gives, what it wants.

>>> offer = parse_trade("1 gold -> 3 stone, 1 wood")
>>> trade_text(offer)
'1 gold -> 1 wood, 3 stone'
>>> gain(offer, (10, 20, 30, 40))
30
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

RESOURCES = ("wood", "stone", "iron", "gold")
USUAL_VALUES = (10, 20, 30, 40)
"""What a unit of each resource is usually worth; a player's own value lies within 30 percent of it."""

MOST_UNITS = 999
"""The largest number in a trade."""

_SEARCHED_UNITS = 20
_SPREAD = 30
_HELD = (4, 12)
_ITEM = re.compile(r"([1-9][0-9]{0,2}) ([a-z]+)")
_FORM = "2 wood, 1 stone -> 1 iron"

Amounts = tuple[int, ...]
"""A number for each resource, in the order of :data:`RESOURCES`."""


class Trade(NamedTuple):
    """What the player who offers gives and wants, a number of units for each resource."""

    gives: Amounts
    wants: Amounts


class Deal(NamedTuple):
    """What each player holds at the beginning, and what a unit of each resource is worth to it."""

    holdings: tuple[Amounts, Amounts]
    values: tuple[Amounts, Amounts]


def draw_deal(rng: random.Random) -> Deal:
    """A random deal: 4 to 12 units of everything, values within 30 percent of the usual ones."""

    def held() -> Amounts:
        return tuple(rng.randint(*_HELD) for _ in RESOURCES)

    def valued() -> Amounts:
        return tuple(usual * rng.randint(100 - _SPREAD, 100 + _SPREAD) // 100 for usual in USUAL_VALUES)

    return Deal((held(), held()), (valued(), valued()))


def check_deal(deal: Deal) -> Deal:
    """``deal``, if it can be played.

    Raises:
        ValueError: Something is not two times four numbers, a holding is negative, or a value not positive.
    """
    for name, sides, least in (("holdings", deal.holdings, 0), ("values", deal.values, 1)):
        whole = len(sides) == 2 and all(len(side) == len(RESOURCES) for side in sides)
        if not whole or any(
            not isinstance(n, int) or isinstance(n, bool) or n < least for n in itertools.chain(*sides)
        ):
            raise ValueError(
                f"`{name}` must be two times {len(RESOURCES)} whole numbers of at least {least} "
                f"({', '.join(RESOURCES)}), got {sides}"
            )
    return deal


def parse_trade(text: str) -> Trade:
    """Read ``"<gives> -> <wants>"``, each side units of one or more resources, separated by commas.

    Raises:
        ValueError: The text is not a trade; the message says why.
    """
    sides = text.split("->")
    if len(sides) != 2:
        raise ValueError(f"A trade has one arrow, between what you give and what you want, such as {_FORM}.")
    trade = Trade(_parse_side(sides[0]), _parse_side(sides[1]))
    for name, given, wanted in zip(RESOURCES, *trade, strict=True):
        if given and wanted:
            raise ValueError(f"A trade cannot give and want {name} at once.")
    return trade


def _parse_side(text: str) -> Amounts:
    amounts = [0] * len(RESOURCES)
    for part in text.split(","):
        item = _ITEM.fullmatch(part.strip())
        if item is None:
            raise ValueError(f"{part.strip()[:40]!r} is no number (1 to {MOST_UNITS}) and resource, as in {_FORM}.")
        if item[2] not in RESOURCES:
            raise ValueError(f"There is no {item[2][:20]}. The resources are {', '.join(RESOURCES)}.")
        place = RESOURCES.index(item[2])
        if amounts[place]:
            raise ValueError(f"{item[2]} stands twice on one side of the trade.")
        amounts[place] = int(item[1])
    return tuple(amounts)


def amounts_text(amounts: Amounts) -> str:
    """The resources of which there is any, such as ``"2 wood, 1 iron"``."""
    return ", ".join(f"{n} {name}" for n, name in zip(amounts, RESOURCES, strict=True) if n) or "nothing"


def trade_text(trade: Trade) -> str:
    """The one canonical text of a trade."""
    return f"{amounts_text(trade.gives)} -> {amounts_text(trade.wants)}"


def missing(trade: Trade, own: Amounts, other: Amounts) -> str | None:
    """Why a player who holds ``own`` cannot offer ``trade`` to one who holds ``other``; None if it can."""
    for holder, amounts, held in (("You hold", trade.gives, own), ("The other player holds", trade.wants, other)):
        for n, has, name in zip(amounts, held, RESOURCES, strict=True):
            if n > has:
                return f"{holder} {has} {name}: {n} are not there."
    return None


def exchange(trade: Trade, own: Amounts, other: Amounts) -> tuple[Amounts, Amounts]:
    """The holdings (of who offered, of who accepted) after ``trade``."""
    moved = [wanted - given for given, wanted in zip(*trade, strict=True)]
    return (
        tuple(n + m for n, m in zip(own, moved, strict=True)),
        tuple(n - m for n, m in zip(other, moved, strict=True)),
    )


def worth(amounts: Amounts, values: Amounts) -> int:
    """The value of a holding."""
    return sum(n * value for n, value in zip(amounts, values, strict=True))


def gain(trade: Trade, values: Amounts) -> int:
    """What who offers ``trade`` gains by it, at ``values``; who accepts gains the negative, at its own values."""
    return worth(trade.wants, values) - worth(trade.gives, values)


def reverse(trade: Trade) -> Trade:
    """The trade from the side of who accepts it."""
    return Trade(trade.wants, trade.gives)


def simple_trade(give: int, given: int, want: int, wanted: int) -> Trade:
    """``given`` units of the resource number ``give`` for ``wanted`` units of the resource number ``want``."""
    kinds = range(len(RESOURCES))
    return Trade(tuple(given * (k == give) for k in kinds), tuple(wanted * (k == want) for k in kinds))


def simple_trades(own: Amounts, other: Amounts, most: int) -> Iterator[Trade]:
    """The trades of one resource for another that can be offered, with at most ``most`` units on a side."""
    kinds = range(len(RESOURCES))
    for give, want in itertools.permutations(kinds, 2):
        for given in range(1, min(own[give], most) + 1):
            for wanted in range(1, min(other[want], most) + 1):
                yield simple_trade(give, given, want, wanted)


# ---- a sensible trader ---------------------------------------------------------------------------------------------
# Who gains more wins, so a trade is good when it gains more than it gives the other. The other's values are unknown;
# the usual ones are the estimate.


def edge(trade: Trade, values: Amounts) -> int:
    """By how much who offers ``trade`` is expected to gain more than the other, whose values count as usual."""
    return gain(trade, values) + gain(trade, USUAL_VALUES)


def best_offer(own: Amounts, other: Amounts, values: Amounts, tried: frozenset[Trade]) -> Trade | None:
    """The simple trade of the largest edge that looks worth accepting to someone whose values are the usual ones.

    Args:
        own: What the player holds.
        other: What the other holds.
        values: The player's own values.
        tried: Trades that were offered before and are not offered again.

    Returns:
        None where no trade of at most 20 units a side has an edge. Of equally good trades the first in the order of
        :func:`simple_trades`.
    """
    held = [min(n, _SEARCHED_UNITS) for n in own]
    there = [min(n, _SEARCHED_UNITS) for n in other]
    felt = [value + usual for value, usual in zip(values, USUAL_VALUES, strict=True)]
    best, most = None, 0
    for give, want in itertools.permutations(range(len(RESOURCES)), 2):
        for given in range(1, held[give] + 1):
            cost, price = given * felt[give], given * USUAL_VALUES[give]
            for wanted in range(1, there[want] + 1):
                if wanted * USUAL_VALUES[want] >= price:
                    break
                found = wanted * felt[want] - cost
                if found > most and (trade := simple_trade(give, given, want, wanted)) not in tried:
                    best, most = trade, found
    return best
