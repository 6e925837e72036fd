"""The sudoku environments: a planner fills a grid, alone or with a coder whose program proposes the fills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from llm_envs.games.sudoku import (
    Fill,
    Grid,
    IllegalFill,
    apply_fill,
    conflict,
    fill_text,
    grid_text,
    is_solved,
    parse_fill,
    parse_grid,
    read_fill,
)
from llm_envs.games.sudoku_tasks import DEFAULT_TASKS, load_sudoku_tasks, rules_text, unique_solution
from llm_envs.planning.base import IllegalMove, PlanningEnv
from llm_envs.planning.pair import PairEnv
from llm_envs.tasks import Task, TaskError, TaskSet

__all__ = ["Sudoku1Agent", "Sudoku2Agent"]


@lru_cache(maxsize=4096)
def _solved_puzzle(line: str) -> tuple[Grid, Grid]:
    """Clues and solution of a puzzle. Tasks may come from anywhere, so that it has exactly one solution is checked."""
    clues = parse_grid(line)
    return clues, unique_solution(clues)


class Sudoku1Agent(PlanningEnv):
    """A planner completes a sudoku grid of 4×4, 6×6 or 9×9 cells; every puzzle has exactly one solution.

    The sudoku task of AT-GRPO (arXiv 2510.11062), for one agent. Where the published check of a solution ignored the
    clues, so that one grid solved every puzzle, here clues cannot be changed and a solved grid must have kept them.

    | | |
    |---|---|
    | Agents | `planner_0` |
    | Order | `planner_0`, up to `max_rounds` times |
    | Actions | text with a list of fills such as `[r1c2=3, r4c4=1]`; the last list counts |
    | Observations | rules and puzzle; every earlier turn with its result and the grid after it; the format |
    | Tasks | generated puzzles, files with one puzzle a line (`.txt`, `.sdm`), rows with a `puzzle` column |
    | Import | `llm_envs.make("sudoku-1agent", task_options={"grid_size": 9})` |

    ## Observations
    The whole prompt of the turn: the rules, the puzzle (N lines of N characters separated by spaces, a dot for a
    blank), then every earlier turn followed by how many fills were made, why the next one was illegal if it was, and
    the grid that this led to. Grids do not mark which cells are clues: those of the first grid are.

    ## Actions
    Any text. The fills of the last bracketed list are made in order, up to the first illegal one; the rest of the list
    is then discarded. `r1c2=3` writes 3 into row 1, column 2, counted from 1 from the top left. A fill is illegal if
    the cell is outside the grid or a clue, or if row, column or box hold the value already **as the grid stands**. A
    cell that is not a clue may be written over (`r1c2=4`) and cleared (`r1c2=0`, if it is not blank), so a wrong fill
    that was legal is no dead end. Text without a list of fills is unusable and the turn is lost.

    ## Rewards
    | part | for | default |
    |---|---|---|
    | `team` | the grid is solved | +1 |
    | `progress` | share of the puzzle's blanks that hold the solution's value: its change in the turn | 1 in total |
    | `step` | every fill that was made, clearing included; over an episode never more than half of `team` | −0.01 |
    | `illegal` | an illegal fill, at most one a turn | −0.1 |
    | `invalid` | unusable text (`invalid_penalty`) | −0.1 |

    `progress` is potential-based shaping without discount: it depends on the grid that a turn begins and ends with and
    telescopes over an episode, so that setting and clearing a cell earns nothing (and costs two steps). The other
    planning environments pay for a shortest solution; here `optimal` is 0, as every solution fills each blank.
    `rewards` changes the coefficients: `goal` (part `team`), `progress`, `step`, `illegal`, `optimal`.

    ## Episode end
    Terminated when the grid is solved: full, every row, column and box with each value once, every clue kept. Truncated
    after `max_rounds` turns. Success: solved. Infos: `distance` (blanks of the puzzle that do not hold the solution's
    value), `moves` (fills made), `optimal_length` (blanks of the puzzle).

    ## Task options
    Of the generated puzzles, in `task_options`: `grid_size` (4, 6 or 9), `difficulty` (`"easy"`: naked singles suffice,
    `"medium"`: hidden singles are needed, `"hard"`: more than singles is needed; 4×4 puzzles are all easy), `min_clues`
    and `max_clues`, `minimal`, `size` (number of tasks), `seed`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "sudoku_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    default_tasks: ClassVar[str] = DEFAULT_TASKS
    default_rewards: ClassVar[Mapping[str, float]] = {
        **PlanningEnv.default_rewards,
        "optimal": 0.0,
        # More than the steps of a 9×9 grid cost, so that every right fill is worth making.
        "progress": 1.0,
    }
    default_max_moves: ClassVar[int] = 2 * 81  # every cell cleared and filled
    notations: ClassVar[Mapping[str, str]] = {"fills": "[fill, fill, ...]"}

    def _load_tasks(self, tasks: str | TaskSet | Sequence[Task], split: str | None, **options: Any) -> TaskSet:
        return load_sudoku_tasks(tasks, split, **options)

    def _rules(self) -> str:
        return rules_text(self._size)

    def _moves_help(self) -> str:
        return (
            "A fill is written like r1c2=3: the value 3 into row 1, column 2, counted from 1 from the top left. It is "
            "legal if the cell is no clue and its row, column and box do not hold the value. A cell that is no clue "
            "may be written over; the value 0 clears it."
        )

    def _examples(self) -> Sequence[str]:
        return ("[r1c1=1, r2c3=2]", "[r4c4=3, r4c4=0, r1c2=4, r9c9=9]", "[r1c1]")

    def _start(self) -> str:
        line = self.task.data.get("puzzle")
        if not isinstance(line, str):
            raise TaskError(
                f"the task {self.task.id} has no puzzle: data['puzzle'] must be a line of N·N digits, got {line!r}"
            )
        self._clues, self._solution_grid = _solved_puzzle(line)
        self._size = max(self._solution_grid)
        return super()._start()

    def _new_state(self) -> Grid:
        return self._clues

    def _state_text(self, state: Grid) -> str:
        return grid_text(state)

    def _read_move(self, item: str) -> str | None:
        return read_fill(item)

    def _move(self, state: Grid, move: str) -> Grid:
        try:
            return apply_fill(state, self._clues, parse_fill(move, self._size))
        except IllegalFill as reason:
            raise IllegalMove(str(reason)) from None

    def _solved(self, state: Grid) -> bool:
        return 0 not in state and is_solved(state, self._clues)

    def _distance(self, state: Grid) -> int:
        return sum(value != right for value, right in zip(state, self._solution_grid, strict=True))

    def _solution(self, state: Grid) -> list[str]:
        """Fills that lead to the solution. Shortest wherever no wrong fill is in the way of a right one.

        A right value that a wrong fill of its row, column or box holds must wait until that one is written over; where
        wrong fills wait for each other, one is cleared.
        """
        fills: list[Fill] = []
        wrong = [cell for cell, right in enumerate(self._solution_grid) if state[cell] != right]
        while wrong:
            ready = [cell for cell in wrong if conflict(state, Fill(cell, self._solution_grid[cell])) is None]
            if ready:
                made = [Fill(cell, self._solution_grid[cell]) for cell in ready]
                wrong = [cell for cell in wrong if cell not in ready]
            else:
                made = [Fill(next(cell for cell in wrong if state[cell]), 0)]
            for fill in made:
                state = apply_fill(state, self._clues, fill)
            fills += made
        return [fill_text(fill, self._size) for fill in fills]


