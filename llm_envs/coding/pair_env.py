"""A coder and a tester work on the same problem side by side; each one's work is checked against the other's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llm_envs.coding.base import CODE_EXAMPLES, DEFAULT_TASKS, CodeEnv
from llm_envs.coding.cases import Case, call_text
from llm_envs.coding.checks import reference_cases
from llm_envs.coding.judge import LIMITS, Report, RunFunction, cases_of
from llm_envs.coding.mutants import mutants
from llm_envs.coding.suites import MAX_TESTS, read_suite
from llm_envs.core import Outcome, RenderMode, check_rounds
from llm_envs.parsing import code_block
from llm_envs.tasks import Task, TaskSet
from llm_envs.tools.programs import parses

PARSES, RUNS, HIDDEN = 0.1, 0.1, 0.8  # the coder's local parts
VALID, KILLS = 0.2, 0.8  # the tester's

SUITE_EXAMPLES = (
    "<input>1 2\n</input><output>3\n</output>",
    "```python\nassert f(1, 2) == 3\n```",
    "<input>1 2</input>",
    "The tests pass.",
)


class SuiteQuality(NamedTuple):
    """What the reference solution and the wrong variants say of a tester's tests.

    Attributes:
        valid: The reference passes all of them, and at least one wrong variant fails at least one.
        useful: Fraction of the tests that the reference passes and at least one wrong variant fails.
    """

    valid: bool
    useful: float


class Code2Agent(CodeEnv):
    """A coder writes a program while a tester writes tests; both see where they disagree, and try again.

    The coder/tester pair of AT-GRPO (arXiv 2510.11062). Both act on the same information in every round. In the
    published code the tester's reward is always 0, since the reference solution is never loaded; here a test is worth
    something if the reference solution passes it and at least one wrong variant of it fails (mutation testing).

    | | |
    |---|---|
    | Agents | `coder_0`, `tester_0` |
    | Order | both at once, up to `max_rounds` rounds |
    | Actions | coder: a ```` ```python ```` block; tester: `<input>…</input><output>…</output>` pairs, or for a function a ```` ```python ```` block of `assert f(arguments) == result` lines |
    | Observations | the problem with its public tests; of every earlier round program, tests, and the tests it failed (expected, got); role and format |
    | Parallel form | `llm_envs.make_parallel("code-2agent")` |
    | Import | `llm_envs.make("code-2agent")` |

    ## Observations
    The whole prompt of the turn. Nobody sees what the other one does in the running round. Hidden tests are never shown.

    ## Actions
    Any text. Text without a code block or without tests in the right form is unusable; the agent then has no program or
    no tests in this round. At most 10 tests count, with literal arguments and results.

    ## Rewards
    A round is worth `team_weight · team + local`: `team` is 1 if the program passes all hidden tests, to both; the
    coder's own parts are `parses` 0.1, `runs` 0.1 (no error in any hidden test) and `hidden` 0.8 times the fraction of
    hidden tests it passes; the tester's are `valid` 0.2 (the reference solution passes all its tests and at least one
    wrong variant fails) and `kills` 0.8 times the fraction of its tests that the reference passes and a wrong variant
    fails. Every part is paid **as its change since the last round**, so that an episode adds up to what its last round
    is worth and a longer one earns no more. `invalid`: `invalid_penalty` for unusable text, each time.

    ## Episode end
    Terminated when the program passes the tester's tests and these are valid; truncated after `max_rounds`. Success:
    the last program passes all hidden tests.

    ## Wrong variants
    Those of the task set (templates, wrong submissions of CodeContests), else mutants of the reference solution
    (`llm_envs.coding.mutants`). A task without a reference solution cannot be played here.

    ## Version history
    * v0: first version.
    """  # noqa: E501 - rows of a table

    metadata = {"name": "code_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": True}

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = DEFAULT_TASKS,
        split: str | None = None,
        *,
        max_rounds: int = 5,
        team_weight: float = 1.0,
        invalid_penalty: float = -0.1,
        time_limit: float = LIMITS.cpu_s,
        task_options: Mapping[str, Any] | None = None,
        run: RunFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        """Create the environment.

        Args:
            tasks: A task set: a name, the path of a file, or tasks.
            split: ``"train"``, ``"test"`` or None for the set's default.
            max_rounds: The most rounds of an episode.
            team_weight: α, the weight of the shared outcome beside the local parts.
            invalid_penalty: Reward part ``invalid`` for unusable text.
            time_limit: CPU seconds that a program may use for each test.
            task_options: Options of the task set.
            run: Runs a program, in place of the shared sandbox.
            render_mode: ``"ansi"``, ``"human"`` or None.

        Raises:
            llm_envs.tools.sandbox.SandboxUnavailable: On the first program, where the machine offers no isolation.
        """
        self.max_rounds = check_rounds(max_rounds)
        self.team_weight = float(team_weight)
        super().__init__(
            ["coder_0", "tester_0"],
            tasks,
            split,
            examples={"coder_0": CODE_EXAMPLES, "tester_0": SUITE_EXAMPLES},
            task_options=task_options,
            time_limit=time_limit,
            run=run,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    def _start(self) -> tuple[str, ...]:
        self._reference()
        self._begin()
        self._round_number = 1
        self._coder_text: str | None = None
        self._tester_text: str | None = None
        self._program: str | None = None
        self._suite: tuple[tuple[str, str], ...] = ()
        self._worth: dict[str, dict[str, float]] = {agent: {} for agent in self.possible_agents}
        return ("coder_0", "tester_0")

    def _play(self, agent: str, action: str) -> None:
        if agent == "coder_0":
            self._program = code_block(action)
            self._coder_text = action
        else:
            self._suite = tuple((case.input, case.output) for case in read_suite(action, self._entry_point))
            self._tester_text = action

    def _forfeit(self, agent: str) -> None:
        """No program or no tests in this round."""
        if agent == "coder_0":
            self._program = self._coder_text = None
        else:
            self._suite, self._tester_text = (), None

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds

    def _end_round(self) -> Outcome:
        suite = [Case(*pair) for pair in self._suite]
        hidden = self._hidden(self._program)
        quality = self._quality(suite)
        met = self._judge(self._program, suite) if self._program is not None and suite else None
        solved = hidden is not None and hidden.passed
        team = self.team_weight * solved
        worth = {
            "coder_0": {
                "team": team,
                "parses": PARSES * (self._program is not None and parses(self._program)),
                "runs": RUNS * (hidden is not None and hidden.ran),
                "hidden": HIDDEN * (0.0 if hidden is None else hidden.fraction),
            },
            "tester_0": {"team": team, "valid": VALID * quality.valid, "kills": KILLS * quality.useful},
        }
        change = {
            agent: {name: value - self._worth[agent].get(name, 0.0) for name, value in parts.items()}
            for agent, parts in worth.items()
        }
        self._worth = worth
        agreed = met is not None and met.passed and quality.valid
        info: dict[str, dict[str, Any]] = {
            "coder_0": {"hidden_passed": 0.0 if hidden is None else hidden.fraction},
            "tester_0": {"tests": len(suite), "valid": quality.valid, "useful": quality.useful},
        }
        if hidden is not None:
            info["coder_0"]["isolation"] = hidden.isolation
        self._say("coder_0", self._coder_text or "(no usable program)")
        self._say("tester_0", self._tester_text or "(no usable tests)")
        if met is not None:
            self._said.append(self._met_text(suite, met))
        if agreed or self._round_number == self.max_rounds:
            return Outcome(rewards=change, terminated=agreed, truncated=not agreed, success=solved, info=info)
        self._round_number += 1
        return Outcome(next=("coder_0", "tester_0"), rewards=change, info=info)

    def _quality(self, suite: Sequence[Case]) -> SuiteQuality:
        if not suite:
            return SuiteQuality(False, 0.0)
        right = [verdict.passed for verdict in self._judge(self._reference(), suite).verdicts]
        killed = [False] * len(suite)
        for variant in self.task.data.get("variants") or mutants(self._reference()):
            waiting = [i for i in range(len(suite)) if right[i] and not killed[i]]
            if not waiting:
                break
            report = self._judge(variant, [suite[i] for i in waiting])
            for i, verdict in zip(waiting, report.verdicts, strict=True):
                killed[i] = not verdict.passed and verdict.status != "not run"
        useful = [a and b for a, b in zip(right, killed, strict=True)]
        return SuiteQuality(all(right) and any(useful), sum(useful) / len(suite))

    def _met_text(self, suite: Sequence[Case], met: Report) -> str:
        text = self._failures(suite, met, "tests of tester_0")
        if met.passed:
            text += " But some of these tests are wrong, or none of them would notice a mistake."
        return text

    def _instructions(self, agent: str) -> str:
        if agent == "coder_0":
            again = " Compare your last program with the tests and correct it where it is wrong." if self._said else ""
            return f"You are coder_0. Solve the problem.{again} {self._what_to_write()}"
        again = " Compare your last tests with the program and correct those that are wrong." if self._said else ""
        if self._entry_point is None:
            form = "each as\n<input>\n(the input)\n</input>\n<output>\n(the output)\n</output>"
        else:
            line = f"assert {self._entry_point}(arguments) == result"
            form = f"with literal arguments and results, as\n```python\n{line}\n```"
        return (
            f"You are tester_0. Write up to {MAX_TESTS} tests that a right program passes and a program with a mistake "
            f"fails: special cases first. Do not repeat the examples.{again} Write them {form}"
        )

    def _oracle(self, agent: str) -> str:
        if agent == "coder_0":
            return self._reference_block()
        cases = self._oracle_suite()
        if self._entry_point is None:
            return "\n".join(f"<input>\n{case.input}</input><output>{case.output}</output>" for case in cases)
        lines = (f"assert {call_text(self._entry_point, case.input)} == {case.output}" for case in cases)
        return "```python\n" + "\n".join(lines) + "\n```"

    def _oracle_suite(self) -> list[Case]:
        """A hidden test that some wrong variant fails."""
        data = self.task.data
        if "check" in data:
            cases = reference_cases(
                check=data["check"],
                reference=self._reference(),
                entry_point=data["entry_point"],
                limits=self._limits,
                run=self._run,
            )
        else:
            cases = list(cases_of(data["hidden"]))
        for case in cases:
            if self._quality([case]).valid:
                return [case]
        return cases[:1]
