"""A suite played, run after run: what fails is recorded, and the next one begins."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium.error

from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.shared import SharedPolicies
from benchmarks.results import CONFIG, EPISODES, ResultsError, read_lines
from benchmarks.runner import Observer, RunResult, SettingsError, run
from benchmarks.suites.budget import Meter, Metered, spent_in
from benchmarks.suites.config import SuiteBudgetConfig
from benchmarks.suites.manifest import PAGE, RunRecord, SuiteFolder
from benchmarks.suites.plan import PlannedRun
from benchmarks.tournament import run_tournament
from benchmarks.viewer.page import write_page
from benchmarks.viewer.source import Source
from trainers.policies.base import MissingBackendError, Policy, PolicyError, PolicySpecError, make_policy
from trainers.team import TeamError

__all__ = ["EXPECTED", "ObserverOf", "play_suite", "write_suite_page"]

EXPECTED = (
    gymnasium.error.Error,
    MissingBackendError,
    PolicyError,
    PolicySpecError,
    ProtocolError,
    ResultsError,
    SettingsError,
    TeamError,
)
"""Errors of a run whose message says what to do. Of any other one the log has the traceback."""

ObserverOf = Callable[[int, PlannedRun], Any]
"""Makes the observer of a run, a context manager too, from its number (from 1) and the run."""

_log = logging.getLogger(__name__)


async def play_suite(
    planned: Sequence[PlannedRun],
    folder: SuiteFolder,
    budget: SuiteBudgetConfig,
    observer_of: ObserverOf,
    *,
    command: Sequence[str] = (),
    make: Callable[..., Policy] = make_policy,
) -> list[RunRecord]:
    """Play what is missing of a suite. A run that is complete is not played again.

    A model is loaded once and kept for the runs after, and let go where no later run plays it.

    Args:
        planned: The runs, in order.
        folder: The open folder; it is told how each run ends.
        budget: Of all runs together.
        observer_of: Makes the observer of each run.
        command: The command line, for the record.
        make: Makes the policies.

    Returns:
        How each run stands.

    Raises:
        ResultsError: If the folder of the suite itself cannot be written to.
    """
    folders = {each.name: folder.path / each.name for each in planned}
    used = [spent_in(path) for path in folders.values() if (path / CONFIG).exists()]
    whole = Meter(budget, sum(tokens for tokens, _ in used), sum(seconds for _, seconds in used))
    async with SharedPolicies(make) as shared:
        for number, each in enumerate(planned, start=1):
            path = folders[each.name]
            stored = _stored(path)
            if stored is not None and stored == each.episodes:
                old = folder.runs[each.name]
                folder.record(replace(old, status="complete", planned=stored, stored=stored, reason=None))
                continue
            with observer_of(number, each) as observer:
                record = await _play(each, path, whole, observer, command, shared.make)
            folder.record(replace(record, seconds=round(folder.runs[each.name].seconds + record.seconds, 1)))
            later = {spec for other in planned[number:] for spec in other.specs}
            await shared.keep(later if record.status in ("complete", "stopped") else ())
    return [folder.runs[each.name] for each in planned]


async def _play(
    each: PlannedRun,
    path: Path,
    whole: Meter,
    observer: Observer,
    command: Sequence[str],
    make: Callable[..., Policy],
) -> RunRecord:
    """Play one run, or what is missing of it; whatever goes wrong becomes a record."""
    record = RunRecord(each.name, each.settings.env, each.tournament, planned=each.episodes)
    tokens, seconds = spent_in(path) if (path / CONFIG).exists() else (0, 0.0)
    metered = Metered(observer, [Meter(each.budget, tokens, seconds), whole])
    started = time.monotonic()
    try:
        reason = metered.reason()
        if reason is not None:
            return replace(record, status="stopped", stored=_stored(path) or 0, reason=reason)
        settings = replace(each.settings, out=path, resume=True, command=list(command))
        play = run_tournament if each.tournament else run
        result = await play(settings, metered, make=make, go_on=metered.go_on)
    except EXPECTED as error:
        record = replace(record, status="failed", stored=_stored(path) or 0, reason=str(error))
    except Exception as error:  # noqa: BLE001 - a bug in one run must not lose the others
        _log.exception("%s failed", each.name)
        record = replace(record, status="failed", stored=_stored(path) or 0, reason=f"{type(error).__name__}: {error}")
    else:
        record = _ended(record, result, metered.reason())
    finally:
        metered.stop()
    return replace(record, seconds=time.monotonic() - started)


def _ended(record: RunRecord, result: RunResult, spent: str | None) -> RunRecord:
    record = replace(record, planned=result.planned, stored=result.stored, failed=result.failed)
    if result.complete:
        return replace(record, status="complete")
    if result.gave_up is not None:
        return replace(record, status="incomplete", reason=f"gave up: {result.gave_up}")
    if result.failed:
        return replace(record, status="incomplete", reason=f"{result.failed} episodes failed (see errors.jsonl)")
    return replace(record, status="stopped", reason=spent)


def _stored(path: Path) -> int | None:
    """Return the number of stored episodes of a run; None if it has not begun."""
    if not (path / CONFIG).exists():
        return None
    return sum(1 for _ in read_lines(path, EPISODES))


def write_suite_page(folder: SuiteFolder, names: Iterable[str]) -> Path | None:
    """Write one page that shows the runs of a suite that hold episodes; None if none does.

    Raises:
        ResultsError: If a run cannot be read or the page cannot be written.
    """
    sources = [Source(folder.path / name) for name in names if _stored(folder.path / name)]
    if not sources:
        return None
    path = folder.path / PAGE
    write_page(sources, path)
    folder.save(PAGE)
    return path