class Sudoku2Agent(Sudoku1Agent, PairEnv):
    """A coder's program proposes the fills of a sudoku grid, a planner gives them.

    The sudoku task of AT-GRPO (arXiv 2510.11062) for its pair of agents. Everything that is not said here is as in
    `sudoku-1agent`.

    | | |
    |---|---|
    | Agents | `coder_0`, `planner_0` |
    | Order | `coder_0`, `planner_0`, up to `max_rounds` times |
    | Actions | coder: a ```` ```python ```` block that prints a list of fills; planner: a list as in `sudoku-1agent` |
    | Observations | rules and puzzle; programs, their output, lists, their results and the grids after them; the role |
    | Tasks | as in `sudoku-1agent` |
    | Import | `llm_envs.make("sudoku-2agent")` |

    ## Observations
    The whole prompt of the turn; both agents read the same history. The coder's program reads on standard input the
    current grid (N lines of N characters separated by spaces, a dot for a blank), an empty line, and the puzzle's clues
    in the same form.

    ## Actions
    Any text. The coder's last fenced Python block is run in the sandbox and everyone sees what it prints; text without
    a block is unusable. Only the planner's list changes the grid, as in `sudoku-1agent`.

    ## Rewards
    Those of `sudoku-1agent`; `team` goes to both agents, `progress`, `step` and `illegal` to the planner. The coder's
    own part is `program`: 0.1 if the program is Python, 0.1 if it runs, 0.8 if the list that it prints solves the
    puzzle from the current grid; paid as the rise of the best so far. `invalid` goes to whose text was unusable.

    ## Episode end
    As in `sudoku-1agent`. Infos of the coder besides: `run_status`, `isolation`, `program_solves`.

    ## Task options
    As in `sudoku-1agent`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "sudoku_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}

    def _program_input(self, state: Grid) -> str:
        return f"{grid_text(state)}\n\n{grid_text(self._clues)}\n"

    def _program_input_help(self) -> str:
        return "the current grid in the form above, an empty line, and the first grid (the clues)"
