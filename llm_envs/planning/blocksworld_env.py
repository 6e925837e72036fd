"""The blocks-world environments: a planner alone, and a proposer with a critic who decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llm_envs.core import Outcome
from llm_envs.planning import blocksworld
from llm_envs.planning.base import IllegalMove, PlanningEnv
from llm_envs.planning.blocksworld import State
from llm_envs.planning.blocksworld_facts import OperatorError, Problem
from llm_envs.planning.blocksworld_solver import best_plan
from llm_envs.planning.blocksworld_tasks import DEFAULT_TASKS, load_blocksworld_tasks, problem_of, problem_text
from llm_envs.tasks import Task, TaskSet

__all__ = ["Blocksworld1Agent", "Blocksworld2Agent"]

LEGAL, SOLVES = 0.2, 0.8
"""What a proposed list is worth to the proposer: all that is played of it is legal, it solves the task."""

RULES = """\
Rearrange the blocks so that all facts of the goal hold, with as few operators as possible. A hand moves one block at \
a time.
(on x y): x is directly on y. (ontable x): x is on the table. (clear x): nothing is on x, and x is not in the hand. \
(holding x): x is in the hand. (handempty): the hand is empty. The table has room for all blocks.
pick-up x: takes x from the table; x must be clear and the hand empty.
put-down x: puts the held x on the table.
stack x y: puts the held x on y; y must be clear.
unstack x y: takes x from y; x must be clear and on y, and the hand empty."""


class Blocksworld(PlanningEnv):
    """The domain: a state says what each block rests on (:mod:`llm_envs.planning.blocksworld`)."""

    default_tasks: ClassVar[str] = DEFAULT_TASKS
    notations: ClassVar[Mapping[str, str]] = {"operators": "[operator, operator, ...]"}

    def _load_tasks(self, tasks: str | TaskSet | Sequence[Task], split: str | None, **options: Any) -> TaskSet:
        return load_blocksworld_tasks(tasks, split, **options)

    def _rules(self) -> str:
        return RULES

    def _moves_help(self) -> str:
        return "An operator is pick-up x, put-down x, stack x y or unstack x y, with the names of blocks for x and y."

    def _examples(self) -> Sequence[str]:
        return (
            "[unstack b a, put-down b]",
            "[pick-up a, stack a b]",
            "[unstack a b, put-down a, pick-up b, stack b a]",
            "[pick-up]",
        )

    def _new_state(self) -> State:
        self._problem: Problem = problem_of(self.task)
        return self._problem.initial

    def _state_text(self, state: State) -> str:
        return problem_text(self._problem, state)

    def _read_move(self, item: str) -> str | None:
        try:
            return self._problem.text(self._problem.operator(item))
        except OperatorError:
            return None

    def _move(self, state: State, move: str) -> State:
        operator = self._problem.operator(move)
        reason = blocksworld.illegal(state, operator, self._problem.names)
        if reason is not None:
            raise IllegalMove(reason)
        return blocksworld.apply(state, operator)

    def _solved(self, state: State) -> bool:
        return self._problem.goal.holds(state)

    def _distance(self, state: State) -> int:
        # Where the search gives up it is the length of a greedy plan: that is a function of the state as well.
        return len(best_plan(state, self._problem.goal)[0])

    def _solution(self, state: State) -> Sequence[str]:
        return [self._problem.text(operator) for operator in best_plan(state, self._problem.goal)[0]]


class Blocksworld1Agent(Blocksworld):
    """A planner rearranges blocks with a one-block hand, in a few turns on the state as it then is.

    The compute-matched baseline of the pair: the same tasks and turns. The domain is the blocks world with four
    operators, as in PDDL and in LLMs-Planning (arXiv 2206.10498).

    | | |
    |---|---|
    | Agents | `planner_0` |
    | Order | `planner_0`, up to `max_rounds` times |
    | Actions | a list of operators `[unstack a b, put-down a]` |
    | Observations | rules, first state, goal; earlier turns, each with its result and the new state; turn and format |
    | Import | `llm_envs.make("blocksworld-1agent")` |

    ## Observations
    The whole prompt of the turn. States and goals are facts, `(on a b)`, as in PDDL.

    ## Actions
    Any text; the last bracketed list counts. Operators are `pick-up x`, `put-down x`, `stack x y`, `unstack x y`, in
    any case, with or without round brackets; the sentences of LLMs-Planning ("unstack the a block from on top of the b
    block") are understood too. They are applied in order until one is illegal (that one is not applied, the rest is
    discarded) or the goal holds. A text without a usable list, or with more than `max_moves` operators, is unusable and
    loses the turn.

    ## Rewards
    Coefficients are changed with `rewards={"step": 0, ...}`.

    | part | default | paid |
    |---|---|---|
    | `team` | `goal` 1 | when the goal holds |
    | `optimal` | 0.5 | when it holds after as many operators as a shortest plan has |
    | `step` | −0.01 | for each operator applied, at most half of `goal` an episode |
    | `illegal` | −0.1 | for an illegal operator, once a turn |
    | `progress` | 0.5 | times the share of the first distance that the turn came closer; negative for going away |
    | `invalid` | −0.1 (`invalid_penalty`) | for unusable text |

    `progress` is shaping by the potential −distance / first distance with γ = 1: it depends on where an episode ends,
    not on the way. The distance is the length of a shortest plan from the state.

    ## Episode end
    Terminated when the goal holds, which is success; truncated after `max_rounds` turns. Infos: `distance` (left),
    `moves` (operators applied), `optimal_length` (of the task).

    ## Tasks
    `blocksworld` is generated, from two states that are uniformly random. Its `task_options` are `blocks` (5; 3 to 20),
    `goal` (`"on"`: the goal has `on` facts alone, or `"full"`: the place of every block), `min_length` (1) and
    `max_length` of a shortest plan, `size` (number of tasks) and `seed`. A `.pddl` file, or a folder with such files
    and their `domain.pddl`, is read with `pip install 'llm-envs[planning]'`; other files have facts in the columns
    `initial` and `goal`. For instances so large that no shortest plan is found (some 30 blocks and more),
    `optimal_length` is None, `optimal` is not paid and distances are lengths of good plans.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "blocksworld_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}


