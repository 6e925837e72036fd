"""Several debaters answer the same question side by side and vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import error

from llm_envs.core import Outcome, RenderMode, check_rounds
from llm_envs.math.base import BOX_EXAMPLES, SOLVE, GradeFunction, MathEnv
from llm_envs.math.grading import Verdict
from llm_envs.parsing import boxed
from llm_envs.rewards import TEAM
from llm_envs.tasks import Task, TaskSet


class MathDebate(MathEnv):
    """Debaters answer at once, read each other, answer again; the most frequent answer is the team's.

    | | |
    |---|---|
    | Agents | `debater_0` … `debater_{n_agents-1}` |
    | Order | all at once, up to `max_rounds` rounds |
    | Actions | text with `\\boxed{answer}` |
    | Observations | the problem, all contributions of earlier rounds, role and format |
    | Parallel form | `llm_envs.make_parallel("math-debate")` |
    | Import | `llm_envs.make("math-debate")` |

    ## Observations
    The whole prompt of the turn. Nobody sees what the others do in the running round.

    ## Actions
    Any text. The last `\\boxed{…}` is the debater's vote; text without one is unusable and casts no vote in this round.

    ## Rewards
    `team`: 1 to all if the vote of the last round is correct, else 0, paid at the end. Answers that are equal as
    mathematics count together, except that arithmetic left to do (`3+4`) is no vote for its result; a tie for the most
    votes fails. `correct` (off by default): `own_reward` to every
    debater whose own last answer is correct. `invalid`: `invalid_penalty` for unusable text, each time.

    ## Episode end
    Terminated when all debaters give the same answer, or after `max_rounds`. Success: the vote is correct. The final
    infos hold its `verdict` and the `answer` it is on.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "math_debate_v0", "render_modes": ["human", "ansi"], "is_parallelizable": True}

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = "arithmetic",
        split: str | None = None,
        *,
        n_agents: int = 3,
        max_rounds: int = 2,
        own_reward: float = 0.0,
        invalid_penalty: float = -0.1,
        task_options: Mapping[str, Any] | None = None,
        grader: GradeFunction | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        """Create the environment.

        Args:
            tasks: As in the other math environments.
            split: ``"train"``, ``"test"`` or None for the set's default.
            n_agents: The number of debaters, 2 or more.
            max_rounds: The most rounds of an episode.
            own_reward: Local part ``correct`` for a correct own answer at the end.
            invalid_penalty: Reward part ``invalid`` for unusable text.
            task_options: Options of the task set.
            grader: In place of :func:`llm_envs.math.grading.grade`.
            render_mode: ``"ansi"``, ``"human"`` or None.
        """
        if isinstance(n_agents, bool) or not isinstance(n_agents, int) or n_agents < 2:
            raise error.Error(f"`n_agents` must be an integer of 2 or more, actual value: {n_agents!r}.")
        self.max_rounds = check_rounds(max_rounds)
        self.own_reward = float(own_reward)
        debaters = [f"debater_{i}" for i in range(n_agents)]
        super().__init__(
            debaters,
            tasks,
            split,
            examples=dict.fromkeys(debaters, BOX_EXAMPLES),
            task_options=task_options,
            grader=grader,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    def _start(self) -> tuple[str, ...]:
        self._begin()
        self._round_number = 1
        self._texts: dict[str, str] = {}
        self._answers: dict[str, str] = {}
        return tuple(self.possible_agents)

    def _play(self, agent: str, action: str) -> None:
        self._answers[agent] = boxed(action)
        self._texts[agent] = action

    def _forfeit(self, agent: str) -> None:
        """No vote in this round."""

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds

    def _end_round(self) -> Outcome:
        answers, texts = self._answers, self._texts
        self._answers, self._texts = {}, {}
        for agent in self.possible_agents:
            self._say(agent, texts.get(agent, "(no usable answer)"))
        camps = self._camps(answers)
        unanimous = len(camps) == 1 and len(answers) == len(self.possible_agents)
        if not unanimous and self._round_number < self.max_rounds:
            self._round_number += 1
            return Outcome(next=tuple(self.possible_agents))
        answer = _most_frequent(camps)
        verdict = self._verdict(answer)
        solved = verdict is Verdict.CORRECT
        rewards: dict[str, dict[str, float]] = {}
        info: dict[str, dict[str, Any]] = {}
        for agent in self.possible_agents:
            rewards[agent] = {TEAM: float(solved)}
            info[agent] = {"verdict": verdict.value, "answer": answer}
            if self.own_reward:
                right = self._verdict(answers.get(agent)) is Verdict.CORRECT
                rewards[agent]["correct"] = self.own_reward * right
        return Outcome(rewards=rewards, terminated=True, success=solved, info=info)

    def _camps(self, answers: Mapping[str, str]) -> list[list[str]]:
        """The answers grouped by mathematical equality, in order of first appearance."""
        camps: list[list[str]] = []
        for answer in answers.values():
            for camp in camps:
                if self._agree(camp[0], answer):
                    camp.append(answer)
                    break
            else:
                camps.append([answer])
        return camps

    def _instructions(self, agent: str) -> str:
        again = (
            " Weigh the answers of the others against your own, and correct yours if it is wrong." if self._said else ""
        )
        return f"You are {agent}, one of {len(self.possible_agents)} debaters. Solve the problem.{again} {SOLVE}"

    def _oracle(self, agent: str) -> str:
        return self._boxed_gold()


def _most_frequent(camps: Sequence[Sequence[str]]) -> str | None:
    """An answer of the largest camp, or None for no answers or a tie."""
    sizes = sorted((len(camp) for camp in camps), reverse=True)
    if not sizes or (len(sizes) > 1 and sizes[0] == sizes[1]):
        return None
    return max(camps, key=len)[0]
