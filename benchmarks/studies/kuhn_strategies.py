"""What a policy of Kuhn poker is worth, exactly: its exploitability (OpenSpiel's), its value, and the average of many.

A strategy gives the probability of betting or calling by (own card, moves so far), as
:data:`llm_envs.games.kuhn_poker.Strategy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_envs.games import kuhn_poker

__all__ = ["UNIFORM", "average", "exploitability", "value_against_equilibrium"]

Strategy = Mapping[tuple[int, str], float]

UNIFORM: Strategy = dict.fromkeys(((card, line) for card in range(3) for line in kuhn_poker.LINES), 0.5)
"""Moves at random."""

_EQUILIBRIUM = kuhn_poker.equilibrium()
_PASS, _BET = 0, 1  # OpenSpiel's actions
_LETTERS = {"k": "p", "b": "b"}  # of its information states: a pass and a bet


def exploitability(strategy: Strategy) -> float:
    """What a best response wins from ``strategy``, in chips a hand, on average over both seats, as OpenSpiel has it.

    Raises:
        ImportError: OpenSpiel is not installed (``pip install open-spiel``).
    """
    import pyspiel
    from open_spiel.python import policy
    from open_spiel.python.algorithms import exploitability as algorithm

    game = pyspiel.load_game("kuhn_poker")
    theirs = policy.TabularPolicy(game)
    for (card, line), aggressive in strategy.items():
        row = theirs.policy_for_key(f"{card}" + "".join(_LETTERS[letter] for letter in line))
        row[_PASS], row[_BET] = 1 - aggressive, aggressive
    return float(algorithm.exploitability(game, theirs))


def value_against_equilibrium(strategy: Strategy) -> float:
    """Chips a hand that ``strategy`` wins from the equilibrium with alpha 1/3, averaged over the seats; 0 at most."""
    first = kuhn_poker.expected_chips(strategy, _EQUILIBRIUM)
    return float(first - kuhn_poker.expected_chips(_EQUILIBRIUM, strategy)) / 2


def average(strategies: Sequence[Strategy]) -> dict[tuple[int, str], float]:
    """The strategy that plays as one of ``strategies``, drawn anew for each hand.

    At a decision each of them counts by how likely its own moves lead there.

    Raises:
        ValueError: There are none.
    """
    if not strategies:
        raise ValueError("no strategies to average")
    mean: dict[tuple[int, str], float] = {}
    for card, line in strategies[0]:
        reach = [_own_reach(strategy, card, line) for strategy in strategies]
        chances = [strategy[card, line] for strategy in strategies]
        total = sum(reach)
        if total == 0:  # none of them gets there: any chance is as good
            reach, total = [1.0] * len(strategies), float(len(strategies))
        mean[card, line] = sum(r * chance for r, chance in zip(reach, chances, strict=True)) / total
    return mean


def _own_reach(strategy: Strategy, card: int, line: str) -> float:
    """The probability of the earlier moves of who is to move after ``line``."""
    reach = 1.0
    for at in range(len(line) - 2, -1, -2):
        aggressive = strategy[card, line[:at]]
        reach *= aggressive if line[at] == "b" else 1 - aggressive
    return reach
