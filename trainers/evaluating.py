"""Evaluation during training: on tasks that are not trained on, or in a game against a scripted opponent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from llm_envs import rewards
from llm_envs.tasks import stable_hash
from trainers.config import ConfigError, TrainConfig
from trainers.policies.base import MissingBackendError, Policy, PolicyError, PolicySpecError, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Episode
from trainers.run_folder import RunError
from trainers.team import EVERYONE, Team

__all__ = ["Evaluator"]

MakeEnv = Callable[..., Any]
"""Makes the unwrapped environment that is trained on, with another ``split`` or other ``tasks`` if given."""


class Evaluator:
    """Plays the evaluation that a configuration asks for. Episodes are plain ones, also where training samples trees.

    **Held-out tasks**: the first of the split. Metrics: ``eval/success``, ``eval/team_return``.

    **An opponent**, in a zero-sum game: each seat that a policy learns to play is played by that policy, all others by
    the opponent, on the same deals. Metrics, over all seats and of each: ``eval/win``, ``eval/draw``, ``eval/loss``
    (shares of the episodes; who is paid more than 0 has won), ``eval/forfeit`` (the share that was lost by unusable
    text, part of the losses), ``eval/return``.

    A failed episode is counted and is no part of the means.

    Args:
        config: The configuration.
        env: The environment that is trained on, without wrappers.
        make_env: Makes the environment of another split or task set.

    Raises:
        ConfigError: The tasks are trained on; the opponent does not know the environment, or it is no zero-sum game.
    """

    def __init__(self, config: TrainConfig, env: Any, make_env: MakeEnv) -> None:
        self._config = config
        self._settings = config.evaluation
        self._opponent: Policy | None = None
        if not self._settings.every:
            return
        if self._settings.opponent is not None:
            self._env, self._opponent = env, _make_opponent(self._settings.opponent, env)
        else:
            if env.metadata.get("zero_sum"):
                raise ConfigError(
                    f"evaluation: {config.env.id} is a game, which has no tasks to hold out. Name who is played "
                    "against: `evaluation.opponent: random`"
                )
            other = {} if self._settings.task_set is None else {"tasks": self._settings.task_set}
            self._env = make_env(split=self._settings.split, **other)
            _check_held_out(self._env.tasks[: self._settings.tasks], env.tasks, config)

    async def evaluate(self, team: Team) -> dict[str, float]:
        """Play, and return the metrics; none where nothing is evaluated.

        Raises:
            RunError: Not one episode could be played.
        """
        if not self._settings.every:
            return {}
        if self._opponent is None:
            played, metrics = await self._play(team, "evaluation")
            return metrics | {
                "eval/success": float(np.mean([episode.success for episode in played])),
                "eval/team_return": float(np.mean([episode.team_return for episode in played])),
            }
        results: dict[str, dict[str, float]] = {}
        counts: list[dict[str, float]] = []
        for agent in self._seats(team):
            played, metrics = await self._play(_against(team, agent, self._opponent), f"evaluation of {agent}")
            results[agent] = _outcomes(played, agent)
            counts.append(metrics)
        found = {name: sum(metrics[name] for metrics in counts) for name in counts[0]}
        found |= {f"eval/{name}": float(np.mean([r[name] for r in results.values()])) for name in _OUTCOMES}
        return found | {f"eval/{agent}/{name}": value for agent, r in results.items() for name, value in r.items()}

    def _seats(self, team: Team) -> list[str]:
        """The agents whose policies learn."""
        policies = self._config.policies
        return [agent for agent in self._env.possible_agents if policies[team.policy_name(agent)].trainable]

    async def _play(self, team: Team, name: str) -> tuple[list[Episode], dict[str, float]]:
        seed = stable_hash(name, self._config.seed) >> 1
        tasks = range(min(self._settings.tasks, len(self._env.tasks)))
        jobs = make_jobs(tasks, self._settings.samples, seed)
        episodes = await collect(self._env.fork, team, jobs, concurrency=self._config.concurrency)
        played = [episode for episode in episodes if episode.error is None]
        if not played:
            raise RunError(f"Not one evaluation episode could be played. The first failed with: {episodes[0].error}")
        counts = {"eval/episodes": len(episodes), "eval/failed_episodes": len(episodes) - len(played)}
        return played, {name: float(value) for name, value in counts.items()}


_OUTCOMES = ("win", "draw", "loss", "forfeit", "return")


def _outcomes(played: list[Episode], agent: str) -> dict[str, float]:
    """How ``agent`` did. Every episode weighs the same."""
    paid = np.array([rewards.team(episode.reward_parts[agent]) for episode in played])
    return {
        "win": float(np.mean(paid > 0)),
        "draw": float(np.mean(paid == 0)),
        "loss": float(np.mean(paid < 0)),
        "forfeit": float(np.mean([_forfeited(episode, agent) for episode in played])),
        "return": float(np.mean([episode.returns[agent] for episode in played])),
    }


def _forfeited(episode: Episode, agent: str) -> bool:
    said: Mapping[str, Any] = next((turn.info for turn in reversed(episode.turns) if turn.agent == agent), {})
    return said.get("forfeit") == agent


def _against(team: Team, agent: str, opponent: Policy) -> Team:
    """The team in which ``agent`` is who it is, and everybody else is the opponent."""
    name, policy, sampling = team.for_agent(agent)
    other = f"opponent {opponent.name}"
    return Team({name: policy, other: opponent}, {agent: name, EVERYONE: other}, {name: sampling})


def _make_opponent(spec: str, env: Any) -> Policy:
    if not env.metadata.get("zero_sum"):
        raise ConfigError(
            f"evaluation.opponent is {spec!r}, but in this environment nobody plays against anybody. Leave it out: the "
            "held-out tasks of evaluation.split are played"
        )
    try:
        opponent = make_policy(spec)
        opponent.check(env)
    except (PolicyError, PolicySpecError, MissingBackendError) as problem:
        raise ConfigError(f"evaluation.opponent: {problem}") from problem
    return opponent


def _check_held_out(held_out: Any, tasks: Any, config: TrainConfig) -> None:
    """Splits of a set are disjoint by construction; rows that were not split are all trained on."""
    other = config.evaluation.task_set is not None
    same = held_out.split == tasks.split and not other
    hashes = {task.hash for task in tasks} if other or "all" in (tasks.split, held_out.split) else set()
    seen = len(held_out) if same else sum(task.hash in hashes for task in held_out)
    if seen:
        raise ConfigError(
            f"evaluation.split {config.evaluation.split!r} is not held out: {seen} of its {len(held_out)} tasks are "
            f"trained on (env.split is {config.env.split!r}). Train on `split: train` and evaluate on `test`."
        )
