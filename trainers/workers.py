"""Where the models and the environments of a run are: in this process, or wherever a subclass puts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainers.config import ConfigError, TrainConfig
from trainers.members import Member, build_members, close_members
from trainers.policy_checks import check_devices, check_transfers
from trainers.rollout.episodes import RunEpisode, collect, run_episode
from trainers.rollout.player import Job
from trainers.rollout.records import Episode
from trainers.team import Team

__all__ = ["Workers", "make_workers"]


class Workers:
    """Loads the models of a run and plays its episodes, in this process.

    A trainer asks only this class, so the same loop runs on a cluster (:class:`trainers.distributed.RayWorkers`).
    """

    def check(self, config: TrainConfig) -> None:
        """Check, before anything is loaded, that a run can be placed.

        Raises:
            ConfigError: It cannot.
        """
        check_transfers(config)
        check_devices(config)

    async def build(self, config: TrainConfig, scratch: Path) -> dict[str, Member]:
        """Load every policy; see :func:`trainers.members.build_members`."""
        return await build_members(config, scratch)

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
        """Play all jobs and return their episodes in the order of ``jobs``; see :func:`~.episodes.collect`."""
        return await collect(make_env, team, jobs, concurrency=concurrency, on_episode=on_episode, run=run)

    async def balance(self) -> dict[str, float]:
        """Give devices to who needs them more, between the batch that was just collected and its update.

        Returns:
            Metrics; none where all is in this process and stays where it is.
        """
        return {}

    async def close(self, members: dict[str, Member]) -> None:
        """Close the policies and free what they were placed on."""
        await close_members(members)


def make_workers(cluster: str | None) -> Workers:
    """Return the workers of this process, or those of a Ray cluster.

    Args:
        cluster: Address of the cluster (:func:`trainers.distributed.cluster.connect`); None is this process.

    Raises:
        ConfigError: Ray is not installed, or no cluster could be reached or started.
    """
    if cluster is None:
        return Workers()
    try:
        from trainers.distributed.workers import RayWorkers
    except ModuleNotFoundError as problem:
        if problem.name != "ray":
            raise
        raise ConfigError("A cluster needs Ray: `pip install 'llm-envs[ray]'`, or leave --cluster out.") from problem
    return RayWorkers(cluster)
