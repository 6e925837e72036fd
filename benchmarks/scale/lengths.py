"""Measured distributions that a simulation draws from: whole episodes, so that what belongs together stays together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import read_lines
from trainers.capacity.workload import read_episodes
from trainers.recipe_files import ConfigError

__all__ = ["DEFAULT", "Recorded", "SimulatedTurn", "load", "record"]

DEFAULT = Path(__file__).parent / "lengths.json"
"""Episodes of a stated run, which a simulation draws from by default."""


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    """One action.

    Attributes:
        agent: Index of the agent.
        prompt: Tokens of the prompt.
        completion: Tokens of the answer, at least 1.
        env_s: Seconds that the environment takes after it, on one core.
    """

    agent: int
    prompt: int
    completion: int
    env_s: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded episodes.

    Attributes:
        source: Where they are from, in words.
        agents: Names of the agents.
        episodes: The turns of each episode.
    """

    source: str
    agents: tuple[str, ...]
    episodes: tuple[tuple[SimulatedTurn, ...], ...]

    def draw(self, count: int, rng: np.random.Generator) -> list[tuple[SimulatedTurn, ...]]:
        """Draw episodes with replacement."""
        return [self.episodes[i] for i in rng.integers(0, len(self.episodes), count).tolist()]

    def stretched(self, completion: float, prompt: float, sigma: float = 0.0) -> Recorded:
        """The same with lengths multiplied so that their means are these; the shape of the distributions stays.

        Args:
            completion: Mean tokens of an answer.
            prompt: Mean tokens of a prompt.
            sigma: Multiply every answer by a log-normal factor of mean 1 with this spread as well: an assumption about
                long tails, which a run that cuts answers does not show.
        """
        factors = iter(
            np.random.default_rng(0).lognormal(-(sigma**2) / 2, sigma, sum(map(len, self.episodes))).tolist()
        )
        turns = [turn for episode in self.episodes for turn in episode]
        long = completion / float(np.mean([turn.completion for turn in turns]))
        wide = prompt / float(np.mean([turn.prompt for turn in turns]))
        episodes = tuple(
            tuple(
                SimulatedTurn(
                    t.agent, max(1, round(wide * t.prompt)), max(1, round(long * t.completion * next(factors))), t.env_s
                )
                for t in episode
            )
            for episode in self.episodes
        )
        return Recorded(self.source, self.agents, episodes)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        rows = [[[t.agent, t.prompt, t.completion, float(f"{t.env_s:.3g}")] for t in e] for e in self.episodes]
        return {"source": self.source, "agents": list(self.agents), "episodes": rows}


def record(folder: Path, source: str) -> Recorded:
    """Read the distributions of a folder of ``llm-bench run``.

    Seconds of the environment are those of an episode in which no answer was waited for, divided among its turns: what
    the environment and the runner take, and with many episodes in one process also what the others took.

    Args:
        folder: The folder, with ``episodes.jsonl``.
        source: Where it is from, in words.

    Raises:
        ConfigError: There is no episode with token counts.
    """
    names: dict[str, int] = {}
    episodes = []
    spent = {row["id"]: row["wall_s"] - sum(row["latency_s"]) for row in read_lines(folder, "timings.jsonl")}
    for episode in read_episodes(folder):
        spare = max(0.0, spent[episode.id]) / len(episode.turns)
        turns = [
            SimulatedTurn(names.setdefault(t.agent, len(names)), t.prompt_tokens, t.completion_tokens, spare)
            for t in episode.turns
        ]
        if all(turn.completion > 0 and turn.prompt > 0 for turn in turns):
            episodes.append(tuple(turns))
    if not episodes:
        raise ConfigError(f"{folder}: no episode has token counts; play a model (hf:, vllm:), not a scripted policy")
    return Recorded(source, tuple(names), tuple(episodes))


def load(path: Path = DEFAULT) -> Recorded:
    """Read what :meth:`Recorded.to_dict` wrote."""
    values = json.loads(path.read_text(encoding="utf-8"))
    rows: Sequence[Sequence[Sequence[Any]]] = values["episodes"]
    episodes = tuple(tuple(SimulatedTurn(*turn) for turn in episode) for episode in rows)
    return Recorded(values["source"], tuple(values["agents"]), episodes)
