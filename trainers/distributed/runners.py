"""Environment runners: processes that play episodes, and who gives them their jobs.

A job is handed to one runner at a time. If that dies, the job is handed to another, which plays it from its beginning
with the same seed; what the first has played of it is lost with it. So every job ends in exactly one episode.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray

import llm_envs
from trainers.config import TrainConfig
from trainers.distributed.cluster import engine_groups
from trainers.distributed.engines import EnginePolicy, Engines, Weights
from trainers.distributed.pool import Pool, WorkersLostError
from trainers.policies.base import Policy, make_policy
from trainers.quiet import quieten_libraries
from trainers.rollout.episodes import DEFAULT_STEP_THREADS, RunEpisode
from trainers.rollout.player import Job
from trainers.rollout.records import Episode
from trainers.run_folder import RunError
from trainers.team import Team

__all__ = ["Runner", "Served", "play"]


@dataclass(frozen=True, slots=True)
class Served:
    """Who answers requests.

    Attributes:
        engines: The engines.
        weights: The weights of each policy that has engines.
    """

    engines: Engines
    weights: Mapping[str, Weights | None]


class Runner:
    """The actor. It has as many environments as it plays episodes at a time, and uses them again.

    Args:
        config: The configuration of the run.
        labels: What each policy that has engines is called in reports.
    """

    def __init__(self, config: TrainConfig, labels: Mapping[str, str]) -> None:
        quieten_libraries()
        self._config = config
        self._labels = labels
        self._generation = -1
        self._team: Team | None = None
        self._env: Any = None
        self._free: list[Any] = []
        self._threads: ThreadPoolExecutor | None = None

    async def ready(self) -> dict[str, Any]:
        """Make the environment and the team, and say where they are."""
        self._start()
        return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}

    async def play(self, job: Job, served: Served, run: RunEpisode) -> Episode:
        """Play one job with these engines and weights of the policies that have any."""
        team = self._start()
        self._use(team, served.engines)
        for name, wanted in served.weights.items():
            policy = team.policies[name]
            assert isinstance(policy, EnginePolicy)  # noqa: S101  (for the type checker)
            policy.use(wanted)
        env = self._free.pop() if self._free else self._env.fork()
        episode = await run(env, team, job, executor=self._threads)
        if episode.error is None:
            self._free.append(env)
        else:
            env.close()
        return episode

    def _use(self, team: Team, engines: Engines) -> None:
        """Send requests to these engines from now on; those that are under way end where they are."""
        if engines.generation == self._generation:
            return
        self._generation = engines.generation
        for group, names in engine_groups(self._config.policies).items():
            pool = Pool(engines.actors[group], "engine", self._config.cluster.attempts)
            for name in names:
                policy = team.policies[name]
                assert isinstance(policy, EnginePolicy)  # noqa: S101  (for the type checker)
                policy.pool = pool

    def _start(self) -> Team:
        if self._team is not None:
            return self._team
        config = self._config
        self._env = llm_envs.make(config.env.id, order_enforcing=False, **config.env.arguments()).unwrapped
        if self._env.blocking:
            self._threads = ThreadPoolExecutor(DEFAULT_STEP_THREADS, thread_name_prefix="env-step")
        nobody = Pool([], "engine", config.cluster.attempts)  # which are there is said with every job
        policies: dict[str, Policy] = {}
        for name, policy in config.policies.items():
            if name in self._labels:
                policies[name] = EnginePolicy(name, policy.spec, self._labels[name], nobody)
            else:
                policies[name] = make_policy(policy.spec, **policy.engine)
        self._team = Team(
            policies=policies,
            roles=config.role_map(),
            sampling={name: policy.sampling.build() for name, policy in config.policies.items()},
        )
        return self._team


async def play(
    runners: Pool,
    team: Team,
    jobs: Sequence[Job],
    engines: Engines,
    *,
    concurrency: int,
    on_episode: Callable[[Episode], None] | None,
    run: RunEpisode,
) -> list[Episode]:
    """Have all jobs played by runners and return their episodes in the order of ``jobs``.

    Args:
        runners: The runners.
        team: Who plays; the weights that its policies have now are those that play.
        jobs: What to play.
        engines: The engines of these policies.
        concurrency: Episodes in flight, over all runners.
        on_episode: Called with every finished episode.
        run: Plays one job.

    Raises:
        RunError: A job was lost with as many runners as may be, or no runner could be restarted.
        ValueError: Two jobs have the same task and sample.
    """
    if len({(job.task_index, job.sample) for job in jobs}) != len(jobs):
        raise ValueError("Two jobs have the same task index and sample; every episode may be played once")
    weights = {name: p.weights for name, p in team.policies.items() if isinstance(p, EnginePolicy)}
    served = Served(engines, weights)
    done: dict[int, Episode] = {}
    waiting = iter(enumerate(jobs))

    async def work() -> None:
        for number, job in waiting:
            episode = await runners.call("play", job, served, run)
            done[number] = episode
            if on_episode is not None:
                on_episode(episode)

    workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(jobs)))]
    try:
        await asyncio.gather(*workers)
    except WorkersLostError as problem:
        raise RunError(str(problem)) from problem
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [done[number] for number in range(len(jobs))]
