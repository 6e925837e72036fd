"""The Sokoban environments: a planner alone, and a coder beside the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from llm_envs.planning.base import IllegalMove, PlanningEnv
from llm_envs.planning.pair import PairEnv
from llm_envs.planning.sokoban import MOVES, State, apply, illegal_reason, render, solved
from llm_envs.planning.sokoban_bounds import bounds
from llm_envs.planning.sokoban_rooms import EXACT_POSITIONS, FLOOR
from llm_envs.planning.sokoban_solver import shortest, solve
from llm_envs.planning.sokoban_tasks import DEFAULT_TASKS, load_sokoban_tasks, start_of
from llm_envs.tasks import Task, TaskSet

__all__ = ["Sokoban1Agent", "Sokoban2Agent"]

_LETTERS = {spelling: move for move in MOVES for spelling in (move, move.lower())}

SOLVER_POSITIONS = 50_000
"""Positions in which the oracle looks for some solution; the hardest of 2,000 Boxoban levels takes 3,656."""


class Sokoban(PlanningEnv):
    """The domain: a state is the worker and the boxes in a room."""

    default_tasks: ClassVar[str] = DEFAULT_TASKS
    default_rewards: ClassVar[Mapping[str, float]] = {
        "goal": 10.0,
        "optimal": 0.0,
        "step": -0.01,
        "illegal": -0.05,
        "progress": 1.0,
        "boxes": 1.0,
    }
    default_max_moves: ClassVar[int] = 200

    def _load_tasks(self, tasks: str | TaskSet | Sequence[Task], split: str | None, **options: object) -> TaskSet:
        return load_sokoban_tasks(tasks, split, **options)

    def _rules(self) -> str:
        return (
            "Sokoban: push every box onto a goal. You move one cell at a time: up, down, left or right. Moving onto a "
            "box pushes it one cell further, if there is neither a wall nor another box behind it. Boxes cannot be "
            "pulled.\n"
            f"Legend: # wall, {FLOOR} floor, . goal, $ box, * box on a goal, @ you, + you on a goal."
        )

    def _moves_help(self) -> str:
        return "A move is U (up), D (down), L (left) or R (right)."

    def _examples(self) -> Sequence[str]:
        return ("[U]", "[R, R, D]", "[L, L, U, U, R]", "[D, D, push]")

    def _new_state(self) -> State:
        start = start_of(self.task)
        # Twice the first distance stands for "lost": what shaping can cost is bounded by what it can bring.
        self._lost = 2 * (bounds(start.room).pushes(start.boxes) or 1)
        return start

    def _state_text(self, state: State) -> str:
        total = state.boxes.bit_count()
        return f"{render(state, floor=FLOOR)}\nBoxes on goals: {_on_goals(state)} of {total}."

    def _read_move(self, item: str) -> str | None:
        return _LETTERS.get(item)

    def _move(self, state: State, move: str) -> State:
        reason = illegal_reason(state, move)
        if reason is not None:
            raise IllegalMove(reason)
        return apply(state, move)

    def _solved(self, state: State) -> bool:
        return solved(state)

    def _distance(self, state: State) -> int:
        """The pushes that are needed at least; at most, and where all is lost, twice as many as at the start."""
        pushes = bounds(state.room).pushes(state.boxes)
        return self._lost if pushes is None else min(pushes, self._lost)

    def _turn_parts(self, before: State, after: State) -> Mapping[str, float]:
        return {"boxes": self.coefficients["boxes"] * (_on_goals(after) - _on_goals(before))}

    def _solution(self, state: State) -> Sequence[str] | None:
        return _plan(state)

    def _program_input(self, state: State) -> str:
        return render(state, floor=FLOOR) + "\n"

    def _program_input_help(self) -> str:
        return "the current board, one line a row,"


def _on_goals(state: State) -> int:
    return (state.boxes & state.room.goals).bit_count()


@lru_cache(maxsize=1024)
def _plan(state: State) -> tuple[str, ...] | None:
    """A shortest solution, or any if none is known to be; None if there is none.

    Where the solver's budget does not tell, the moves to the most promising position that it saw (None if that is the
    present one).
    """
    some = solve(state, max_positions=SOLVER_POSITIONS)
    if some.status == "undecided":
        return some.moves or None
    if some.status == "unsolvable":
        return None
    best = shortest(state, max_positions=EXACT_POSITIONS)
    return best.moves if best.status == "solved" else some.moves


class Sokoban1Agent(Sokoban):
    """A planner pushes boxes onto goals, in a few turns on the board as it then is.

    Sokoban of AT-GRPO (arXiv 2510.11062). The compute-matched baseline of the pair: the same tasks and turns. Where the
    published environment takes running out of turns for success, or pays 1 for a box that is pushed onto a goal and
    takes 0.5 for pushing it off again, this one does not.

    | | |
    |---|---|
    | Agents | `planner_0` |
    | Order | `planner_0`, up to `max_rounds` times |
    | Actions | a list of moves `[U, R, R]` |
    | Observations | rules, legend, first board; earlier turns with their results and new boards; turn and format |
    | Import | `llm_envs.make("sokoban-1agent")` |

    ## Observations
    The whole prompt of the turn. The board is in the usual symbols, with floor as `-` and the legend above it.

    ## Actions
    Any text; the last bracketed list counts. Its moves are made in order until one is illegal (that one is not made,
    the rest is discarded) or the last box is on a goal. Walking into a wall is illegal, and so is pushing a box into a
    wall or another box. A text without a usable list, or with more than `max_moves` moves, is unusable and loses the
    turn.

    ## Rewards
    Coefficients are changed with `rewards={"step": 0, ...}`.

    | part | default | paid |
    |---|---|---|
    | `team` | `goal` 10 | when all boxes are on goals |
    | `boxes` | 1 | for each box on a goal more than before the turn; as much is taken for each one less |
    | `step` | −0.01 | for each move made, at most half of `goal` an episode |
    | `illegal` | −0.05 | for an illegal move, once a turn |
    | `progress` | 1 | times the share of the first distance that the turn came closer; negative for going away |
    | `optimal` | 0 | when solved with as few moves as possible, for tasks where that number is known |
    | `invalid` | −0.1 (`invalid_penalty`) | for unusable text |

    `progress` is shaping by the potential −distance / first distance with γ = 1: like `boxes` it depends on where an
    episode ends, not on the way, so that pushing to and fro earns nothing. Distance is the number of pushes that are
    needed at least: the cheapest assignment of boxes to goals, each box as if it were alone. It is at most twice the
    first distance, and that where the board is seen to be lost: a box can reach no goal, boxes are stuck, or there is
    no assignment.

    ## Episode end
    Terminated when all boxes are on goals, which is success; truncated after `max_rounds` turns. Infos: `distance`
    (left, in pushes as above), `moves` (made), `optimal_length` (moves of a shortest solution, None if not known).

    ## Tasks
    `sokoban` is generated, and every room can be solved. Its `task_options` are `grid_size` (6, or rows and columns,
    the outer walls included), `boxes` (1), `wall_ratio` (0.2, of the cells inside), `min_length` (3) and `max_length`
    of the shortest solution in moves, `size` (number of tasks) and `seed`. A `.txt` file, or a folder of them, holds
    levels in the format of Boxoban; other files have them in the column `level`.

    The oracle plays a shortest solution from the present board if it is found within a fixed budget, else any; on a
    board without a solution it says so.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "sokoban_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}


