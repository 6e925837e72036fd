"""The turn-based math environments: one solver, solver and verifier, and a team of four."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llm_envs.core import Outcome, RenderMode, check_rounds
from llm_envs.math.base import BOX_EXAMPLES, SOLVE, VERIFY_EXAMPLES, GradeFunction, MathEnv
from llm_envs.math.grading import Verdict
from llm_envs.parsing import InvalidAction, boxed, tag
from llm_envs.rewards import shared
from llm_envs.tasks import Task, TaskSet

VERDICTS = ("approve", "reject")


class _Pipeline(MathEnv):
    """Roles speak one after the other, round after round, until a verifier approves or the rounds are used up.

    ``answering`` are the agents whose text must hold a boxed answer (the last one given counts); ``verifying`` is the
    agent whose verdict may end the episode, if there is one. It is not asked in the last round: nothing would follow.
    """

    answering: frozenset[str]
    verifying: str | None = None
    example_texts: Mapping[str, Sequence[str]]
    """The roles in AEC order, each with example actions."""

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = "arithmetic",
        split: str | None = None,
        *,
        max_rounds: int = 2,
        verifier_reward: float = 0.0,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        task_options: Mapping[str, Any] | None = None,
        grader: GradeFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self.max_rounds = check_rounds(max_rounds)
        self.verifier_reward = float(verifier_reward)
        super().__init__(
            list(self.example_texts),
            tasks,
            split,
            examples=self.example_texts,
            task_options=task_options,
            grader=grader,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    def _start(self) -> str:
        self._begin()
        self._round_number = 1
        self._answer: str | None = None
        return self.possible_agents[0]

    def _play(self, agent: str, action: str) -> Outcome:
        if agent == self.verifying:
            verdict = tag(action, "verify", VERDICTS)
            self._say(agent, action)
            return self._after(agent, approved=verdict == "approve", judged=True)
        if agent in self.answering:
            self._answer = boxed(action)
        self._say(agent, action)
        return self._after(agent)

    def _forfeit(self, agent: str) -> Outcome:
        """The turn counts as silence: an answer is withdrawn, a missing verdict is no approval."""
        if agent in self.answering:
            self._answer = None
        self._say(agent, "(no usable answer)")
        return self._after(agent)

    def _after(self, agent: str, approved: bool = False, judged: bool = False) -> Outcome:
        rewards: dict[str, dict[str, float]] = {}
        info: dict[str, dict[str, Any]] = {}
        if judged and self.verifier_reward:
            right = approved == (self._verdict(self._answer) is Verdict.CORRECT)
            rewards[agent] = {"verdict": self.verifier_reward if right else 0.0}
        last_round = self._round_number == self.max_rounds
        order = self.possible_agents
        speaker = order.index(agent) + 1
        if last_round and self.verifying is not None and speaker < len(order) and order[speaker] == self.verifying:
            speaker += 1
        if not approved and (speaker < len(order) or not last_round):
            if speaker == len(order):
                self._round_number, speaker = self._round_number + 1, 0
            return Outcome(next=order[speaker], rewards=rewards)
        verdict = self._verdict(self._answer)
        solved = verdict is Verdict.CORRECT
        for name, parts in shared(order, float(solved)).items():
            rewards[name] = {**rewards.get(name, {}), **parts}
            info[name] = {"verdict": verdict.value, "answer": self._answer}
        by_rules = approved or self.verifying is None
        return Outcome(rewards=rewards, terminated=by_rules, truncated=not by_rules, success=solved, info=info)

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds - (agent == self.verifying)

    def _oracle(self, agent: str) -> str:
        if agent == self.verifying:
            right = self._verdict(self._answer) is Verdict.CORRECT
            return f"<verify>{'approve' if right else 'reject'}</verify>"
        if agent in self.answering:
            return self._boxed_gold()
        return f"The answer should be {self.task.answer}."


class Math1Agent(_Pipeline):
    """One solver answers a math question, over one or several rounds with its own history.

    The compute-matched baseline of the math family: the same tasks and, with ``max_rounds`` and the token limit of its
    policy, the same budget of generated tokens as a team.

    | | |
    |---|---|
    | Agents | `solver_0` |
    | Order | `solver_0`, `max_rounds` times |
    | Actions | text with `\\boxed{answer}` |
    | Observations | the problem, the solver's earlier answers, the answer format |
    | Import | `llm_envs.make("math-1agent")` |

    ## Observations
    The whole prompt of the turn: the problem, then every earlier answer of the solver, then the instructions.

    ## Actions
    Any text. The last `\\boxed{…}` is the answer; text without one is unusable and forfeits the round.

    ## Rewards
    `team`: 1 if the last answer is correct, else 0, paid at the end. `invalid`: `invalid_penalty` for unusable text.

    ## Episode end
    Terminated after `max_rounds` answers. Success: the last answer is correct. The final infos hold the `verdict` and
    the `answer` it is on.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "math_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    answering = frozenset({"solver_0"})
    example_texts = {"solver_0": BOX_EXAMPLES}

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = "arithmetic",
        split: str | None = None,
        *,
        max_rounds: int = 1,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        task_options: Mapping[str, Any] | None = None,
        grader: GradeFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        super().__init__(
            tasks,
            split,
            max_rounds=max_rounds,
            task_options=task_options,
            grader=grader,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    def _instructions(self, agent: str) -> str:
        again = " Check your earlier answer and correct it if it is wrong." if self._said else ""
        return f"You are solver_0. Solve the problem.{again} {SOLVE}"


class Math2Agent(_Pipeline):
    """A solver answers a math question and a verifier approves the answer or sends it back (Dr. MAS, arXiv 2602.08847).

    | | |
    |---|---|
    | Agents | `solver_0`, `verifier_0` |
    | Order | solver, verifier, solver, … (`max_rounds=2`: at most solver, verifier, solver) |
    | Actions | solver: text with `\\boxed{answer}`; verifier: `<verify>approve</verify>` or `<verify>reject</verify>` |
    | Observations | the problem, everything said so far, the role and its answer format |
    | Import | `llm_envs.make("math-2agent")` |

    ## Observations
    The whole prompt of the turn: the problem, the contributions of both agents in order, then role and format.

    ## Actions
    Any text. The solver's last `\\boxed{…}` is its answer. The verifier's text must hold exactly one verdict tag.
    Unusable text forfeits the turn (after `max_retries`): the solver then has no answer, and a missing verdict is no
    approval.

    ## Rewards
    `team`: 1 to both agents if the solver's last answer is correct, else 0, paid at the end. `invalid`:
    `invalid_penalty` to the agent whose text was unusable. `verdict` (off by default): `verifier_reward` to the
    verifier for every right verdict; with `max_rounds` above 2 a longer episode can therefore earn more of it.

    ## Episode end
    Terminated when the verifier approves; truncated after the solver's answer in round `max_rounds`. Success: the last
    answer is correct, whether or not it was approved. The final infos hold the `verdict` and the `answer` it is on.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "math_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    answering = frozenset({"solver_0"})
    verifying = "verifier_0"
    example_texts = {"solver_0": BOX_EXAMPLES, "verifier_0": VERIFY_EXAMPLES}

    def _instructions(self, agent: str) -> str:
        if agent == "verifier_0":
            return (
                "You are verifier_0. Check the solver's last answer step by step. If it is correct, write "
                "<verify>approve</verify>; if it is wrong or missing, say what is wrong and write "
                "<verify>reject</verify>."
            )
        again = " The verifier did not approve your last answer: find the mistake." if self._said else ""
        return f"You are solver_0. Solve the problem.{again} {SOLVE}"


class Math4Agent(_Pipeline):
    """A solver drafts, a critic comments, a refiner answers, a verifier approves or starts another round.

    | | |
    |---|---|
    | Agents | `solver_0`, `critic_0`, `refiner_0`, `verifier_0` |
    | Order | solver, critic, refiner, verifier, `max_rounds` times; the last round has no verifier turn |
    | Actions | solver, refiner: text with `\\boxed{answer}`; critic: any text; verifier: as in `math-2agent` |
    | Observations | the problem, everything said so far, the role and its answer format |
    | Import | `llm_envs.make("math-4agent")` |

    ## Observations
    The whole prompt of the turn: the problem, the contributions of all agents in order, then role and format.

    ## Actions
    Any text. Empty criticism, an answer without a box or a verdict without its tag is unusable and forfeits the turn.

    ## Rewards
    `team`: 1 to all agents if the last boxed answer (the refiner's) is correct, else 0, paid at the end. `invalid`:
    `invalid_penalty` to the agent whose text was unusable. `verdict` (off by default) as in `math-2agent`.

    ## Episode end
    Terminated when the verifier approves; truncated after the refiner's answer in round `max_rounds`. Success: the last
    answer is correct.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "math_4agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    answering = frozenset({"solver_0", "refiner_0"})
    verifying = "verifier_0"
    example_texts = {
        "solver_0": BOX_EXAMPLES,
        "critic_0": ("The second step is wrong.", "I see no mistake.", ""),
        "refiner_0": BOX_EXAMPLES,
        "verifier_0": VERIFY_EXAMPLES,
    }
    _ROLES = {
        "solver_0": f"You are solver_0. Solve the problem. {SOLVE}",
        "critic_0": (
            "You are critic_0. Examine the solver's last answer. Point out every mistake, or say that there is none."
        ),
        "refiner_0": f"You are refiner_0. Improve the answer with the critic's comments in mind. {SOLVE}",
        "verifier_0": (
            "You are verifier_0. Check the refiner's last answer. If it is correct, write <verify>approve</verify>; "
            "if it is wrong or missing, say what is wrong and write <verify>reject</verify>."
        ),
    }

    def _play(self, agent: str, action: str) -> Outcome:
        if agent == "critic_0" and not action.strip():
            raise InvalidAction("The criticism is empty. Say what is wrong, or that nothing is.")
        return super()._play(agent, action)

    def _instructions(self, agent: str) -> str:
        return self._ROLES[agent]
