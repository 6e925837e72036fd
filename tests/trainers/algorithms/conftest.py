"""Builders of episodes, in the records that a rollout writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from trainers.algorithms.advantages import compute_advantages, make_baseline
from trainers.algorithms.algorithm import Algorithm
from trainers.algorithms.shaping import TurnFacts
from trainers.rollout.records import Episode, Turn

Spec = tuple[str, Mapping[str, float]] | tuple[str, Mapping[str, float], Mapping[str, Any]]


def build_episode(
    task: str, sample: int, turns: Sequence[Spec], *, env: str = "math-2agent-v0", early: Any = None, **fields: Any
) -> Episode:
    """An episode. Totals are the sums of its turns' parts and of ``early`` parts, which no turn is credited with."""
    episode = Episode(
        id=f"{task}#{sample}", env=env, task=task, task_index=0, task_hash=task, sample=sample, seed=sample, **fields
    )
    counts: dict[str, int] = {}
    totals: dict[str, dict[str, float]] = {agent: dict(parts) for agent, parts in (early or {}).items()}
    for index, (agent, parts, *more) in enumerate(turns):
        settings = dict(more[0]) if more else {}
        episode.turns.append(
            Turn(
                episode=episode.id,
                task=task,
                agent=agent,
                policy=settings.pop("policy", "shared"),
                index=index,
                agent_turn=counts.get(agent, 0),
                observation=settings.pop("observation", f"{task} {agent}"),
                action="x",
                reward_parts=dict(parts),
                **settings,
            )
        )
        counts[agent] = counts.get(agent, 0) + 1
        total = totals.setdefault(agent, {})
        for name, value in parts.items():
            total[name] = total.get(name, 0.0) + value
    episode.reward_parts = totals
    episode.returns = {agent: sum(parts.values()) for agent, parts in totals.items()}
    return episode


@pytest.fixture(scope="session")
def episode() -> Callable[..., Episode]:
    return build_episode


def fresh_advantages(episodes: Sequence[Episode], algorithm: Algorithm, **facts: Any) -> np.ndarray:
    """Advantages from the start of a run: averages at 0, and, unless given, a critic that says 0."""
    turns = sum(len(episode.turns) for episode in episodes)
    if algorithm.critic is not None:
        facts.setdefault("values", np.zeros(turns))
    return compute_advantages(episodes, algorithm, baseline=make_baseline(algorithm), facts=TurnFacts(**facts))


@pytest.fixture(scope="session")
def advantages() -> Callable[..., np.ndarray]:
    return fresh_advantages
