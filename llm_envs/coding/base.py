"""What the coding environments share: the task set, the judge, and the conversation that every role can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gymnasium import error

from llm_envs.coding.cases import Case, call_text, shown
from llm_envs.coding.checks import judge_check
from llm_envs.coding.judge import LIMITS, Report, RunFunction, cases_of, describe, judge, run_in_sandbox
from llm_envs.coding.tasks import DEFAULT_TASKS, load_coding_tasks
from llm_envs.core import RenderMode, TextEnv
from llm_envs.tasks import Task, TaskSet

__all__ = ["CODE_EXAMPLES", "DEFAULT_TASKS", "MAX_FAILURES_SHOWN", "CodeEnv"]

CODE_EXAMPLES = ("```python\nprint(sum(map(int, input().split())))\n```", "```python\n1/0\n```", "print(4)", "")
MAX_FAILURES_SHOWN = 3
"""Failed tests that an agent is shown of one run."""


class CodeEnv(TextEnv):
    """Base of the coding environments.

    Args:
        agents: The agents in AEC order.
        tasks: A task set: a name (``"templates"``, ``"humaneval"``, …), the path of a JSONL or Parquet file, or tasks.
        split: ``"train"``, ``"test"`` or None for the set's default.
        task_options: Options of the task set, such as ``{"domains": ["graphs"]}``.
        time_limit: CPU seconds that a program may use for each test. It is stopped after three times that on the clock.
        run: Runs a program in place of the shared sandbox, such as ``Sandbox(isolation="userns").run``.
        examples: Example actions by agent.
        max_retries: How often an agent may try again after unusable text.
        invalid_penalty: Reward part ``invalid`` for unusable text.
        render_mode: ``"ansi"``, ``"human"`` or None.
    """

    blocking = True  # programs run in processes of the sandbox

    def __init__(
        self,
        agents: Sequence[str],
        tasks: str | TaskSet | Sequence[Task],
        split: str | None,
        *,
        examples: Mapping[str, Sequence[str]],
        task_options: Mapping[str, Any] | None = None,
        time_limit: float = LIMITS.cpu_s,
        run: RunFunction | None = None,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        render_mode: RenderMode = None,
    ) -> None:
        if not 0 < time_limit < float("inf"):
            raise error.Error(f"`time_limit` must be a number of seconds above 0, actual value: {time_limit!r}.")
        super().__init__(
            agents,
            load_coding_tasks(tasks, split, **(task_options or {})),
            examples=examples,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )
        self.time_limit = float(time_limit)
        self._limits = replace(LIMITS, cpu_s=self.time_limit, wall_s=3 * self.time_limit)
        self._run = run or run_in_sandbox

    def _begin(self) -> None:
        """Forget the last episode: no contributions."""
        self._said: list[str] = []

    def _say(self, agent: str, text: str) -> None:
        """Add a contribution that everyone can read from now on."""
        self._said.append(f"[{agent}]\n{text}")

    def _context(self, agent: str) -> str:
        return "\n\n".join([_statement(self.task), *self._said])

    # ---- judging ---------------------------------------------------------------------------------------------------

    @property
    def _entry_point(self) -> str | None:
        return self.task.data.get("entry_point")

    def _public(self, program: str) -> Report:
        """What becomes of the tests that agents may see."""
        return self._judge(program, cases_of(self.task.data.get("public", ())))

    def _hidden(self, program: str | None) -> Report | None:
        """What becomes of the hidden tests; None without a program."""
        if program is None:
            return None
        data = self.task.data
        if "check" not in data:
            return self._judge(program, cases_of(data["hidden"]))
        return judge_check(
            program,
            check=data["check"],
            reference=self.task.answer,
            entry_point=data["entry_point"],
            prelude=data.get("prelude", ""),
            limits=self._limits,
            run=self._run,
        )

    def _judge(self, program: str, cases: Sequence[Case]) -> Report:
        return judge(
            program,
            cases,
            tolerance=self.task.data.get("tolerance"),
            entry_point=self._entry_point,
            prelude=self.task.data.get("prelude", ""),
            limits=self._limits,
            run=self._run,
        )

    # ---- texts -----------------------------------------------------------------------------------------------------

    def _what_to_write(self) -> str:
        """What a program of this task is, and the format of the answer."""
        if self._entry_point is None:
            what = "a complete Python program that reads standard input and writes standard output"
        else:
            what = f"complete Python code that defines `{self._entry_point}`"
        return f"Write {what}, using only the standard library, as\n```python\n(your code)\n```"

    def _failures(self, cases: Sequence[Case], report: Report, name: str) -> str:
        """How a run went, as agents read it: what failed first, up to :data:`MAX_FAILURES_SHOWN`."""
        passed = sum(verdict.passed for verdict in report.verdicts)
        lines = [f"[{name}] {passed} of {len(cases)} passed."]
        failed = [(c, v) for c, v in zip(cases, report.verdicts, strict=True) if not v.passed and v.status != "not run"]
        lines += [describe(case, verdict, self._entry_point) for case, verdict in failed[:MAX_FAILURES_SHOWN]]
        return "\n\n".join(lines)

    def _reference(self) -> str:
        """The reference solution.

        Raises:
            gymnasium.error.Error: The task has none.
        """
        if not self.task.answer:
            raise error.Error(
                f"The task {self.task.id} has no reference solution. Choose a set that has them, such as `templates`, "
                "or play code-1agent or code-3agent without the oracle."
            )
        return self.task.answer

    def _reference_block(self) -> str:
        return f"```python\n{self._reference().rstrip()}\n```"


def _statement(task: Task) -> str:
    """The problem with its public tests."""
    data = task.data
    parts = [f"Problem:\n{task.question}"]
    if data.get("starter"):
        parts.append(f"Start from this:\n{data['starter'].rstrip()}")
    cases = cases_of(data.get("public", ()))
    entry_point = data.get("entry_point")
    if cases and entry_point is not None:
        lines = [f"{shown(call_text(entry_point, case.input))} == {shown(case.output)}" for case in cases]
        parts.append("Examples:\n" + "\n".join(lines))
    else:
        for number, case in enumerate(cases, 1):
            parts.append(f"Example {number}\ninput:\n{shown(case.input)}\noutput:\n{shown(case.output)}")
    return "\n\n".join(parts)
