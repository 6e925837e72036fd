"""A thousand episodes in flight: how much of what a policy can give the runner asks of it, and whether memory grows.

Three policies take a millisecond an answer. The *engine* gives one answer after the other, as one model does: it can
give 1,000 a second, and that is the ideal. The *busy* one computes for that millisecond in the runner's own thread, so
all that the runner does comes on top; the ideal is 1,000 answers a second of computing, and rates are taken by that
clock. The *waiting* one lets a thousand requests wait at once. By arithmetic that is a million answers a second, more
than an event loop has timers for. What can be had is measured: a bare loop of the same environment and the same waits,
in which nothing is recorded or stored.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.performance.measure import Measurement
from benchmarks.runner import RunSettings, run
from trainers.policies.base import Completion, Policy, Request
from trainers.policies.scripted import RandomPolicy
from trainers.rollout.episodes import Job, make_jobs
from trainers.rollout.records import Episode

__all__ = ["Busy", "Engine", "Waiting", "measure_load"]

AT_A_TIME = 1_000
ANSWER_S = 0.001
IDEAL_TARGET = 0.9
MEMORY_TARGET = 1.05
MEMORY_EPISODES = 25_000
WARM_UP_EPISODES = 5_000
GAME, TEAM = "kuhn-poker", "math-2agent"


class Engine(RandomPolicy):
    """Gives one answer a millisecond, in the order of the requests."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        super().__init__()
        self._answer_s = answer_s
        self._free_at = 0.0

    async def generate(self, request: Request) -> list[Completion]:
        """Wait for one's turn, then answer."""
        now = time.perf_counter()
        self._free_at = max(now, self._free_at) + self._answer_s
        await asyncio.sleep(self._free_at - now)
        return await super().generate(request)


class Busy(RandomPolicy):
    """Computes for a millisecond for each answer, in the runner's thread."""

    async def generate(self, request: Request) -> list[Completion]:
        """Compute, then answer."""
        until = time.thread_time() + ANSWER_S
        answer = await super().generate(request)
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0)  # so that others are in flight
        return answer


class Waiting(RandomPolicy):
    """Answers after a millisecond, whoever else is waiting."""

    async def generate(self, request: Request) -> list[Completion]:
        """Wait, then answer."""
        await asyncio.sleep(ANSWER_S)
        return await super().generate(request)


class Watch:
    """An observer that counts, and takes the time from the opening of the folder to the last episode.

    Args:
        marks: After how many episodes to look at the memory of this process.

    Attributes:
        turns: Answers.
        episodes: Episodes.
        seconds: The time.
        computing: In how much of it this process computed.
        resident: Bytes in memory at the marks.
    """

    def __init__(self, marks: Sequence[int] = ()) -> None:
        self.turns = self.episodes = 0
        self.seconds = self.computing = 0.0
        self.resident: list[int] = []
        self._marks = frozenset(marks)

    def loading(self, specs: Sequence[str]) -> None:
        """Nothing is loaded."""

    def start(self, path: Path, label: str, planned: int) -> None:
        """The folder is open."""
        self._started, self._computed = time.perf_counter(), time.process_time()

    def stored(self, task_index: int, success: bool) -> None:
        """Nothing is stored before."""

    def began(self, task_index: int, sample: int) -> None:
        """An episode begins."""

    def played(self, episode: Episode) -> None:
        """An episode ended."""
        self.turns += len(episode.turns)
        self.episodes += 1
        self.seconds = time.perf_counter() - self._started
        self.computing = time.process_time() - self._computed
        if self.episodes in self._marks:
            self.resident.append(resident_bytes())


