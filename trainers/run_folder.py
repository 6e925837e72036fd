"""The folder of a run: whether there is one to go on with, and the configuration that it was started with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers import checkpoint
from trainers.config import TrainConfig

CONFIG_FILE = "config.json"
EPISODES_FILE = "episodes.jsonl"
_MAY_CHANGE = frozenset(
    {
        "updates",
        "token_budget",
        "concurrency",
        "verify_every",
        "verify_tolerance",
        "max_gradient_spike",
        "threads",
        "checkpoint",
        "evaluation",
        "record",
        "serving",
        "cluster",
        "wandb",
    }
)
"""Settings that change no result of the updates already done (``updates`` does where a learning rate decays)."""


class RunError(RuntimeError):
    """The run cannot start or go on; the message says why and what to do."""


def find_run(run_dir: Path, config: TrainConfig, resume: bool) -> Path | None:
    """Check the folder. Returns the checkpoint to go on from; None starts at the beginning.

    Raises:
        RunError: It holds a run and ``resume`` is False; or ``resume`` is True and there is none, or one of another
            configuration.
    """
    path = run_dir / CONFIG_FILE
    saved = checkpoint.complete(run_dir)
    if not resume:
        if path.is_file() or saved:
            raise RunError(
                f"{run_dir} holds a run already. Go on with it (--resume), or choose another folder (--out)."
            )
        if (run_dir / EPISODES_FILE).exists():
            raise RunError(f"{run_dir / EPISODES_FILE} is there, of something else. Choose another folder (--out).")
        return None
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{run_dir} holds no run to go on with: it has no {CONFIG_FILE}. Leave --resume out.") from None
    except ValueError as problem:
        raise RunError(f"{path} cannot be read: {problem}") from problem
    fixed_length = any(policy.schedule != "constant" for policy in config.policies.values())
    may_change = _MAY_CHANGE - {"updates"} if fixed_length else _MAY_CHANGE
    old, new = _flat(theirs), _flat(config.model_dump(mode="json"))
    fixed = [key for key in sorted({*old, *new}) if key.split(".")[0] not in may_change]
    changed = [key for key in fixed if old.get(key) != new.get(key)]
    if changed:
        raise RunError(
            f"The run in {run_dir} was started with another configuration; these differ: "
            + "; ".join(f"{key}: {old.get(key)!r} -> {new.get(key)!r}" for key in changed)
        )
    return saved[-1] if saved else None


def note_config(run_dir: Path, config: TrainConfig) -> None:
    """Write the configuration, whole or not at all. From then on the folder holds a run."""
    run_dir.mkdir(parents=True, exist_ok=True)
    partial = run_dir / f".{CONFIG_FILE}.partial"
    partial.write_text(json.dumps(config.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    partial.replace(run_dir / CONFIG_FILE)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
