"""Sudoku in few words, for models that are too small to read: a planner alone, and a proposer beside it.

The puzzles, the rules, the rewards and what counts as solved are those of `sudoku-1agent`; the texts are not. A value
in a cell is one word, ``r1c2v3``, and a grid is the list of its values and of its blank cells; what a turn led to takes
two lines more::

    clues r1c1v3 r2c3v1 r4c2v4
    blank r1c2 r1c3 r1c4 r2c1 …

    planner_0 1

`sudoku-2agent` has a coder who writes Python, which a model of a third of a million parameters never will. The pair
here keeps its shape with answers that such a model can give: `proposer_0` proposes fills in the planner's own words.
With ``tool`` it works as the coder does, through something that is run: a checker knows the rules, and not the
solution, and says in front of both agents what becomes of the proposal. Then `planner_0` gives the fills that are made.

These environments belong to the studies: :func:`register` adds them to the registry as ``short-sudoku-1agent-v0`` and
``short-sudoku-2agent-v0``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from llm_envs.core import Outcome
from llm_envs.games.sudoku import Fill, Grid, cell_name, conflict, parse_fill
from llm_envs.games.sudoku_env import Sudoku1Agent
from llm_envs.parsing import InvalidAction
from llm_envs.registration import register as register_env
from llm_envs.registration import registry

__all__ = ["PAIR", "SOLO", "ShortSudoku1Agent", "ShortSudoku2Agent", "register", "vocabulary", "word"]

SOLO, PAIR = "short-sudoku-1agent-v0", "short-sudoku-2agent-v0"
_WORD = re.compile(r"(r[1-9]c[1-9])v([0-9])")


class ShortSudoku1Agent(Sudoku1Agent):
    """A planner fills a grid, up to ``max_rounds`` times, told in few words. Rewards as in `sudoku-1agent`."""

    metadata = {"name": "short_sudoku_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}

    def _rules(self) -> str:
        return f"clues {self._values(self._clues)}"

    def _state_text(self, state: Grid) -> str:
        blank = " ".join(cell_name(cell, self._size) for cell, value in enumerate(state) if not value)
        own = bytes(0 if clue else value for value, clue in zip(state, self._clues, strict=True))
        return (f"now {self._values(own)}\n" if any(own) else "") + f"blank {blank}".rstrip()

    def _values(self, grid: Grid) -> str:
        return " ".join(word(Fill(cell, value), self._size) for cell, value in enumerate(grid) if value)

    def _read_move(self, item: str) -> str | None:
        match = _WORD.fullmatch(item)
        return None if match is None else f"{match[1]}={match[2]}"

    def _examples(self) -> Sequence[str]:
        return ("[r1c1v1, r2c3v2]", "[r4c4v3, r4c4v0, r1c2v4]", "[r1c1]")

    def _start(self) -> str:
        first = super()._start()
        self._history = f"{self._rules()}\n{self._state_text(self._state)}"
        return first

    def _play(self, agent: str, action: str) -> Outcome:
        plan = self._read_plan(action)
        left, moves = self._left, self._moves
        before = self._state
        self._state, made, problem = self._follow(before, plan)
        self._moves += made
        self._left = self._distance(self._state)
        parts = {
            "step": self._step_cost(self._moves) - self._step_cost(moves),
            "progress": self.coefficients["progress"] * (left - self._left) / self._first_distance,
        }
        if problem is not None:
            parts["illegal"] = self.coefficients["illegal"]
        self._say(agent, f"{action}\n{self._verdict(plan, made, problem)}\n{self._state_text(self._state)}")
        return self._next_turn(agent, parts, solved=made > 0 and self._solved(self._state))

    def _verdict(self, plan: Sequence[str], made: int, problem: str | None) -> str:
        """Whether all fills of a list are legal, or the first that is not."""
        return "ok" if problem is None else f"stop {_spelled(plan[made])}"

    def _forfeit(self, agent: str) -> Outcome:
        self._say(agent, "nothing")
        return self._next_turn(agent, {})

    def _read_plan(self, text: str) -> list[str]:
        try:
            return super()._read_plan(text)
        except InvalidAction as reason:
            raise InvalidAction("no list of fills") from reason

    def _say(self, agent: str, text: str) -> None:
        self._history += f"\n{agent} {text}"

    def _instructions(self, agent: str) -> str:
        return f"{agent} {self._turn}"

    def _oracle(self, agent: str) -> str:
        return f"[{', '.join(map(_spelled, self._solution(self._state)[: self.max_moves]))}]"


class ShortSudoku2Agent(ShortSudoku1Agent):
    """A proposer proposes fills, the planner makes fills, up to ``max_rounds`` times.

    Rewards of the planner and of both as in `sudoku-1agent`. The proposer's own: ``proposal``, the share of the
    puzzle's blanks by which its best proposal so far is nearer to the solution than the puzzle, paid as it rises (an
    episode pays what its best proposal is worth, and a longer one no more); ``illegal`` −0.1 for a proposal with an
    illegal fill.

    Args:
        *args: As `Sudoku1Agent`.
        tool: Let a checker say in front of both agents what becomes of the proposal: that it solves the puzzle; the
            first illegal fill and the value that it clashes with; or which cells no value is left for after it. The
            checker knows the rules only. Without, the planner reads the proposal alone.
        **kwargs: As `Sudoku1Agent`.
    """

    metadata = {"name": "short_sudoku_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    roles: ClassVar[tuple[str, ...]] = ("proposer_0", "planner_0")

    def __init__(self, *args: Any, tool: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tool = tool

    def _start(self) -> str:
        first = super()._start()
        self._best = self._left
        self.proposal: tuple[str, ...] = ()
        self.proposal_solves = False
        return first

    def _play(self, agent: str, action: str) -> Outcome:
        if agent != "proposer_0":
            return super()._play(agent, action)
        plan = self._read_plan(action)
        reached, made, problem = self._follow(self._state, plan)
        left = self._distance(reached)
        worth = self.coefficients["progress"] * max(0, self._best - left) / self._first_distance
        self._best = min(self._best, left)
        parts = {"proposal": worth}
        if problem is not None:
            parts["illegal"] = self.coefficients["illegal"]
        self.proposal, self.proposal_solves = tuple(map(_spelled, plan)), self._solved(reached)
        self._say(agent, f"{action}\n{self._report(reached, plan, made, problem)}" if self.tool else action)
        return Outcome("planner_0", {agent: parts})

    def _forfeit(self, agent: str) -> Outcome:
        if agent != "proposer_0":
            return super()._forfeit(agent)
        self.proposal, self.proposal_solves = (), False
        self._say(agent, "nothing")
        return Outcome("planner_0")

    def _report(self, reached: Grid, plan: Sequence[str], made: int, problem: str | None) -> str:
        """What the checker says of a proposal."""
        if self._solved(reached):
            return "check solved"
        said = f"check {self._verdict(plan, made, problem)}"
        if problem is not None:
            clash = self._clash(reached, plan[made])
            said += f" {clash}" if clash else ""
        dead = [
            cell_name(cell, self._size)
            for cell, value in enumerate(reached)
            if not value and all(conflict(reached, Fill(cell, v)) is not None for v in range(1, self._size + 1))
        ]
        return f"{said} dead {' '.join(dead)}" if dead else said

    def _clash(self, grid: Grid, move: str) -> str:
        """The value that stands against an illegal fill: of its row, column or box, or the clue in its cell."""
        cell, value = (int(move[1]) - 1) * self._size + int(move[3]) - 1, int(move[5:])
        if max(int(move[1]), int(move[3]), value) > self._size:
            return ""
        fill = parse_fill(move, self._size)
        against = cell if self._clues[fill.cell] else conflict(grid, fill)
        return "" if against is None else word(Fill(against, grid[against]), self._size)

    def _oracle(self, agent: str) -> str:
        return super()._oracle("planner_0")

    def _example_actions(self) -> dict[str, Sequence[str]]:
        examples = super()._example_actions()
        return {"proposer_0": examples["planner_0"], **examples}


def word(fill: Fill, size: int) -> str:
    """The fill as one word: ``r1c2v3``."""
    return f"{cell_name(fill.cell, size)}v{fill.value}"


def vocabulary(size: int) -> list[str]:
    """Every fill of a ``size`` × ``size`` grid, and what is said of fills: words that few games hold all of."""
    fills = [word(Fill(cell, value), size) for cell in range(size * size) for value in range(size + 1)]
    return [*fills, "check", "ok", "stop", "dead", "solved", "now", "nothing"]


def _spelled(move: str) -> str:
    return move.replace("=", "v")


def register() -> None:
    """Add both environments to the registry, if they are not there yet."""
    for env_id, cls in ((SOLO, ShortSudoku1Agent), (PAIR, ShortSudoku2Agent)):
        if env_id not in registry:
            register_env(env_id, cls)
