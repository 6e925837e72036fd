"""Many independent episodes, played continuously: each goes on as soon as its own turn is answered.

There is no barrier between episodes or agents. How one episode is played is in :mod:`trainers.rollout.player`; here is
which are in flight, on how many environments, and what happens when one fails. Environments whose steps block (code
execution, grading) are stepped in a bounded pool of threads, off the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from llm_envs.tasks import stable_hash
from trainers.rollout.player import Job, run_episode
from trainers.rollout.records import Episode
from trainers.team import Team

__all__ = ["Job", "TooManyFailuresError", "collect", "make_jobs", "pending", "play", "run_episode"]

DEFAULT_STEP_THREADS = 32

RunEpisode = Callable[..., Awaitable[Episode]]
"""Plays one job, called as ``run(env, team, job, executor=pool)``."""


class TooManyFailuresError(RuntimeError):
    """So many episodes failed one after the other that going on makes no sense (a server is down, say)."""


def make_jobs(task_indices: Iterable[int], samples: int, seed: int) -> list[Job]:
    """Return ``samples`` jobs for each task, sorted as given, with seeds that depend on ``seed`` and the task alone."""
    return [
        Job(index, sample, job_seed)
        for index in task_indices
        for job_seed in [stable_hash("job", seed, index) >> 32]
        for sample in range(samples)
    ]


def pending(jobs: Iterable[Job], done: Iterable[tuple[int, int]]) -> Iterator[Job]:
    """Return, lazily, the jobs whose (task index, sample) is not among ``done``."""
    finished = set(done)
    return (job for job in jobs if (job.task_index, job.sample) not in finished)


async def collect(
    make_env: Callable[[], Any],
    team: Team,
    jobs: Sequence[Job],
    *,
    concurrency: int = 64,
    on_episode: Callable[[Episode], None] | None = None,
    step_threads: int = DEFAULT_STEP_THREADS,
    max_failures_in_a_row: int | None = None,
    run: RunEpisode = run_episode,
) -> list[Episode]:
    """Play all jobs and return their episodes in the order of ``jobs``.

    An episode whose request or environment fails has ``error`` set and all its turns masked; the others go on. The
    arguments are those of :func:`play`.
    """
    position = {(job.task_index, job.sample): number for number, job in enumerate(jobs)}
    if len(position) != len(jobs):
        raise ValueError("Two jobs have the same task index and sample; every episode may be played once")
    done: list[Episode | None] = [None] * len(jobs)

    def keep(episode: Episode) -> None:
        done[position[episode.task_index, episode.sample]] = episode
        if on_episode is not None:
            on_episode(episode)

    await play(
        make_env,
        team,
        jobs,
        keep,
        concurrency=concurrency,
        step_threads=step_threads,
        max_failures_in_a_row=max_failures_in_a_row,
        run=run,
    )
    return [episode for episode in done if episode is not None]


async def play(
    make_env: Callable[[], Any],
    team: Team | Callable[[Job], Team],
    jobs: Iterable[Job],
    on_episode: Callable[[Episode], None],
    *,
    concurrency: int = 64,
    step_threads: int = DEFAULT_STEP_THREADS,
    max_failures_in_a_row: int | None = None,
    run: RunEpisode = run_episode,
) -> None:
    """Play all jobs and hand each episode over when it ends; nothing is kept, so memory does not grow with the jobs.

    Args:
        make_env: Makes one AEC environment. Each of them plays one episode after the other and is replaced after a
            failure, so there are ``concurrency`` of them at a time.
        team: Who plays which agent; or a function that says so for each job.
        jobs: What to play. Read as episodes start, in order.
        on_episode: Called in the event loop with every finished or failed episode. What it raises ends the rollout.
        concurrency: Number of episodes in flight.
        step_threads: Upper bound on environment steps that run at once, for environments that block.
        max_failures_in_a_row: Give up after this many failed episodes with no success in between; None never does.
        run: Plays one job: :func:`run_episode`, or :func:`trainers.rollout.tree.run_tree` with its sampling.

    Raises:
        TeamError: If the team, or that of the first job, does not fit the environment; before anything is asked.
        TooManyFailuresError: See ``max_failures_in_a_row``. Every episode until then was handed over.
        ValueError: If ``concurrency`` or ``step_threads`` is less than 1.
    """
    for name, value in (("concurrency", concurrency), ("step_threads", step_threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
    queue = iter(jobs)
    first = next(queue, None)
    if first is None:
        return
    team_of = team if callable(team) else lambda job: team
    envs = [make_env()]
    pool: ThreadPoolExecutor | None = None
    workers: list[asyncio.Task[None]] = []
    try:
        team_of(first).check(envs[0].possible_agents)
        if envs[0].unwrapped.blocking:
            pool = ThreadPoolExecutor(min(step_threads, concurrency), thread_name_prefix="env-step")
        failures = _Failures(max_failures_in_a_row)

        async def work(env: Any, job: Job | None) -> None:
            while job is not None:
                episode = await run(env, team_of(job), job, executor=pool)
                on_episode(episode)
                failures.count(episode)
                failed = episode.error is not None
                del episode  # or it would be held until the next one ends
                job = next(queue, None)
                if failed and job is not None:
                    env = make_env()
                    envs.append(env)

        workers.append(asyncio.create_task(work(envs[0], first)))
        for _ in range(concurrency - 1):
            job = next(queue, None)
            if job is None:
                break
            envs.append(make_env())
            workers.append(asyncio.create_task(work(envs[-1], job)))
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        for env in envs:
            env.close()


class _Failures:
    """Counts failed episodes in a row."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._in_a_row = 0

    def count(self, episode: Episode) -> None:
        self._in_a_row = 0 if episode.error is None else self._in_a_row + 1
        if self._limit is not None and self._in_a_row >= self._limit:
            raise TooManyFailuresError(
                f"{self._in_a_row} episodes failed one after the other, the last one with: {episode.error}"
            )
