"""Board games of PettingZoo's classic family as text environments: tic-tac-toe, connect four and chess.

>>> import llm_envs
>>> env = llm_envs.make("pettingzoo/tictactoe_v3")
>>> env.reset(seed=0)
>>> env.step("[4]")
>>> print(env.unwrapped.position.board())
0 3 6
1 X 7
2 5 8
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from llm_envs.core import RenderMode
from llm_envs.games import classic_positions as positions
from llm_envs.games.base import PLAYERS, TwoPlayerGame, bracketed, listed
from llm_envs.games.classic_catalog import NAMESPACE
from llm_envs.games.deals import DEALS, load_deals
from llm_envs.parsing import InvalidAction
from llm_envs.tasks import Task, TaskSet


class ClassicGame(TwoPlayerGame):
    """A board game of PettingZoo. The library's environment decides what is legal, whose turn it is and who has won."""

    kind: ClassVar[type[positions.Position]]
    sides: ClassVar[tuple[str, str]]
    examples: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEALS,
        *,
        max_retries: int = 1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self._initial = self.kind()
        name = f"{NAMESPACE}/{self.kind.name}"
        super().__init__(
            load_deals(tasks, name, f"A game of PettingZoo's {self.kind.name}.", task_options=task_options),
            examples=self.examples,
            max_retries=max_retries,
            render_mode=render_mode,
        )

    def _begin(self) -> None:
        self.position = self._initial.copy()
        self._legal: dict[str, str] | None = None

    def _names(self) -> dict[str, str]:
        """The legal moves by action text."""
        if self._legal is None:
            self._legal = {f"[{name}]": name for name in self.position.moves}
        return self._legal

    def _moves(self) -> Collection[str]:
        return self._names().keys()

    def _advance(self, move: str) -> float | None:
        name = self._names()[move]
        self._legal = None
        return self.position.play(name)

    def _situation(self, agent: str) -> str:
        to_move = self.position.mover
        seat = PLAYERS.index(agent)
        head = f"Board:\n{self.position.board()}\n\nYou are {agent} and play {self.sides[seat]}."
        if seat != to_move:
            return f"{head} It is the turn of {PLAYERS[to_move]}."
        legal = " ".join(self._moves())
        return f"{head} Legal moves: {legal}\nWrite the one that you play, and nothing else in square brackets."

    def _most_moves(self, agent: str) -> int | None:
        most = self.kind.most_moves
        return None if most is None else (most + 1 - PLAYERS.index(agent)) // 2

    def _best_move(self) -> str:
        return f"[{self.position.best()}]"

    def _table(self) -> str:
        return self.position.board()


class TicTacToe(ClassicGame):
    """PettingZoo's tic-tac-toe in text.

    `player_0` plays X and is PettingZoo's `player_1`; `player_1` plays O. A move is the number of a free cell, column
    by column as PettingZoo numbers them: `[4]` is the centre, `[1]` the cell left of it.

    ## Observations
    The rules, the moves so far, the board with the numbers of the free cells, the legal moves.

    ## Actions
    One legal move in square brackets. After `max_retries` more tries the player forfeits the game.

    ## Rewards
    `team`: 1 for the winner, -1 for the loser, 0 for a draw. A forfeit pays -1, and 1 to the other.

    ## Episode end
    Terminated as PettingZoo's game, or by a forfeit. Success belongs to who won by play.

    ## Version history
    As PettingZoo's `tictactoe_v3`.
    """

    metadata = {
        "name": "pettingzoo_tictactoe_v3",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }
    kind = positions.TicTacToe
    sides = ("X", "O")
    examples = (*(f"[{cell}]" for cell in range(9)), "[9]", "[0] or [8]", "4")
    rules = (
        "Tic-tac-toe on a 3×3 board. player_0 plays X and moves first, player_1 plays O. In turn they mark a free "
        "cell; three of one's own marks in a row, a column or a diagonal win, and a full board without them is a draw. "
        "The cells are numbered 0 to 8, column by column.\n\nMoves so far:"
    )


class ConnectFour(ClassicGame):
    """PettingZoo's connect four in text.

    `player_0` plays X, `player_1` plays O. A move is the number of a column that is not full, from 0 on the left.

    ## Observations
    The rules, the moves so far, the board, the legal moves.

    ## Actions
    One legal move in square brackets. After `max_retries` more tries the player forfeits the game.

    ## Rewards
    `team`: 1 for the winner, -1 for the loser, 0 for a draw. A forfeit pays -1, and 1 to the other.

    ## Episode end
    Terminated as PettingZoo's game, or by a forfeit. Success belongs to who won by play.

    ## Version history
    As PettingZoo's `connect_four_v3`.
    """

    metadata = {
        "name": "pettingzoo_connect_four_v3",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }
    kind = positions.ConnectFourPosition
    sides = ("X", "O")
    examples = (*(f"[{column}]" for column in range(7)), "[7]", "[0] or [1]", "0")
    rules = (
        "Connect four on a board of 7 columns and 6 rows. player_0 plays X and moves first, player_1 plays O. In turn "
        "they drop a disc into a column, where it falls to the lowest free cell; four of one's own discs in a row, a "
        "column or a diagonal win, and a full board without them is a draw. The columns are numbered 0 to 6 from the "
        "left.\n\nMoves so far:"
    )


class Chess(ClassicGame):
    """PettingZoo's chess in text.

    `player_0` is White, `player_1` Black. A move is written in standard algebraic notation (`[Nf3]`, `[exd5]`, `[O-O]`,
    `[e8=Q]`; the signs for check and mate may be left out) or in UCI (`[g1f3]`, `[e7e8q]`). The rules are those of
    python-chess as PettingZoo calls them: threefold repetition and fifty moves end the game once they can be claimed.

    ## Observations
    The rules, the moves so far, the board and its FEN, the legal moves.

    ## Actions
    One legal move in square brackets. After `max_retries` more tries the player forfeits the game.

    ## Rewards
    `team`: 1 for the winner, -1 for the loser, 0 for a draw. A forfeit pays -1, and 1 to the other.

    ## Episode end
    Terminated as PettingZoo's game, or by a forfeit. Success belongs to who won by play. The oracle looks two plies
    ahead and counts material: it is no strong player.

    ## Version history
    As PettingZoo's `chess_v6`.
    """

    metadata = {
        "name": "pettingzoo_chess_v6",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }
    kind = positions.Chess
    sides = ("White", "Black")
    examples = (
        "[e4]",
        "[d4]",
        "[Nf3]",
        "[g1f3]",
        "[e5]",
        "[d5]",
        "[Nf6]",
        "[c3]",
        "[a6]",
        "[Ke8]",
        "[e4] or [d4]",
        "e4",
    )
    rules = (
        "Chess. player_0 is White and moves first, player_1 is Black. Threefold repetition, fifty moves without a pawn "
        "move or a capture, stalemate and insufficient material are draws. Moves are written in standard algebraic "
        "notation or in UCI, such as [Nf3] or [g1f3].\n\nMoves so far:"
    )
    position: positions.Chess

    def _read(self, action: str) -> str:
        """SAN is read with its case (`bxc3` is a pawn's move, `Bxc3` a bishop's), UCI without."""
        folded = bracketed(action)[1:-1]
        if folded in self.position.uci:
            return f"[{self.position.uci[folded]}]"
        written = {token.rstrip("+#") for token in positions.tokens(action)}
        found = [name for name in self.position.moves if {name.rstrip("+#")} == written]
        if len(found) != 1:
            raise InvalidAction(f"[{folded[:60]}] is not a legal move now. Legal moves: {listed(self._moves())}.")
        return f"[{found[0]}]"
