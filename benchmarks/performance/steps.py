"""Environment steps a second, and answers graded a second."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

from pettingzoo import AECEnv

import llm_envs
from benchmarks.performance.measure import Measurement, rate
from llm_envs.math.grading import Grader, Verdict
from llm_envs.spaces import FreeText, TextObs
from trainers.policies.scripted import OraclePolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team

__all__ = ["measure_grading", "measure_moves", "measure_steps"]

STEPS_TARGET = 10_000.0
MOVES_TARGET = 20_000.0
GRADED_TARGET = 200.0
EPISODES_A_TRY = 50


class BareEnv(AECEnv[str, str, str | None]):
    """Two agents say one thing each: the least that a text environment on the AEC interface can do."""

    metadata: ClassVar[dict[str, Any]] = {"name": "bare_v0", "render_modes": []}

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["solver_0", "verifier_0"]
        self._space = FreeText(1_000_000)

    def observation_space(self, agent: str) -> Any:
        """Any text."""
        return self._space

    def action_space(self, agent: str) -> Any:
        """Any text."""
        return self._space

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Start again."""
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = "solver_0"
        self._said: list[str] = []

    def observe(self, agent: str) -> TextObs:
        """Return what was said."""
        return TextObs("\n\n".join(["What is 1 + 1?", *self._said, agent]))

    def step(self, action: str | None) -> None:
        """Say something."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._said.append(str(action))
        if agent == "solver_0":
            self.agent_selection = "verifier_0"
        else:
            self.terminations = dict.fromkeys(self.agents, True)
            self._deads_step_first()

    def oracle(self, agent: str) -> str:
        """Return something to say."""
        return "2"


def exact(*, gold: str, answer: str) -> Verdict:
    """Compare texts: what grading costs when it costs nothing."""
    return Verdict.CORRECT if gold == answer else Verdict.INCORRECT


def measure_steps(seconds: float = 1.0) -> list[Measurement]:
    """Measure actions a second. Dead steps are taken but not counted.

    Args:
        seconds: Length of one try; there are three for each figure.
    """
    free = rate(lambda: _play_oracle(llm_envs.make("math-2agent", grader=exact)), seconds=seconds)
    graded = rate(lambda: _play_oracle(llm_envs.make("math-2agent")), seconds=seconds)
    bare = rate(lambda: _play_oracle(BareEnv()), seconds=seconds)
    rollout = rate(_collect_oracle, seconds=seconds)
    return [
        Measurement("math-2agent, oracle, no grading", free, "actions/s", STEPS_TARGET),
        Measurement("math-2agent, oracle, graded numbers", graded, "actions/s"),
        Measurement("bare AEC text environment / math-2agent", bare / free, "x"),
        Measurement("math-2agent alone / through the rollout", free / rollout, "x"),
        Measurement("rollout, cost of a turn beside the environment", 1e6 * (1 / rollout - 1 / free), "µs"),
    ]


def measure_moves(seconds: float = 1.0) -> list[Measurement]:
    """Measure steps a second of a planner that makes one move a turn, legal or not."""
    env = llm_envs.make("plan-path-1agent")
    moved = rate(lambda: _play_moves(env), seconds=seconds)
    return [Measurement("plan-path-1agent, one move a step", moved, "actions/s", MOVES_TARGET)]


def measure_grading(seconds: float = 1.0) -> list[Measurement]:
    """Measure verdicts a second of one worker process: plain numbers, and pairs that need a computer algebra system."""
    with Grader(workers=1) as grader:

        def grade(pairs: Iterator[tuple[str, str]], count: int) -> int:
            for gold, answer in itertools.islice(pairs, count):
                verdict = grader.grade(gold=gold, answer=answer)
                if verdict is not Verdict.CORRECT:
                    raise RuntimeError(f"The grader finds {answer!r} {verdict.value} where the answer is {gold!r}")
            return count

        numbers, symbols = _numbers(), _symbols()
        plain = rate(lambda: grade(numbers, 200), seconds=seconds)
        symbolic = rate(lambda: grade(symbols, 20), seconds=seconds)
    return [
        Measurement("graded answers, numbers", plain, "per s and core", GRADED_TARGET),
        Measurement(
            "graded answers, symbolic (fractions, roots, polynomials)", symbolic, "per s and core", GRADED_TARGET
        ),
    ]


def _play_oracle(env: Any, episodes: int = EPISODES_A_TRY) -> int:
    actions = 0
    for index in range(episodes):
        env.reset(seed=0, options={"task_index": index})
        oracle = env.unwrapped.oracle
        for agent in env.agent_iter():
            _, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(oracle(agent))
                actions += 1
    return actions


def _play_moves(env: Any, episodes: int = EPISODES_A_TRY) -> int:
    actions = 0
    for index in range(episodes):
        env.reset(seed=0, options={"task_index": index})
        for _ in env.agent_iter():
            _, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                env.step(("[U]", "[R]", "[D]", "[L]")[actions % 4])
                actions += 1
    return actions


def _collect_oracle(episodes: int = EPISODES_A_TRY) -> int:
    team = Team.single(OraclePolicy())
    env = llm_envs.make("math-2agent", grader=exact)
    played = asyncio.run(collect(env.unwrapped.fork, team, make_jobs(range(episodes), 1, 0), concurrency=16))
    return sum(len(episode.turns) for episode in played)


def _numbers() -> Iterator[tuple[str, str]]:
    for i in itertools.count(1000):
        yield str(i), f"{i}.0"


def _symbols() -> Iterator[tuple[str, str]]:
    """Yield pairs that are equal but written differently, no pair twice."""
    for i in itertools.count(2):
        yield rf"\frac{{{i}}}{{{i + 1}}}", rf"\frac{{{2 * i}}}{{{2 * i + 2}}}"
        yield rf"{i}\sqrt{{3}}", rf"\sqrt{{{3 * i * i}}}"
        yield rf"x^2+{2 * i}x+{i * i}", rf"(x+{i})^2"
