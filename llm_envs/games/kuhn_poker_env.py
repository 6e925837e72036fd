"""Kuhn poker as an environment."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from llm_envs.core import RenderMode
from llm_envs.games import kuhn_poker
from llm_envs.games.base import PLAYERS, SEAT, TwoPlayerGame
from llm_envs.games.deals import DEALS, drawn, load_deals
from llm_envs.tasks import Task, TaskError, TaskSet, stable_hash

QUESTION = "A hand of Kuhn poker."

_LETTERS = {f"[{move}]": letter for move, letter in kuhn_poker.LETTERS.items()}
_LEGAL = {line: dict.fromkeys(f"[{move}]" for move in kuhn_poker.legal_moves(line)) for line in kuhn_poker.LINES}
_CHIPS = {
    (line + letter, cards): kuhn_poker.chips(line + letter, cards)
    for line in kuhn_poker.LINES
    for letter in (kuhn_poker.LETTERS[move] for move in kuhn_poker.legal_moves(line))
    for cards in kuhn_poker.DEALS
}
_PAID = {end: None if won is None else won / kuhn_poker.MOST_CHIPS for end, won in _CHIPS.items()}
"""What the first player is paid, by line and cards; None while the hand goes on."""

_EQUILIBRIUM = kuhn_poker.equilibrium()
_EXAMPLES = ("[check]", "[bet]", "[call]", "[fold]", "I have the better card: [bet]", "[check] or [bet]", "bet")


class KuhnPoker(TwoPlayerGame):
    """Two players are dealt one of three cards each and bet at most one chip: poker in its smallest form.

    | | |
    |---|---|
    | Agents | `player_0`, `player_1` |
    | Order | in turn, `player_0` first; two or three moves a hand |
    | Actions | `[check]` or `[bet]`; after a bet `[call]` or `[fold]` |
    | Observations | the rules, the moves so far, one's own card, the legal moves |
    | Zero-sum | yes |
    | Import | `llm_envs.make("kuhn-poker")` |

    ## Observations
    The whole prompt of the turn: the rules and the moves so far, then the player's own card and its legal moves. The
    other player's card is never shown, nor what a player writes around its move.

    ## Actions
    Any text with one move in square brackets. Text without one, with several different ones, or with a move that is not
    legal now is unusable: after `max_retries` the player forfeits.

    ## Rewards
    `team`: the chips won or lost, divided by 2: 0.5 for the ante, 1 for a called bet, and the negative of it for the
    other player. Who forfeits is paid -1, the worst result of a hand, and the other 1. There is no penalty for unusable
    text beside the forfeit, so that the rewards of every step add up to 0. Under perfect play `player_0` is paid -1/36
    on average.

    ## Episode end
    Terminated by a showdown, a fold, or a forfeit. Success belongs to who won the pot by play; a forfeit is nobody's
    success. `infos[agent]["outcome"]` is `win` or `loss`; `forfeit` names who forfeited.

    ## Arguments
    A deal is the two cards: `task.data["cards"]`, 0 for the jack to 2 for the king. The oracle plays the equilibrium in
    which `player_0` bluffs with a third of the jacks; what it leaves to chance is decided by the episode's seed.

    ## Version history
    * v0: first version.
    """

    metadata = {
        "name": "kuhn_poker_v0",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }
    rules = (
        "Kuhn poker. Of three cards, J (low), Q and K (high), each player holds one and does not see the other's; each "
        "has put one chip into the pot. player_0 begins. A player may check, or bet one chip more. Who faces a bet "
        "calls it with one chip, or folds and loses the pot. When both have checked or a bet is called, the higher "
        "card wins the pot.\n\nMoves so far:"
    )

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEALS,
        *,
        max_retries: int = 1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        super().__init__(
            load_deals(tasks, "kuhn-poker", QUESTION, _draw, task_options=task_options),
            examples=_EXAMPLES,
            max_retries=max_retries,
            render_mode=render_mode,
        )

    def _begin(self) -> None:
        self._cards: tuple[int, int] = drawn(self.task, "cards")
        if self._cards not in kuhn_poker.DEALS:
            raise TaskError(f"the task {self.task.id} deals {self._cards!r}; `cards` must be two different of 0, 1, 2")
        self._line = ""

    def _moves(self) -> Collection[str]:
        return _LEGAL[self._line]

    def _advance(self, move: str) -> float | None:
        self._line = line = self._line + _LETTERS[move]
        return _PAID[line, self._cards]

    def _situation(self, agent: str) -> str:
        seat = SEAT[agent]
        return _situation(seat, self._cards[seat], self._line)

    def _best_move(self) -> str:
        line = self._line

        def uniform() -> float:
            return stable_hash("kuhn-poker oracle", self._episode_seed, line) / 2**64

        return f"[{kuhn_poker.move_of(_EQUILIBRIUM, self._cards[len(line) % 2], line, uniform)}]"

    def _table(self) -> str:
        cards = (f"{agent}: {kuhn_poker.CARDS[card]}" for agent, card in zip(PLAYERS, self._cards, strict=True))
        return f"Cards: {', '.join(cards)}"


def _draw(rng: random.Random) -> dict[str, Any]:
    return {"cards": rng.choice(kuhn_poker.DEALS)}


@lru_cache(maxsize=64)
def _situation(seat: int, card: int, line: str) -> str:
    head = f"You are {PLAYERS[seat]}. Your card is {kuhn_poker.CARDS[card]}."
    to_move = len(line) % 2
    if to_move != seat:
        return f"{head} It is the turn of {PLAYERS[to_move]}."
    legal = " ".join(_LEGAL[line])
    return f"{head} Legal moves: {legal}\nWrite the one that you play, and nothing else in square brackets."
