"""What an update is made of: tasks from the cursor, played as the algorithm samples; more where they say nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llm_envs.tasks import stable_hash
from trainers.algorithms.advantages import has_signal
from trainers.algorithms.algorithm import Algorithm
from trainers.algorithms.scores import TurnBatch
from trainers.algorithms.shaping import may_train
from trainers.config import TrainConfig
from trainers.cursor import TaskCursor
from trainers.rollout.episodes import RunEpisode, collect, make_jobs, run_episode
from trainers.rollout.records import Episode
from trainers.rollout.tree import TreeSampling, run_tree
from trainers.run_folder import RunError
from trainers.team import Team

__all__ = ["Collector"]


class Collector:
    """Collects the episodes, or trees, of one update after the other.

    **Dynamic sampling** (DAPO, arXiv 2503.14476): as long as fewer tasks of the batch than ``tasks_per_update`` have a
    turn with signal (:func:`trainers.algorithms.advantages.has_signal`) of a policy that learns, as many further tasks
    are played, in at most ``dynamic_sampling`` further rounds. Nothing is dropped from what was collected, so the
    metrics of the batch are those of everything that was played; the turns without signal are left out of the update.

    Args:
        make_env: Makes one environment.
        algorithm: How to sample and compare.
        config: Tasks, samples, rounds, concurrency and seed.
        on_episode: Called with every finished episode.
        play: Plays jobs, as :func:`trainers.rollout.episodes.collect` does.
    """

    def __init__(
        self,
        make_env: Callable[[], Any],
        algorithm: Algorithm,
        config: TrainConfig,
        on_episode: Callable[[Episode], None] | None = None,
        *,
        play: Callable[..., Awaitable[list[Episode]]] = collect,
    ) -> None:
        self._play_jobs = play
        self._make_env = make_env
        self._algorithm = algorithm
        self._config = config
        self._on_episode = on_episode
        self._samples, self._run = _sampling(algorithm, config.samples_per_task)

    async def collect(
        self, team: Team, cursor: TaskCursor, update: int, learning: Collection[str]
    ) -> tuple[list[Episode], dict[str, float]]:
        """Play the next tasks.

        Args:
            team: Who plays.
            cursor: Where the tasks come from; it moves on.
            update: Number of the update: part of the seed.
            learning: The policies that learn from it. What a frozen one might learn is no reason to keep a task.

        Returns:
            The episodes, and what dynamic sampling did (nothing where it is off).

        Raises:
            RunError: Not one episode could be played.
        """
        rounds = self._config.dynamic_sampling
        episodes = await self._play(team, cursor.next(), update, 0)
        if not rounds:
            return episodes, {}
        refills = 0
        informative = self._informative_tasks(episodes, learning)
        while refills < rounds and (missing := self._config.tasks_per_update - informative) > 0:
            played = {episode.task_index for episode in episodes}
            tasks = [index for index in cursor.next(missing) if index not in played]
            refills += 1
            if tasks:
                episodes += await self._play(team, tasks, update, refills)
                informative = self._informative_tasks(episodes, learning)
        played = {episode.task_index for episode in episodes}
        return episodes, {
            "train/refills": float(refills),
            "train/tasks_played": float(len(played)),
            "train/tasks_with_signal": float(informative),
        }

    def kept(self, episodes: list[Episode]) -> NDArray[np.bool_] | None:
        """Which turns the update is made of: those with signal where sampling is dynamic; None is all.

        Cut answers are none of them where the algorithm masks these.
        """
        if self._config.dynamic_sampling:
            return has_signal(TurnBatch.of(episodes), self._algorithm)
        return may_train(TurnBatch.of(episodes), self._algorithm) if self._algorithm.overlong == "mask" else None

    async def _play(self, team: Team, tasks: list[int], update: int, refill: int) -> list[Episode]:
        parts = (update,) if refill == 0 else (update, refill)
        jobs = make_jobs(tasks, self._samples, stable_hash("collect", self._config.seed, *parts) >> 1)
        episodes = await self._play_jobs(
            self._make_env,
            team,
            jobs,
            concurrency=self._config.concurrency,
            on_episode=self._on_episode,
            run=self._run,
        )
        if all(episode.error is not None for episode in episodes):
            raise RunError(f"Not one episode of the batch could be played. The first failed with: {episodes[0].error}")
        return episodes

    def _informative_tasks(self, episodes: list[Episode], learning: Collection[str]) -> int:
        batch = TurnBatch.of(episodes)
        signal = has_signal(batch, self._algorithm)
        rows = zip(batch.turns, batch.episodes, signal, strict=True)
        return len({episode.task for turn, episode, says in rows if says and turn.policy in learning})


def _sampling(algorithm: Algorithm, samples: int) -> tuple[int, RunEpisode]:
    """Jobs a task, and what plays one: ``samples`` episodes, or one tree with ``samples`` candidates a turn."""
    if algorithm.sampling == "episodes":
        return samples, run_episode
    tree = TreeSampling(samples, algorithm.choose, algorithm.choose_temperature, algorithm.team_weight)
    return 1, partial(run_tree, sampling=tree)
