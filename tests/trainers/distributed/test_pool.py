"""Calls to workers that die: each has one outcome, wherever it is made, and gives up when nobody is left."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.exceptions import RayActorError

from trainers.distributed.engines import Engines
from trainers.distributed.pool import SLACK, Pool, WorkersLostError
from trainers.distributed.runners import play
from trainers.policies.scripted import RandomPolicy
from trainers.rollout.episodes import make_jobs
from trainers.rollout.records import Episode
from trainers.run_folder import RunError
from trainers.team import Team

TEAM = Team.single(RandomPolicy())
NO_ENGINES = Engines(0, {})


class Method:
    """A method of an actor, as Ray has it."""

    def __init__(self, function):
        self._function = function

    def options(self, **options):
        return self

    def remote(self, *args):
        return asyncio.ensure_future(self._function(*args))


class Worker:
    """An actor that dies when it is told to, and is back when it is asked whether it is ready."""

    def __init__(self, deaths=(), restarts=True):
        self.calls = []
        self._deaths = set(deaths)
        self._restarts = restarts
        self.alive = True
        self.answered = asyncio.Event()
        self.hold = None

    @property
    def ready(self):
        return Method(self._ready)

    @property
    def work(self):
        return Method(self._work)

    @property
    def play(self):
        return Method(self._play)

    async def _ready(self):
        await asyncio.sleep(0)
        if not self._restarts:
            raise RayActorError
        self.alive = True

    async def _work(self, value):
        self.calls.append(value)
        if not self.alive or len(self.calls) - 1 in self._deaths:
            self.alive = False
            raise RayActorError
        if self.hold is not None:
            await self.hold.wait()
        await asyncio.sleep(0)
        return value * 2

    async def _play(self, job, served, run):
        await self._work(job.task_index)
        name = f"{job.task_index}#{job.sample}"
        return Episode(name, "env", str(job.task_index), job.task_index, "", job.sample, job.seed)


async def test_a_call_goes_to_another_worker_when_its_own_dies():
    dying, other = Worker(deaths={0}), Worker()
    pool = Pool([dying, other], "engine", attempts=3)
    assert await pool.call("work", 21, home=0) == 42
    assert (dying.calls, other.calls) == ([21], [21])


async def test_a_worker_that_is_back_gets_calls_again():
    worker = Worker(deaths={0, 2})
    pool = Pool([worker], "engine", attempts=2)
    assert [await pool.call("work", n) for n in range(3)] == [0, 2, 4]
    assert worker.calls == [0, 0, 1, 1, 2]


async def test_a_call_that_kills_every_worker_is_given_up():
    pool = Pool([Worker(deaths=range(9)), Worker(deaths=range(9))], "engine", attempts=4)
    with pytest.raises(WorkersLostError, match=r"4 engines died one after the other.*`work`"):
        await pool.call("work", 1)


async def test_workers_that_cannot_be_restarted_are_no_reason_to_wait():
    pool = Pool([Worker(deaths={0}, restarts=False)], "runner", attempts=4)
    with pytest.raises(WorkersLostError, match="runner 0 could not be restarted"):
        await pool.call("work", 1)


async def test_calls_of_one_home_stay_together_until_that_is_too_busy():
    first, second = Worker(), Worker()
    first.hold = second.hold = asyncio.Event()
    pool = Pool([first, second], "engine", attempts=1)
    calls = [asyncio.create_task(pool.call("work", n, home=0)) for n in range(SLACK + 3)]
    while len(first.calls) + len(second.calls) < len(calls):
        await asyncio.sleep(0)
    assert first.calls == [*range(SLACK + 1), SLACK + 2]
    assert second.calls == [SLACK + 1]
    first.hold.set()
    await asyncio.gather(*calls)


async def test_other_workers_get_the_calls_when_none_is_under_way():
    first, second, third = Worker(), Worker(deaths={0}), Worker()
    pool = Pool([first, second], "engine", attempts=3)
    assert await pool.call("work", 1, home=1) == 2  # the second dies of it
    pool.replace([second, third])
    assert await pool.call("work", 2, only=0) == 4
    assert await pool.call("work", 3, only=1) == 6
    assert (first.calls, second.calls, third.calls) == ([1], [1, 2], [3])
    third.hold = asyncio.Event()
    running = asyncio.create_task(pool.call("work", 4, only=1))
    while len(third.calls) < 2:
        await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="1 calls of engines are under way"):
        pool.replace([first])
    third.hold.set()
    assert await running == 8


async def test_calls_without_a_home_are_spread():
    workers = [Worker() for _ in range(3)]
    for worker in workers:
        worker.hold = asyncio.Event()
    pool = Pool(workers, "runner", attempts=1)
    calls = [asyncio.create_task(pool.call("work", n)) for n in range(9)]
    while sum(len(worker.calls) for worker in workers) < 9:
        await asyncio.sleep(0)
    assert [len(worker.calls) for worker in workers] == [3, 3, 3]
    for worker in workers:
        worker.hold.set()
    await asyncio.gather(*calls)


@given(
    deaths=st.lists(st.sets(st.integers(0, 12), max_size=4), min_size=1, max_size=4),
    tasks=st.integers(1, 6),
    concurrency=st.integers(1, 9),
)
@settings(max_examples=40, deadline=None)
def test_every_job_ends_in_one_episode_whoever_dies(deaths, tasks, concurrency):
    async def run():
        workers = [Worker(deaths=when) for when in deaths]
        pool = Pool(workers, "runner", attempts=20)
        jobs = make_jobs(range(tasks), 3, seed=0)
        seen = []
        episodes = await play(pool, TEAM, jobs, NO_ENGINES, concurrency=concurrency, on_episode=seen.append, run=None)
        assert [(e.task_index, e.sample) for e in episodes] == [(job.task_index, job.sample) for job in jobs]
        assert sorted(e.id for e in seen) == sorted(e.id for e in episodes)
        played = sum(len(worker.calls) for worker in workers)
        assert len(jobs) <= played

    asyncio.run(run())


async def test_a_job_that_kills_its_runners_ends_the_run():
    pool = Pool([Worker(deaths=range(99))], "runner", attempts=3)
    with pytest.raises(RunError, match="3 runners died"):
        await play(pool, TEAM, make_jobs([0], 1, 0), NO_ENGINES, concurrency=1, on_episode=None, run=None)


async def test_no_job_is_given_twice():
    job = make_jobs([0], 1, 0)[0]
    with pytest.raises(ValueError, match="the same task index and sample"):
        await play(
            Pool([Worker()], "runner", 1), TEAM, [job, job], NO_ENGINES, concurrency=1, on_episode=None, run=None
        )
