"""The negotiation game as an environment."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from llm_envs.core import Outcome, RenderMode
from llm_envs.games import negotiation
from llm_envs.games.base import OTHER, PLAYERS, SEAT, TwoPlayerGame, bracketed, check_integer, ending
from llm_envs.games.deals import DEALS, drawn, load_deals
from llm_envs.games.negotiation import Amounts, Deal, Trade, amounts_text, parse_trade, trade_text
from llm_envs.parsing import InvalidAction
from llm_envs.tasks import Task, TaskError, TaskSet

QUESTION = "A negotiation over resources."
MAX_TURNS = 100
LISTED_UNITS = 2
"""``legal_actions`` lists the offers of one resource for another with at most so many units on a side."""

ACCEPT, DENY, PASS = "[accept]", "[deny]", "[pass]"
_OFFER = "[offer: "
_EXAMPLES = (
    "[offer: 1 wood -> 1 stone]",
    "I have too much gold. [offer: 1 gold -> 2 iron]",
    "[offer: 1 wood, 1 stone -> 1 gold]",
    ACCEPT,
    DENY,
    PASS,
    "[offer: 99 wood -> 1 gold]",
    "[offer: wood for gold]",
    "[accept] or [deny]",
    "accept",
)


class Negotiation(TwoPlayerGame):
    """Two players with private values trade resources; who gains more by its own values wins.

    | | |
    |---|---|
    | Agents | `player_0`, `player_1` |
    | Order | in turn, `player_0` first, `max_turns` turns in all |
    | Actions | `[offer: 2 wood -> 1 iron]` (give -> want), `[accept]`, `[deny]`, `[pass]` |
    | Observations | the rules, the moves so far, one's own values, both holdings, the offer to be answered |
    | Zero-sum | yes |
    | Import | `llm_envs.make("negotiation")` |

    After the negotiation game of SPIRAL (arXiv 2506.24119) and TextArena. Two differences: holdings are public, so that
    no offer fails for a reason that a player cannot know; and only the move is shown to the other player, not the text
    around it, so that thinking aloud gives no values away.

    ## Observations
    The whole prompt of the turn: the rules with what each resource is usually worth, the moves so far, then the
    player's own values, what both hold, what its trades have gained it, and the offer that it has to answer. The other
    player's values and gains are never shown.

    ## Actions
    Any text with one move in square brackets. An offer names units of one or more resources on either side, separated
    by commas: what the player gives, `->`, what it wants; both must be there. A new offer takes the place of the one
    that it answers. `[accept]` and `[deny]` answer an offer, `[pass]` is for a turn without one. Any other text is
    unusable: after `max_retries` the player forfeits the game.

    ## Rewards
    `team`: 1 for the player who gained more, each by its own values, -1 for the other, 0 for both if they gained the
    same (as without any trade). Who forfeits is paid -1, the other 1. There is no penalty for unusable text beside the
    forfeit, so that the rewards of every step add up to 0.

    ## Episode end
    Terminated after `max_turns` turns, which both know from the beginning, or by a forfeit. Success belongs to who
    gained more; a draw or a forfeit is nobody's. `infos[agent]["outcome"]` is `win`, `draw` or `loss`, `gain` the
    agent's own gain; `forfeit` names who forfeited.

    ## Arguments
    A deal is what both hold and their values: `task.data["holdings"]` and `task.data["values"]`, four numbers a player
    in the order wood, stone, iron, gold. `legal_actions` lists offers of one resource for another with at most 2 units
    a side; larger offers are legal too. The oracle offers and accepts what gains it more than it should give the other,
    whose values it takes to be the usual ones: sensible, not optimal.

    ## Version history
    * v0: first version.
    """

    metadata = {
        "name": "negotiation_v0",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEALS,
        *,
        max_turns: int = 10,
        max_retries: int = 1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self.max_turns = check_integer("max_turns", max_turns, 2, MAX_TURNS)
        self.rules = _rules(max_turns)
        super().__init__(
            load_deals(tasks, "negotiation", QUESTION, _draw, task_options=task_options),
            examples=_EXAMPLES,
            max_retries=max_retries,
            render_mode=render_mode,
        )

    def _begin(self) -> None:
        try:
            deal = negotiation.check_deal(Deal(drawn(self.task, "holdings"), drawn(self.task, "values")))
        except ValueError as reason:
            raise TaskError(f"the task {self.task.id} cannot be played: {reason}") from reason
        self._held = self._dealt = deal.holdings
        self._values = deal.values
        self._turn = 0
        self._offer: str | None = None
        self._offered: tuple[str, ...] = ()

    def _moves(self) -> Collection[str]:
        own, other = self._sides()
        answers = [PASS] if self._offer is None else [ACCEPT, DENY]
        return [*answers, *_simple_offers(_capped(own), _capped(other))]

    def _read(self, action: str) -> str:
        move = bracketed(action)
        if move in (ACCEPT, DENY):
            if self._offer is None:
                raise InvalidAction(f"There is no offer to answer with {move}. Make one, or write {PASS}.")
            return move
        if move == PASS:
            if self._offer is not None:
                raise InvalidAction(f"There is an offer to answer: write {ACCEPT}, {DENY} or an offer of your own.")
            return move
        if not move.startswith(_OFFER):
            raise InvalidAction(f"{move[:60]} is no move. Write {self._choices()}.")
        try:
            trade = parse_trade(move[len(_OFFER) : -1])
        except ValueError as reason:
            raise InvalidAction(str(reason)) from None
        absent = negotiation.missing(trade, *self._sides())
        if absent is not None:
            raise InvalidAction(absent)
        return _offer_text(trade)

    def _advance(self, move: str) -> float | None:
        seat = self._turn % 2
        if move == ACCEPT and self._offer is not None:
            theirs, mine = negotiation.exchange(parse_trade(self._offer), self._held[1 - seat], self._held[seat])
            self._held = (mine, theirs) if seat == 0 else (theirs, mine)
        self._offer = None
        if move.startswith(_OFFER):
            self._offer = move[len(_OFFER) : -1]
            self._offered += (self._offer,)
        self._turn += 1
        if self._turn < self.max_turns:
            return None
        first, second = self._gain(0), self._gain(1)
        return float((first > second) - (first < second))

    def _final(self, payoff: float) -> Outcome:
        outcome = ending(payoff)
        info = {agent: {**outcome.info[agent], "gain": self._gain(SEAT[agent])} for agent in PLAYERS}
        return replace(outcome, info=info)

    def _situation(self, agent: str) -> str:
        seat, other = SEAT[agent], OTHER[agent]
        values = ", ".join(
            f"{name} {value}" for name, value in zip(negotiation.RESOURCES, self._values[seat], strict=True)
        )
        lines = [
            f"You are {agent}. Turn {self._turn + 1} of {self.max_turns}.",
            f"What a unit is worth to you: {values}.",
            f"You hold {amounts_text(self._held[seat])}. {other} holds {amounts_text(self._held[1 - seat])}.",
            f"What your trades have gained you: {self._gain(seat)}.",
        ]
        if self._turn % 2 != seat:
            return "\n".join([*lines, f"It is the turn of {other}."])
        if self._offer is not None:
            trade = parse_trade(self._offer)
            lines.append(f"{other} offers you {amounts_text(trade.gives)} for {amounts_text(trade.wants)}.")
        return "\n".join([*lines, f"Write {self._choices()}, and nothing else in square brackets."])

    def _most_moves(self, agent: str) -> int:
        return (self.max_turns + 1 - SEAT[agent]) // 2

    def _best_move(self) -> str:
        seat = self._turn % 2
        own, other = self._sides()
        values = self._values[seat]
        if self._offer is not None and negotiation.edge(negotiation.reverse(parse_trade(self._offer)), values) > 0:
            return ACCEPT
        if self._turn + 1 < self.max_turns:
            tried = frozenset(parse_trade(text) for text in self._offered)
            trade = negotiation.best_offer(own, other, values, tried)
            if trade is not None:
                return _offer_text(trade)
        return PASS if self._offer is None else DENY

    def _table(self) -> str:
        lines = []
        for agent, seat in SEAT.items():
            values = ", ".join(f"{n} {v}" for n, v in zip(negotiation.RESOURCES, self._values[seat], strict=True))
            lines.append(
                f"{agent} holds {amounts_text(self._held[seat])}; values: {values}; gained: {self._gain(seat)}"
            )
        return "\n".join(lines)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _sides(self) -> tuple[Amounts, Amounts]:
        """What the player to move holds, and what the other does."""
        return self._held if self._turn % 2 == 0 else (self._held[1], self._held[0])

    def _gain(self, seat: int) -> int:
        values = self._values[seat]
        return negotiation.worth(self._held[seat], values) - negotiation.worth(self._dealt[seat], values)

    def _choices(self) -> str:
        answers = PASS if self._offer is None else f"{ACCEPT}, {DENY}"
        return f"{answers} or an offer such as [offer: 2 wood, 1 stone -> 1 iron] (what you give -> what you want)"


def _offer_text(trade: Trade) -> str:
    return f"{_OFFER}{trade_text(trade)}]"


def _capped(amounts: Amounts) -> Amounts:
    return tuple(min(n, LISTED_UNITS) for n in amounts)


@lru_cache(maxsize=4_096)
def _simple_offers(own: Amounts, other: Amounts) -> tuple[str, ...]:
    return tuple(_offer_text(trade) for trade in negotiation.simple_trades(own, other, LISTED_UNITS))


@lru_cache(maxsize=32)
def _rules(max_turns: int) -> str:
    usual = ", ".join(
        f"{name} {value}" for name, value in zip(negotiation.RESOURCES, negotiation.USUAL_VALUES, strict=True)
    )
    return (
        "A negotiation between player_0 and player_1, who hold wood, stone, iron and gold. What a unit is worth "
        f"differs between the two, by up to 30 percent either way; usually it is: {usual}. Each knows its own values "
        f"only. They move in turn, player_0 first, {max_turns} turns in all: make an offer, accept or deny the offer "
        "of the other, or pass. A new offer denies the one before it. After the last turn, whose holding gained more "
        "by its owner's values wins; equal gains are a draw.\n\nMoves so far:"
    )


def _draw(rng: random.Random) -> dict[str, Any]:
    return negotiation.draw_deal(rng)._asdict()
