"""The training loop: collect, compare, update, bring the weights to the samplers, prove it, log, save.

The loop never asks which algorithm it runs: an :class:`~trainers.algorithms.algorithm.Algorithm` is data.
"""

from __future__ import annotations

import json
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
from trainers.config import TrainConfig
from trainers.cursor import TaskCursor
from trainers.learner import Learner, NonFiniteGradient, UpdateMetrics
from trainers.members import build_members, build_team
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Episode
from trainers.tracking import Tracker, plot
from trainers.weight_sync import SyncReport

CONFIG_FILE = "config.json"
PROBE_TASKS = 2
"""Tasks whose first prompts the weight verification samples on."""


class RunError(RuntimeError):
    """The run cannot start or go on; the message says why and what to do."""


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
        RunError: ``run_dir`` holds a run and ``resume`` is False, or ``resume`` is True and the configuration differs.
    """

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
        self._on_episode = on_episode
        self._saved = _open_run(run_dir, config, resume)
        self.update = 0
        self._baseline = make_baseline(self.algorithm)
        self._spikes = GradientSpikes(bound=config.max_gradient_spike)
        self._tasks = self._make_env().unwrapped.tasks
        self._cursor = TaskCursor(len(self._tasks), config.tasks_per_update, config.seed)

    async def run(self) -> TrainResult:
        """Train to the last update.

        Raises:
            WeightSyncError: A sampler does not hold the learner's weights.
            NonFiniteGradient: An agent's gradient is not finite. The checkpoints until then are good; the state at the
                stop is beside them, as ``checkpoints/stopped-…``.
            GradientSpike: An agent's gradient norm stands out by more than ``max_gradient_spike``.
            RunError: No episode of a batch could be played.
        """
        if self.config.threads is not None:
            import torch

            torch.set_num_threads(self.config.threads)
        self.members = build_members(self.config)
        try:
            self.team = build_team(self.config, self.members)
            return await self._loop()
        finally:
            for member in self.members.values():
                await member.close()

    async def _loop(self) -> TrainResult:
        if self._saved is not None:
            self._restore(self._saved)
        tracker = Tracker(
            self.run_dir,
            resume_after=self.update if self._saved is not None else None,
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
        finally:
            tracker.close()
        for name, member in self.members.items():
            if member.learner is not None:
                member.learner.save_pretrained(self.run_dir / "models" / name)
        return TrainResult(self.run_dir, plot(self.run_dir), progress.metrics)

    async def _step(self) -> Progress:
        """One update: collect, compare, learn, sync, prove."""
        clock = _Clock()
        episodes = await self._collect(self._cursor.next(), self.config.samples_per_task, self.update)
        clock.lap("rollout")
        advantages = compute_advantages(episodes, self.algorithm, baseline=self._baseline)
        versions = {name: member.policy.weight_version for name, member in self.members.items()}
        metrics = _batch_metrics(
            episodes, batch_metrics(episodes, self.algorithm, advantages, weight_versions=versions)
        )
        metrics |= self._learn(episodes, advantages)
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

    async def _collect(self, tasks: list[int], samples: int, round_number: int) -> list[Episode]:
        jobs = make_jobs(tasks, samples, stable_hash("collect", self.config.seed, round_number) >> 1)
        episodes = await collect(
            self._make_env, self.team, jobs, concurrency=self.config.concurrency, on_episode=self._on_episode
        )
        if all(episode.error is not None for episode in episodes):
            raise RunError(f"Not one episode of the batch could be played. The first failed with: {episodes[0].error}")
        return episodes

    def _learn(self, episodes: list[Episode], advantages: np.ndarray) -> dict[str, float]:
        """Update every learner on the turns that its policy played. A policy without signal is left as it is."""
        learners = {name: member.learner for name, member in self.members.items() if member.learner is not None}
        turns = [turn for episode in episodes for turn in episode.turns]
        samples = samples_by_policy(turns, advantages, learners)
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
        env = self._make_env()
        prompts = []
        for index in range(min(PROBE_TASKS, len(self._tasks))):
            env.reset(seed=0, options={"task_index": index})
            prompts += [str(env.observe(a)) for a in env.possible_agents if self.team.policy_name(a) == policy]
        return prompts

    async def _evaluate(self) -> dict[str, float]:
        """Play the first tasks of the held-out split."""
        settings = self.config.evaluation
        if not settings.every:
            return {}
        made = lambda: self._make_env(settings.split)  # noqa: E731
        count = min(settings.tasks, len(made().unwrapped.tasks))
        jobs = make_jobs(range(count), settings.samples, stable_hash("evaluation", self.config.seed) >> 1)
        episodes = [e for e in await collect(made, self.team, jobs, concurrency=self.config.concurrency) if not e.error]
        if not episodes:
            raise RunError("Not one evaluation episode could be played.")
        return {
            "eval/success": float(np.mean([episode.success for episode in episodes])),
            "eval/team_return": float(np.mean([episode.team_return for episode in episodes])),
            "eval/episodes": float(len(episodes)),
        }

    def _make_env(self, split: str | None = None) -> Any:
        return llm_envs.make(self.config.env.id, order_enforcing=False, **self.config.env.arguments(split))

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
            if member.learner is not None:
                member.learner.load_state_dict(learners[name])


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


def _open_run(run_dir: Path, config: TrainConfig, resume: bool) -> Path | None:
    """Check the folder and note the configuration. Returns the checkpoint to go on from."""
    path = run_dir / CONFIG_FILE
    mine = config.model_dump(mode="json")
    if path.is_file():
        theirs = json.loads(path.read_text(encoding="utf-8"))
        if not resume:
            raise RunError(
                f"{run_dir} holds a run already. Go on with it (--resume), or choose another folder (--out)."
            )
        fixed_length = any(policy.schedule != "constant" for policy in config.policies.values())
        may_change = _MAY_CHANGE - {"updates"} if fixed_length else _MAY_CHANGE
        changed = [key for key in mine if key not in may_change and mine[key] != theirs.get(key)]
        if changed:
            raise RunError(
                f"The run in {run_dir} was started with another configuration; these differ: "
                + "; ".join(f"{key}: {theirs.get(key)!r} -> {mine[key]!r}" for key in changed)
            )
    run_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(mine, indent=1) + "\n", encoding="utf-8")
    found = checkpoint.complete(run_dir) if resume else []
    return found[-1] if found else None


_MAY_CHANGE = frozenset(
    {"updates", "concurrency", "verify_every", "verify_tolerance", "threads", "checkpoint", "wandb"}
)
"""Settings that change no result of the updates already done (``updates`` does where a learning rate decays)."""
