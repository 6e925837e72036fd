"""The training loop: collect, compare, update, bring the weights to the samplers, prove it, log, save.

The loop never asks which algorithm it runs: an :class:`~trainers.algorithms.algorithm.Algorithm` is data.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import llm_envs
from llm_envs.tasks import stable_hash
from trainers import checkpoint
from trainers.algorithms.advantages import compute_advantages, make_baseline
from trainers.algorithms.diagnostics import GradientSpike, GradientSpikes, batch_metrics
from trainers.batching import Sample, samples_by_policy
from trainers.collecting import Collector
from trainers.config import ConfigError, TrainConfig
from trainers.cursor import TaskCursor
from trainers.learner import Learner, NonFiniteGradient, UpdateMetrics
from trainers.members import Member, build_members, build_team, check_policies, close_members
from trainers.models import resolve_model
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Episode
from trainers.run_folder import RunError, find_run, note_config
from trainers.team import Team, TeamError, check_roles
from trainers.tracking import Tracker, plot, read_metrics
from trainers.weight_sync import SyncReport

__all__ = ["Progress", "RunError", "TrainResult", "Trainer"]

SCRATCH = ".adapters"
"""Folder of a run where samplers find adapters while it is under way."""
PROBE_TASKS = 2
"""Tasks whose first prompts the weight verification samples on."""


@dataclass(slots=True)
class Progress:
    """What happened in one update, for whoever watches.

    Attributes:
        update: The update, from 1; 0 is the check before the first.
        metrics: Everything that is logged.
        synced: The proof for each policy whose sampler was checked.
    """

    update: int
    metrics: dict[str, float] = field(default_factory=dict)
    synced: dict[str, SyncReport] = field(default_factory=dict)


@dataclass(slots=True)
class TrainResult:
    """Where a finished run is.

    Attributes:
        run_dir: Its folder: ``metrics.jsonl``, ``plot.png``, ``checkpoints/``, ``models/<policy>``, ``config.json``.
        plot: The PNG.
        metrics: The last update's metrics.
    """

    run_dir: Path
    plot: Path
    metrics: dict[str, float]


class Trainer:
    """One training run.

    Args:
        config: The configuration.
        run_dir: Where everything goes.
        resume: Go on from the newest checkpoint in ``run_dir``.
        on_progress: Called after every update.
        on_episode: Called with every finished episode.

    Raises:
        ConfigError: The configuration fits neither itself nor the environment.
        RunError: ``run_dir`` holds a run and ``resume`` is False; or ``resume`` is True and there is none, or one of
            another configuration.
    """

    members: dict[str, Member]
    team: Team

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        *,
        resume: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> None:
        self.config = config
        self.run_dir = run_dir
        self.algorithm = config.algorithm.build()
        self._on_progress = on_progress or (lambda progress: None)
        check_policies(config)
        if config.wandb and importlib.util.find_spec("wandb") is None:
            raise ConfigError("wandb is not installed: `pip install 'llm-envs[viz]'`, or leave `wandb` out.")
        self._resume = resume
        self._saved = find_run(run_dir, config, resume)
        self.update = 0
        self._baseline = make_baseline(self.algorithm)
        self._spikes = GradientSpikes(bound=config.max_gradient_spike)
        # One environment of each split is made and the others are forks of it: its tasks are read once.
        self._env = _make_env(config)
        self._tasks = self._env.tasks
        self._collector = Collector(self._env.fork, self.algorithm, config, on_episode)
        self._held_out = _make_env(config, config.evaluation.split) if config.evaluation.every else None
        try:
            check_roles(config.role_map(), self._env.possible_agents)
            self._cursor = TaskCursor(len(self._tasks), config.tasks_per_update, config.seed)
        except TeamError as problem:
            raise ConfigError(f"roles: {problem}") from problem
        except ValueError as problem:
            raise ConfigError(str(problem)) from problem
        if self._held_out is not None:
            _check_held_out(self._held_out_tasks(), self._tasks, config)

    async def run(self) -> TrainResult:
        """Train to the last update.

        Raises:
            WeightSyncError: A sampler does not hold the learner's weights.
            NonFiniteGradient: An agent's gradient is not finite. The checkpoints until then are good; the state at the
                stop is beside them, as ``checkpoints/stopped-…``.
            GradientSpike: An agent's gradient norm stands out by more than ``max_gradient_spike``.
            CheckpointError: A checkpoint could not be written or read.
            RunError: No episode of a batch could be played, or the tasks have changed since the run began.
        """
        if self.config.threads is not None:
            import torch

            torch.set_num_threads(self.config.threads)
        scratch = (self.run_dir / SCRATCH).resolve()
        self.members = await build_members(self.config, scratch)
        try:
            self.team = build_team(self.config, self.members)
            for name in self.members:
                self._agents_of(name)
            note_config(self.run_dir, self.config)
            return await self._loop()
        finally:
            await close_members(self.members)
            shutil.rmtree(scratch, ignore_errors=True)

    async def _loop(self) -> TrainResult:
        if self._saved is not None:
            self._restore(self._saved)
        tracker = Tracker(
            self.run_dir,
            resume_after=self.update if self._saved is not None else -1 if self._resume else None,
            wandb=self.config.wandb,
            config=self.config.model_dump(mode="json"),
        )
        try:
            for member in self.members.values():
                await member.push(self.update)
            progress = Progress(self.update, synced=await self._verify())
            if self._saved is None:
                progress.metrics |= await self._evaluate()
                if progress.metrics:
                    tracker.log(0, progress.metrics)
            self._on_progress(progress)
            while self.update < self.config.updates:
                progress = await self._step()
                tracker.log(self.update, progress.metrics)
                if self.update % self.config.checkpoint.every == 0 or self.update == self.config.updates:
                    self._save()
                self._on_progress(progress)
        except Exception as problem:
            tracker.stopped(problem)
            raise
        finally:
            tracker.close()
        for name, member in self.members.items():
            if member.learner is not None:
                member.learner.save_pretrained(self.run_dir / "models" / name)
                _save_tokenizer(member.config.model, self.run_dir / "models" / name)
        last = {name: value for name, value in read_metrics(self.run_dir)[-1].items() if name != "update"}
        return TrainResult(self.run_dir, plot(self.run_dir), last)

    async def _step(self) -> Progress:
        """One update: collect, compare, learn, sync, prove."""
        clock = _Clock()
        episodes, refilled = await self._collector.collect(self.team, self._cursor, self.update)
        clock.lap("rollout")
        advantages = compute_advantages(episodes, self.algorithm, baseline=self._baseline)
        versions = {name: member.policy.weight_version for name, member in self.members.items()}
        metrics = _batch_metrics(
            episodes, batch_metrics(episodes, self.algorithm, advantages, weight_versions=versions)
        )
        metrics |= refilled | self._learn(episodes, advantages)
        clock.lap("update")
        self.update += 1
        for member in self.members.values():
            await member.push(self.update)
        clock.lap("sync")
        due = self.update % self.config.verify_every == 0 or self.update == self.config.updates
        synced = await self._verify() if due else {}
        metrics |= {f"policy/{name}/sync_difference": report.max_abs_diff for name, report in synced.items()}
        clock.lap("verify")
        every = self.config.evaluation.every
        if every and (self.update % every == 0 or self.update == self.config.updates):
            metrics |= await self._evaluate()
            clock.lap("evaluation")
        tokens = sum(turn.completion_tokens for episode in episodes for turn in episode.turns)
        return Progress(self.update, metrics | clock.metrics(tokens), synced)

    def _learn(self, episodes: list[Episode], advantages: np.ndarray) -> dict[str, float]:
        """Update every learner on the turns that its policy played. A policy without signal is left as it is."""
        learners = {name: member.learner for name, member in self.members.items() if member.learner is not None}
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, learners, self._collector.kept(episodes))
        metrics: dict[str, float] = {}
        norms: dict[str, float] = {}
        try:
            for name, learner in learners.items():
                batch, settings = samples[name], self.members[name].config
                if batch and _has_signal(batch, learner):
                    done = learner.update(
                        batch, epochs=settings.epochs, minibatches=min(settings.minibatches, len(batch))
                    )
                    metrics |= _learner_metrics(name, done)
                    norms |= done.agent_grad_norm_max
            ratios = self._spikes.check(norms)
        except (NonFiniteGradient, GradientSpike):
            self._save(stopped=True)
            raise
        return metrics | {f"agent/{agent}/spike_ratio": ratio for agent, ratio in ratios.items()}

    async def _verify(self) -> dict[str, SyncReport]:
        reports = {}
        for name, member in self.members.items():
            report = await member.verify(self._probes(name), self.config.verify_tolerance, self.config.seed)
            if report is not None:
                reports[name] = report
        return reports

    def _probes(self, policy: str) -> list[str]:
        """A few first prompts of the agents that ``policy`` plays, to compare log-probs on."""
        env = self._env.fork()
        agents = self._agents_of(policy)
        prompts = []
        for index in range(min(PROBE_TASKS, len(self._tasks))):
            env.reset(seed=0, options={"task_index": index})
            prompts += [str(env.observe(agent)) for agent in agents]
        return prompts

    def _agents_of(self, policy: str) -> list[str]:
        agents = [agent for agent in self._env.possible_agents if self.team.policy_name(agent) == policy]
        if not agents:
            raise ConfigError(f"policies.{policy} plays nobody: every agent has a role of another policy.")
        return agents

    async def _evaluate(self) -> dict[str, float]:
        """Play the first tasks of the held-out split. A failed episode is counted, and is no part of the means."""
        if self._held_out is None:
            return {}
        seed = stable_hash("evaluation", self.config.seed) >> 1
        jobs = make_jobs(range(len(self._held_out_tasks())), self.config.evaluation.samples, seed)
        episodes = await collect(self._held_out.fork, self.team, jobs, concurrency=self.config.concurrency)
        played = [episode for episode in episodes if episode.error is None]
        if not played:
            raise RunError(f"Not one evaluation episode could be played. The first failed with: {episodes[0].error}")
        return {
            "eval/success": float(np.mean([episode.success for episode in played])),
            "eval/team_return": float(np.mean([episode.team_return for episode in played])),
            "eval/episodes": float(len(episodes)),
            "eval/failed_episodes": float(len(episodes) - len(played)),
        }

    def _held_out_tasks(self) -> Any:
        env: Any = self._held_out
        return env.tasks[: self.config.evaluation.tasks]

    def _save(self, *, stopped: bool = False) -> None:
        state = {
            "cursor": self._cursor.state_dict(),
            "baseline": None if self._baseline is None else self._baseline.state_dict(),
            "spikes": self._spikes.state_dict(),
            "tasks": self._tasks.fingerprint,
        }
        learners = {name: m.learner.state_dict() for name, m in self.members.items() if m.learner is not None}
        checkpoint.save(self.run_dir, self.update, state, learners, self.config.checkpoint.keep, stopped=stopped)

    def _restore(self, folder: Path) -> None:
        state, learners = checkpoint.load(folder)
        if state["tasks"] != self._tasks.fingerprint:
            raise RunError(f"The tasks differ from those of {folder}: the file or the task set has changed since.")
        self.update = int(state["update"])
        self._cursor.load_state_dict(state["cursor"])
        self._spikes.load_state_dict(state["spikes"])
        if self._baseline is not None:
            self._baseline.load_state_dict(state["baseline"])
        for name, member in self.members.items():
            if member.learner is None:
                continue
            try:
                member.learner.load_state_dict(learners[name])
            except (KeyError, ValueError) as problem:
                raise checkpoint.CheckpointError(f"{folder} does not fit policy {name!r}: {problem!r}") from problem


class _Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now

    def metrics(self, tokens: int) -> dict[str, float]:
        laps = {f"time/{name}_s": seconds for name, seconds in self._laps.items()}
        rate = tokens / self._laps["rollout"] if self._laps["rollout"] > 0 else 0.0
        return {**laps, "time/total_s": self._last - self._start, "time/rollout_tokens_per_s": rate}


def _batch_metrics(episodes: list[Episode], found: Mapping[str, float]) -> dict[str, float]:
    played = [episode for episode in episodes if episode.error is None]
    metrics = {name if name.startswith("agent/") else f"train/{name}": value for name, value in found.items()}
    metrics["train/team_return"] = float(np.mean([episode.team_return for episode in played]))
    for agent in sorted({agent for episode in played for agent in episode.returns}):
        metrics[f"agent/{agent}/return"] = float(np.mean([episode.returns[agent] for episode in played]))
    return metrics


def _learner_metrics(name: str, done: UpdateMetrics) -> dict[str, float]:
    return {key if key.startswith("agent/") else f"policy/{name}/{key}": value for key, value in done.to_dict().items()}


def _has_signal(batch: list[Sample], learner: Learner) -> bool:
    """Whether the loss has a gradient: some advantage is not 0, or a term of the loss does without advantages."""
    return learner.loss.kl_coef > 0 or learner.loss.entropy_coef > 0 or any(sample.advantage for sample in batch)


def _make_env(config: TrainConfig, split: str | None = None) -> Any:
    """The environment without wrappers, which the collector does not need and forks do not keep."""
    return llm_envs.make(config.env.id, order_enforcing=False, **config.env.arguments(split)).unwrapped


def _check_held_out(held_out: Any, tasks: Any, config: TrainConfig) -> None:
    """Splits of a set are disjoint by construction; rows that were not split are all trained on."""
    same = held_out.split == tasks.split
    hashes = {task.hash for task in tasks} if tasks.split == "all" else set()
    seen = len(held_out) if same else sum(task.hash in hashes for task in held_out)
    if seen:
        raise ConfigError(
            f"evaluation.split {config.evaluation.split!r} is not held out: {seen} of its {len(held_out)} tasks are "
            f"trained on (env.split is {config.env.split!r}). Train on `split: train` and evaluate on `test`."
        )


def _save_tokenizer(model: str, folder: Path) -> None:
    """Put the tokenizer beside the weights, so that the folder is a model that any policy plays."""
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(resolve_model(model))).save_pretrained(folder)
