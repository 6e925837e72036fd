"""The coder beside the planner: a program runs in the sandbox and prints moves; the planner decides."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium import error

from llm_envs.core import Outcome, RenderMode
from llm_envs.parsing import InvalidAction, code_block
from llm_envs.planning.base import NO_PLAN, PlanningEnv
from llm_envs.tasks import Task, TaskSet
from llm_envs.tools.programs import parses, shown

if TYPE_CHECKING:
    from llm_envs.tools.sandbox import RunResult

__all__ = ["PairEnv"]

PARSES, RUNS, SOLVES = 0.1, 0.1, 0.8
"""What a program is worth to the coder: it is Python, it runs, the moves that it prints solve the task."""


class PairEnv(PlanningEnv):
    """Base of the two-agent planning environments: the coder's program proposes moves, the planner gives them.

    The tool/planner pair of AT-GRPO (arXiv 2510.11062). In every turn the coder writes a program, which reads the
    current state on its standard input (as :meth:`_program_input` writes it) and prints a list of moves; the planner
    sees program and output, and gives the list that is played. The coder's own reward part is ``program``: 0.1 if the
    program is Python, 0.1 if it runs, 0.8 if the moves that it prints solve the task from the current state. It is paid
    as the rise of the best so far: an episode pays what its best program is worth, and a longer one no more.

    A domain may also implement ``_program_input(state)`` and ``_program_input_help()``.

    Args:
        tasks: As in :class:`~llm_envs.planning.base.PlanningEnv`, like all that is not named here.
        split: See there.
        max_rounds: Turns of the pair.
        max_moves: See there.
        notation: See there.
        rewards: See there.
        max_retries: See there.
        invalid_penalty: See there.
        time_limit: CPU seconds that a program may use. It is stopped after twice that on the clock.
        run: Runs a program in place of the shared sandbox, such as ``Sandbox(isolation="userns").run``.
        task_options: See there.
        render_mode: See there.

    Raises:
        llm_envs.tools.sandbox.SandboxUnavailable: On the first program, where the machine offers no isolation.
    """

    blocking = True  # programs run in processes of the sandbox
    roles: ClassVar[tuple[str, ...]] = ("coder_0", "planner_0")

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] | None = None,
        split: str | None = None,
        *,
        max_rounds: int = 4,
        max_moves: int | None = None,
        notation: str | None = None,
        rewards: Mapping[str, float] | None = None,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        time_limit: float = 5.0,
        run: Callable[..., RunResult] | None = None,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not 0 < time_limit < math.inf:
            raise error.Error(f"`time_limit` must be a number of seconds above 0, actual value: {time_limit!r}.")
        super().__init__(
            tasks,
            split,
            max_rounds=max_rounds,
            max_moves=max_moves,
            notation=notation,
            rewards=rewards,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            task_options=task_options,
            render_mode=render_mode,
        )
        self.time_limit = float(time_limit)
        self._run = run or functools.partial(_run_in_sandbox, time_limit=self.time_limit)

    def _program_input(self, state: Any) -> str:
        """What the program reads on standard input. Default: the state as agents read it."""
        return self._state_text(state)

    def _program_input_help(self) -> str:
        """What that is, as the coder is told."""
        return "the current state as it is written above"

    # ---- an episode ------------------------------------------------------------------------------------------------

    def _start(self) -> str:
        self._program_worth = 0.0
        return super()._start()

    def _play(self, agent: str, action: str) -> Outcome:
        if agent != "coder_0":
            return super()._play(agent, action)
        program = code_block(action)
        result = self._run(program, self._program_input(self._state))
        ran = result.status == "ok"
        solves = ran and self._printed_solves(result.stdout)
        worth = max(self._program_worth, PARSES * (ran or parses(program)) + RUNS * ran + SOLVES * solves)
        gain, self._program_worth = worth - self._program_worth, worth
        self._say(agent, f"{action}\n\n{shown(result)}")
        info = {"run_status": result.status, "isolation": result.isolation, "program_solves": solves}
        return Outcome("planner_0", {agent: {"program": gain}}, info={agent: info})

    def _forfeit(self, agent: str) -> Outcome:
        if agent != "coder_0":
            return super()._forfeit(agent)
        self._say(agent, "(no usable program)")
        return Outcome("planner_0")

    def _printed_solves(self, output: str) -> bool:
        try:
            plan = self._read_plan(output)
        except InvalidAction:
            return False
        return self._solved(self._follow(self._state, plan)[0])

    # ---- texts -----------------------------------------------------------------------------------------------------

    def _instructions(self, agent: str) -> str:
        if agent != "coder_0":
            return super()._instructions(agent)
        return (
            f"You are coder_0, turn {self._turn} of {self.max_rounds}. Write a Python program that prints the moves "
            f"to make from the current state as one list: {self.list_form} (at most {self.max_moves}). "
            f"{self._moves_help()} It reads {self._program_input_help()} from standard input and may use the standard "
            f"library only. planner_0 sees the program and its output and decides. Write the program as\n"
            "```python\n(your program)\n```"
        )

    def _role(self, agent: str) -> str:
        return "Check what coder_0's program printed: it may be wrong. You decide. "

    def _oracle(self, agent: str) -> str:
        if agent != "coder_0":
            return super()._oracle(agent)
        plan = self._solution(self._state)
        text = NO_PLAN if plan is None else f"[{', '.join(plan[: self.max_moves])}]"
        return f"```python\nprint({text!r})\n```"

    def _example_actions(self) -> dict[str, Sequence[str]]:
        programs = [f"```python\nprint({example!r})\n```" for example in self._examples()[:2]]
        return {"coder_0": (*programs, "```python\n1/0\n```", "print('[]')"), **super()._example_actions()}


def _run_in_sandbox(program: str, stdin: str, *, time_limit: float) -> RunResult:
    from llm_envs.tools.sandbox import Limits, default_sandbox

    return default_sandbox().run(program, stdin, limits=Limits(cpu_s=time_limit, wall_s=2 * time_limit))
