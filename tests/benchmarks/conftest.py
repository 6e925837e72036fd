"""What the runner's tests share: an observer that remembers, and quick settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runner import RunResult, RunSettings, run
from trainers.policies.base import make_policy
from trainers.rollout.records import Episode


class Remember:
    """An observer that keeps what it was told."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.started: tuple[Path, str, int] | None = None
        self.found: list[tuple[int, bool]] = []
        self.episodes: list[Episode] = []

    def loading(self, specs: Sequence[str]) -> None:
        self.loaded = list(specs)

    def start(self, path: Path, label: str, planned: int) -> None:
        self.started = (path, label, planned)

    def stored(self, task_index: int, success: bool) -> None:
        self.found.append((task_index, success))

    def began(self, task_index: int, sample: int) -> None: ...

    def played(self, episode: Episode) -> None:
        self.episodes.append(episode)


@pytest.fixture
def play_run(tmp_path: Path) -> Callable[..., tuple[RunResult, Remember]]:
    """Run `math-2agent` with random actions, 6 tasks × 2 samples, into `tmp_path/run` unless told otherwise."""
    usual = RunSettings(env="math-2agent", policies=["random"], n=6, samples=2, out=tmp_path / "run")

    def play(make: Any = make_policy, **changes: Any) -> tuple[RunResult, Remember]:
        observer = Remember()
        return asyncio.run(run(replace(usual, **changes), observer, make=make)), observer

    return play
