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
from trainers.distributed.engines import Engine, EnginePolicy, Engines, EngineSync, Sampler
from trainers.distributed.learners import RayLearner
from trainers.distributed.pool import Pool
from trainers.distributed.runners import Runner
from trainers.distributed.weight_groups import GroupTransfer, group_backend
from trainers.members import Member, loras_by_engine, sampler_options
from trainers.policies.base import make_policy
from trainers.rollout.episodes import RunEpisode, run_episode
from trainers.rollout.player import Job
from trainers.rollout.records import Episode
from trainers.run_folder import RunError
from trainers.scheduling.load import Balancer
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
    _config: TrainConfig

    def __init__(self, address: str) -> None:
        self._connected = connect(address)
        self._placement: Placement | None = None
        self.engines: dict[str, Pool] = {}
        self._balancer: Balancer | None = None
        self._samplers: dict[str, dict[str, Sampler]] = {}
        self._generation = 0
        self._load: dict[str, tuple[float, int]] = {}
        self.learners: dict[str, RayLearner] = {}

    def check(self, config: TrainConfig) -> None:
        """Check that the run can be placed on this cluster.

        Raises:
            ConfigError: It asks for more than there is, or for what has no place on a cluster.
        """
        if config.max_staleness and config.cluster.engines == "auto":
            raise ConfigError(
                f"max_staleness is {config.max_staleness} and cluster.engines is 'auto': engines change hands while "
                "none of them has work, and with overlap they always have. Give cluster.engines a number, or set "
                "max_staleness to 0"
            )
        if config.serving.mode != "resident":
            raise ConfigError(
                f"serving.mode is {config.serving.mode!r}: on a cluster engines and learners hold devices of their own "
                "(cluster.engine_gpus, cluster.learner_gpus). Drop it, or run without --cluster"
            )
        for name in config.policies:
            group_backend(name, config)
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
        self._config = config
        self._samplers = {
            group: {
                name: Sampler(
                    config.policies[name].spec,
                    _options(sampler_options(config.policies[name], loras)),
                    config.policies[name].lora is not None,
                )
                for name in names
            }
            for group, names in groups.items()
        }
        cluster = config.cluster
        if cluster.engine_pool is not None:
            self._balancer = Balancer(list(groups), cluster.engine_pool, cluster.balance_every, cluster.balance_gain)
        for group in groups:
            numbers = range(cluster.engines) if cluster.engines != "auto" else self._numbers(group)
            self.engines[group] = Pool([self._engine(group, n) for n in numbers], "engine", cluster.attempts)
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
        actors = [
            self._actor(Runner, "runner", "", number).remote(config, {name: labels[name] for name in pools})
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
                backend = group_backend(name, config)
                transfer = GroupTransfer(pools[name], name, config, backend) if backend else None
                members[name].learner, members[name].sync = self.learners[name], EngineSync(sampler, transfer)
                members[name].critic = self.learners[name].critic
        return members

    def _actor(self, cls: type, kind: str, owner: str, number: int) -> Any:
        assert self._placement is not None  # noqa: S101  (for the type checker)
        return ray.remote(cls).options(
            **self._placement.options(kind, owner, number),
            max_restarts=-1,
            max_concurrency=max(1000, self._config.concurrency + 8),
        )

    def _engine(self, group: str, number: int) -> Any:
        """Start an engine of a group, in its own slot or in one of the pool's."""
        owner = group if self._balancer is None else ""
        return self._actor(Engine, "engine", owner, number).remote(self._samplers[group], self._config.threads)

    def _numbers(self, group: str) -> list[int]:
        """The slots of the pool that a group has."""
        return [] if self._balancer is None else self._balancer.numbers(group)

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
        await self._usage()  # of proofs and evaluations
        engines = Engines(self._generation, {group: pool.actors for group, pool in self.engines.items()})
        episodes = await runner_module.play(
            self.runners, team, jobs, engines, concurrency=concurrency, on_episode=on_episode, run=run
        )
        for group, (seconds, tokens) in (await self._usage()).items():
            so_far = self._load.get(group, (0.0, 0))
            self._load[group] = so_far[0] + seconds, so_far[1] + tokens
        return episodes

    async def _usage(self) -> dict[str, tuple[float, int]]:
        """Seconds in which the engines of each group had requests, all together, and the tokens that they sampled."""
        found = {}
        for group, pool in self.engines.items():
            each = await asyncio.gather(*(pool.call("usage", only=i) for i in range(len(pool.actors))))
            found[group] = sum(seconds for seconds, _ in each), sum(tokens for _, tokens in each)
        return found

    async def balance(self) -> dict[str, float]:
        """Say what engines have done for the batch that was just collected; with a pool, let some change hands."""
        load, self._load = self._load, {}
        metrics = {}
        for group, (seconds, tokens) in load.items():
            metrics[f"time/engine_busy_s/{group}"] = seconds
            metrics[f"time/engine_tokens_per_s/{group}"] = tokens / seconds if seconds > 0 else 0.0
            metrics[f"time/engines/{group}"] = float(len(self.engines[group].actors))
        if self._balancer is not None:
            held = dict(self._balancer.held)
            changed = self._balancer.measured({group: seconds for group, (seconds, _) in load.items()})
            if changed:
                await self._move(held, changed)
        return metrics

    async def _move(self, held: dict[int, str], changed: dict[int, str]) -> None:
        """End engines and start those of other groups in their room; they are given weights as all the others are.

        Args:
            held: The group that each slot had.
            changed: The group that some have now.
        """
        at = {
            number: actor
            for group, pool in self.engines.items()
            for number, actor in zip(sorted(n for n, own in held.items() if own == group), pool.actors, strict=True)
        }
        for number in changed:
            ray.kill(at[number])
        started = {number: self._engine(group, number) for number, group in changed.items()}
        at |= started
        for group, pool in self.engines.items():
            pool.replace([at[number] for number in self._numbers(group)])
        self._generation += 1
        await _ready(list(started.values()))

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


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that a sampler is made with in its engine, which knows nothing of where its weights come from."""
    return {name: value for name, value in options.items() if name not in ("transfer", "transfer_timeout")}


async def _ready(actors: Sequence[Any]) -> list[dict[str, Any]]:
    """Wait until workers have started; one that dies of it is not waited for."""
    try:
        return list(await asyncio.gather(*(actor.ready.remote() for actor in actors)))
    except RayTaskError as problem:
        cause = getattr(problem, "cause", None)
        raise (cause if isinstance(cause, Exception) else problem) from problem
    except RayActorError as problem:
        raise RunError(f"A worker died while it started: {problem}") from problem
