"""A run that is killed with SIGKILL, again and again, ends with the bytes of one that never was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

TASKS, SAMPLES = 40, 2
RUN = f"""
import asyncio, sys
from pathlib import Path
from benchmarks.live import LiveView
from benchmarks.runner import RunSettings, run
from rich.console import Console
from trainers.policies.base import make_policy
from trainers.policies.scripted import LatencyPolicy

settings = RunSettings(
    env="math-2agent", policies=["random"], n={TASKS}, samples={SAMPLES}, seed=3, out=Path(sys.argv[1]), resume=True,
    concurrency=6, env_kwargs={{"max_rounds": 3}},
)
make = lambda spec: LatencyPolicy(make_policy(spec), median_s=float(sys.argv[2]))
result = asyncio.run(run(settings, LiveView(Console(stderr=True), quiet=True), make=make))
sys.exit(0 if result.complete else 1)
"""


def start(path: Path, repository: Path, median_s: float = 0.01) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, str(path), str(median_s)], cwd=repository)


def lines(path: Path) -> int:
    file = path / "episodes.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "run"
    assert start(path, repository, median_s=0.0).wait(timeout=120) == 0
    return (path / "episodes.jsonl").read_bytes()


def finish(path: Path, repository: Path, uninterrupted: bytes) -> None:
    assert start(path, repository).wait(timeout=120) == 0
    assert (path / "episodes.jsonl").read_bytes() == uninterrupted
    ids = [json.loads(line)["id"] for line in uninterrupted.splitlines()]
    assert len(ids) == len(set(ids)) == TASKS * SAMPLES
    timed = [json.loads(line)["id"] for line in (path / "timings.jsonl").read_bytes().splitlines()]
    assert len(timed) == len(set(timed))
    assert set(timed) <= set(ids)


def test_killed_half_way(tmp_path: Path, repository: Path, uninterrupted: bytes) -> None:
    path = tmp_path / "run"
    process = start(path, repository)
    deadline = time.monotonic() + 60
    while lines(path) < TASKS * SAMPLES // 2:
        assert process.poll() is None, "the run ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert TASKS * SAMPLES // 2 <= lines(path) < TASKS * SAMPLES
    finish(path, repository, uninterrupted)


def test_killed_at_many_moments(tmp_path: Path, repository: Path, uninterrupted: bytes) -> None:
    path = tmp_path / "run"
    generator = random.Random(11)
    grown = []
    for _ in range(6):
        process = start(path, repository, median_s=0.02)
        before = lines(path)
        deadline = time.monotonic() + 60
        # Some are killed as soon as there is a lock file (before the configuration may be there), most mid-write.
        wanted = before + generator.choice([0, 1, 5, 11])
        while process.poll() is None and (not (path / "lock").exists() or lines(path) < wanted):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.02))
        process.kill()
        process.wait()
        grown.append(lines(path) - before)
    assert all(count >= 0 for count in grown)
    assert 0 < sum(grown) < TASKS * SAMPLES
    finish(path, repository, uninterrupted)


def test_killed_in_the_middle_of_a_line(tmp_path: Path, repository: Path, uninterrupted: bytes) -> None:
    path = tmp_path / "run"
    assert start(path, repository, median_s=0.0).wait(timeout=120) == 0
    file = path / "episodes.jsonl"
    file.write_bytes(uninterrupted[: len(uninterrupted) * 2 // 3])  # almost surely within a line
    assert not file.read_bytes().endswith(b"\n")
    (path / "timings.jsonl").unlink()
    finish(path, repository, uninterrupted)
