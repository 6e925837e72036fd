"""How memory and time of an update grow with the agents, the turns and the episodes.

A tiny model plays :mod:`benchmarks.performance.relay` through the ordinary trainer. One size changes at a time. Each
size is run in a process of its own, which says how long the second update took, how many tokens its turns had (prompts
and answers), and how much its memory rose from the start of the run to the peak.

Work is what the turns hold. A prompt holds all answers before it, so tokens grow with the square of the turns: seconds
*a token* are what must not grow. Agents that share a policy add turns; episodes add batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.performance.measure import Measurement, in_own_process
from benchmarks.performance.relay import RELAY, register_relay, relay_texts

__all__ = ["SIZES", "growth_config", "measure_growth", "plot_growth"]

SIZES: Mapping[str, Sequence[int]] = {
    "agents": (1, 2, 4, 8),
    "rounds": (1, 2, 4, 8, 16),
    "episodes": (64, 256, 1024, 4096),
}
_KINDS = {"time": "seconds of an update", "memory above the start": "MiB above the start"}
_ROW = re.compile(rf"(?P<size>\w+) [\d,]+, update of (?P<tokens>[\d,]+) tokens: (?P<kind>{'|'.join(_KINDS)})")
DEFAULTS = {"agents": 2, "rounds": 2, "episodes": 128}
GROUP = 8
ANSWER_TOKENS = 4
TARGET = 1.1
"""Most that seconds a token may grow while a size grows from its second value to its last."""


def measure_growth(sizes: Mapping[str, Sequence[int]] = SIZES) -> list[Measurement]:
    """Measure every size, and how seconds and memory a token change along each.

    Args:
        sizes: The values of each size, ascending.
    """
    rows = []
    for name, values in sizes.items():
        tried = {value: _run({**DEFAULTS, name: value}) for value in values}
        found = {value: one for value, one in tried.items() if one is not None}
        for value, one in found.items():
            what = f"{name} {value:,}, update of {one['tokens']:,.0f} tokens"
            rows.append(Measurement(f"{what}: time", one["seconds"], "s"))
            rows.append(Measurement(f"{what}: memory above the start", one["mib"], "MiB"))
        if len(found) < 2:
            continue
        # The smallest size is all overhead: growth is counted from the next one on.
        ends = [list(found)[place] for place in (min(1, len(found) - 2), -1)]
        first, last = (found[value]["seconds"] / found[value]["tokens"] for value in ends)
        what = f"seconds a token, {name} {ends[1]:,} / {ends[0]:,}"
        rows.append(Measurement(what, last / first, "x", TARGET, at_most=True))
    return rows


def plot_growth(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw seconds and memory over the tokens of an update, both on logarithmic axes, a line for each size that grew.

    Args:
        rows: Measurements by their fields; those of other kinds are left out.
        path: Where to save.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    lines: dict[str, dict[str, list[tuple[float, float]]]] = {kind: {} for kind in _KINDS}
    for row in rows:
        if found := _ROW.fullmatch(row["name"]):
            tokens = float(found["tokens"].replace(",", ""))
            lines[found["kind"]].setdefault(found["size"], []).append((tokens, row["value"]))
    figure, axes = plt.subplots(1, len(_KINDS), figsize=(9, 3.4), layout="constrained")
    for axis, (kind, label) in zip(axes, _KINDS.items(), strict=True):
        for size, points in lines[kind].items():
            axis.loglog(*zip(*points, strict=True), marker="o", label=f"{size} {SIZES[size][0]} to {SIZES[size][-1]:,}")
        if points := [point for drawn in lines[kind].values() for point in drawn]:
            low, high = min(points), max(points)
            axis.loglog([low[0], high[0]], [low[1], low[1] * high[0] / low[0]], "k:", label="in proportion")
            axis.legend(fontsize=7)
        axis.set(xlabel="tokens of an update", ylabel=label)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def growth_config(model: str, agents: int, rounds: int, episodes: int) -> dict[str, Any]:
    """A training run of two updates."""
    return {
        "env": {"id": RELAY, "split": None, "kwargs": {"agents": agents, "rounds": rounds}},
        "algorithm": {"preset": "dr_mas"},
        "policies": {
            "all": {
                "model": model,
                "backend": "hf",
                "learning_rate": 1e-4,
                "micro_batch_tokens": 4096,
                "sampling": {"temperature": 1.0, "max_tokens": ANSWER_TOKENS},
            }
        },
        "updates": 2,
        "tasks_per_update": episodes // GROUP,
        "samples_per_task": GROUP,
        "concurrency": min(episodes, 256),
        "verify_every": 2,
        "checkpoint": {"every": 2},
        "record": {"every": 0},
    }


def _run(size: Mapping[str, int]) -> dict[str, float] | None:
    return in_own_process("benchmarks.performance.growth", *(str(size[name]) for name in DEFAULTS))


def _model(folder: Path, agents: int) -> str:
    from trainers.models import build_tiny_model

    return str(build_tiny_model(folder, texts=relay_texts(agents), hidden_size=64, layers=2, max_length=4096))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one size in this process, and write what it took as JSON; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance.growth", description=__doc__)
    for name in DEFAULTS:
        parser.add_argument(name, type=int)
    given = parser.parse_args(argv)
    import torch  # noqa: F401  (the program's own memory is part of the start)
    import transformers  # noqa: F401

    from trainers.config import load_config
    from trainers.rollout.records import Episode
    from trainers.tracking import read_metrics
    from trainers.trainer import Trainer

    register_relay()
    tokens: list[int] = []

    def count(episode: Episode) -> None:
        tokens.append(sum(turn.prompt_tokens + turn.completion_tokens for turn in episode.turns))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = load_config(
            growth_config(_model(folder / "model", given.agents), given.agents, given.rounds, given.episodes)
        )
        trainer = Trainer(config, folder / "run", on_episode=count)
        before = _peak_mib()
        asyncio.run(trainer.run())
        row = read_metrics(folder / "run")[-1]
    seconds = sum(row[f"time/{phase}_s"] for phase in ("rollout", "update", "sync"))
    found = {"seconds": seconds, "tokens": sum(tokens[-given.episodes :]), "mib": _peak_mib() - before}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _peak_mib() -> float:
    """The largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
