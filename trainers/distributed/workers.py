"""The workers of a run on a Ray cluster, as a trainer asks them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from trainers.config import ConfigError, TrainConfig
from trainers.distributed import runners as runner_module
from trainers.distributed.cluster import Placement, check, connect, engine_groups, plan, reserve
from trainers.distributed.engines import Engine, EnginePolicy, EngineSync, Sampler
from trainers.distributed.learners import RayLearner
from trainers.distributed.pool import Pool
from trainers.distributed.runners import Runner
from trainers.members import Member, loras_by_engine, sampler_options
from trainers.policies.base import make_policy
from trainers.rollout.episodes import RunEpisode, run_episode
from trainers.rollout.player import Job
from trainers.rollout.records import Episode
from trainers.run_folder import RunError
from trainers.team import Team
from trainers.workers import Workers

__all__ = ["RayWorkers"]

logger = logging.getLogger(__name__)


class RayWorkers(Workers):
    """Puts environments, samplers and learners on a Ray cluster.

    Args:
        address: See :func:`trainers.distributed.cluster.connect`.

    Attributes:
        runners: The environment runners.
        engines: The engines of each group of policies.
        learners: The learner of each policy that learns.

    Raises:
        ConfigError: No cluster could be reached or started.
    """

    runners: Pool

    def __init__(self, address: str) -> None:
        self._connected = connect(address)
        self._placement: Placement | None = None
        self.engines: dict[str, Pool] = {}
        self.learners: dict[str, RayLearner] = {}

    def check(self, config: TrainConfig) -> None:
        """Check that the run can be placed on this cluster.

        Raises:
            ConfigError: It asks for more than there is, or for what has no place on a cluster.
        """
        if config.algorithm.build().critic is not None:
            raise ConfigError(
                f"algorithm.preset {config.algorithm.preset!r} has a critic, which is not divided over a cluster: run "
                "it without --cluster"
            )
        if config.max_staleness:
            raise ConfigError(
                f"max_staleness is {config.max_staleness}: on a cluster an update waits for its batch. Set it to 0, or "
                "run without --cluster"
            )
        for name, policy in config.policies.items():
            if policy.engine.get("transfer") in ("ipc", "nccl"):
                raise ConfigError(
                    f"policies.{name}.engine.transfer is {policy.engine['transfer']!r}: on a cluster weights come to "
                    "engines through the object store. Drop it, or run without --cluster"
                )
        check(plan(config))

    async def build(self, config: TrainConfig, scratch: Path) -> dict[str, Member]:
        """Start all workers, and wait until every one of them has loaded what it needs."""
        self._placement = reserve(plan(config), config)
        try:
            return await self._build(config, self._placement)
        except BaseException:
            await self.close({})
            raise

    async def _build(self, config: TrainConfig, placement: Placement) -> dict[str, Member]:
        groups = engine_groups(config.policies)
        loras = loras_by_engine(config.policies)
        for group, names in groups.items():
            samplers = {
                name: Sampler(
                    config.policies[name].spec,
                    sampler_options(config.policies[name], loras),
                    config.policies[name].lora is not None,
                )
                for name in names
            }
            actors = [
                self._actor(Engine, placement, "engine", group, number, config).remote(samplers, config.threads)
                for number in range(config.cluster.engines)
            ]
            self.engines[group] = Pool(actors, "engine", config.cluster.attempts)
        self.learners = {
            name: RayLearner(name, config, placement) for name, policy in config.policies.items() if policy.trainable
        }
        labels: dict[str, str] = {}
        starting = [asyncio.to_thread(learner.start) for learner in self.learners.values()]
        found = asyncio.gather(*(_ready(pool.actors) for pool in self.engines.values()))
        await asyncio.gather(found, *starting)
        for where in found.result():
            labels |= where[0]["labels"]
        pools = {name: self.engines[group] for group, names in groups.items() for name in names}
        handles = {name: (labels[name], pool.actors) for name, pool in pools.items()}
        actors = [
            self._actor(Runner, placement, "runner", "", number, config).remote(config, handles)
            for number in range(config.cluster.runners)
        ]
        self.runners = Pool(actors, "runner", config.cluster.attempts)
        await _ready(actors)
        members = {}
        for name, policy in config.policies.items():
            if name not in pools:
                members[name] = Member(name, policy, make_policy(policy.spec, **sampler_options(policy, loras)))
                continue
            sampler = EnginePolicy(name, policy.spec, labels[name], pools[name])
            members[name] = Member(name, policy, sampler)
            if name in self.learners:
                members[name].learner, members[name].sync = self.learners[name], EngineSync(sampler)
        return members

    def _actor(self, cls: type, placement: Placement, kind: str, owner: str, number: int, config: TrainConfig) -> Any:
        return ray.remote(cls).options(
            **placement.options(kind, owner, number),
            max_restarts=-1,
            max_concurrency=max(1000, config.concurrency + 8),
        )

    async def play(
        self,
        make_env: Callable[[], Any],
        team: Team,
        jobs: Sequence[Job],
        *,
        concurrency: int,
        on_episode: Callable[[Episode], None] | None = None,
        run: RunEpisode = run_episode,
    ) -> list[Episode]:
        """Have all jobs played by the runners, which make their own environments."""
        return await runner_module.play(
            self.runners, team, jobs, concurrency=concurrency, on_episode=on_episode, run=run
        )

    async def close(self, members: dict[str, Member]) -> None:
        """End all workers and give their room back."""
        await super().close(members)
        pools = [*self.engines.values(), *([self.runners] if hasattr(self, "runners") else [])]
        for pool in pools:
            pool.close()
            for actor in pool.actors:
                ray.kill(actor)
        for learner in self.learners.values():
            learner.stop()
        if self._placement is not None:
            self._placement.remove()
        if self._connected:
            ray.shutdown()


async def _ready(actors: Sequence[Any]) -> list[dict[str, Any]]:
    """Wait until workers have started; one that dies of it is not waited for."""
    try:
        return list(await asyncio.gather(*(actor.ready.remote() for actor in actors)))
    except RayTaskError as problem:
        cause = getattr(problem, "cause", None)
        raise (cause if isinstance(cause, Exception) else problem) from problem
    except RayActorError as problem:
        raise RunError(f"A worker died while it started: {problem}") from problem