class Sokoban2Agent(Sokoban, PairEnv):
    """A coder's program proposes how to push the boxes, a planner decides, turn by turn.

    The tool/planner pair of AT-GRPO (arXiv 2510.11062) on Sokoban. The planner sees the program and what it printed;
    the program runs in the sandbox.

    | | |
    |---|---|
    | Agents | `coder_0`, `planner_0` |
    | Order | coder, planner, up to `max_rounds` times |
    | Actions | coder: one ```` ```python ```` block that prints a list of moves; planner: a list of moves `[U, R, R]` |
    | Observations | rules, legend, first board; programs with output, lists with result and the new board; format |
    | Import | `llm_envs.make("sokoban-2agent")` |

    ## Observations
    The whole prompt of the turn. Both agents read everything.

    ## Actions
    Any text. Of the coder the last fenced Python block is run; it reads the current board on standard input, one line a
    row. Of the planner the last bracketed list counts; its moves are made in order until one is illegal or the last box
    is on a goal. Unusable text loses the agent's turn, and the other one goes on.

    ## Rewards
    Coefficients are changed with `rewards={"step": 0, ...}`.

    | part | default | to | paid |
    |---|---|---|---|
    | `team` | `goal` 10 | both | when all boxes are on goals |
    | `boxes` | 1 | planner | for each box on a goal more than before the turn; as much is taken for each one less |
    | `step` | −0.01 | planner | for each move made, at most half of `goal` an episode |
    | `illegal` | −0.05 | planner | for an illegal move, once a turn |
    | `progress` | 1 | planner | times the share of the first distance that the turn came closer |
    | `optimal` | 0 | both | when solved with as few moves as possible, for tasks where that number is known |
    | `program` | 0.1 + 0.1 + 0.8 | coder | parses, runs, prints moves that solve; as the rise of the best so far |
    | `invalid` | −0.1 (`invalid_penalty`) | its author | for unusable text |

    `progress` and its distance are as in `sokoban-1agent`.

    ## Episode end
    Terminated when all boxes are on goals, which is success; truncated after `max_rounds` turns of the pair. Infos:
    `distance` (left, in pushes), `moves` (made), `optimal_length` (moves of a shortest solution, None if it is not
    known); of the coder `run_status`, `isolation` and `program_solves`.

    ## Tasks
    As `sokoban-1agent`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "sokoban_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
