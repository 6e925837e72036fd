"""What a run, and a whole suite, has used so far, and whether another episode may begin."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import EPISODES, TIMINGS, read_lines
from benchmarks.runner import Observer
from benchmarks.suites.config import SuiteBudgetConfig
from benchmarks.summary import elapsed_seconds
from trainers.rollout.records import Episode

__all__ = ["Meter", "Metered", "spent_in"]


class Meter:
    """Counts tokens and seconds against a budget.

    Args:
        budget: The bounds.
        tokens: What was used in earlier sessions.
        seconds: Likewise.
    """

    def __init__(self, budget: SuiteBudgetConfig, tokens: int = 0, seconds: float = 0.0) -> None:
        self._budget = budget
        self._tokens = tokens
        self._seconds = seconds
        self._started: float | None = None

    def start(self) -> None:
        """Begin to count seconds."""
        if self._started is None:
            self._started = time.monotonic()

    def stop(self) -> None:
        """Stop counting seconds."""
        if self._started is not None:
            self._seconds += time.monotonic() - self._started
            self._started = None

    def count(self, episode: Episode) -> None:
        """Count the tokens of an episode that ended or failed."""
        self._tokens += sum(turn.prompt_tokens + turn.completion_tokens for turn in episode.turns)

    def spent(self) -> str | None:
        """Return which bound is reached, in words; None while there is something left."""
        now = self._seconds + (0.0 if self._started is None else time.monotonic() - self._started)
        if self._budget.tokens is not None and self._tokens >= self._budget.tokens:
            return f"the budget of {self._budget.tokens:,} tokens is spent"
        if self._budget.seconds is not None and now >= self._budget.seconds:
            return f"the budget of {self._budget.seconds:,g} seconds is spent"
        return None


class Metered:
    """An observer that counts what it is told, and tells it on.

    Args:
        inner: Who is told.
        meters: What counts: of the run, and of the suite.
    """

    def __init__(self, inner: Observer, meters: Sequence[Meter]) -> None:
        self._inner = inner
        self._meters = meters

    def loading(self, specs: Sequence[str]) -> None:
        """The policies are being made, which can take a minute. It is not counted."""
        self._inner.loading(specs)

    def start(self, path: Path, label: str, planned: int) -> None:
        """The team is loaded and the folder is open."""
        for meter in self._meters:
            meter.start()
        self._inner.start(path, label, planned)

    def stored(self, task_index: int, success: bool) -> None:
        """An episode of an earlier session is there already."""
        self._inner.stored(task_index, success)

    def began(self, task_index: int, sample: int) -> None:
        """An episode begins."""
        self._inner.began(task_index, sample)

    def played(self, episode: Episode) -> None:
        """An episode ended or failed."""
        for meter in self._meters:
            meter.count(episode)
        self._inner.played(episode)

    def go_on(self) -> bool:
        """Whether another episode may begin."""
        return self.reason() is None

    def reason(self) -> str | None:
        """Why none may; None if one may."""
        return next((reason for meter in self._meters if (reason := meter.spent()) is not None), None)

    def stop(self) -> None:
        """Playing has ended."""
        for meter in self._meters:
            meter.stop()


def spent_in(folder: Path) -> tuple[int, float]:
    """Return the tokens of the stored episodes of a run, and the seconds in which they were played.

    Raises:
        benchmarks.results.ResultsError: If a line cannot be read.
    """
    tokens = sum(
        turn["prompt_tokens"] + turn["completion_tokens"]
        for episode in read_lines(folder, EPISODES)
        for turn in episode["turns"]
    )
    return tokens, elapsed_seconds(list(read_lines(folder, TIMINGS))) or 0.0