def measure_load(repeats: int = 3, memory_episodes: int = MEMORY_EPISODES) -> list[Measurement]:
    """Measure throughput as shares of the ideal, the best of ``repeats`` tries, and the growth of memory.

    Args:
        repeats: Number of tries where the machine is the limit; those with an ideal of 1,000 a second have one each.
        memory_episodes: Episodes that memory is watched over. They are played in a process of their own, in which
            nothing that was freed before can hide a growth.
    """
    many = f"{AT_A_TIME:,} at a time"
    ideal = 1 / ANSWER_S
    engine = play_run(TEAM, 2 * AT_A_TIME, Engine())
    busy = play_run(GAME, 2 * AT_A_TIME, Busy())
    bare, waiting = 0.0, 0.0
    for _ in range(repeats):
        bare = max(bare, bare_rate(GAME, 5 * AT_A_TIME))
        watch = play_run(GAME, 5 * AT_A_TIME, Waiting())
        waiting = max(waiting, watch.turns / watch.computing)
    at_once = f"{many}, all wait 1 ms at once"
    return [
        Measurement(
            f"runner / ideal, {many}, a policy that gives an answer a ms ({TEAM})",
            engine.turns / engine.seconds / ideal, "x", IDEAL_TARGET,
        ),
        Measurement(
            f"runner / ideal, {many}, a policy that computes for 1 ms ({GAME})",
            busy.turns / busy.computing / ideal, "x", IDEAL_TARGET,
        ),
        Measurement(f"runner, {at_once} ({GAME})", waiting, "answers/s"),
        Measurement(f"runner / bare loop that keeps nothing, {at_once} ({GAME})", waiting / bare, "x"),
        Measurement(f"bare loop / arithmetic, {at_once} ({GAME})", bare * ANSWER_S / AT_A_TIME, "x"),
        Measurement(
            f"memory after {memory_episodes:,} episodes / after {WARM_UP_EPISODES:,}, {many}",
            memory_growth(WARM_UP_EPISODES, memory_episodes), "x", MEMORY_TARGET, at_most=True,
        ),
    ]  # fmt: skip


def play_run(env_id: str, episodes: int, policy: Policy, marks: Sequence[int] = ()) -> Watch:
    """Play a whole run with one policy, records and results folder and all; the folder is removed again.

    Raises:
        RuntimeError: If an episode failed.
    """
    watch = Watch(marks)
    tasks = min(len(llm_envs.make(env_id).unwrapped.tasks), 100)
    with tempfile.TemporaryDirectory() as folder:
        settings = RunSettings(
            env=env_id, policies=["random"], n=tasks, samples=episodes // tasks, concurrency=AT_A_TIME,
            out=Path(folder) / "run",
        )  # fmt: skip
        result = asyncio.run(run(settings, watch, make=lambda spec: policy))
    if not result.complete:
        raise RuntimeError(f"{result.failed} of {result.planned} episodes of {env_id} failed")
    return watch


def bare_rate(env_id: str, episodes: int) -> float:
    """Return the answers a second of computing of a loop that plays and waits, and records and stores nothing."""
    base: Any = llm_envs.make(env_id).unwrapped
    tasks = min(len(base.tasks), 100)
    jobs = iter(make_jobs(range(tasks), episodes // tasks, 0))
    policy = Waiting()
    settings = RunSettings(env=env_id, policies=["random"])
    turns = 0

    async def play(env: Any, job: Job) -> None:
        nonlocal turns
        env.reset(seed=job.seed, options={"task_index": job.task_index})
        while env.agents:
            agent = env.agent_selection
            _, _, terminated, truncated, _ = env.last(observe=False)
            if terminated or truncated:
                env.step(None)
                continue
            turns += 1
            request = Request(str(env.observe(agent)), agent, settings.sampling, turns, env=env)
            (answer,) = await policy.generate(request)
            env.step(answer.text)

    async def work() -> None:
        env = base.fork()
        for job in jobs:
            await play(env, job)

    async def play_all() -> None:
        await asyncio.gather(*(work() for _ in range(AT_A_TIME)))

    started = time.process_time()
    asyncio.run(play_all())
    return turns / (time.process_time() - started)


def memory_growth(warm_up: int, episodes: int) -> float:
    """Return the memory of a process after so many episodes by its memory after the warm-up."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        first, last = pool.submit(watch_memory, warm_up, episodes).result()
    return last / first


def watch_memory(*marks: int) -> list[int]:
    """Play a run; return the resident bytes of this process after each of so many episodes."""
    return play_run(GAME, max(marks), Waiting(), marks).resident


def resident_bytes() -> int:
    """Return how much memory this process has; where the system does not say, how much it had at most."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
