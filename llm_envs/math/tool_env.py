"""A reasoner and a coder work on the same question side by side; the coder's program runs in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llm_envs.core import Outcome, RenderMode, check_rounds
from llm_envs.math.base import BOX_EXAMPLES, SOLVE, GradeFunction, MathEnv
from llm_envs.math.grading import Verdict
from llm_envs.parsing import boxed, code_block
from llm_envs.tasks import Task, TaskSet
from llm_envs.tools.programs import parses, shown

if TYPE_CHECKING:
    from llm_envs.tools.sandbox import RunResult

RunFunction = Callable[[str], "RunResult"]

FORMAT, CORRECT = 0.2, 0.8  # the reasoner's local parts
PARSES, RUNS = 0.1, 0.1  # the coder's, beside CORRECT
MAX_SHOWN_OUTPUT = 2000


class MathTool2Agent(MathEnv):
    """A reasoner and a coder answer the same question at once, see each other's answers, and stop when they agree.

    The tool/reasoner pair of AT-GRPO (arXiv 2510.11062). Both act on the same information in every round. Where the
    published code runs the program in a bare subprocess, this one runs it in the sandbox.

    | | |
    |---|---|
    | Agents | `reasoner_0`, `coder_0` |
    | Order | both at once, up to `max_rounds` rounds |
    | Actions | reasoner: text with `\\boxed{answer}`; coder: one ```` ```python ```` block that prints the answer |
    | Observations | the problem; of every earlier round both contributions and the program's output; role and format |
    | Parallel form | `llm_envs.make_parallel("math-tool-2agent")` |
    | Import | `llm_envs.make("math-tool-2agent")` |

    ## Observations
    The whole prompt of the turn. Nobody sees what the other one does in the running round.

    ## Actions
    Any text. The coder's answer is the last line that its program prints. Text without a box or a code block is
    unusable; the agent then has no answer in this round.

    ## Rewards
    A round is worth `team_weight · team + local`: `team` is 1 if the reasoner's answer is correct, to both; the
    reasoner's own parts are `format` 0.2 and `correct` 0.8, the coder's `parses` 0.1, `runs` 0.1 and `correct` 0.8.
    Every part is paid **as its change since the last round**, so that an episode adds up to what its last round is
    worth and a longer one earns no more. `invalid`: `invalid_penalty` for unusable text, each time.

    ## Episode end
    Terminated when both answers agree; truncated after `max_rounds`. Success: the reasoner's last answer is correct.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "math_tool_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": True}

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = "arithmetic",
        split: str | None = None,
        *,
        max_rounds: int = 4,
        team_weight: float = 1.0,
        invalid_penalty: float = -0.1,
        task_options: Mapping[str, Any] | None = None,
        grader: GradeFunction | None = None,
        run: RunFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        """Create the environment.

        Args:
            tasks: As in the other math environments.
            split: ``"train"``, ``"test"`` or None for the set's default.
            max_rounds: The most rounds of an episode.
            team_weight: α, the weight of the shared outcome beside the local parts.
            invalid_penalty: Reward part ``invalid`` for unusable text.
            task_options: Options of the task set.
            grader: In place of :func:`llm_envs.math.grading.grade`.
            run: Runs a program, in place of the shared sandbox.
            render_mode: ``"ansi"``, ``"human"`` or None.

        Raises:
            llm_envs.tools.sandbox.SandboxUnavailable: On the first program, where the machine offers no isolation.
        """
        self.max_rounds = check_rounds(max_rounds)
        self.team_weight = float(team_weight)
        super().__init__(
            ["reasoner_0", "coder_0"],
            tasks,
            split,
            examples={
                "reasoner_0": BOX_EXAMPLES,
                "coder_0": ("```python\nprint(4)\n```", "```python\n1/0\n```", "print(4)"),
            },
            task_options=task_options,
            grader=grader,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )
        self._run = run or _run_in_sandbox

    def _start(self) -> tuple[str, ...]:
        self._begin()
        self._round_number = 1
        self._reasoner_text: str | None = None
        self._coder_text: str | None = None
        self._reasoner_answer: str | None = None
        self._program: str | None = None
        self._worth: dict[str, dict[str, float]] = {agent: {} for agent in self.possible_agents}
        return ("reasoner_0", "coder_0")

    def _play(self, agent: str, action: str) -> None:
        if agent == "reasoner_0":
            self._reasoner_answer = boxed(action)
            self._reasoner_text = action
        else:
            self._program = code_block(action)
            self._coder_text = action

    def _forfeit(self, agent: str) -> None:
        """No answer in this round."""
        if agent == "reasoner_0":
            self._reasoner_answer = self._reasoner_text = None
        else:
            self._program = self._coder_text = None

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds

    def _end_round(self) -> Outcome:
        program = self._program
        result = None if program is None else self._run(program)
        printed = _last_line(result.stdout) if result is not None and result.status == "ok" else None
        verdicts = {"reasoner_0": self._verdict(self._reasoner_answer), "coder_0": self._verdict(printed)}
        solved = verdicts["reasoner_0"] is Verdict.CORRECT
        team = self.team_weight * solved
        worth = {
            "reasoner_0": {
                "team": team,
                "format": FORMAT * (self._reasoner_answer is not None),
                "correct": CORRECT * solved,
            },
            "coder_0": {
                "team": team,
                "parses": PARSES * (program is not None and parses(program)),
                "runs": RUNS * (result is not None and result.status == "ok"),
                "correct": CORRECT * (verdicts["coder_0"] is Verdict.CORRECT),
            },
        }
        change = {
            agent: {name: value - self._worth[agent].get(name, 0.0) for name, value in parts.items()}
            for agent, parts in worth.items()
        }
        self._worth = worth
        info: dict[str, dict[str, Any]] = {agent: {"verdict": verdict.value} for agent, verdict in verdicts.items()}
        info["reasoner_0"]["answer"] = self._reasoner_answer
        if result is not None:
            info["coder_0"] |= {"run_status": result.status, "isolation": result.isolation}
        self._say("reasoner_0", self._reasoner_text or "(no usable answer)")
        self._say("coder_0", self._coder_text or "(no usable program)")
        if result is not None:
            self._said.append(shown(result))
        agreed = (
            self._reasoner_answer is not None and printed is not None and self._agree(self._reasoner_answer, printed)
        )
        if agreed or self._round_number == self.max_rounds:
            return Outcome(rewards=change, terminated=agreed, truncated=not agreed, success=solved, info=info)
        self._round_number += 1
        return Outcome(next=("reasoner_0", "coder_0"), rewards=change, info=info)

    def _instructions(self, agent: str) -> str:
        again = " Your answers differed: compare them and correct the wrong one." if self._said else ""
        if agent == "reasoner_0":
            return f"You are reasoner_0. Solve the problem.{again} {SOLVE}"
        return (
            f"You are coder_0. Write a Python program that computes and prints the answer.{again} "
            "Use the standard library only, print the answer alone on the last line, and write the program as\n"
            "```python\n(your program)\n```"
        )

    def _oracle(self, agent: str) -> str:
        if agent == "reasoner_0":
            return self._boxed_gold()
        return f"```python\nprint({self.task.answer!r})\n```"


def _run_in_sandbox(program: str) -> RunResult:
    from llm_envs.tools.sandbox import default_sandbox

    return default_sandbox().run(program)


def _last_line(output: str) -> str | None:
    lines = output.strip().splitlines()
    return lines[-1].strip() if lines else None
