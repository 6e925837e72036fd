"""Tic-tac-toe as an environment."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from llm_envs.core import RenderMode
from llm_envs.games import tictactoe
from llm_envs.games.base import PLAYERS, SEAT, TwoPlayerGame, check_integer
from llm_envs.games.deals import DEALS, load_deals
from llm_envs.tasks import Task, TaskSet

QUESTION = "A game of tic-tac-toe."
MAX_OPENING = 4

_TEXTS = tuple(f"[{cell}]" for cell in range(tictactoe.CELLS))
_BITS = {text: 1 << cell for cell, text in enumerate(_TEXTS)}
_LEGAL = tuple(
    dict.fromkeys(_TEXTS[cell] for cell in tictactoe.free_cells(occupied)) for occupied in range(tictactoe.FULL + 1)
)
_EXAMPLES = (*_TEXTS, "The centre is strong: [4]", "[9]", "[0] or [8]", "4")


class TicTacToe(TwoPlayerGame):
    """Two players mark the cells of a 3×3 board in turn; three in a line win.

    | | |
    |---|---|
    | Agents | `player_0` (X), `player_1` (O) |
    | Order | in turn, `player_0` first |
    | Actions | the number of a free cell in square brackets, such as `[4]` |
    | Observations | the rules, the moves so far, the board, the legal moves |
    | Zero-sum | yes |
    | Import | `llm_envs.make("tictactoe")` |

    ## Observations
    The whole prompt of the turn: the rules and the moves so far, then the board with the numbers of the free cells, the
    player's mark and its legal moves. What a player writes around its move is not shown to the other.

    ## Actions
    Any text with one move in square brackets. Text without one, with several different ones, or with the number of a
    cell that is taken is unusable: after `max_retries` the player forfeits the game.

    ## Rewards
    `team`: 1 for the winner and -1 for the loser, 0 for both after a draw. Who forfeits is paid -1, the other 1. There
    is no penalty for unusable text beside the forfeit, so that the rewards of every step add up to 0.

    ## Episode end
    Terminated by three in a line, a full board, or a forfeit. Success belongs to who won by play; a draw or a forfeit
    is nobody's. `infos[agent]["outcome"]` is `win`, `draw` or `loss`; `forfeit` names who forfeited.

    ## Arguments
    With `opening_moves` the deal plays so many random moves first, for variety: perfect play from the empty board is
    one game. All deals are the same without it.

    ## Version history
    * v0: first version.
    """

    metadata = {
        "name": "tictactoe_v0",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }
    rules = (
        "Tic-tac-toe on a 3×3 board. player_0 plays X and moves first, player_1 plays O. In turn they mark a free "
        "cell; three of one's own marks in a row, a column or a diagonal win, and a full board without them is a draw. "
        "The cells are numbered 0 to 8, row by row.\n\nMoves so far:"
    )

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEALS,
        *,
        opening_moves: int = 0,
        max_retries: int = 1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        plies = check_integer("opening_moves", opening_moves, 0, MAX_OPENING)
        super().__init__(
            load_deals(tasks, "tictactoe", QUESTION, _draw, options={"plies": plies}, task_options=task_options),
            examples=_EXAMPLES,
            max_retries=max_retries,
            render_mode=render_mode,
        )

    def _begin(self) -> None:
        self._first = self._second = 0

    def _moves(self) -> Collection[str]:
        return _LEGAL[self._first | self._second]

    def _advance(self, move: str) -> float | None:
        first, second = self._first, self._second
        if first.bit_count() == second.bit_count():
            self._first = first = first | _BITS[move]
            if tictactoe.HAS_LINE[first]:
                return 1.0
        else:
            self._second = second = second | _BITS[move]
            if tictactoe.HAS_LINE[second]:
                return -1.0
        return 0.0 if first | second == tictactoe.FULL else None

    def _situation(self, agent: str) -> str:
        return _situation(self._first, self._second, SEAT[agent])

    def _most_moves(self, agent: str) -> int:
        return 5 - SEAT[agent]

    def _best_move(self) -> str:
        own, other = self._first, self._second
        if own.bit_count() != other.bit_count():
            own, other = other, own
        return _TEXTS[tictactoe.best_cell(own, other)]

    def _table(self) -> str:
        return tictactoe.board_text(self._first, self._second)


def _draw(rng: random.Random, plies: int) -> dict[str, Any]:
    return {"opening": [_TEXTS[cell] for cell in tictactoe.random_opening(rng, plies)]} if plies else {}


@lru_cache(maxsize=16_384)  # more than there are positions, for either player
def _situation(first: int, second: int, seat: int) -> str:
    to_move = (first | second).bit_count() % 2
    head = f"Board:\n{tictactoe.board_text(first, second)}\n\nYou are {PLAYERS[seat]} and play {'XO'[seat]}."
    if to_move != seat:
        return f"{head} It is the turn of {PLAYERS[to_move]}."
    legal = " ".join(_LEGAL[first | second])
    return f"{head} Legal moves: {legal}\nWrite the one that you play, and nothing else in square brackets."
