"""Leaderboards: policies in rows, environments in columns, and which figures are really the best.

A column holds runs of one environment with the same arguments, tasks and samples, so that all of its cells can be
compared. The best cell is marked, and so is every other one that a paired test over tasks cannot tell from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.cost import Prices
from benchmarks.table_entries import ALPHA, Entry, entries_of

__all__ = ["Cell", "Leaderboard", "make_leaderboard"]


class Cell(NamedTuple):
    """One figure, as text.

    Attributes:
        value: The figure.
        interval: Its 95 % interval, or nothing.
        best: Whether it is the best of its column, or a test cannot tell it from the best.
        incomplete: Whether episodes are missing.
    """

    value: str
    interval: str
    best: bool
    incomplete: bool


@dataclass(frozen=True)
class Leaderboard:
    """A table, with what a reader must know to trust it.

    Attributes:
        columns: The headings.
        rows: Who plays, and a cell for each column; None where nothing was measured.
        notes: What was played, and how to read the marks.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    notes: Sequence[str]


def make_leaderboard(
    paths: Sequence[str | Path], metrics: Sequence[str] = (), prices: Prices | None = None
) -> Leaderboard:
    """Make a leaderboard of runs and tournaments.

    Rows are sorted by their mean rank over the columns of the first metric, a missing cell ranking last.

    Args:
        paths: Results folders.
        metrics: Names of :data:`benchmarks.table_entries.TABLE_METRICS`. None given: avg of a run, score of a zero-sum
            game, elo of a tournament.
        prices: What tokens cost.

    Raises:
        MetricError: If there is no such metric, or a folder has none of them.
        ResultsError: If a folder cannot be read.
    """
    entries = _tell_apart([entry for path in paths for entry in entries_of(path, metrics, prices)])
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        asked = metrics.index(entry.metric) if metrics else 0
        groups.setdefault((entry.env, entry.what, asked, entry.column), []).append(entry)
    columns = [groups[key] for key in sorted(groups)]
    cells = [_cells(column) for column in columns]
    main = columns[0][0].metric if not metrics else metrics[0]
    ranked = [_ranks(column) for column in columns if not metrics or column[0].metric == main] or list(
        map(_ranks, columns)
    )

    def place(label: str) -> tuple[float, str]:
        return sum(ranks.get(label, len(ranks) + 1.0) for ranks in ranked) / len(ranked), label

    labels = sorted({entry.label for entry in entries}, key=place)
    rows = [(label, [column.get(label) for column in cells]) for label in labels]
    headings = _headings([column[0] for column in columns])
    return Leaderboard(headings, rows, _notes(columns, headings))


def _tell_apart(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with labels that are unique in every column: settings that vary are added, then the folder."""
    entries = list(entries)
    for step in ("settings", "folder", "path"):
        where: dict[tuple[tuple[str, ...], str], set[str]] = {}
        for entry in entries:
            where.setdefault((entry.column, entry.label), set()).add(entry.run)
        clashing = {label for (_, label), runs in where.items() if len(runs) > 1}
        for label in clashing:
            same = [entry for entry in entries if entry.label == label]
            varying = _varying([entry.settings for entry in same])
            for position, entry in enumerate(entries):
                if entry.label != label:
                    continue
                more = {
                    "settings": ", ".join(f"{name}={entry.settings.get(name)}" for name in varying),
                    "folder": Path(entry.run).name,
                    "path": entry.run,
                }[step]
                entries[position] = replace(entry, label=f"{label} ({more})" if more else label)
    unique: dict[tuple[tuple[str, ...], str], Entry] = {(entry.column, entry.label): entry for entry in entries}
    return list(unique.values())  # a folder that was given twice counts once


def _varying(settings: Sequence[Mapping[str, object]]) -> list[str]:
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]


def _cells(column: Sequence[Entry]) -> dict[str, Cell]:
    whole = [entry for entry in column if entry.value is not None and not entry.missing]
    best: set[str] = set()
    if len(whole) > 1:  # one alone is no best
        sign = 1 if whole[0].higher else -1
        top = max(sign * (entry.value or 0.0) for entry in whole)
        first = [entry for entry in whole if sign * (entry.value or 0.0) == top]
        best = {entry.label for entry in whole if entry in first or any(entry.as_good_as(one) for one in first)}
    found = {}
    for entry in column:
        if entry.value is None:
            continue
        show = entry.show
        interval = "" if entry.interval is None else f"[{show(entry.interval[0])}, {show(entry.interval[1])}]"
        found[entry.label] = Cell(show(entry.value), interval, entry.label in best, entry.missing > 0)
    return found


def _ranks(column: Sequence[Entry]) -> dict[str, float]:
    """Return the rank of every label, from 1; equal figures share the mean of their ranks."""
    sign = -1 if column[0].higher else 1
    values = {entry.label: sign * entry.value for entry in column if entry.value is not None}
    return {
        label: sum(other < value for other in values.values()) + (1 + sum(v == value for v in values.values())) / 2
        for label, value in values.items()
    }


def _headings(entries: Sequence[Entry]) -> list[str]:
    """Return a heading for each column, with a number where two would be the same."""
    plain = [f"{entry.env}, {entry.title}" for entry in entries]
    found = []
    for position, text in enumerate(plain):
        number = plain[: position + 1].count(text)
        found.append(f"{text} ({number})" if plain.count(text) > 1 else text)
    return found


def _notes(columns: Sequence[Sequence[Entry]], headings: Sequence[str]) -> list[str]:
    by_what: dict[str, list[str]] = {}
    for column, heading in zip(columns, headings, strict=True):
        protocols = {entry.protocol for entry in column}
        by = f", protocol {column[0].protocol}" if len(protocols) == 1 and protocols != {None} else ""
        by_what.setdefault(column[0].what + by, []).append(heading)
    notes = [f"{'; '.join(titles)}: {what}." for what, titles in by_what.items()]
    notes.append(
        "Brackets: 95 % intervals. Bold: the best of a column, and those that a paired test over tasks cannot tell "
        f"from it (p ≥ {ALPHA:g}; of a tournament: whose games against it leave open who is stronger)."
    )
    for column in columns:
        for entry in column:
            if entry.missing:
                notes.append(
                    f"† {entry.label} in {entry.env}: {entry.missing} episodes are missing; not in the running."
                )
    return list(dict.fromkeys(notes))
