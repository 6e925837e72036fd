"""Checkpoints: everything needed to go on bit for bit, of all policies at once.

A checkpoint is a folder ``checkpoints/update-000012`` that appears whole or not at all: it is written beside its place,
flushed to disk, and renamed; one that is dropped is renamed first. A run that is killed at any moment therefore resumes
from the newest complete one.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

FOLDER = "checkpoints"
_NAME = re.compile(r"update-(\d{6,})")
_STATE = "trainer.json"
_BATCHES = "batches.jsonl"

State: TypeAlias = Mapping[str, Any] | Callable[[Path], None]
"""What a checkpoint holds of a policy: tensors and plain values, or what writes them into a folder of its own."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written or does not fit the run."""


def save(
    run_dir: Path,
    update: int,
    trainer: Mapping[str, Any],
    policies: Mapping[str, State],
    keep: int,
    *,
    stopped: bool = False,
    batches: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write a checkpoint and drop the oldest ones.

    Args:
        run_dir: The run's folder.
        update: Updates done.
        trainer: Plain values: cursor, generators, baselines, configuration.
        policies: Learner state by policy: tensors and plain values, as ``torch.save`` takes them; or, where several
            processes write it together, what writes it into the folder that it is called with.
        keep: How many of the newest checkpoints to keep.
        stopped: Write the state of a run that stopped in the middle of an update beside the others, for examination. A
            run never resumes from it, and no other checkpoint is dropped.
        batches: What was played for later updates, as plain values.

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
            if callable(state):
                state(partial / name)
                _sync_folder(partial / name)
                continue
            with (partial / f"{name}.pt").open("wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
        if batches:
            with (partial / _BATCHES).open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(batch, separators=(",", ":")) + "\n" for batch in batches)
                file.flush()
                os.fsync(file.fileno())
        with (partial / _STATE).open("w", encoding="utf-8") as file:
            json.dump({"update": update, **trainer}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(partial)
        if target.exists():
            _drop(target)
        partial.rename(target)
        _sync_folder(folder)
        for old in [] if stopped else complete(run_dir)[:-keep]:
            _drop(old)
    except (OSError, RuntimeError) as problem:  # torch's writer raises the latter when the disk is full
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(f"The checkpoint {target} could not be written: {problem}") from problem
    return target


def _drop(checkpoint: Path) -> None:
    """Remove a checkpoint so that half of one is never taken for a whole."""
    dropped = checkpoint.with_name(f".{checkpoint.name}.dropped")
    shutil.rmtree(dropped, ignore_errors=True)
    checkpoint.rename(dropped)
    shutil.rmtree(dropped)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def complete(run_dir: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    folder = run_dir / FOLDER
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def load(checkpoint: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any] | Path]]:
    """Read a checkpoint: the trainer's state, and the learners' state by policy. No code in it is ever run.

    Batches that were saved with it are under ``batches`` of the trainer's state.

    Of a policy whose state was written into a folder of its own, that folder is returned.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    import torch

    try:
        trainer = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        if (checkpoint / _BATCHES).exists():
            lines = (checkpoint / _BATCHES).read_text(encoding="utf-8").splitlines()
            trainer["batches"] = [json.loads(line) for line in lines]
        policies: dict[str, dict[str, Any] | Path] = {
            path.stem: torch.load(path, map_location="cpu", weights_only=True)
            for path in sorted(checkpoint.glob("*.pt"))
        }
        policies |= {path.name: path for path in sorted(checkpoint.iterdir()) if path.is_dir()}
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as problem:
        # torch's advice on the last one, to run what is in the file as code, is not passed on.
        what = "it holds more than tensors and numbers" if isinstance(problem, pickle.UnpicklingError) else problem
        raise CheckpointError(
            f"The checkpoint {checkpoint} cannot be read: {type(problem).__name__}: {what}. Remove the folder to go on "
            "from the one before"
        ) from problem
    return trainer, policies
