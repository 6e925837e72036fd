"""Connect four as an environment."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gymnasium import error

from llm_envs.core import RenderMode
from llm_envs.games.base import PLAYERS, SEAT, TwoPlayerGame, check_integer
from llm_envs.games.connect_four import CONNECT, HEIGHT, WIDTH, ConnectFour
from llm_envs.games.connect_four_solver import search
from llm_envs.games.deals import DEALS, load_deals
from llm_envs.tasks import Task, TaskSet

QUESTION = "A game of connect four."
MAX_SIZE = 10
MAX_OPENING = 20


class _Board:
    """The rules on one size of board, and everything about their text that can be known before a game."""

    def __init__(self, width: int, height: int, connect: int) -> None:
        self.game = game = ConnectFour(width, height, connect)
        self.texts = tuple(f"[{column}]" for column in range(width))
        self.numbers = " ".join(str(column) for column in range(width))
        self.empty = game.board_text(0, 0).partition("\n")[2]
        self.column = {text: (game.bottoms[c], game.columns[c]) for c, text in enumerate(self.texts)}
        # Where a disc stands in the text of the board, whose rows are `width` cells, a space between two, a line end.
        self.place = {
            game.bottoms[c] << r: (height - 1 - r) * 2 * width + 2 * c for c in range(width) for r in range(height)
        }
        self.top_row = game.top_row
        self.first_line = 2 * connect - 1
        """The ply that can make the first line: the other player has moved one time less."""
        self._legal: dict[int, dict[str, None]] = {}
        self._asks: dict[int, str] = {}

    def legal(self, occupied: int) -> Collection[str]:
        """The texts of the columns that are not full."""
        tops = occupied & self.top_row
        found = self._legal.get(tops)
        if found is None:
            found = dict.fromkeys(text for text, top in zip(self.texts, self.game.tops, strict=True) if not tops & top)
            self._legal[tops] = found
        return found

    def asks(self, occupied: int) -> str:
        """What the player to move is asked for."""
        tops = occupied & self.top_row
        found = self._asks.get(tops)
        if found is None:
            legal = " ".join(self.legal(occupied))
            found = f"Legal moves: {legal}\nWrite the one that you play, and nothing else in square brackets."
            self._asks[tops] = found
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> _Board:
        return self


_board = lru_cache(maxsize=32)(_Board)


class ConnectFourGame(TwoPlayerGame):
    """Two players drop discs into the columns of a board in turn; four in a line win.

    | | |
    |---|---|
    | Agents | `player_0` (X), `player_1` (O) |
    | Order | in turn, `player_0` first |
    | Actions | the number of a column that is not full in square brackets, such as `[3]` |
    | Observations | the rules, the moves so far, the board, the legal moves |
    | Zero-sum | yes |
    | Import | `llm_envs.make("connect-four")` |

    ## Observations
    The whole prompt of the turn: the rules and the moves so far, then the board, the player's mark and its legal moves.
    What a player writes around its move is not shown to the other.

    ## Actions
    Any text with one move in square brackets. Text without one, with several different ones, or with the number of a
    column that is full is unusable: after `max_retries` the player forfeits the game.

    ## Rewards
    `team`: 1 for the winner and -1 for the loser, 0 for both after a draw. Who forfeits is paid -1, the other 1. There
    is no penalty for unusable text beside the forfeit, so that the rewards of every step add up to 0.

    ## Episode end
    Terminated by a line, a full board, or a forfeit. Success belongs to who won by play; a draw or a forfeit is
    nobody's. `infos[agent]["outcome"]` is `win`, `draw` or `loss`; `forfeit` names who forfeited.

    ## Arguments
    `width`, `height` and `connect` set the size of the board and the length of a line. With `opening_moves` the deal
    plays so many random moves first, for variety; all deals are the same without it. The oracle searches a fixed number
    of positions, about five moves ahead on the full board: strong, not perfect.

    ## Version history
    * v0: first version.
    """

    metadata = {
        "name": "connect_four_v0",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEALS,
        *,
        width: int = WIDTH,
        height: int = HEIGHT,
        connect: int = CONNECT,
        opening_moves: int = 0,
        max_retries: int = 1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        check_integer("width", width, 2, MAX_SIZE)
        check_integer("height", height, 2, MAX_SIZE)
        check_integer("connect", connect, 2, max(width, height))
        check_integer("opening_moves", opening_moves, 0, MAX_OPENING)
        opening = {"width": width, "height": height, "connect": connect, "plies": opening_moves}
        self._board = _board(width, height, connect)
        if opening_moves:
            try:
                self._board.game.random_opening(random.Random(0), opening_moves)
            except ValueError as reason:
                raise error.Error(f"`opening_moves` is too large, actual value: {opening_moves}: {reason}.") from reason
        self.rules = _rules(width, height, connect)
        super().__init__(
            load_deals(tasks, "connect-four", QUESTION, _draw, options=opening, task_options=task_options),
            examples=(*self._board.texts, "The middle: [0]", f"[{width}]", "[0] or [1]", "0"),
            max_retries=max_retries,
            render_mode=render_mode,
        )

    def _begin(self) -> None:
        self._discs = (0, 0)
        self._ply = 0
        self._text = self._board.empty

    def _moves(self) -> Collection[str]:
        first, second = self._discs
        return self._board.legal(first | second)

    def _advance(self, move: str) -> float | None:
        board = self._board
        first, second = self._discs
        occupied = first | second
        bottom, column = board.column[move]
        disc = (occupied + bottom) & column
        place, text = board.place[disc], self._text
        self._ply = ply = self._ply + 1
        if ply & 1:
            own = first | disc
            self._discs = (own, second)
            self._text = f"{text[:place]}X{text[place + 1 :]}"
        else:
            own = second | disc
            self._discs = (first, own)
            self._text = f"{text[:place]}O{text[place + 1 :]}"
        if ply >= board.first_line and board.game.has_line(own):
            return 1.0 if ply & 1 else -1.0
        return 0.0 if occupied | disc == board.game.full else None

    def _situation(self, agent: str) -> str:
        seat, to_move, board = SEAT[agent], self._ply & 1, self._board
        head = f"Board:\n{board.numbers}\n{self._text}\n\nYou are {agent} and play {'XO'[seat]}."
        if seat != to_move:
            return f"{head} It is the turn of {PLAYERS[to_move]}."
        first, second = self._discs
        return f"{head} {board.asks(first | second)}"

    def _most_moves(self, agent: str) -> int:
        return (self._board.game.width * self._board.game.height + 1 - SEAT[agent]) // 2

    def _best_move(self) -> str:
        return self._board.texts[search(self._board.game, *self._discs).column]

    def _table(self) -> str:
        return f"{self._board.numbers}\n{self._text}"


@lru_cache(maxsize=32)
def _rules(width: int, height: int, connect: int) -> str:
    return (
        f"Connect four on a board of {width} columns and {height} rows. player_0 plays X and moves first, player_1 "
        f"plays O. In turn they drop a disc into a column, where it falls to the lowest free cell; {connect} of one's "
        "own discs in a row, a column or a diagonal win, and a full board without them is a draw. The columns are "
        f"numbered 0 to {width - 1} from the left.\n\nMoves so far:"
    )


def _draw(rng: random.Random, width: int, height: int, connect: int, plies: int) -> dict[str, Any]:
    if not plies:
        return {}
    board = _board(width, height, connect)
    return {"opening": [board.texts[column] for column in board.game.random_opening(rng, plies)]}
