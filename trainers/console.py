"""What a training run shows in the terminal: a bar for the episodes of an update, and a table row an update."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trainers.config import PolicyConfig, TrainConfig
from trainers.rollout.records import Episode
from trainers.trainer import Progress as Update
from trainers.trainer import TrainResult
from trainers.weight_sync import SyncReport

_BACKENDS = {"vllm": "vLLM", "hf": "transformers", "openai": "a server"}


class TrainConsole:
    """Shows a run. Outside a terminal, and with ``quiet``, it writes plain lines."""

    def __init__(self, config: TrainConfig, run_dir: Path, *, quiet: bool = False) -> None:
        self._config = config
        self._run_dir = run_dir
        self._console = Console(highlight=False, soft_wrap=True)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("loading models", total=_episodes(config))

    def __enter__(self) -> TrainConsole:
        """Say what will run."""
        config = self._config
        backends = sorted({policy.backend for policy in config.policies.values()})
        label = " and ".join(_BACKENDS.get(backend, backend) for backend in backends)
        policies = ", ".join(f"{name} ({_describe(policy)})" for name, policy in config.policies.items())
        self._console.print(
            f"Training {policies} on {config.env.id} ({config.env.tasks or 'default tasks'}) with "
            f"{config.algorithm.preset}; sampled through {label}."
        )
        self._console.print(f"Results go to {self._run_dir}.")
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar."""
        self._bar.stop()

    def episode(self, episode: Episode) -> None:
        """Count a finished episode."""
        self._bar.advance(self._task)
        if episode.error is not None:
            self._console.print(f"  episode {episode.id} failed and is not trained on: {episode.error}", markup=False)

    def progress(self, update: Update) -> None:
        """Show a finished update."""
        total = self._config.updates
        self._bar.reset(self._task, description=f"update {min(update.update + 1, total)}/{total}: episodes")
        if "train/turns" in update.metrics:
            self._row(update)
        if "eval/success" in update.metrics:
            self._console.print(f"  held-out success {update.metrics['eval/success']:.3f}")
        if "eval/win" in update.metrics:
            shares = ", ".join(f"{name} {update.metrics[f'eval/{name}']:.3f}" for name in ("win", "draw", "loss"))
            self._console.print(f"  against {self._config.evaluation.opponent}: {shares}")
        for name, report in update.synced.items():
            self._console.print(f"  {name}: {_proof(report)}")

    def done(self, result: TrainResult) -> None:
        """Say where everything is."""
        self._bar.stop()
        self._console.print(f"Done. Metrics: {result.run_dir / 'metrics.jsonl'}")
        self._console.print(f"      Plot:    {result.plot}")
        self._console.print(f"      Models:  {result.run_dir / 'models'}")

    def _row(self, update: Update) -> None:
        metrics = update.metrics
        seconds = metrics.get("time/total_s", 0.0)
        # Of a tree the success is that of a path chosen by reward, and goes by another name.
        measure = "path_success" if "train/path_success" in metrics else "success"
        success = metrics.get(f"train/{measure}", 0.0)
        self._console.print(
            f"update {update.update}/{self._config.updates}: {measure.replace('_', ' ')} {success:.3f}, "
            f"team return {metrics['train/team_return']:.3f}, {metrics['train/turns']:.0f} turns, "
            f"{metrics.get('time/rollout_tokens_per_s', 0.0):.0f} tokens/s, {seconds:.1f} s"
        )
        for agent in sorted({name.split("/")[1] for name in metrics if name.startswith("agent/")}):
            shown = {"reward": "return", "gradient norm": "grad_norm", "inflation": "inflation", "invalid": "invalid"}
            values = "  ".join(f"{label} {_show(metrics, agent, name)}" for label, name in shown.items())
            self._console.print(f"  {agent:12s} {values}")


def _describe(policy: PolicyConfig) -> str:
    what = policy.backend if policy.scripted else policy.model
    return f"{what}{', LoRA' if policy.lora else ''}{'' if policy.trainable else ', frozen'}"


def _episodes(config: TrainConfig) -> int:
    """Episodes, or trees, of an update before any refill."""
    trees = config.algorithm.build().sampling == "tree"
    return config.tasks_per_update * (1 if trees else config.samples_per_task)


def _show(metrics: Mapping[str, float], agent: str, name: str) -> str:
    value = metrics.get(f"agent/{agent}/{name}")
    return "     –" if value is None else f"{value:6.3f}"


def _proof(report: SyncReport) -> str:
    return (
        f"weights verified: sampler and learner differ by at most {report.max_abs_diff:.1e} in log-prob "
        f"over {report.n_tokens} tokens"
    )
