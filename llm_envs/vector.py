"""Many episodes at once, ragged: each goes at its own pace, and only those that wait for a text are asked for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import error

from llm_envs.core import TextEnv
from llm_envs.registration import make
from llm_envs.spaces import TextObs


@dataclass(frozen=True, slots=True)
class Waiting:
    """An agent that waits for its text: which episode, which agent, and its whole prompt."""

    episode: int
    agent: str
    observation: TextObs


@dataclass(frozen=True, slots=True)
class Finished:
    """An episode that is over: the return of every agent, its reward parts, and how it ended."""

    episode: int
    returns: Mapping[str, float]
    reward_parts: Mapping[str, Mapping[str, float]]
    success: bool
    terminated: bool
    truncated: bool


class VectorTextEnv:
    """``num_envs`` episodes of one environment, played in step by one caller.

    Agents of a round that act on the same information are all in :meth:`waiting` at once, so a caller can answer
    everything that can be answered with one batch. There is no padding and no array of strings: episodes that are over
    are simply no longer there.

    Args:
        env_id: A registered environment.
        num_envs: How many episodes run at once.
        **kwargs: Arguments of the environment.

    >>> envs = VectorTextEnv("math-2agent", 3)
    >>> envs.reset(seed=0)
    >>> while waiting := envs.waiting():
    ...     finished = envs.step([envs.envs[w.episode].oracle(w.agent) for w in waiting])
    >>> [episode.success for episode in envs.finished]
    [True, True, True]
    """

    def __init__(self, env_id: str, num_envs: int, **kwargs: Any) -> None:
        if num_envs < 1:
            raise error.Error(f"`num_envs` must be 1 or more, actual value: {num_envs}.")
        self.envs: list[TextEnv] = [make(env_id, order_enforcing=False, **kwargs) for _ in range(num_envs)]
        self.finished: list[Finished] = []
        self._parts: list[dict[str, dict[str, float]]] = []
        self._live: list[int] = []

    def reset(self, seed: int | None = None, options: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Start all episodes.

        Args:
            seed: Episode ``i`` gets ``seed + i``; None leaves each environment its own stream.
            options: One ``reset`` option mapping an episode.
        """
        if options is not None and len(options) != len(self.envs):
            raise error.Error(f"Expected {len(self.envs)} options, one an episode, got {len(options)}.")
        for i, env in enumerate(self.envs):
            env.reset(None if seed is None else seed + i, None if options is None else options[i])
        self.finished = []
        self._live = list(range(len(self.envs)))
        self._parts = [{agent: {} for agent in env.possible_agents} for env in self.envs]

    def waiting(self) -> list[Waiting]:
        """All agents that wait for a text now, by episode and then in AEC order. Empty when every episode is over."""
        return [
            Waiting(i, agent, self.envs[i].observe(agent)) for i in self._live for agent in self.envs[i].round_agents
        ]

    def step(self, actions: Sequence[str]) -> list[Finished]:
        """Play one text for each entry of :meth:`waiting`, in its order.

        Returns:
            The episodes that ended in this step.

        Raises:
            gymnasium.error.Error: The number of actions differs from the number of waiting agents.
        """
        turns = [(i, agent) for i in self._live for agent in self.envs[i].round_agents]
        if len(actions) != len(turns):
            raise error.Error(f"Expected {len(turns)} actions, one for each waiting agent, got {len(actions)}.")
        for (i, agent), action in zip(turns, actions, strict=True):
            env = self.envs[i]
            self._collect(i, agent)
            env.step(action)
        ended = [i for i in self._live if not self.envs[i].round_agents]
        now = [self._finish(i) for i in ended]
        self._live = [i for i in self._live if i not in set(ended)]
        self.finished.extend(now)
        return now

    def _collect(self, i: int, agent: str) -> None:
        """Keep what ``agent`` was paid since its last turn: the environment forgets it when the agent acts."""
        mine = self._parts[i][agent]
        for name, value in self.envs[i].infos[agent]["reward_parts"].items():
            mine[name] = mine.get(name, 0.0) + value

    def _finish(self, i: int) -> Finished:
        env = self.envs[i]
        first = env.agents[0]
        terminated, truncated = env.terminations[first], env.truncations[first]
        for agent in env.agents:
            self._collect(i, agent)
        while env.agents:
            env.step(None)
        parts = self._parts[i]
        returns = {agent: sum(p.values()) for agent, p in parts.items()}
        return Finished(i, returns, parts, env.success, terminated, truncated)
