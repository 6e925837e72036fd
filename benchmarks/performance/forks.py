"""How long a fork takes in the middle of an episode, for every registered environment."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import llm_envs
from benchmarks.performance.measure import Measurement
from llm_envs.core import TextEnv

__all__ = ["measure_forks", "middle_of_an_episode"]

TARGET_US = 50.0
TARGETS_US = {"sokoban-1agent-v0": 100.0, "sokoban-2agent-v0": 100.0}
LARGE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    f"{env_id}, 10×10 with four boxes": (env_id, {"task_options": {"grid_size": 10, "boxes": 4}})
    for env_id in TARGETS_US
}
"""The largest boards that have a target: what they are called, the environment, its arguments."""
FORKS = 200
TURNS = 3


def measure_forks(env_ids: Sequence[str] | None = None, forks: int = FORKS, repeats: int = 3) -> list[Measurement]:
    """Measure the median time of a fork, for the best of ``repeats`` tries, after the generator was used.

    Args:
        env_ids: Ids of registered environments; None for all of them, and those of :data:`LARGE`.
        forks: Forks in one try.
        repeats: Number of tries.
    """
    envs: dict[str, tuple[str, Mapping[str, Any]]] = {
        env_id: (env_id, {}) for env_id in (llm_envs.registry if env_ids is None else env_ids)
    }
    if env_ids is None:
        envs.update(LARGE)
    measurements = []
    for name, (env_id, arguments) in envs.items():
        env = middle_of_an_episode(env_id, **arguments)
        env.np_random.random()
        median = min(_median_us(env, forks) for _ in range(repeats))
        target = TARGETS_US.get(env_id, TARGET_US)
        measurements.append(Measurement(f"fork of {name}, median", median, "µs", target, at_most=True))
    return measurements


def middle_of_an_episode(env_id: str, turns: int = TURNS, **arguments: Any) -> TextEnv:
    """Make an environment and play ``turns`` example texts in it, or one less than end the episode."""
    env: TextEnv = llm_envs.make(env_id, order_enforcing=False, **arguments)
    env.reset(seed=0)
    for agent in env.possible_agents:
        env.action_space(agent).seed(0)
    for _ in range(turns):
        ahead = env.fork()
        ahead.step(env.action_space(env.agent_selection).sample())
        if not ahead.round_agents:
            break
        env = ahead
    return env


def _median_us(env: TextEnv, forks: int) -> float:
    times = []
    for _ in range(forks):
        started = time.perf_counter()
        env.fork()
        times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)
