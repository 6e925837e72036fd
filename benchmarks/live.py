"""How a run goes, while it goes: a progress bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from benchmarks.outcomes import Standings
from benchmarks.results import CONFIG, EPISODES, read_config, read_lines
from benchmarks.summary import Counts
from benchmarks.tournament_summary import Table, is_tournament
from llm_envs.console import printable
from trainers.rollout.records import Episode
from trainers.team import Player

__all__ = ["LiveView"]

PLAIN_EVERY_S = 10.0
STATS_EVERY_S = 0.5


SLOWEST = 3
"""How many of the slowest episodes are shown."""


class _Bar(Progress):
    """A bar with the figures on lines below it, each as wide as the terminal at most.

    Args:
        below: Returns those lines. It is called by the thread that draws.
        columns: Of the bar.
        console: Where to.
    """

    def __init__(self, below: Callable[[], Iterable[str]], *columns: ProgressColumn, console: Console) -> None:
        self._below = below
        super().__init__(*columns, console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar and, once there are any, the figures."""
        yield from super().get_renderables()
        for line in self._below():
            yield Text(printable(line), overflow="ellipsis", no_wrap=True)


class _Games(Protocol):
    """Results so far of an environment in which there is no success of all."""

    def add(self, episode: Mapping[str, Any]) -> None: ...

    def headline(self) -> str: ...


class LiveView:
    """Shows how it stands, episodes and tokens a second, the slowest episodes, and errors. Use it as a context manager.

    How it stands is the success so far with its interval; in a zero-sum game the wins, draws and losses of each agent;
    and in a tournament the share of the points of each player.

    Args:
        console: Where to. A terminal that can move its cursor gets a bar, anything else a plain line now and then.
        quiet: Show nothing.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._counts = Counts()
        self._games: _Games | None = None
        self.path: Path | None = None
        self._played = 0
        self._planned = 0
        self._started = self._shown = time.monotonic()
        self._standing = ""
        self._lock = threading.Lock()
        """Of the counts: the thread that draws reads them."""
        self._running: dict[tuple[int, int], float] = {}
        self._slowest: list[tuple[float, str]] = []
        self._last_error = ""
        self._bar: _Bar | None = None
        if console.is_terminal and not console.is_dumb_terminal and not quiet:
            self._bar = _Bar(
                self._below,
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task("loading", total=None)

    def __enter__(self) -> LiveView:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._running.clear()
            self._standing = ""  # the last picture is not to be older than the last episode
            if self.path is not None:
                self._count_progress()
            self._bar.stop()

    def loading(self, specs: Sequence[str]) -> None:
        """The policies are being made, which can take a minute."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"loading {escape(', '.join(specs))}")
        elif not self._quiet and not all(Player(spec).scripted for spec in specs):
            self._console.print(f"loading {', '.join(specs)}", markup=False, soft_wrap=True)

    def start(self, path: Path, label: str, planned: int) -> None:
        """The team is loaded and the folder is open."""
        self._planned = planned
        self.path = path
        self._games = _games_of(path)
        self._started = self._shown = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, description="episodes", total=planned)
        elif not self._quiet:
            self._console.print(f"{label}: {planned} episodes -> {path}", markup=False, soft_wrap=True)

    def expect(self, planned: int) -> None:
        """There are more episodes than was known at the start."""
        self._planned = planned
        if self._bar is not None:
            self._bar.update(self._task, total=planned)

    def stored(self, task_index: int, success: bool) -> None:
        """An episode of an earlier session is there already."""
        with self._lock:
            self._counts.add(task_index, success)

    def began(self, task_index: int, sample: int) -> None:
        """An episode begins."""
        if not self._played and not self._running and self._bar is not None:
            # What was there before says nothing on the time that is left.
            self._bar.reset(self._task, total=self._planned, completed=self._counts.episodes)
        self._running[task_index, sample] = time.monotonic()

    def played(self, episode: Episode) -> None:
        """An episode ended or failed."""
        self._played += 1
        self._running.pop((episode.task_index, episode.sample), None)
        self._slowest = sorted([*self._slowest, (episode.wall_s, episode.id)], reverse=True)[:SLOWEST]
        with self._lock:
            self._count(episode)
        if self._bar is not None:
            self._count_progress()
            return
        now = time.monotonic()
        if not self._quiet and (now - self._shown >= PLAIN_EVERY_S or self._ended == self._planned):
            self._print_line()
            self._shown = now

    def _count(self, episode: Episode) -> None:
        if episode.error is not None:
            self._counts.failed += 1
            self._last_error = f"{episode.id}: {' '.join(episode.error.split())}"
            return
        tokens = sum(turn.completion_tokens for turn in episode.turns)
        self._counts.add(episode.task_index, episode.success, tokens)
        if self._games is not None:
            self._games.add(episode.to_dict(tokens=False, timings=False))

    @property
    def _ended(self) -> int:
        return self._counts.episodes + self._counts.failed

    def _count_progress(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._ended)

    def _print_line(self) -> None:
        parts = [f"{self._ended}/{self._planned} episodes", self._headline(), *self._throughput()]
        slowest = self._slow(1)
        if slowest:
            parts.append(f"slowest {slowest[0]}")
        parts.append(self._errors())
        self._console.print(printable(", ".join(parts)), markup=False, soft_wrap=True)

    def _below(self) -> Iterable[str]:
        """Yield the lines below the bar. The thread that draws asks."""
        if self.path is None or not self._ended:
            return
        now = time.monotonic()
        if not self._standing or now - self._shown >= STATS_EVERY_S:
            self._standing = self._headline()
            self._shown = now
        yield ", ".join([self._standing, *self._throughput(), self._errors()])
        slowest = self._slow(SLOWEST)
        if slowest:
            yield f"slowest: {', '.join(slowest)}"
        if self._last_error:
            yield f"last error: {self._last_error}"

    def _headline(self) -> str:
        with self._lock:
            return (self._counts if self._games is None else self._games).headline()

    def _throughput(self) -> list[str]:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rates = [f"{self._played / seconds:.1f} episodes/s"]
        if self._counts.tokens:
            rates.append(f"{self._counts.tokens / seconds:.0f} tokens/s")
        return rates

    def _errors(self) -> str:
        return f"{self._counts.failed} errors"

    def _slow(self, count: int) -> list[str]:
        """Return the episodes that took longest, those that are still going on among them, longest first."""
        now = time.monotonic()
        ended = [(seconds, name) for seconds, name in list(self._slowest)]
        going_on = [
            (now - since, f"task {task} sample {sample}, going on")
            for (task, sample), since in list(self._running.items())
        ]
        return [f"{seconds:.1f} s ({name})" for seconds, name in sorted(ended + going_on, reverse=True)[:count]]


def _games_of(path: Path) -> _Games | None:
    """Return what counts the games of the run in a folder, with those that are there already; None of no games."""
    if not (path / CONFIG).exists():
        return None
    config = read_config(path)
    games: _Games
    if is_tournament(config):
        games = Table([(first, second) for first, second in config["identity"]["tournament"]["matches"]])
    elif config["context"].get("zero_sum"):
        games = Standings()
    else:
        return None
    for record in read_lines(path, EPISODES):
        games.add(record)
    return games
