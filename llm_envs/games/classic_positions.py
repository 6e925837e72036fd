"""Positions of PettingZoo's classic board games: the library's own environments hold the rules, here they get words.

A position wraps PettingZoo's raw environment (no wrappers, no rendering) and says which moves there are, what they are
called and how the board looks. Legality, turn and outcome are what the raw environment says.
"""

from __future__ import annotations

import copy
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pettingzoo.utils.agent_selector import AgentSelector

from llm_envs.copying import copy_state
from llm_envs.games import tictactoe
from llm_envs.games.classic_catalog import raw_env
from llm_envs.games.connect_four import ConnectFour
from llm_envs.games.connect_four_solver import search

if TYPE_CHECKING:
    import chess

_SHARED = ("action_spaces", "observation_spaces", "metadata", "possible_agents", "screen", "clock")
_BOARD = ConnectFour()
_TOKEN = re.compile(r"\[([^\[\]]*)\]")


def tokens(text: str) -> list[str]:
    """The moves in square brackets of ``text``, as they are spelt."""
    return [" ".join(token.split()) for token in _TOKEN.findall(text)]


class Position(ABC):
    """A position of one game, from its start.

    Attributes:
        raw: PettingZoo's environment. It is played on, never observed: its tensors cost more than the move.
        played: The names of the moves so far.
    """

    name: str
    """PettingZoo's name of the game, with its version."""
    most_moves: ClassVar[int | None]
    """The moves of the longest match; None if no number is known."""

    def __init__(self) -> None:
        self.raw: Any = raw_env(self.name)()
        self.raw.reset()
        self.played: list[str] = []

    @abstractmethod
    def _moves(self) -> dict[str, int]:
        """The legal moves by name, with PettingZoo's numbers."""

    @abstractmethod
    def board(self) -> str:
        """The board as text."""

    @abstractmethod
    def best(self) -> str:
        """The name of a sensible move; the best one where the game is solved."""

    @property
    def mover(self) -> int:
        """Index of the player to move."""
        return self.raw.possible_agents.index(self.raw.agent_selection)

    @cached_property
    def moves(self) -> Mapping[str, int]:
        """The legal moves by name, with PettingZoo's numbers."""
        return self._moves()

    def play(self, name: str) -> float | None:
        """Play a legal move; what the first player is paid if the game is over, else None."""
        raw = self.raw
        raw.step(self.moves[name])
        self.played.append(name)
        del self.moves
        return float(raw.rewards[raw.possible_agents[0]]) if any(raw.terminations.values()) else None

    def copy(self) -> Position:
        """An independent copy."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.played = self.played.copy()
        other.raw = object.__new__(type(self.raw))
        for key, value in self.raw.__dict__.items():
            shared = key in _SHARED or isinstance(value, str | int | float | None)
            other.raw.__dict__[key] = value if shared else self._copy_part(value)
        return other

    def _copy_part(self, value: Any) -> Any:
        if isinstance(value, AgentSelector):
            return copy.copy(value)  # it moves an index over lists that stay
        return copy_state(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Position:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _replayed, (type(self), self.played)  # PettingZoo's environments forget their game when they are pickled


def _replayed(kind: type[Position], names: list[str]) -> Position:
    position = kind()
    for name in names:
        _ = position.moves
        position.play(name)
    return position


class TicTacToe(Position):
    """``tictactoe_v3``: cells are numbered column by column."""

    name = "tictactoe_v3"
    most_moves = 9

    def _moves(self) -> dict[str, int]:
        return {str(cell): cell for cell in self.raw.board.legal_moves()}

    def board(self) -> str:
        """Three rows; X for the first player, O for the second, the number of a free cell."""
        cells = [str(cell) if mark == 0 else " XO"[mark] for cell, mark in enumerate(self.raw.board.squares)]
        return "\n".join(" ".join(cells[row::3]) for row in range(3))

    def _copy_part(self, value: Any) -> Any:
        if value is self.raw.board:
            board = copy.copy(value)
            board.squares = value.squares.copy()
            return board
        return super()._copy_part(value)

    def best(self) -> str:
        """The best cell under perfect play. The lines of the board are the same by columns as by rows."""
        marks = self.raw.board.squares
        masks = [sum(1 << cell for cell in range(9) if marks[cell] == player) for player in (1, 2)]
        return str(tictactoe.best_cell(masks[self.mover], masks[1 - self.mover]))


class ConnectFourPosition(Position):
    """``connect_four_v3``: a move is a column."""

    name = "connect_four_v3"
    most_moves = 42

    def _moves(self) -> dict[str, int]:
        return {str(column): column for column in range(7) if self.raw.board[column] == 0}

    def board(self) -> str:
        """Six rows under the numbers of the columns; X for the first player, O for the second."""
        cells = [".XO"[disc] for disc in self.raw.board]
        return "\n".join(" ".join(row) for row in ["0123456", *(cells[at : at + 7] for at in range(0, 42, 7))])

    def best(self) -> str:
        """The move of a search of a fixed number of positions."""
        first = second = 0
        for name in self.played:
            first, second = _BOARD.play(first, second, int(name))
        return str(search(_BOARD, first, second).column)


class Chess(Position):
    """``chess_v6``: moves are called by their SAN."""

    name = "chess_v6"
    most_moves = None

    @property
    def state(self) -> chess.Board:
        """The board of python-chess."""
        return self.raw.board

    def _moves(self) -> dict[str, int]:
        import chess
        from pettingzoo.classic.chess import chess_utils

        board = self.state
        chess_utils.legal_moves(board)  # fills the table that numbers moves, as White sees the board
        numbers, black = chess_utils.moves_to_actions, board.turn == chess.BLACK
        return {
            board.san(move): numbers[(chess_utils.mirror_move(move) if black else move).uci()]
            for move in sorted(board.legal_moves, key=chess.Move.uci)
        }

    @cached_property
    def uci(self) -> dict[str, str]:
        """SAN of every legal move by its UCI."""
        return {self.state.parse_san(name).uci(): name for name in self.moves}

    def play(self, name: str) -> float | None:
        """Play a legal move by its SAN."""
        self.__dict__.pop("uci", None)
        return super().play(name)

    def board(self) -> str:
        """Eight ranks with the names of ranks and files (upper case is White), and the FEN."""
        ranks = str(self.state).splitlines()
        lines = [f"{8 - index} {rank}" for index, rank in enumerate(ranks)]
        return "\n".join([*lines, "  a b c d e f g h", f"FEN: {self.state.fen()}"])

    def best(self) -> str:
        """Mate if there is one, else the most material after the best answer, then the fewest answers."""
        board = self.state.copy(stack=False)
        return max(sorted(self.moves), key=lambda name: _after(board, name))

    def _copy_part(self, value: Any) -> Any:
        import chess

        return value.copy() if isinstance(value, chess.Board) else super()._copy_part(value)


def _after(board: chess.Board, name: str) -> tuple[float, int]:
    """What the move ``name`` is worth to who plays it, looking two plies ahead."""
    mover = board.turn
    board.push_san(name)
    answers = list(board.legal_moves)
    worst = math.inf if board.is_checkmate() else _material(board, mover)
    for answer in answers:
        board.push(answer)
        worst = min(worst, -math.inf if board.is_checkmate() else _material(board, mover))
        board.pop()
    board.pop()
    return worst, -len(answers)


_WORTH = {1: 1, 2: 3, 3: 3, 4: 5, 5: 9}
"""What pawn, knight, bishop, rook and queen are worth, by python-chess's number."""


def _material(board: chess.Board, colour: bool) -> float:
    return float(
        sum(
            worth * (len(board.pieces(piece, colour)) - len(board.pieces(piece, not colour)))
            for piece, worth in _WORTH.items()
        )
    )
