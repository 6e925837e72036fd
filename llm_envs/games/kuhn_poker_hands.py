"""A deal of Kuhn poker, hand by hand, with every text that can be known before it is played.

>>> first = deal(((2, 1), (0, 2)))
>>> first.order, first.cards, first.following.order, first.following.cards
(('player_0', 'player_1'), (2, 1), ('player_1', 'player_0'), (2, 0))
>>> first.ends["bc"]
(2, 'Hand 1: showdown, player_0: K, player_1: Q. player_0 wins 2.')
>>> first.ends["bf"]
(1, 'Hand 1: fold. player_0 wins 1.')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from llm_envs.games import kuhn_poker
from llm_envs.games.base import PLAYERS

__all__ = ["MAX_HANDS", "Hand", "both_cards", "deal", "rules_of", "score"]

MAX_HANDS = 25
Cards = tuple[int, int]
"""The card of ``player_0`` and the card of ``player_1``."""

_HANDS_END = tuple(
    line + letter
    for line in kuhn_poker.LINES
    for letter in (kuhn_poker.LETTERS[move] for move in kuhn_poker.legal_moves(line))
    if not kuhn_poker.legal_moves(line + letter)
)


@dataclass(frozen=True, slots=True, eq=False)
class Hand:
    """One hand of a deal. Immutable: episodes and forks share it.

    Attributes:
        number: Its number, from 0.
        order: The players in the order in which they act.
        cards: Their cards, in the same order.
        heads: What ``player_0`` and ``player_1`` are told about themselves: their card, and their earlier ones.
        ends: What ``player_0`` wins, and how the hand ended in words, by the line that ends it. The words tell the
            cards only where they were turned up.
        following: The next hand; None after the last.
    """

    number: int
    order: tuple[str, str]
    cards: Cards
    heads: tuple[str, str]
    ends: Mapping[str, tuple[int, str]]
    following: Hand | None

    def __copy__(self) -> Hand:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Hand:
        return self


@lru_cache(maxsize=1_024)
def deal(dealt: Sequence[Cards]) -> Hand:
    """The first hand of a deal, which leads to the others.

    Args:
        dealt: The cards of every hand.

    Raises:
        ValueError: There are no hands, or cards that cannot be dealt.
    """
    following = None
    for number in reversed(range(len(dealt))):
        cards = dealt[number]
        if cards not in kuhn_poker.DEALS:
            raise ValueError(f"no such cards: {cards!r}")
        swapped = bool(number % 2)  # the players begin a hand in turn
        following = Hand(
            number=number,
            order=PLAYERS[::-1] if swapped else PLAYERS,
            cards=cards[::-1] if swapped else cards,
            heads=(_head(dealt, number, 0), _head(dealt, number, 1)),
            ends=_ends(number, cards),
            following=following,
        )
    if following is None:
        raise ValueError("no hands were dealt")
    return following


def _head(dealt: Sequence[Cards], number: int, seat: int) -> str:
    *before, card = (kuhn_poker.CARDS[cards[seat]] for cards in dealt[: number + 1])
    head = f"You are {PLAYERS[seat]}. Your card is {card}."
    if len(dealt) > 1:
        head += f" This is hand {number + 1} of {len(dealt)}."
    return f"{head} Your cards before: {', '.join(before)}." if before else head


@lru_cache(maxsize=MAX_HANDS * len(kuhn_poker.DEALS))
def _ends(number: int, cards: Cards) -> Mapping[str, tuple[int, str]]:
    swapped = bool(number % 2)
    ends = {}
    for line in _HANDS_END:
        won = kuhn_poker.chips(line, cards[::-1] if swapped else cards)
        if won is None:
            raise ValueError(f"the line {line!r} does not end a hand")
        if swapped:
            won = -won
        how = "fold" if line.endswith(kuhn_poker.LETTERS["fold"]) else f"showdown, {both_cards(cards)}"
        ends[line] = (won, f"Hand {number + 1}: {how}. {PLAYERS[won < 0]} wins {abs(won)}.")
    return ends


def both_cards(cards: Cards) -> str:
    """Who holds what."""
    return ", ".join(f"{agent}: {kuhn_poker.CARDS[card]}" for agent, card in zip(PLAYERS, cards, strict=True))


@lru_cache(maxsize=4 * MAX_HANDS + 1)
def score(chips: int) -> str:
    """Who is how many chips ahead, if ``player_0`` has won so many."""
    signed = f"{chips:+d}", f"{-chips:+d}"
    first, second = signed if chips else ("0", "0")
    return f"Chips: player_0 {first}, player_1 {second}."


def rules_of(hands: int) -> str:
    """The rules of a game of several hands, as the players read them."""
    return (
        f"Kuhn poker, {hands} hands. In each hand the players get one card each of three, J (low), Q and K (high), do "
        "not see the other's, and put one chip into the pot. player_0 begins the first hand, player_1 the second, and "
        "so on in turn. A player may check, or bet one chip more. Who faces a bet calls it with one chip, or folds and "
        "loses the pot. When both have checked or a bet is called, the cards are turned up and the higher one wins the "
        "pot. Who has won more chips after the last hand wins the game.\n\nMoves so far:"
    )
