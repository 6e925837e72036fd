"""What two-player games share: one bracketed move a turn, a retry, a forfeit, and rewards that add up to 0."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gymnasium import error

from llm_envs.core import Outcome, RenderMode, TextEnv
from llm_envs.parsing import InvalidAction
from llm_envs.rewards import TEAM
from llm_envs.tasks import TaskSet

PLAYERS = ("player_0", "player_1")
OTHER = {"player_0": "player_1", "player_1": "player_0"}
SEAT = {"player_0": 0, "player_1": 1}

FORFEIT_PAYS = 1.0
"""What a forfeit takes from who forfeits and gives to the other: no less than the worst result of any of these games,
so that it never pays to lose a game by refusing to play it."""

_TOKEN = re.compile(r"\[([^\[\]]*)\]")
_NEXT = {agent: Outcome(next=agent) for agent in PLAYERS}
_SAYS = {agent: f"\n{agent}: " for agent in PLAYERS}
_SHOWN = 20
"""So many legal moves are named in a message; longer lists are cut off."""


def bracketed(text: str) -> str:
    """The one move in square brackets of ``text``, in lower case with single spaces, brackets included.

    The same move may be written more than once. Any other pair of brackets, or one that is not closed, makes the text
    ambiguous, and nothing here guesses which of them was meant.

    Raises:
        InvalidAction: There is no move in brackets, an empty one, more than one, or the brackets do not match.

    >>> bracketed("I take the centre. [ 4 ]")
    '[4]'
    """
    found = _TOKEN.findall(text)
    if not len(found) == text.count("[") == text.count("]"):
        raise InvalidAction("The square brackets do not match. Write one move, such as [move].")
    moves = {" ".join(token.split()).casefold() for token in found}
    if not moves:
        raise InvalidAction("No move in square brackets was found. Write one, such as [move].")
    if len(moves) > 1:
        raise InvalidAction(f"{len(moves)} different moves in square brackets were found. Write one only.")
    (move,) = moves
    if not move:
        raise InvalidAction("The square brackets are empty. Write one move, such as [move].")
    return f"[{move}]"


class TwoPlayerGame(TextEnv, ABC):
    """Base of the two-player zero-sum games. ``player_0`` moves first, and the players usually move in turn.

    A subclass sets ``metadata`` (with ``zero_sum`` True) and ``rules``, and implements

    * ``_begin()`` — set up the game as ``self.task`` deals it;
    * ``_moves()`` — pure: the canonical action texts that are legal for the player to move, such as ``"[4]"``. The
      container is shared: nobody changes it;
    * ``_advance(move)`` — play the canonical, legal text ``move``; return None while the game goes on, and at its end
      what ``player_0`` is paid, from -1 to 1 (``player_1`` is paid the negative of it);
    * ``_situation(agent)`` — pure: all that ``agent`` is shown after the moves so far, while the game runs: its private
      information, the board, whose turn it is, its legal moves;
    * ``_best_move()`` — the move of the oracle for the player to move.

    A game in which there are too many moves to list overrides ``_read`` too, and one in which the players do not always
    move in turn ``_follower``.

    What a player writes around its move is not shown to the other: thinking aloud gives nothing away.

    Args:
        tasks: The deals.
        examples: Example action texts of either player.
        max_retries: How often a player may try again after unusable text before it forfeits the game.
        render_mode: ``"ansi"``, ``"human"`` or None.
    """

    rules: str
    """The rules as both players read them: the head of every observation."""

    def __init__(
        self,
        tasks: TaskSet,
        *,
        examples: Sequence[str],
        max_retries: int = 1,
        render_mode: RenderMode = None,
    ) -> None:
        super().__init__(
            PLAYERS,
            tasks,
            examples=dict.fromkeys(PLAYERS, examples),
            max_retries=max_retries,
            invalid_penalty=0.0,  # a penalty that nobody receives would not be zero-sum: the forfeit is the penalty
            render_mode=render_mode,
        )

    # ---- what a game writes ----------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _moves(self) -> Collection[str]: ...

    @abstractmethod
    def _advance(self, move: str) -> float | None: ...

    @abstractmethod
    def _situation(self, agent: str) -> str: ...

    @abstractmethod
    def _best_move(self) -> str: ...

    def _follower(self, agent: str) -> str:
        """Pure: who moves next, now that ``agent`` has moved and the game goes on."""
        return OTHER[agent]

    def _read(self, action: str) -> str:
        """The canonical text of the move that ``action`` makes.

        Raises:
            InvalidAction: It makes none, or one that is not legal now.
        """
        move = bracketed(action)
        legal = self._moves()
        if move not in legal:
            raise InvalidAction(f"{move[:60]} is not a legal move now. Legal moves: {listed(legal)}.")
        return move

    # ---- beyond PettingZoo -----------------------------------------------------------------------------------------

    def legal_actions(self, agent: str) -> list[str]:
        """The action texts, such as ``"[4]"``, that ``agent`` may play now; none unless it is to move."""
        return list(self._moves()) if self._result is None and agent == self.agent_selection else []

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _start(self) -> str:
        self._result: float | None = None
        self._history = ""
        self._begin()
        mover = PLAYERS[0]
        for move in self.task.data.get("opening", ()):
            self._history += _SAYS[mover] + move
            if move not in self._moves() or self._advance(move) is not None:
                raise error.Error(
                    f"The opening of the task {self.task.id} must be legal moves that do not end the game, "
                    f"actual value: {move!r} in {list(self.task.data['opening'])}."
                )
            mover = self._follower(mover)
        return mover

    def _context(self, agent: str) -> str:
        return self.rules + self._history

    def _instructions(self, agent: str) -> str:
        if self._result is None:
            return self._situation(agent)
        return _OVER[_outcome(agent, self._result)]

    def _play(self, agent: str, action: str) -> Outcome:
        move = action if action in self._moves() else self._read(action)
        self._history += _SAYS[agent] + move
        self._result = payoff = self._advance(move)
        return _NEXT[self._follower(agent)] if payoff is None else self._final(payoff)

    def _final(self, payoff: float) -> Outcome:
        """The outcome of a game that was played to its end."""
        return ending(payoff)

    def _forfeit(self, agent: str) -> Outcome:
        """The game is lost, and won by the other; a gift is no success."""
        self._history += f"{_SAYS[agent]}forfeits"
        self._result = FORFEIT_PAYS if agent == PLAYERS[1] else -FORFEIT_PAYS
        return ending(self._result, agent)

    def _oracle(self, agent: str) -> str:
        return self._best_move() if self._result is None else ""

    def _render_text(self) -> str:
        lines = [f"Task {self.task.id}\n{self.task.question}"]
        lines += [f"[{agent}]\n{action}" for agent, action in self.transcript]
        lines.append(self._table())
        if self._result is not None:
            lines.append(self._ending_text())
        return "\n\n".join(lines)

    def _table(self) -> str:
        """What someone who sees everything sees now; for rendering and ``state()``, never for an observation."""
        return self._context(PLAYERS[0])


def listed(moves: Collection[str]) -> str:
    """Legal moves in one line, cut off where there are many."""
    shown = list(moves)[:_SHOWN]
    return " ".join(shown) + (f" … ({len(moves)} in all)" if len(moves) > _SHOWN else "")


def check_integer(name: str, value: int, least: int, most: int) -> int:
    """``value``, if it is an integer from ``least`` to ``most``.

    Raises:
        gymnasium.error.Error: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise error.Error(f"`{name}` must be an integer from {least} to {most}, actual value: {value!r}.")
    return value


_OVER = {
    "win": "The game is over: you won.",
    "draw": "The game is over: a draw.",
    "loss": "The game is over: you lost.",
}


def _outcome(agent: str, payoff: float) -> str:
    if payoff == 0:
        return "draw"
    return "win" if (payoff > 0) == (agent == PLAYERS[0]) else "loss"


@lru_cache(maxsize=256)
def ending(payoff: float, forfeit: str | None = None) -> Outcome:
    """The end of a game in which ``player_0`` is paid ``payoff``. Shared between episodes: nobody changes it."""
    outcomes = {agent: _outcome(agent, payoff) for agent in PLAYERS}
    info: dict[str, Mapping[str, Any]] = {
        agent: {"outcome": outcome} if forfeit is None else {"outcome": outcome, "forfeit": forfeit}
        for agent, outcome in outcomes.items()
    }
    return Outcome(
        rewards={PLAYERS[0]: {TEAM: payoff + 0.0}, PLAYERS[1]: {TEAM: 0.0 - payoff}},
        terminated=True,
        success=frozenset() if forfeit else frozenset(agent for agent in PLAYERS if outcomes[agent] == "win"),
        info=info,
    )
