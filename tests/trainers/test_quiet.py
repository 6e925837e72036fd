"""What quieten_libraries hides, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys, types, warnings
from trainers.quiet import quieten_libraries
quieten_libraries()
assert "torch" not in sys.modules
for module in ("vllm.triton_utils", "torch", "torchvision", "mine"):
    for category in (FutureWarning, UserWarning):
        warnings.warn_explicit(f"{module} {category.__name__}", category, f"{module}.py", 1, module=module)
names = ("VLLM_LOGGING_LEVEL", "VLLM_LOGGING_STREAM", "TORCH_CPP_LOG_LEVEL", "HF_HUB_DISABLE_PROGRESS_BARS")
print(*(os.environ.get(name) for name in names))
"""


def run(repository: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "TORCH_", "HF_", "PYTHONWARNINGS"))
    }
    return subprocess.run(
        [sys.executable, *flags, "-c", SCRIPT], cwd=repository, env={**inherited, **variables}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip


def test_deprecations_of_libraries_are_hidden_and_other_warnings_are_not(repository: Path) -> None:
    done = run(repository)
    shown = [line.rpartition(": ")[2] for line in done.stderr.splitlines() if "Warning: " in line]
    assert shown == [
        "vllm.triton_utils UserWarning",
        "torch UserWarning",
        "torchvision FutureWarning",
        "torchvision UserWarning",
        "mine FutureWarning",
        "mine UserWarning",
    ]
    assert done.stdout.split() == ["ERROR", "ext://sys.stderr", "ERROR", "1"]


def test_the_environment_and_python_w_win(repository: Path) -> None:
    done = run(repository, "-W", "default", VLLM_LOGGING_LEVEL="INFO", HF_HUB_DISABLE_PROGRESS_BARS="0")
    assert "vllm.triton_utils FutureWarning" in done.stderr
    assert done.stdout.split() == ["INFO", "ext://sys.stderr", "ERROR", "0"]
