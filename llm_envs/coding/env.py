"""The turn-based coding environments: one coder, and a team of planner, coder and reviewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_envs.coding.base import CODE_EXAMPLES, DEFAULT_TASKS, CodeEnv
from llm_envs.coding.judge import LIMITS, RunFunction, cases_of
from llm_envs.core import Outcome, RenderMode, check_rounds
from llm_envs.parsing import InvalidAction, code_block, tag
from llm_envs.rewards import shared
from llm_envs.tasks import Task, TaskSet

VERDICTS = ("approve", "reject")


class _Turns(CodeEnv):
    """What both have: a program so far, and public tests that everybody reads the result of."""

    max_rounds: int

    def _start(self) -> str:
        self._begin()
        self._round_number = 1
        self._program: str | None = None
        return self.possible_agents[0]

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds

    def _submit(self, agent: str, action: str) -> bool:
        """Take the program of ``action`` and run the public tests. Returns whether it passes them."""
        program = code_block(action)
        report = self._public(program)
        self._program = program
        self._say(agent, action)
        cases = cases_of(self.task.data.get("public", ()))
        if cases:
            self._said.append(self._failures(cases, report, "public tests"))
        return report.passed

    def _end(self, *, by_rules: bool, partial_credit: bool) -> Outcome:
        """Judge the last program by the hidden tests."""
        report = self._hidden(self._program)
        solved = report is not None and report.passed
        fraction = 0.0 if report is None else report.fraction
        info: dict[str, Any] = {"hidden_passed": fraction}
        if report is not None:
            info["isolation"] = report.isolation
        return Outcome(
            rewards=shared(self.possible_agents, fraction if partial_credit else float(solved)),
            terminated=by_rules,
            truncated=not by_rules,
            success=solved,
            info=dict.fromkeys(self.possible_agents, info),
        )


class Code1Agent(_Turns):
    """A coder writes a program, sees which public tests fail, and tries again.

    The compute-matched baseline of the coding family: the same tasks and, with ``max_rounds`` and the token limit of
    its policy, the same budget of generated tokens as a team.

    | | |
    |---|---|
    | Agents | `coder_0` |
    | Order | `coder_0`, up to `max_rounds` times |
    | Actions | text with a ```` ```python ```` block; the last one is the program |
    | Observations | the problem with its public tests; earlier programs and the public tests they failed; the format |
    | Import | `llm_envs.make("code-1agent")` |

    ## Observations
    The whole prompt of the turn: the problem, its public tests, then every earlier program followed by how many public
    tests it passed and the first that it failed (input, expected, got). Hidden tests are never shown.

    ## Actions
    Any text. The last fenced Python block is the program; text without one is unusable and forfeits the round. Programs
    run in the sandbox, each test in a process of its own.

    ## Rewards
    `team`: the fraction of the hidden tests that the last program passes, paid at the end. `invalid`: `invalid_penalty`
    for unusable text.

    ## Episode end
    Terminated when a program passes all public tests (a task without any ends with the first usable program); truncated
    after `max_rounds`. Success: the last program passes all hidden tests.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "code_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEFAULT_TASKS,
        split: str | None = None,
        *,
        max_rounds: int = 5,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        time_limit: float = LIMITS.cpu_s,
        task_options: Mapping[str, Any] | None = None,
        run: RunFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self.max_rounds = check_rounds(max_rounds)
        super().__init__(
            ["coder_0"],
            tasks,
            split,
            examples={"coder_0": CODE_EXAMPLES},
            task_options=task_options,
            time_limit=time_limit,
            run=run,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    def _play(self, agent: str, action: str) -> Outcome:
        return self._after(passed=self._submit(agent, action))

    def _forfeit(self, agent: str) -> Outcome:
        """The round counts as no program: an earlier one is withdrawn."""
        self._program = None
        self._say(agent, "(no usable program)")
        return self._after(passed=False)

    def _after(self, *, passed: bool) -> Outcome:
        if passed or self._round_number == self.max_rounds:
            return self._end(by_rules=passed, partial_credit=True)
        self._round_number += 1
        return Outcome(next="coder_0")

    def _instructions(self, agent: str) -> str:
        again = " Your last program did not pass: find the mistake." if self._said else ""
        return f"You are coder_0. Solve the problem.{again} {self._what_to_write()}"

    def _oracle(self, agent: str) -> str:
        return self._reference_block()


class Code3Agent(_Turns):
    """A planner says how, a coder writes the program, a reviewer approves it or starts another round.

    | | |
    |---|---|
    | Agents | `planner_0`, `coder_0`, `reviewer_0` |
    | Order | planner, coder, reviewer, `max_rounds` times; the last round has no reviewer turn |
    | Actions | planner: any text; coder: a ```` ```python ```` block; reviewer: `<verify>approve</verify>` or reject |
    | Observations | the problem with its public tests, everything said so far, results of the public tests, the role |
    | Import | `llm_envs.make("code-3agent")` |

    ## Observations
    The whole prompt of the turn: the problem, its public tests, the contributions of all agents in order, after every
    program the public tests that it failed, then role and format. Hidden tests are never shown.

    ## Actions
    Any text. An empty plan, a text without a code block, or a review without exactly one verdict tag is unusable and
    forfeits the turn (after `max_retries`): the coder then has no program, and a missing verdict is no approval.

    ## Rewards
    `team`: 1 to all agents if the last program passes all hidden tests, else 0, paid at the end. `invalid`:
    `invalid_penalty` to the agent whose text was unusable.

    ## Episode end
    Terminated when the reviewer approves; truncated after the program of round `max_rounds`. Success: the last program
    passes all hidden tests, whether or not it was approved.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "code_3agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEFAULT_TASKS,
        split: str | None = None,
        *,
        max_rounds: int = 2,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        time_limit: float = LIMITS.cpu_s,
        task_options: Mapping[str, Any] | None = None,
        run: RunFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self.max_rounds = check_rounds(max_rounds)
        super().__init__(
            ["planner_0", "coder_0", "reviewer_0"],
            tasks,
            split,
            examples={
                "planner_0": ("Read the numbers, add them, print the sum.", ""),
                "coder_0": CODE_EXAMPLES,
                "reviewer_0": ("<verify>approve</verify>", "It is wrong. <verify>reject</verify>", "Looks fine to me."),
            },
            task_options=task_options,
            time_limit=time_limit,
            run=run,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    def _play(self, agent: str, action: str) -> Outcome:
        if agent == "planner_0":
            if not action.strip():
                raise InvalidAction("The plan is empty. Say in words how the problem is to be solved.")
            self._say(agent, action)
            return Outcome(next="coder_0")
        if agent == "coder_0":
            self._submit(agent, action)
            return self._after_program()
        approved = tag(action, "verify", VERDICTS) == "approve"
        self._say(agent, action)
        return self._after_review(approved=approved)

    def _forfeit(self, agent: str) -> Outcome:
        """The turn counts as silence: a program is withdrawn, a missing verdict is no approval."""
        if agent == "planner_0":
            self._say(agent, "(no plan)")
            return Outcome(next="coder_0")
        if agent == "coder_0":
            self._program = None
            self._say(agent, "(no usable program)")
            return self._after_program()
        self._say(agent, "(no usable review)")
        return self._after_review(approved=False)

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds - (agent == "reviewer_0")

    def _after_program(self) -> Outcome:
        if self._round_number == self.max_rounds:
            return self._end(by_rules=False, partial_credit=False)
        return Outcome(next="reviewer_0")

    def _after_review(self, *, approved: bool) -> Outcome:
        if approved:
            return self._end(by_rules=True, partial_credit=False)
        self._round_number += 1
        return Outcome(next="planner_0")

    def _instructions(self, agent: str) -> str:
        again = " The last program was not approved: find out why." if self._round_number > 1 else ""
        if agent == "planner_0":
            return (
                "You are planner_0. Say in words how a program can solve the problem, and which special cases it must "
                f"mind.{again} Do not write the program itself."
            )
        if agent == "coder_0":
            return f"You are coder_0. Write the program after the plan of planner_0.{again} {self._what_to_write()}"
        return (
            "You are reviewer_0. Check the last program against the problem. If it is right in all cases, write "
            "<verify>approve</verify>; if it is wrong or missing, say what is wrong and write <verify>reject</verify>."
        )

    def _oracle(self, agent: str) -> str:
        if agent == "planner_0":
            return "Follow the statement step by step and mind the special cases that it names."
        if agent == "coder_0":
            return self._reference_block()
        report = self._hidden(self._program)
        return f"<verify>{'approve' if report is not None and report.passed else 'reject'}</verify>"
