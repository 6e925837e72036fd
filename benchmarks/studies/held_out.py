"""Held-out evaluation of a team: success on tasks that were never trained on, with its interval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.metrics import bootstrap_interval, success_interval
from trainers.policies.base import Sampling, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team

__all__ = ["difference", "evaluate", "pooled"]


@lru_cache(maxsize=8)
def _held_out_env(env_id: str, kwargs: str) -> Any:
    """The environment, to play on forks of it: it remembers the tasks that it has generated, which all arms play."""
    return llm_envs.make(env_id, split="test", order_enforcing=False, **json.loads(kwargs)).unwrapped


async def evaluate(
    env_id: str,
    kwargs: Mapping[str, Any],
    models: Mapping[str, Path],
    sampling: Sampling,
    *,
    tasks: int,
    seed: int,
) -> dict[str, Any]:
    """Play the first ``tasks`` tasks of the test split once each, as plain episodes.

    Args:
        env_id: The environment.
        kwargs: Its arguments, as JSON can write them.
        models: The model of each role; ``*`` plays all.
        sampling: How answers are drawn.
        tasks: Number of tasks.
        seed: Of the draws.

    Returns:
        ``success`` (share), ``interval`` (95 %, Wilson), ``tasks``, ``tokens`` (generated, mean of an episode),
        ``turns`` (mean of an episode), ``invalid`` (share of the turns), ``solved`` (0 or 1 for each task).

    Raises:
        RuntimeError: An episode could not be played.
    """
    env = _held_out_env(env_id, json.dumps(kwargs, sort_keys=True))
    policies = {role: make_policy(f"hf:{folder}") for role, folder in models.items()}
    team = Team(policies, {role: role for role in models}, dict.fromkeys(models, sampling))
    try:
        episodes = await collect(env.fork, team, make_jobs(range(tasks), 1, seed), concurrency=min(tasks, 512))
    finally:
        await team.close()
    failed = [episode.error for episode in episodes if episode.error is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} of {tasks} evaluation episodes could not be played, the first: {failed[0]}")
    turns = [turn for episode in episodes for turn in episode.turns]
    low, high = success_interval([[episode.success] for episode in episodes])
    return {
        "success": sum(episode.success for episode in episodes) / tasks,
        "interval": [low, high],
        "tasks": tasks,
        "tokens": sum(turn.completion_tokens for turn in turns) / tasks,
        "turns": len(turns) / tasks,
        "invalid": sum(turn.invalid is not None for turn in turns) / len(turns),
        "solved": [int(episode.success) for episode in episodes],
    }


def pooled(results: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Put seeds together: the mean, its 95 % interval over tasks (bootstrap, a task with all its seeds), each seed.

    The interval says how much the choice of tasks matters. How much training matters is seen in the seeds themselves.

    >>> both = pooled([{"solved": [1, 0], "tokens": 1.0}, {"solved": [1, 1], "tokens": 3.0}])
    >>> both["success"], both["seeds"], both["tokens"]
    (0.75, [0.5, 1.0], 2.0)
    """
    per_task = [sum(values) / len(values) for values in zip(*(result["solved"] for result in results), strict=True)]
    seeds = [sum(result["solved"]) / len(result["solved"]) for result in results]
    return {
        "success": sum(seeds) / len(seeds),
        "interval": list(bootstrap_interval(per_task)),
        "seeds": seeds,
        "tokens": sum(result["tokens"] for result in results) / len(results),
    }


def difference(ours: list[Mapping[str, Any]], theirs: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare two arms on the same tasks: the mean difference, its 95 % interval over tasks, that of each seed.

    >>> more = difference([{"solved": [1, 1]}], [{"solved": [1, 0]}])
    >>> more["difference"], more["seeds"]
    (0.5, [0.5])

    Args:
        ours: The results of one arm, a seed each.
        theirs: The results of the other, the same seeds.
    """
    rows = [
        [mine - other for mine, other in zip(one["solved"], another["solved"], strict=True)]
        for one, another in zip(ours, theirs, strict=True)
    ]
    per_task = [sum(values) / len(values) for values in zip(*rows, strict=True)]
    return {
        "difference": sum(per_task) / len(per_task),
        "interval": list(bootstrap_interval(per_task)),
        "seeds": [sum(row) / len(row) for row in rows],
    }
