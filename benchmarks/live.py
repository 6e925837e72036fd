"""How a run goes, while it goes: a progress bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from benchmarks.outcomes import Standings
from benchmarks.results import CONFIG, EPISODES, read_config, read_lines
from benchmarks.summary import Counts
from benchmarks.tournament_summary import Table, is_tournament
from trainers.rollout.records import Episode
from trainers.team import Player

__all__ = ["LiveView"]

PLAIN_EVERY_S = 10.0
STATS_EVERY_S = 0.5


class _Bar(Progress):
    """A bar with the figures on a line below it, so that both fit 80 columns."""

    stats = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar and, once there are any, the figures."""
        yield from super().get_renderables()
        if self.stats:
            yield Text(self.stats, overflow="ellipsis", no_wrap=True)


class _Games(Protocol):
    """Results so far of an environment in which there is no success of all."""

    def add(self, episode: Mapping[str, Any]) -> None: ...

    def headline(self) -> str: ...


class LiveView:
    """Shows how it stands, episodes and tokens a second, and errors. Use it as a context manager.

    How it stands is the success so far with its interval; in a zero-sum game the wins, draws and losses of each agent;
    and in a tournament the share of the points of each player.

    Args:
        console: Where to. A terminal gets a bar, anything else plain lines.
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
        self._bar: _Bar | None = None
        if console.is_terminal and not quiet:
            self._bar = _Bar(
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
            if self.path is not None:
                self._bar.stats = self._stats()
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
        self._counts.add(task_index, success)
        if self._bar is not None:
            self._bar.advance(self._task)

    def played(self, episode: Episode) -> None:
        """An episode ended or failed."""
        self._played += 1
        if episode.error is None:
            tokens = sum(turn.completion_tokens for turn in episode.turns)
            self._counts.add(episode.task_index, episode.success, tokens)
            if self._games is not None:
                self._games.add(episode.to_dict(tokens=False, timings=False))
        else:
            self._counts.failed += 1
        now = time.monotonic()
        if self._bar is not None:
            self._bar.advance(self._task)
            if now - self._shown >= STATS_EVERY_S:
                self._bar.stats = self._stats()
                self._shown = now
        elif not self._quiet and (
            now - self._shown >= PLAIN_EVERY_S or self._counts.episodes + self._counts.failed == self._planned
        ):
            done = self._counts.episodes + self._counts.failed
            self._console.print(f"{done}/{self._planned} episodes, {self._stats()}", markup=False, soft_wrap=True)
            self._shown = now

    def _stats(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        standing = self._counts if self._games is None else self._games
        parts = [standing.headline(), f"{self._played / seconds:.1f} episodes/s"]
        if self._counts.tokens:
            parts.append(f"{self._counts.tokens / seconds:.0f} tokens/s")
        parts.append(f"{self._counts.failed} errors")
        return ", ".join(parts)


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
