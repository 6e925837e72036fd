"""The plan-path environments: a planner alone, and a coder beside the planner."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llm_envs.planning.base import IllegalMove, PlanningEnv
from llm_envs.planning.grid import LEGEND, MOVES, Grid
from llm_envs.planning.pair import PairEnv
from llm_envs.planning.plan_path_tasks import DEFAULT_TASKS, grid_of, load_plan_path_tasks
from llm_envs.tasks import Task, TaskSet

__all__ = ["PlanPath1Agent", "PlanPath2Agent"]

_LETTERS = {spelling: move for move in MOVES for spelling in (move, move.lower())}
_CELL = re.compile(r"[rR](\d{1,3})[cC](\d{1,3})")


class PlanPath(PlanningEnv):
    """The domain: a state is the cell that the planner is in."""

    default_tasks: ClassVar[str] = DEFAULT_TASKS
    notations: ClassVar[Mapping[str, str]] = {"moves": "[move, move, ...]", "cells": "[cell, cell, ...]"}

    def _load_tasks(self, tasks: str | TaskSet | Sequence[Task], split: str | None, **options: Any) -> TaskSet:
        return load_plan_path_tasks(tasks, split, **options)

    def _rules(self) -> str:
        return (
            "Find a way through the map, as short as possible. You move one cell at a time: up, down, left or right, "
            f"not into walls and not off the map. {LEGEND}. Row 0 is the top row, column 0 the leftmost column; r2c5 "
            "is the cell in row 2, column 5."
        )

    def _moves_help(self) -> str:
        if self.notation == "cells":
            return (
                "The cells are those to step on, in order, written as row and column like r2c5; the first is next to "
                "where you are, each other one next to the one before."
            )
        return "A move is U (up, one row less), D (down), L (left, one column less) or R (right)."

    def _examples(self) -> Sequence[str]:
        if self.notation == "cells":
            return ("[r0c1]", "[r1c0, r2c0]", "[r4c4, r4c5, r4c6]", "[R, D]")
        return ("[U]", "[R, D]", "[L, L, D, D]", "[D, R, D, R, up]")

    def _new_state(self) -> int:
        self._grid: Grid = grid_of(self.task)
        return self._grid.start

    def _state_text(self, state: int) -> str:
        return self._grid.text(state)

    def _read_move(self, item: str) -> str | None:
        if self.notation == "moves":
            return _LETTERS.get(item)
        cell = _CELL.fullmatch(item)
        return None if cell is None else f"r{int(cell[1])}c{int(cell[2])}"

    def _move(self, state: int, move: str) -> int:
        grid = self._grid
        if self.notation == "cells":
            row, column = move[1:].split("c")
            letter = grid.direction(state, int(row), int(column))
            if letter is None:
                raise IllegalMove(f"it is not next to {grid.name(state)}")
            move = letter
        after = grid.after(state, move)
        if after is None:
            raise IllegalMove(grid.obstacle(state, move))
        return after

    def _solved(self, state: int) -> bool:
        return state == self._grid.goal

    def _distance(self, state: int) -> int:
        return self._grid.distances[state]

    def _solution(self, state: int) -> Sequence[str]:
        path = self._grid.shortest(state)
        return path if self.notation == "moves" else self._grid.cells(state, path)

    def _program_input(self, state: int) -> str:
        return self._grid.plain(state) + "\n"

    def _program_input_help(self) -> str:
        return "the current map, one line a row, without coordinates and spaces,"


class PlanPath1Agent(PlanPath):
    """A planner finds the way through a grid with walls, in a few turns on the map as it then is.

    Plan-path of AT-GRPO (arXiv 2510.11062). The compute-matched baseline of the pair: the same tasks and turns. Where
    the published environment pays for moves that were not made, takes running out of turns for success or shows the
    first map in every turn, this one follows the paper.

    | | |
    |---|---|
    | Agents | `planner_0` |
    | Order | `planner_0`, up to `max_rounds` times |
    | Actions | a list of moves `[U, R, R]`, or of cells to visit `[r0c1, r0c2]` with `notation="cells"` |
    | Observations | rules, first map; earlier turns, each with its result and the new map; turn and format |
    | Import | `llm_envs.make("plan-path-1agent")` |

    ## Observations
    The whole prompt of the turn. The map stands with coordinates; where you and the goal are is said in words as well.

    ## Actions
    Any text; the last bracketed list counts. Its moves are made in order until one is illegal (that one is not made,
    the rest is discarded) or the goal is reached. A text without a usable list, or with more than `max_moves` moves, is
    unusable and loses the turn.

    ## Rewards
    Coefficients are changed with `rewards={"step": 0, ...}`.

    | part | default | paid |
    |---|---|---|
    | `team` | `goal` 1 | when the goal is reached |
    | `optimal` | 0.5 | when it is reached with as many moves as a shortest way has |
    | `step` | −0.01 | for each move made, at most half of `goal` an episode |
    | `illegal` | −0.1 | for an illegal move, once a turn |
    | `progress` | 0.5 | times the share of the first distance that the turn came closer; negative for going away |
    | `invalid` | −0.1 (`invalid_penalty`) | for unusable text |

    `progress` is shaping by the potential −distance / first distance with γ = 1: it depends on where an episode ends,
    not on the way. (With the published γ = 0.99, walking in circles is paid where returns are not discounted.)

    ## Episode end
    Terminated when the goal is reached, which is success; truncated after `max_rounds` turns. Infos: `distance` (left),
    `moves` (made), `optimal_length` (of the task).

    ## Tasks
    `plan-path` is generated. Its `task_options` are `grid_size` (10, or rows and columns), `wall_ratio` (0.22),
    `min_length` (2) and `max_length` of the shortest way, `size` (number of tasks) and `seed`. A `.txt` file holds maps
    of `A` start, `G` goal, `#` wall and `.` free, separated by empty lines; other files have them in the column `map`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "plan_path_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}


