"""Tree sampling (AT-GRPO, arXiv 2510.11062): K candidates for every turn, each scored by one step of its own.

At every turn the policy gives K answers to the same prompt. Each is played on a fork of the environment and is worth
what that one step pays its agent; the episode then goes on from one of the forks. All K turns are trained on: they
share a prompt, so they are a group whatever came before. Agents that act later see the state that the chosen candidates
have led to, and are compared among their own candidates. A tree of T turns of N agents costs T·N·K answers.

The path is chosen by reward, from K candidates, with the environment's own scoring: its success is no measure of how
the policy plays without that help, and nothing here reports it as one (:attr:`Episode.tree`).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from llm_envs import rewards
from llm_envs.tasks import stable_hash
from trainers.algorithms.algorithm import CHOICES
from trainers.algorithms.choices import check_choice
from trainers.rollout.player import Answer, Job, Player, Seats, note, run_with
from trainers.rollout.records import Episode, Turn
from trainers.team import Team

__all__ = ["TreeSampling", "run_tree"]


@dataclass(frozen=True, slots=True)
class TreeSampling:
    """How a tree branches and which branch it follows.

    Attributes:
        candidates: K, answers a turn.
        choose: The candidate that the episode goes on with: ``argmax`` of the score (the first of equals), ``softmax``
            (drawn with probability ∝ exp(score/temperature)), ``random`` (each alike) or ``first``.
        temperature: Of ``softmax``.
        team_weight: α, the factor of the shared outcome in a score; local parts and penalties count once.

    Raises:
        ValueError: At construction, for an unknown choice or a number out of range.
    """

    candidates: int = 4
    choose: Literal["argmax", "softmax", "random", "first"] = "argmax"
    temperature: float = 1.0
    team_weight: float = 1.0

    def __post_init__(self) -> None:
        check_choice("choice of candidates", self.choose, CHOICES)
        if self.candidates < 1:
            raise ValueError(f"candidates is {self.candidates}; a tree needs at least one answer a turn")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; it must be positive (choose='argmax' is its limit)")

    def score(self, turn: Turn) -> float:
        """What one candidate earned by its own step."""
        parts = turn.reward_parts
        return self.team_weight * rewards.team(parts) + rewards.local(parts) + rewards.penalty(parts)

    def pick(self, scores: Sequence[float], rng: random.Random) -> int:
        """The index of the candidate that the episode goes on with."""
        if self.choose == "first":
            return 0
        if self.choose == "random":
            return rng.randrange(len(scores))
        best = max(range(len(scores)), key=lambda k: scores[k])
        if self.choose == "argmax":
            return best
        weights = [math.exp((score - scores[best]) / self.temperature) for score in scores]
        return rng.choices(range(len(scores)), weights)[0]


async def run_tree(
    env: Any, team: Team, job: Job, *, sampling: TreeSampling, executor: Executor | None = None
) -> Episode:
    """Play one tree. The arguments are those of :func:`trainers.rollout.player.run_episode`, with ``sampling``.

    In a round of agents that act on the same information, the k-th candidates of all of them are played together on
    the k-th fork; each is worth what that paid its agent, and the mean over the agents decides which fork is followed.

    Returns:
        An episode with ``tree`` set. Its turns are all candidates, K a turn of the path, with ``candidate`` and
        ``chosen``; siblings have the same ``index`` and ``agent_turn``. ``reward_parts`` of a turn are what its step
        paid. Returns, success and flags are those of the path.
    """
    return await run_with(partial(_TreePlayer, sampling), env, team, job, executor)


class _TreePlayer(Player):
    """The turns of one tree."""

    __slots__ = ("_index", "_rng", "_sampling")

    def __init__(
        self, sampling: TreeSampling, env: Any, episode: Episode, seats: Seats, job: Job, executor: Executor | None
    ) -> None:
        super().__init__(env, episode, seats, job, executor)
        episode.tree = True
        self._sampling = sampling
        self._rng = random.Random(stable_hash("tree", job.seed, episode.task, job.sample))
        self._index = 0

    async def play(self) -> None:
        """Play to the end."""
        while self._base.agents:
            if not self._collect_rewards():
                await self._branch(self._base.round_agents)

    def _collect_rewards(self) -> bool:
        """Add what the agent to move has received to the path's totals; returns whether its episode is over."""
        env, episode = self._base, self._episode
        agent = env.agent_selection
        _, reward, terminated, truncated, info = env.last(observe=False)
        self._add_up(agent, reward, info)
        if not (terminated or truncated):
            return False
        episode.terminated, episode.truncated = bool(terminated), bool(truncated)
        episode.success = episode.success or bool(info["success"])
        env.step(None)
        return True

    async def _branch(self, agents: Sequence[str]) -> None:
        """Ask for the candidates of one turn, or of one round, play each on a fork, and go on with one of them."""
        start, sampling = self._index, self._sampling
        self._index += len(agents)
        asked = (
            self._request(agent, str(self._base.observe(agent)), start + place, sampling.candidates)
            for place, agent in enumerate(agents)
        )
        # All of them are waited for even if one fails: no request may outlive its episode.
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers: list[list[Answer]] = []
        for one in found:
            if isinstance(one, BaseException):
                raise one
            answers.append(one)
        turns = [
            [self._turn(agent, answer, start + place) for answer in answers[place]]
            for place, agent in enumerate(agents)
        ]
        forks = [self._base.fork() for _ in range(sampling.candidates)]
        joint = list(zip(*turns, strict=True))
        await asyncio.gather(*(self._play_out(fork, row) for fork, row in zip(forks, joint, strict=True)))
        scores = [sum(map(sampling.score, row)) / len(agents) for row in joint]
        chosen = sampling.pick(scores, self._rng)
        for agent, row in zip(agents, turns, strict=True):
            for k, turn in enumerate(row):
                turn.candidate, turn.chosen = k, k == chosen
            self._last[agent] = row[chosen]
            self._episode.turns.extend(row)
        for agent in agents[1:]:  # what the first one had received was added when its turn came
            self._add_up(agent, self._base._cumulative_rewards[agent], self._base.infos[agent])
        self._env = self._base = forks[chosen]

    async def _play_out(self, fork: Any, row: Sequence[Turn]) -> None:
        """Play one candidate of every agent on a fork and write down what the step has paid each of them."""
        for turn in row:
            await self._step(fork, turn.action)
        for turn in row:
            note(turn, fork.infos[turn.agent])
