"""Rules of Kuhn poker, its equilibria, and the exact value of strategies. Knows nothing of environments.

Three cards (jack, queen, king), one to each of two players, one chip each in the pot. The first player checks or bets a
chip. Who faces a bet calls it or folds; after a check the second player may check (showdown) or bet. The higher card
wins the pot of a showdown. H. W. Kuhn, "A simplified two-person poker", 1950.

A line is what was played so far, a letter a move: ``k`` check, ``b`` bet, ``c`` call, ``f`` fold.

>>> legal_moves("kb")
('call', 'fold')
>>> chips("kbc", (2, 0))
2
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

CARDS = ("J", "Q", "K")
DEALS = tuple(itertools.permutations(range(len(CARDS)), 2))
"""The six deals, all equally likely: the card of the first player, the card of the second."""

LETTERS = {"check": "k", "bet": "b", "call": "c", "fold": "f"}
_MOVES = {"": ("check", "bet"), "k": ("check", "bet"), "b": ("call", "fold"), "kb": ("call", "fold")}
LINES = tuple(_MOVES)
"""The lines after which somebody is to move."""

_STAKES = {"kk": 1, "bc": 2, "kbc": 2}
_FOLDS = {"bf": 1, "kbf": -1}
MOST_CHIPS = 2
"""The most that a hand can cost."""

Strategy = Mapping[tuple[int, str], Fraction | float]
"""The probability of betting or calling, by (own card, line)."""


def legal_moves(line: str) -> tuple[str, ...]:
    """The moves after ``line``; none once the hand is over."""
    return _MOVES.get(line, ())


def chips(line: str, cards: tuple[int, int]) -> int | None:
    """The chips that the first player wins (negative: loses) by a hand that ends with ``line``; None before its end."""
    if line in _FOLDS:
        return _FOLDS[line]
    stake = _STAKES.get(line)
    if stake is None:
        return None
    return stake if cards[0] > cards[1] else -stake


def equilibrium(alpha: Fraction = Fraction(1, 3)) -> dict[tuple[int, str], Fraction]:
    """The equilibrium in which the first player bluffs with the jack with probability ``alpha``.

    Kuhn's solution: the first player's equilibria are one family, 0 <= alpha <= 1/3; the second player has one. Against
    it the first player loses 1/18 of a chip a hand.

    Returns:
        The probability of betting or calling by (own card, line), of both players: the line tells who is to move.

    Raises:
        ValueError: ``alpha`` is not from 0 to 1/3.
    """
    if not 0 <= alpha <= Fraction(1, 3):
        raise ValueError(f"alpha must be from 0 to 1/3, got {alpha}")
    third, jack, queen, king = Fraction(1, 3), 0, 1, 2
    return {
        (jack, ""): alpha,
        (queen, ""): Fraction(0),
        (king, ""): 3 * alpha,
        (jack, "kb"): Fraction(0),
        (queen, "kb"): alpha + third,
        (king, "kb"): Fraction(1),
        (jack, "k"): third,
        (queen, "k"): Fraction(0),
        (king, "k"): Fraction(1),
        (jack, "b"): Fraction(0),
        (queen, "b"): third,
        (king, "b"): Fraction(1),
    }


def is_aggressive(move: str) -> bool:
    """Whether ``move`` puts a chip into the pot."""
    return move in ("bet", "call")


def expected_chips(first: Strategy, second: Strategy) -> Fraction | float:
    """What ``first`` wins from ``second`` on average over the six deals, in chips, exactly."""

    def value(line: str, cards: tuple[int, int]) -> Fraction | float:
        won = chips(line, cards)
        if won is not None:
            return won
        seat = len(line) % 2
        aggressive = (first, second)[seat][cards[seat], line]
        return sum(
            (aggressive if is_aggressive(move) else 1 - aggressive) * value(line + LETTERS[move], cards)
            for move in legal_moves(line)
        )

    return sum((value("", cards) for cards in DEALS), start=Fraction(0)) / len(DEALS)


def exploitability(first: Strategy, second: Strategy) -> Fraction | float:
    """By how much, on average over the seats, a best response beats the two strategies; 0 for an equilibrium."""
    best_first = max(expected_chips(reply, second) for reply in pure_strategies(0))
    best_second = max(-expected_chips(first, reply) for reply in pure_strategies(1))
    return (best_first + best_second) / 2


def pure_strategies(seat: int) -> Iterator[dict[tuple[int, str], Fraction]]:
    """The 64 strategies without chance of the player in ``seat``."""
    points = [(card, line) for card in range(len(CARDS)) for line in LINES if len(line) % 2 == seat]
    for choice in itertools.product((Fraction(0), Fraction(1)), repeat=len(points)):
        yield dict(zip(points, choice, strict=True))


def move_of(strategy: Strategy, card: int, line: str, uniform: Callable[[], float]) -> str:
    """The move of ``strategy``; ``uniform()`` draws from [0, 1)."""
    cautious, aggressive = sorted(legal_moves(line), key=is_aggressive)
    return aggressive if uniform() < strategy[card, line] else cautious