class PlanPath2Agent(PlanPath, PairEnv):
    """A coder's program proposes a way through a grid with walls, a planner decides, turn by turn.

    The tool/planner pair of AT-GRPO (arXiv 2510.11062) on plan-path. The planner sees the program and what it printed;
    the program runs in the sandbox.

    | | |
    |---|---|
    | Agents | `coder_0`, `planner_0` |
    | Order | coder, planner, up to `max_rounds` times |
    | Actions | coder: one ```` ```python ```` block that prints a list of moves; planner: a list of moves `[U, R, R]` |
    | Observations | rules, first map; programs with their output, lists with their result and the new map; format |
    | Import | `llm_envs.make("plan-path-2agent")` |

    ## Observations
    The whole prompt of the turn. Both agents read everything.

    ## Actions
    Any text. Of the coder the last fenced Python block is run; it reads the current map on standard input, one line a
    row, without coordinates. Of the planner the last bracketed list counts; its moves are made in order until one is
    illegal or the goal is reached. Unusable text loses the agent's turn, and the other one goes on.

    ## Rewards
    Coefficients are changed with `rewards={"step": 0, ...}`.

    | part | default | to | paid |
    |---|---|---|---|
    | `team` | `goal` 1 | both | when the goal is reached |
    | `optimal` | 0.5 | both | when it is reached with as many moves as a shortest way has |
    | `step` | −0.01 | planner | for each move made, at most half of `goal` an episode |
    | `illegal` | −0.1 | planner | for an illegal move, once a turn |
    | `progress` | 0.5 | planner | times the share of the first distance that the turn came closer |
    | `program` | 0.1 + 0.1 + 0.8 | coder | parses, runs, prints moves that solve; as the rise of the best so far |
    | `invalid` | −0.1 (`invalid_penalty`) | its author | for unusable text |

    `progress` is shaping by the potential −distance / first distance with γ = 1, as in `plan-path-1agent`.

    ## Episode end
    Terminated when the goal is reached, which is success; truncated after `max_rounds` turns of the pair. Infos:
    `distance` (left), `moves` (made), `optimal_length` (of the task); of the coder `run_status`, `isolation` and
    `program_solves`.

    ## Tasks
    As `plan-path-1agent`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "plan_path_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
