"""The training loop: collect, compare, update, bring the weights to the samplers, prove it, log, save.

The loop never asks which algorithm it runs: an :class:`~trainers.algorithms.algorithm.Algorithm` is data. Nor does it
ask what runs beside what: a pipeline (:mod:`trainers.pipeline`) gives it a batch for each update.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import llm_envs
from llm_envs.registration import UnknownArgument
from trainers import checkpoint
from trainers.algorithms.diagnostics import GradientSpike
from trainers.collecting import Collector
from trainers.config import ConfigError, TrainConfig
from trainers.cursor import TaskCursor
from trainers.evaluating import Evaluator
from trainers.folder_lock import FolderBusyError, FolderLock, busy, find_writer
from trainers.learner import NonFiniteGradient
from trainers.members import Member, build_team
from trainers.models import resolve_model
from trainers.pipeline import make_pipeline
from trainers.policy_checks import check_policies
from trainers.proving import Prover
from trainers.recording import Recorder
from trainers.rollout.records import Episode
from trainers.run_folder import RunError, find_run, note_config
from trainers.run_metrics import Clock
from trainers.team import Team, TeamError, check_roles
from trainers.tracking import Tracker, plot, read_metrics
from trainers.updating import Updater
from trainers.weight_sync import SyncReport
from trainers.workers import Workers

__all__ = ["Progress", "RunError", "TrainResult", "Trainer"]

SCRATCH = ".adapters"
"""Folder of a run where samplers find adapters while it is under way."""


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
        run_dir: Its folder: ``metrics.jsonl``, ``episodes.jsonl``, ``plot.png``, ``checkpoints/``, ``models/<policy>``,
            ``config.json``.
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
        workers: Where models and environments are; in this process if not given.

    Raises:
        ConfigError: The configuration fits neither itself nor the environment.
        RunError: ``run_dir`` holds a run and ``resume`` is False; or ``resume`` is True and there is none, or one of
            another configuration.
    """

    members: dict[str, Member]
    team: Team
    _recorder: Recorder

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        *,
        resume: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        on_episode: Callable[[Episode], None] | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.config = config
        self.run_dir = run_dir
        self.algorithm = config.algorithm.build()
        self._on_progress = on_progress or (lambda progress: None)
        check_policies(config)
        self._workers = workers or Workers()
        self._workers.check(config)
        if config.wandb and importlib.util.find_spec("wandb") is None:
            raise ConfigError("wandb is not installed: `pip install 'llm-envs[viz]'`, or leave `wandb` out.")
        self._resume = resume
        self._saved = find_run(run_dir, config, resume)
        self.update = 0
        self.tokens = 0
        """Completion tokens generated for the updates so far."""
        self._updater = Updater(self.algorithm, config.max_gradient_spike)
        # One environment of each split is made and the others are forks of it: its tasks are read once.
        self._env = _make_env(config)
        self._tasks = self._env.tasks
        self._collector = Collector(self._env.fork, self.algorithm, config, on_episode, play=self._workers.play)
        try:
            check_roles(config.role_map(), self._env.possible_agents)
            self._cursor = TaskCursor(len(self._tasks), config.tasks_per_update, config.seed)
        except TeamError as problem:
            raise ConfigError(f"roles: {problem}") from problem
        except ValueError as problem:
            raise ConfigError(str(problem)) from problem
        self._pipeline = make_pipeline(self._collector, self._cursor, config)
        self._prover = Prover(config, self._env)
        self._evaluator = Evaluator(config, self._env, partial(_make_env, config))

    async def run(self) -> TrainResult:
        """Train to the last update.

        Raises:
            WeightSyncError: A sampler does not hold the learner's weights.
            NonFiniteGradient: An agent's gradient is not finite. The checkpoints until then are good; the state at the
                stop is beside them, as ``checkpoints/stopped-…``.
            GradientSpike: An agent's gradient norm stands out by more than ``max_gradient_spike``.
            CheckpointError: A checkpoint could not be written or read.
            RunError: No episode of a batch could be played, the tasks have changed since the run began, or another
                process is at work in the folder.
        """
        writer = find_writer(self.run_dir)
        if writer.state == "running":  # before models are loaded for nothing
            raise RunError(busy(self.run_dir, writer.pid))
        if self.config.threads is not None:
            import torch

            torch.set_num_threads(self.config.threads)
        scratch = (self.run_dir / SCRATCH).resolve()
        self.members = await self._workers.build(self.config, scratch)
        try:
            self.team = build_team(self.config, self.members)
            self._prover.check(self.team, self.members)
            with self._lock():
                note_config(self.run_dir, self.config)
                return await self._loop()
        finally:
            await self._workers.close(self.members)
            shutil.rmtree(scratch, ignore_errors=True)

    def _lock(self) -> FolderLock:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        try:
            return FolderLock(self.run_dir)
        except FolderBusyError as problem:
            raise RunError(str(problem)) from None

    async def _loop(self) -> TrainResult:
        if self._saved is not None:
            self._restore(self._saved)
        self._recorder = Recorder(self.run_dir, self.config.record, resume_after=self.update)
        tracker = Tracker(
            self.run_dir,
            resume_after=self.update if self._saved is not None else -1 if self._resume else None,
            wandb=self.config.wandb,
            config=self.config.model_dump(mode="json"),
        )
        try:
            for member in self.members.values():
                await member.push(self.update)
            progress = Progress(self.update, synced=await self._prover.verify(self.team, self.members))
            if self._saved is None:
                progress.metrics |= await self._evaluator.evaluate(self.team)
                if progress.metrics:
                    tracker.log(0, progress.metrics)
            self._on_progress(progress)
            self._pipeline.open(self.team, self.members, self.update)
            while not self._finished():
                progress = await self._step()
                tracker.log(self.update, progress.metrics)
                if self._is_due(self.config.checkpoint.every):
                    self._save()
                self._on_progress(progress)
        except Exception as problem:
            tracker.stopped(problem)
            raise
        finally:
            await self._pipeline.close()
            tracker.close()
        for name, member in self.members.items():
            if member.learner is not None:
                member.learner.save_pretrained(self.run_dir / "models" / name)
                _save_tokenizer(str(member.config.model), self.run_dir / "models" / name)
        last = {name: value for name, value in read_metrics(self.run_dir)[-1].items() if name != "update"}
        return TrainResult(self.run_dir, plot(self.run_dir), last)

    async def _step(self) -> Progress:
        """One update: collect, compare, learn, sync, prove."""
        clock = Clock()
        learning = self.config.learning(self.update)
        batch = await self._pipeline.batch(self.update, clock)
        episodes = batch.episodes
        balanced = await self._workers.balance()
        if balanced:
            clock.lap("balance")
        versions = self._pipeline.versions(self.update)
        compared = await self._pipeline.run(
            lambda: self._updater.compare(episodes, self.members, learning, versions),
        )
        kept = self._collector.kept(episodes)
        record = partial(
            self._recorder.write, self.update + 1, episodes, compared.advantages, kept=kept, learning=learning
        )
        try:
            learned = await self._pipeline.run(
                lambda: self._updater.learn(episodes, compared, self.members, learning, kept)
            )
        except (NonFiniteGradient, GradientSpike):
            await self._pipeline.close()
            self._save(stopped=True)
            if self._recorder.is_due(self.update + 1, last=True):
                record()
            raise
        metrics = compared.metrics | batch.metrics | learned | balanced
        self.update, self.tokens = self.update + 1, self.tokens + batch.tokens
        if self._recorder.is_due(self.update, last=self._finished()):
            record()
        clock.lap("update")
        verify = self._is_due(self.config.verify_every)
        evaluate = self._is_due(self.config.evaluation.every)
        hold = verify or evaluate or self._is_due(self.config.checkpoint.every)
        await self._pipeline.push(self.update, learning, clock, hold=hold)
        synced = await self._prover.verify(self.team, self.members) if verify else {}
        metrics |= {f"policy/{name}/sync_difference": report.max_abs_diff for name, report in synced.items()}
        clock.lap("verify")
        if evaluate:
            metrics |= await self._evaluator.evaluate(self.team)
            clock.lap("evaluation")
        metrics["train/total_tokens"] = float(self.tokens)
        return Progress(self.update, metrics | clock.metrics(batch.tokens), synced)

    def _is_due(self, every: int) -> bool:
        """Whether what is done after so many updates, and after the last one, is due now; 0 never is."""
        return every > 0 and (self.update % every == 0 or self._finished())

    def _finished(self) -> bool:
        budget = self.config.token_budget
        return self.update >= self.config.updates or (budget is not None and self.tokens >= budget)

    def _save(self, *, stopped: bool = False) -> None:
        state = {
            "cursor": self._cursor.state_dict(),
            **self._updater.state_dict(),
            "tasks": self._tasks.fingerprint,
            "tokens": self.tokens,
        }
        trained = {name: m.state_dict() for name, m in self.members.items() if m.learner is not None}
        batches = [] if stopped else self._pipeline.state()
        keep = self.config.checkpoint.keep
        checkpoint.save(self.run_dir, self.update, state, trained, keep, stopped=stopped, batches=batches)

    def _restore(self, folder: Path) -> None:
        state, trained = checkpoint.load(folder)
        if state["tasks"] != self._tasks.fingerprint:
            raise RunError(f"The tasks differ from those of {folder}: the file or the task set has changed since.")
        self.update, self.tokens = int(state["update"]), int(state["tokens"])
        self._cursor.load_state_dict(state["cursor"])
        self._updater.load_state_dict(state)
        self._pipeline.load_state(state.get("batches", []))
        for name, member in self.members.items():
            if member.learner is None:
                continue
            try:
                member.load_state_dict(trained[name])
            except (KeyError, ValueError) as problem:
                raise checkpoint.CheckpointError(f"{folder} does not fit policy {name!r}: {problem!r}") from problem


def _make_env(config: TrainConfig, **changes: str | None) -> Any:
    """The environment without wrappers, which the collector does not need and forks do not keep."""
    try:
        return llm_envs.make(config.env.id, order_enforcing=False, **config.env.arguments(**changes)).unwrapped
    except UnknownArgument as problem:
        hint = " It has no splits: set `env.split: null`." if "argument `split`" in str(problem) else ""
        raise ConfigError(f"env: {problem}{hint}") from problem


def _save_tokenizer(model: str, folder: Path) -> None:
    """Put the tokenizer beside the weights, so that the folder is a model that any policy plays."""
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(resolve_model(model))).save_pretrained(folder)