class Blocksworld2Agent(Blocksworld):
    """A proposer writes a plan for a stack of blocks, a critic checks it and decides what is played, turn by turn.

    Neither has a tool: what the second agent adds is the check. The critic sees the proposal and the current state, not
    whether the proposal is right, and only its own list is played.

    | | |
    |---|---|
    | Agents | `proposer_0`, `critic_0` |
    | Order | proposer, critic, up to `max_rounds` times |
    | Actions | both: a list of operators `[unstack a b, put-down a]` |
    | Observations | rules, first state, goal; proposals, and the critic's lists with result and new state; format |
    | Import | `llm_envs.make("blocksworld-2agent")` |

    ## Observations
    The whole prompt of the turn. Both agents read everything.

    ## Actions
    Any text; the last bracketed list counts, as in `blocksworld-1agent`. Unusable text loses the agent's turn, and the
    other one goes on.

    ## Rewards
    Coefficients are changed with `rewards={"step": 0, ...}`.

    | part | default | to | paid |
    |---|---|---|---|
    | `team` | `goal` 1 | both | when the goal holds |
    | `optimal` | 0.5 | both | when it holds after as many operators as a shortest plan has |
    | `proposal` | 0.2 + 0.8 | proposer | its list is legal, and it solves; as the rise of the best so far |
    | `step` | −0.01 | critic | for each operator applied, at most half of `goal` an episode |
    | `illegal` | −0.1 | critic | for an illegal operator, once a turn |
    | `progress` | 0.5 | critic | times the share of the first distance that the turn came closer |
    | `invalid` | −0.1 (`invalid_penalty`) | its author | for unusable text |

    `proposal` is what the list would do from the current state, as far as it would be played. It is paid as the rise of
    the best so far, so that an episode pays what its best proposal is worth, and a longer one no more. `progress` is as
    in `blocksworld-1agent`.

    ## Episode end
    Terminated when the goal holds, which is success; truncated after `max_rounds` turns of the pair. Infos: `distance`
    (left), `moves` (operators applied), `optimal_length` (of the task); of the proposer `proposal_legal` and
    `proposal_solves`.

    ## Tasks
    As `blocksworld-1agent`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "blocksworld_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    roles: ClassVar[tuple[str, ...]] = ("proposer_0", "critic_0")

    def _start(self) -> str:
        self._proposal_worth = 0.0
        return super()._start()

    def _play(self, agent: str, action: str) -> Outcome:
        if agent != "proposer_0":
            return super()._play(agent, action)
        state, _, problem = self._follow(self._state, self._read_plan(action))
        legal, solves = problem is None, self._solved(state)
        worth = max(self._proposal_worth, LEGAL * legal + SOLVES * solves)
        gain, self._proposal_worth = worth - self._proposal_worth, worth
        self._say(agent, action)
        info = {agent: {"proposal_legal": legal, "proposal_solves": solves}}
        return Outcome("critic_0", {agent: {"proposal": gain}}, info=info)

    def _forfeit(self, agent: str) -> Outcome:
        if agent != "proposer_0":
            return super()._forfeit(agent)
        self._say(agent, "(no usable list of operators)")
        return Outcome("critic_0")

    def _role(self, agent: str) -> str:
        if agent == "proposer_0":
            return "critic_0 reads your list and decides what is played. "
        return (
            "proposer_0's list may be wrong: follow it through the state, then repeat, correct or replace it. Only "
            "your list is played. "
        )

    def _example_actions(self) -> dict[str, Sequence[str]]:
        examples = (*self._examples(), "I do not know.", "")
        return dict.fromkeys(self.roles, examples)
