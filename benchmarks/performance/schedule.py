"""How close the rollout comes to the ideal schedule, and how far a lock-step rollout is from it.

Answers take log-normal times, as those of language models do. They depend on the request's seed alone, so the shortest
possible time of the same requests can be computed: an episode lasts as long as its waits, and with ``c`` slots each
episode starts in the slot that is free first.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import defaultdict

import llm_envs
from benchmarks.performance.measure import Measurement
from benchmarks.performance.steps import exact
from trainers.policies.base import Completion, Policy, Request
from trainers.policies.scripted import LatencyPolicy, RandomPolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team

__all__ = ["LockStep", "ideal_seconds", "measure_schedule"]

EPISODES = 64
IDEAL_TARGET = 1.1


class Recorded(LatencyPolicy):
    """Writes down how long each episode has to wait for its answers."""

    def __init__(self, inner: Policy, *, median_s: float, sigma: float = 1.0) -> None:
        super().__init__(inner, median_s=median_s, sigma=sigma)
        self.waits: defaultdict[tuple[int, int], float] = defaultdict(float)

    async def generate(self, request: Request) -> list[Completion]:
        """Wait, then answer."""
        self.waits[request.key[0], request.key[1]] += self.latency_s(request)
        return await super().generate(request)


class LockStep(Policy):
    """Holds every answer back until each live episode has one: what a rollout with a barrier after each turn does."""

    def __init__(self, inner: Policy) -> None:
        super().__init__(inner.name, f"{inner.label}, lock-step")
        self._inner = inner
        self._live = 0
        self._held: list[asyncio.Future[None]] = []

    def join(self) -> None:
        """One more episode is live."""
        self._live += 1

    def leave(self) -> None:
        """One less is."""
        self._live -= 1
        self._release()

    async def generate(self, request: Request) -> list[Completion]:
        """Answer when everyone is answered."""
        answer = await self._inner.generate(request)
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(held)
        self._release()
        await held
        return answer

    def _release(self) -> None:
        if len(self._held) >= self._live:
            held, self._held = self._held, []
            for future in held:
                if not future.done():
                    future.set_result(None)


def ideal_seconds(lengths: list[float], slots: int) -> float:
    """Return how long episodes last in ``slots`` slots if each starts in the slot that is free first."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free)


def measure_schedule(median_s: float = 0.05, repeats: int = 3) -> list[Measurement]:
    """Play 64 scripted episodes of 2 to 7 turns at two levels of concurrency; the best of ``repeats`` tries counts."""
    measurements = []
    for slots in (EPISODES, EPISODES // 4):
        ratio = min(_continuous(slots, median_s) for _ in range(repeats))
        name = f"rollout / ideal schedule, {EPISODES} episodes, {slots} at a time"
        measurements.append(Measurement(name, ratio, "x", IDEAL_TARGET, at_most=True))
    policy = Recorded(RandomPolicy(), median_s=median_s)
    seconds = _play(LockStep(policy), EPISODES)
    lock_step = seconds / ideal_seconds(list(policy.waits.values()), EPISODES)
    measurements.append(Measurement("lock-step / ideal schedule, all at once", lock_step, "x"))
    measurements.append(Measurement("lock-step / rollout", lock_step / measurements[0].value, "x"))
    return measurements


def _continuous(slots: int, median_s: float) -> float:
    policy = Recorded(RandomPolicy(), median_s=median_s)
    seconds = _play(policy, slots)
    lengths = [policy.waits[index, 0] for index in range(EPISODES)]
    return seconds / ideal_seconds(lengths, slots)


def _play(policy: Policy, slots: int) -> float:
    env = llm_envs.make("math-2agent", grader=exact, max_rounds=4)
    started = time.perf_counter()
    asyncio.run(collect(env.unwrapped.fork, Team.single(policy), make_jobs(range(EPISODES), 1, 0), concurrency=slots))
    return time.perf_counter() - started
