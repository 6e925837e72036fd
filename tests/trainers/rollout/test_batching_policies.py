"""Policies that wait for each other's batches: nobody waits for ever, and timing changes no batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from trainers.policies.base import Completion, Policy, PolicyError, Request
from trainers.policies.batching import Batcher, Job
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team

Keys = tuple[tuple[Any, ...], ...]


class Batching(Policy):
    """Answers in batches like a transformers model, without one. Notes the keys of every batch."""

    def __init__(self, name: str, reply: Callable[[Request], str], max_batch: int = 64) -> None:
        super().__init__(name)
        self._reply = reply
        self._batcher = Batcher(self._serve, max_batch)
        self.batches: list[Keys] = []

    def join(self) -> None:
        self._batcher.join()

    def leave(self) -> None:
        self._batcher.leave()

    async def generate(self, request: Request) -> list[Completion]:
        return await self._batcher.submit(Job(request, ()))

    def _serve(self, jobs: Sequence[Job]) -> list[list[Completion]]:
        self.batches.append(tuple(job.request.key for job in jobs))
        return [[Completion(self._reply(job.request), "stop")] for job in jobs]


class Slow(Policy):
    """Answers after a while that depends on nothing: the timing of a server."""

    def __init__(self, name: str = "slow") -> None:
        super().__init__(name)

    async def generate(self, request: Request) -> list[Completion]:
        await asyncio.sleep(random.random() * 0.01)
        return [Completion("fine", "stop")]


def say(request: Request) -> str:
    """A judge that ends some episodes early, so that they have different lengths."""
    return "stop" if request.agent == "judge_0" and request.seed % 3 == 0 else "fine"


def broken_sometimes(request: Request) -> str:
    if request.seed % 5 == 0:
        raise PolicyError("this batch cannot be answered")
    return say(request)


def teams() -> dict[str, tuple[Team, list[Batching]]]:
    one, two = Batching("one", say), Batching("two", say)
    small, bad = Batching("small", say, max_batch=2), Batching("bad", broken_sometimes, max_batch=3)
    return {
        "one for all": (Team.single(one), [one]),
        "one a role": (
            Team({"l": small, "r": two, "j": one}, {"left": "l", "right": "r", "judge": "j"}),
            [small, two, one],
        ),
        "beside a server": (Team({"a": one, "s": Slow()}, {"judge": "a", "*": "s"}), [one]),
        "failing": (Team({"a": one, "b": bad}, {"judge": "b", "*": "a"}), [one, bad]),
    }


def play(pair_env: Any, name: str, concurrency: int) -> tuple[list[Any], list[list[Keys]]]:
    team, policies = teams()[name]
    jobs = make_jobs(range(6), 3, seed=1)

    async def run() -> list[Any]:
        return await asyncio.wait_for(collect(pair_env, team, jobs, concurrency=concurrency), timeout=30)

    episodes = asyncio.run(run())
    assert len(episodes) == 18
    return [episode.to_dict(timings=False) for episode in episodes], [policy.batches for policy in policies]


@pytest.mark.parametrize("concurrency", [1, 4, 5, 18, 64])
@pytest.mark.parametrize("name", list(teams()))
def test_every_episode_ends_whoever_plays(pair_env: Any, name: str, concurrency: int) -> None:
    episodes, batches = play(pair_env, name, concurrency)
    assert all(batches)
    failed = [episode for episode in episodes if episode["error"]]
    assert bool(failed) == (name == "failing")
    assert all(turn["masked"] for episode in failed for turn in episode["turns"])


@pytest.mark.parametrize("concurrency", [4, 64])
@pytest.mark.parametrize("name", list(teams()))
def test_the_same_run_has_the_same_batches(pair_env: Any, name: str, concurrency: int) -> None:
    assert play(pair_env, name, concurrency) == play(pair_env, name, concurrency)


def test_a_flush_that_fails_fails_the_requests(pair_env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in the barrier itself, no episode may hang."""

    def broken(self: Batcher, held: Any) -> Any:
        raise RuntimeError("a mistake in the barrier")

    monkeypatch.setattr(Batcher, "batches", broken)
    policy = Batching("one", say)

    async def run() -> list[Any]:
        jobs = make_jobs(range(2), 1, seed=1)
        return await asyncio.wait_for(collect(pair_env, Team.single(policy), jobs), timeout=10)

    episodes = asyncio.run(run())
    assert all("a mistake in the barrier" in str(episode.error) for episode in episodes)
