"""A run through a real vLLM engine that is killed with SIGKILL and resumed ends with the bytes of one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from trainers.models import build_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

TASKS, SAMPLES = 24, 2
TOTAL = TASKS * SAMPLES


def start(model: Path, out: Path, repository: Path, *more: str) -> subprocess.Popen[str]:
    arguments = [
        "run", "math-2agent", "--policy", f"vllm:{model}", "-n", str(TASKS), "-k", str(SAMPLES), "--max-tokens", "96",
        "--option", "max_model_len=1536", "--option", "solver.system_prompt=Count.", "--save-tokens", "--out", str(out),
    ]  # fmt: skip
    # With several threads the last bits of a log-prob depend on what else is in the batch.
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    environment.pop("VLLM_LOGGING_LEVEL", None)  # as a user has it
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cli", *arguments, *more],
        cwd=out.parent, env=environment, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    return errors


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_half_way_and_resumed(tmp_path: Path, repository: Path) -> None:
    model = build_tiny_model(tmp_path / "tiny", max_length=2048)
    said = finish(start(model, tmp_path / "whole", repository))
    assert "WARNING" not in said
    assert "Warning" not in said
    whole = (tmp_path / "whole" / "episodes.jsonl").read_bytes()

    killed = tmp_path / "killed"
    process = start(model, killed, repository, "--concurrency", "6")  # other batches than those of the whole run
    deadline = time.monotonic() + 120
    while lines(killed / "episodes.jsonl") < TOTAL // 2:
        assert process.poll() is None, process.stderr
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert TOTAL // 2 <= lines(killed / "episodes.jsonl") < TOTAL

    finish(start(model, killed, repository, "--resume"))
    assert (killed / "episodes.jsonl").read_bytes() == whole
    records = [json.loads(line) for line in whole.splitlines()]
    assert [(record["task_index"], record["sample"]) for record in records] == [
        (task, sample) for task in range(TASKS) for sample in range(SAMPLES)
    ]
    turns = [turn for record in records for turn in record["turns"]]
    assert len({tuple(turn["completion_ids"]) for turn in turns}) > TOTAL  # no two episodes share a seed
    tokenizer = AutoTokenizer.from_pretrained(model)
    for turn in turns:  # the option of one role, through one engine
        prompt = tokenizer.decode(turn["prompt_ids"])
        assert prompt.startswith("<|system|>Count.<|im_end|>") == (turn["agent"] == "solver_0")
        assert turn["policy"].endswith(
            " (max_model_len=1536, system_prompt=Count.)" if turn["agent"] == "solver_0" else " (max_model_len=1536)"
        )
