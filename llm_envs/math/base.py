"""What the math environments share: the task set, the grader, and the conversation that every role can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_envs.core import RenderMode, TextEnv
from llm_envs.math.grading import Verdict, grade
from llm_envs.math.tasks import load_math_tasks
from llm_envs.tasks import Task, TaskSet

GradeFunction = Callable[..., Verdict]

SOLVE = r"Reason step by step, then give the final answer once, in the form \boxed{answer}."
BOX_EXAMPLES = (r"The answer is \boxed{4}.", r"\boxed{-7}", r"\boxed{\frac{1}{2}}", "I think it is 12.", "")
VERIFY_EXAMPLES = (
    "All steps hold. <verify>approve</verify>",
    "The sum is wrong. <verify>reject</verify>",
    "Looks fine to me.",
)


class MathEnv(TextEnv):
    """Base of the math environments.

    Args:
        agents: The agents in AEC order.
        tasks: A task set: a name (``"arithmetic"``, ``"gsm8k"``, …), the path of a JSONL or Parquet file, or tasks.
        split: ``"train"``, ``"test"`` or None for the set's default.
        task_options: Options of the task set, such as ``{"columns": {...}}`` for a file.
        grader: ``grade(*, gold, answer) -> Verdict`` in place of :func:`llm_envs.math.grading.grade`, which the
            environments call with ``evaluated=True``: arithmetic that is left to do (``3+4`` for 7) is no answer.
        examples: Example actions by agent.
        max_retries: How often an agent may try again after unusable text.
        invalid_penalty: Reward part ``invalid`` for unusable text.
        render_mode: ``"ansi"``, ``"human"`` or None.
    """

    blocking = True  # grading may wait for a worker process

    def __init__(
        self,
        agents: Sequence[str],
        tasks: str | TaskSet | Sequence[Task],
        split: str | None,
        *,
        examples: Mapping[str, Sequence[str]],
        task_options: Mapping[str, Any] | None = None,
        grader: GradeFunction | None = None,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        render_mode: RenderMode = None,
    ) -> None:
        super().__init__(
            agents,
            load_math_tasks(tasks, split, **(task_options or {})),
            examples=examples,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )
        self._grade = grader or _grade_evaluated

    def _begin(self) -> None:
        """Forget the last episode: no contributions, no verdict."""
        self._said: list[str] = []

    def _say(self, agent: str, text: str) -> None:
        """Add a contribution that everyone can read from now on."""
        self._said.append(f"[{agent}]\n{text}")

    def _context(self, agent: str) -> str:
        return "\n\n".join([f"Problem:\n{self.task.question}", *self._said])

    def _verdict(self, answer: str | None) -> Verdict:
        """The verdict on ``answer``; no answer is an incorrect one."""
        return Verdict.INCORRECT if answer is None else self._grade(gold=self.task.answer, answer=answer)

    def _agree(self, one: str, other: str) -> bool:
        """Whether each answer would be correct if the other were the gold: "3+4" does not vote for 7, nor 7 for it."""
        return one == other or all(
            self._grade(gold=gold, answer=answer) is Verdict.CORRECT for gold, answer in ((one, other), (other, one))
        )

    def _boxed_gold(self) -> str:
        return rf"The answer is \boxed{{{self.task.answer}}}."


def _grade_evaluated(*, gold: str, answer: str) -> Verdict:
    """Copying "3+4" out of the question into the box must not pay."""
    return grade(gold=gold, answer=answer, evaluated=True)
