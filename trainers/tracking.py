"""Where a run's numbers go: one JSON line an update, TensorBoard, optionally Weights & Biases, and a plot.

Metric names are ``group/name``: ``train/…`` for the batch, ``agent/<agent>/…``, ``policy/<policy>/…``, ``eval/…`` for
held-out tasks, ``time/…`` for seconds and rates. Only ``time/…`` differs between two equal runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.run_versions import VERSIONS_FILE, note_versions

__all__ = ["METRICS_FILE", "PLOT_FILE", "STOPPED_FILE", "VERSIONS_FILE", "Tracker", "is_torn", "plot", "read_metrics"]

METRICS_FILE = "metrics.jsonl"
PLOT_FILE = "plot.png"
STOPPED_FILE = "stopped.json"


class Tracker:
    """Writes the metrics of a run folder.

    Args:
        run_dir: The run's folder.
        resume_after: Go on after this update: later lines, from an attempt that was cut short, are dropped; -1 drops
            all of them. None starts afresh.
        wandb: Weights & Biases project, or None.
        config: The configuration, for Weights & Biases.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        resume_after: int | None = None,
        wandb: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = run_dir / METRICS_FILE
        kept = [] if resume_after is None else [row for row in read_metrics(run_dir) if row["update"] <= resume_after]
        _write_lines(self.path, kept)
        (run_dir / STOPPED_FILE).unlink(missing_ok=True)
        note_versions(run_dir, max(resume_after or 0, 0))
        self._run_dir = run_dir
        self._last = kept[-1]["update"] if kept else 0
        self._tensorboard = SummaryWriter(
            str(run_dir / "tensorboard"), purge_step=None if resume_after is None else resume_after + 1
        )
        self._wandb = _start_wandb(wandb, run_dir, config) if wandb else None

    def log(self, update: int, metrics: Mapping[str, float]) -> None:
        """Append one line.

        Args:
            update: The update that the numbers belong to; 0 is before the first.
            metrics: Name to number. A number that is not finite is written as null and left out of the plots.
        """
        self._last = update
        row = {"update": update, **{name: _number(value) for name, value in sorted(metrics.items())}}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        for name, value in row.items():
            if name != "update" and value is not None:
                self._tensorboard.add_scalar(name, value, update)
        if self._wandb is not None:
            self._wandb.log({name: value for name, value in row.items() if value is not None}, step=update)

    def stopped(self, problem: Exception) -> None:
        """Write down what stops the run in the update after the last one that was logged."""
        reason = {"update": self._last + 1, "error": type(problem).__name__, "message": str(problem)}
        (self._run_dir / STOPPED_FILE).write_text(json.dumps(reason, indent=1) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Flush and close all writers."""
        self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish()


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The metric lines of a run, oldest first. A torn last line (of a run that was killed) is left out."""
    try:
        lines = (run_dir / METRICS_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as problem:
            if number == len(lines):
                break
            raise ValueError(f"{run_dir / METRICS_FILE}, line {number}: not JSON ({problem})") from problem
    return rows


def is_torn(run_dir: Path) -> bool:
    """Whether the last metric line is cut off: the run was killed while it wrote it, or is writing it now."""
    try:
        last = (run_dir / METRICS_FILE).read_bytes().rpartition(b"\n")[2]
    except FileNotFoundError:
        return False
    try:
        json.loads(last or b"{}")
    except ValueError:
        return True
    return False


def plot(run_dir: Path) -> Path:
    """Draw the run: reward, gradient norm, inflation factor and answers, per agent. Returns the PNG's path."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import MaxNLocator

    rows = read_metrics(run_dir)
    agents = sorted({name.split("/")[1] for row in rows for name in row if name.startswith("agent/")})
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained")
    panels: tuple[tuple[Any, str, dict[str, str], str], ...] = (
        (
            axes[0][0],
            "Success and reward",
            {
                "success": "train/success",
                "path success": "train/path_success",
                "held-out success": "eval/success",
                "wins": "eval/win",
            },
            "return",
        ),
        (axes[0][1], "Gradient norm before clipping", {}, "grad_norm"),
        (axes[1][0], "Inflation factor", {}, "inflation"),
        (axes[1][1], "Answer length in tokens", {}, "length"),
    )
    for axis, title, shared, metric in panels:
        for label, name in shared.items():
            _curve(axis, rows, name, label, linewidth=2)
        for agent in agents:
            _curve(axis, rows, f"agent/{agent}/{metric}", f"{agent} {metric.replace('_', ' ')}")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("update", fontsize=9)
        axis.grid(alpha=0.3)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if axis.get_lines():
            axis.legend(fontsize=8)
        else:
            axis.text(0.5, 0.5, "no group had scores that differ", transform=axis.transAxes, ha="center", color="gray")
    figure.suptitle(run_dir.name, fontsize=11)
    path = run_dir / PLOT_FILE
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _curve(axis: Any, rows: list[dict[str, Any]], name: str, label: str, **style: Any) -> None:
    points = [(row["update"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label, **style)


def _number(value: float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)


def _start_wandb(project: str, run_dir: Path, config: Mapping[str, Any] | None) -> Any:
    try:
        import wandb
    except ImportError as problem:
        raise ImportError("wandb is not installed; `pip install 'llm-envs[viz]'`, or leave `wandb` unset") from problem
    return wandb.init(project=project, name=run_dir.name, dir=str(run_dir), config=dict(config or {}))
