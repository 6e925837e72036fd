"""Devices of an engine's process: GPUs, or cores where there is no GPU.

A child process sees what the environment and the affinity of the thread that starts it say, so both are set for the
time of the start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

__all__ = ["on_devices", "present"]


def present() -> list[int]:
    """The devices that this process may use: all GPUs that torch sees, or else its cores."""
    import torch

    if torch.cuda.is_available():
        return list(range(torch.cuda.device_count()))
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def on_devices(devices: Sequence[int] | None) -> Iterator[None]:
    """Let processes that this thread starts meanwhile have these devices alone.

    On a GPU they see no other (``CUDA_VISIBLE_DEVICES``; numbers are those of what this process sees). On a CPU all
    their threads run on the given cores, as many threads of OpenMP as cores. vLLM's own binding of threads
    (``VLLM_CPU_OMP_THREADS_BIND``) is for its executor of several processes only, and would look for cores by itself.

    Args:
        devices: Their numbers; None changes nothing.
    """
    if devices is None:
        yield
        return
    import torch

    if torch.cuda.is_available():
        seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        names = [seen[number] if seen else str(number) for number in devices]
        with _environment(CUDA_VISIBLE_DEVICES=",".join(names)):
            yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, devices)  # of this thread, and of what it starts
    try:
        with _environment(OMP_NUM_THREADS=str(len(devices)), VLLM_CPU_OMP_THREADS_BIND="nobind"):
            yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
