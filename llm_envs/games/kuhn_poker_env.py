"""Kuhn poker as an environment."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llm_envs.core import RenderMode
from llm_envs.games import kuhn_poker
from llm_envs.games.base import PLAYERS, SEAT, TwoPlayerGame, check_integer
from llm_envs.games.deals import DEALS, drawn, load_deals
from llm_envs.games.kuhn_poker_hands import MAX_HANDS, both_cards, deal, rules_of, score
from llm_envs.tasks import Task, TaskError, TaskSet, stable_hash

QUESTION = "A hand of Kuhn poker."

_LETTERS = {f"[{move}]": letter for move, letter in kuhn_poker.LETTERS.items()}
_LEGAL = {line: dict.fromkeys(f"[{move}]" for move in kuhn_poker.legal_moves(line)) for line in kuhn_poker.LINES}
_ASKS = {
    line: f" Legal moves: {' '.join(moves)}\nWrite the one that you play, and nothing else in square brackets."
    for line, moves in _LEGAL.items()
}
_WAITS = {agent: f" It is the turn of {agent}." for agent in PLAYERS}
_EQUILIBRIUM = kuhn_poker.equilibrium()
_EXAMPLES = ("[check]", "[bet]", "[call]", "[fold]", "I have the better card: [bet]", "[check] or [bet]", "bet")


class KuhnPoker(TwoPlayerGame):
    """Two players are dealt one of three cards each and bet at most one chip: poker in its smallest form.

    | | |
    |---|---|
    | Agents | `player_0`, `player_1` |
    | Order | in turn; `player_0` begins the first hand, then they take turns to; two or three moves a hand |
    | Actions | `[check]` or `[bet]`; after a bet `[call]` or `[fold]` |
    | Observations | the rules, the moves so far, one's own card, the legal moves |
    | Zero-sum | yes |
    | Import | `llm_envs.make("kuhn-poker")` |

    ## Observations
    The whole prompt of the turn: the rules and the moves so far, then the player's own card and its legal moves. The
    other player's card is never shown, nor what a player writes around its move. With several hands the moves of each
    are followed by its result and the chips won so far. That tells the cards of a showdown, which both players turn up;
    after a fold nobody learns the other's card. A player's own cards of earlier hands stand beside its present one.

    ## Actions
    Any text with one move in square brackets. Text without one, with several different ones, or with a move that is not
    legal now is unusable: after `max_retries` the player forfeits.

    ## Rewards
    `team`, paid at the end: the chips won or lost, divided by 2, the most that a hand can cost, and by the number of
    hands; the negative of it for the other player. In a game of one hand that is 0.5 for the ante and 1 for a called
    bet. Who forfeits is paid -1, the worst result of a game, whatever was won before, and the other 1. There is no
    penalty for unusable text beside the forfeit, so that the rewards of every step add up to 0. Under perfect play who
    begins a hand loses 1/18 of a chip: `player_0` is paid -1/36 for one hand on average, and 0 for an even number.

    ## Episode end
    Terminated by the showdown or fold that ends the last hand, or a forfeit. Success belongs to who won more chips than
    it lost by play; a forfeit or a draw, which only several hands can end in, is nobody's success.
    `infos[agent]["outcome"]` is `win`, `draw` or `loss`; `forfeit` names who forfeited.

    ## Arguments
    `hands` is the number of hands of a game, 1 to 25. A deal is the cards of `player_0` and `player_1`, 0 for the jack
    to 2 for the king: `task.data["cards"]`, such as `(2, 0)`, for one hand; `task.data["hands"]`, a sequence of such
    pairs, for several. The first hand of a deal is the same however many follow.

    The oracle plays every hand by the equilibrium in which who begins bluffs with a third of the jacks; what it leaves
    to chance is decided by the episode's seed. Chips add up, so that this is an equilibrium of the whole game too.

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
        hands: int = 1,
        max_retries: int = 1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self.hands = check_integer("hands", hands, 1, MAX_HANDS)
        self._key = "cards" if hands == 1 else "hands"
        question, options = QUESTION, {}
        if hands > 1:
            question, options = f"{hands} hands of Kuhn poker.", {"hands": hands}
            self.rules = rules_of(hands)
        super().__init__(
            load_deals(tasks, "kuhn-poker", question, _draw, options=options, task_options=task_options),
            examples=_EXAMPLES,
            max_retries=max_retries,
            render_mode=render_mode,
        )

    def _begin(self) -> None:
        task, key = self.task, self._key
        found = drawn(task, key)
        try:
            self._hand = deal((found,) if self.hands == 1 else found)
            fits = self.hands == 1 or len(found) == self.hands
        except (TypeError, ValueError):  # what cannot be hashed is no deal either
            fits = False
        if not fits:
            pairs = "" if self.hands == 1 else f"{self.hands} pairs, each of "
            raise TaskError(f"the task {task.id} deals {found!r}; `{key}` must be {pairs}two different of 0, 1, 2")
        self._line = ""
        self._chips = 0

    def _moves(self) -> Collection[str]:
        return _LEGAL[self._line]

    def _follower(self, agent: str) -> str:
        return self._hand.order[len(self._line) % 2]

    def _advance(self, move: str) -> float | None:
        self._line = line = self._line + _LETTERS[move]
        return None if line in _LEGAL else self._end_hand(line)

    def _end_hand(self, line: str) -> float | None:
        hand = self._hand
        won, how = hand.ends[line]
        self._chips = chips = self._chips + won
        if self.hands > 1:
            self._history += f"\n{how} {score(chips)}"
        if hand.following is None:
            return chips / (kuhn_poker.MOST_CHIPS * self.hands)
        self._hand, self._line = hand.following, ""
        return None

    def _situation(self, agent: str) -> str:
        hand, line = self._hand, self._line
        to_move = hand.order[len(line) % 2]
        return hand.heads[SEAT[agent]] + (_ASKS[line] if agent == to_move else _WAITS[to_move])

    def _most_moves(self, agent: str) -> int:
        return 2 * self.hands if self.hands > 1 else 2 - SEAT[agent]  # players begin the hands in turn

    def _best_move(self) -> str:
        hand, line = self._hand, self._line
        key = (line, hand.number) if hand.number else (line,)  # one hand is decided as the first of several is

        def uniform() -> float:
            return stable_hash("kuhn-poker oracle", self._episode_seed, *key) / 2**64

        return f"[{kuhn_poker.move_of(_EQUILIBRIUM, hand.cards[len(line) % 2], line, uniform)}]"

    def _table(self) -> str:
        if self.hands == 1:
            return f"Cards: {both_cards(self.task.data[self._key])}"
        lines = [
            f"Cards of hand {i}: {both_cards(cards)}" for i, cards in enumerate(self.task.data[self._key], start=1)
        ]
        return "\n".join((*lines, score(self._chips)))


def _draw(rng: random.Random, hands: int = 1) -> dict[str, Any]:
    if hands == 1:
        return {"cards": rng.choice(kuhn_poker.DEALS)}
    return {"hands": [rng.choice(kuhn_poker.DEALS) for _ in range(hands)]}
