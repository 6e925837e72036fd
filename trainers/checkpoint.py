"""Checkpoints: everything needed to go on bit for bit, of all policies at once.

A checkpoint is a folder ``checkpoints/update-000012`` that appears whole or not at all: it is written beside its place,
flushed to disk, and renamed. A run that is killed at any moment therefore resumes from the newest complete one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "checkpoints"
_NAME = re.compile(r"update-(\d{6,})")
_STATE = "trainer.json"


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or does not fit the run."""


def save(
    run_dir: Path,
    update: int,
    trainer: Mapping[str, Any],
    policies: Mapping[str, Mapping[str, Any]],
    keep: int,
    *,
    stopped: bool = False,
) -> Path:
    """Write a checkpoint and drop the oldest ones.

    Args:
        run_dir: The run's folder.
        update: Updates done.
        trainer: Plain values: cursor, generators, baselines, configuration.
        policies: Learner state by policy: tensors and plain values, as ``torch.save`` takes them.
        keep: How many of the newest checkpoints to keep.
        stopped: Write the state of a run that stopped in the middle of an update beside the others, for examination. A
            run never resumes from it, and no other checkpoint is dropped.

    Returns:
        The checkpoint's folder.

    Raises:
        CheckpointError: It could not be written (a full disk, say). Older checkpoints are still there.
    """
    import torch

    folder = run_dir / FOLDER
    target = folder / f"{'stopped' if stopped else 'update'}-{update:06d}"
    partial = folder / f".{target.name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for name, state in policies.items():
            with (partial / f"{name}.pt").open("wb") as file:
                torch.save(dict(state), file)
                os.fsync(file.fileno())
        with (partial / _STATE).open("w", encoding="utf-8") as file:
            json.dump({"update": update, **trainer}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
    except OSError as problem:
        raise CheckpointError(f"The checkpoint {target} could not be written: {problem}") from problem
    for old in [] if stopped else complete(run_dir)[:-keep]:
        shutil.rmtree(old)
    return target


def complete(run_dir: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    folder = run_dir / FOLDER
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def load(checkpoint: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read a checkpoint: the trainer's state, and the learners' state by policy. No code in it is ever run.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    import torch

    try:
        trainer = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        policies = {
            path.stem: torch.load(path, map_location="cpu", weights_only=True)
            for path in sorted(checkpoint.glob("*.pt"))
        }
    except (OSError, ValueError, RuntimeError) as problem:
        raise CheckpointError(f"The checkpoint {checkpoint} cannot be read: {problem}") from problem
    return trainer, policies
