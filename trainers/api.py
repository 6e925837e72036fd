"""Training from Python, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainers.config import TrainConfig, load_config
from trainers.trainer import Progress, Trainer, TrainResult
from trainers.workers import make_workers


def train(
    config: TrainConfig | str | Path | Mapping[str, Any],
    *overrides: str,
    out: str | Path,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    cluster: str | None = None,
) -> TrainResult:
    """Train the policies of a configuration, as ``llm-train`` does.

    Args:
        config: A configuration, a YAML file, the name of a recipe that ships, or a mapping.
        *overrides: ``key.sub=value`` strings.
        out: The run's folder.
        resume: Go on from the newest checkpoint in ``out``, which must hold a run of the same configuration.
        on_progress: Called after every update with its metrics and weight proofs.
        cluster: Address of a Ray cluster to run on (``auto``, ``local:8``, …); in this process if not given.

    Where an event loop runs already (in a notebook), ``await Trainer(load_config(config), Path(out)).run()`` instead.

    Returns:
        Where the run is, and its last metrics.

    Raises:
        trainers.config.ConfigError: The configuration cannot be used.
        trainers.trainer.RunError: The folder holds another run (or none to resume), or no episode could be played.
        trainers.weight_sync.WeightSyncError: A sampler does not hold the learner's weights.
    """
    ready = load_config(config.model_dump() if isinstance(config, TrainConfig) else config, overrides)
    workers = make_workers(cluster)
    return asyncio.run(Trainer(ready, Path(out), resume=resume, on_progress=on_progress, workers=workers).run())
