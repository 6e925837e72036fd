"""The results folder of a run: append-only while it runs, resumable after any crash, sorted when it is complete.

========================  ==============================================================================================
``config.json``           What was run. ``identity`` holds every setting that can change a result, ``context`` the rest.
``episodes.jsonl``        One played episode a line: only what is the same in every run of the same seed.
``timings.jsonl``         Latencies, by episode id: what is not.
``errors.jsonl``          Episodes that failed, with what was played until then. A resumed run plays them again.
``lock``                  Held while a runner writes; empty once it has closed the folder in order.
========================  ==============================================================================================

A line is written in one piece and reaches the kernel before the next episode is taken, so a killed process loses no
episode that it reported; the disk itself is flushed every few seconds. The timing of an episode is written before the
episode, so no episode lacks it. A line that a crash cut off, and a timing whose episode was never written, are removed
when the run is resumed. When every episode is there, ``episodes.jsonl`` is replaced, atomically, by the same lines in
the order of (task index, sample): a resumed run and one that was never interrupted end with the same bytes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from benchmarks.line_places import LinePlaces
from benchmarks.schema import SCHEMA_VERSION, added_since, upgrade
from benchmarks.storage import (
    LineFile,
    ResultsError,
    cut_torn_line,
    explain,
    parse_lines,
    replace_file,
    write_atomically,
)
from trainers.folder_lock import LOCK, FolderBusyError, FolderLock, Writer, busy, find_writer
from trainers.rollout.records import Episode

__all__ = ["ResultsError", "ResultsFolder", "check_usable", "differences", "read_config", "read_lines", "writer_of"]

CONFIG = "config.json"
EPISODES = "episodes.jsonl"
TIMINGS = "timings.jsonl"
ERRORS = "errors.jsonl"


class Stored(NamedTuple):
    """What is known of an episode that an earlier session stored."""

    task_index: int
    sample: int
    task_hash: str
    success: bool


class ResultsFolder:
    """An open results folder, locked against other runners. Use it as a context manager.

    Args:
        path: The folder. It is created if it is not there.
        config: ``{"identity": {...}, "context": {...}}``, JSON values only.
        resume: Go on with the run in the folder if there is one.
        save_tokens: Keep token ids and log-probs in ``episodes.jsonl``.

    Raises:
        ResultsError: If the folder holds a run and ``resume`` is False; if it holds a run of other settings; if
            something else is in it; if another runner is at work in it; or if it cannot be written to.
    """

    def __init__(
        self, path: str | Path, config: Mapping[str, Any], *, resume: bool = False, save_tokens: bool = False
    ) -> None:
        self.path = Path(path)
        self.save_tokens = save_tokens
        self._files: dict[str, LineFile] = {}
        self._places = LinePlaces()
        self._stored: list[Stored] = []
        self._lock: FolderLock | None = None
        check_usable(self.path, resume=resume)
        try:
            with explain(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = _lock(self.path)
            _check_content(self.path, resume=resume)
            self._write_or_compare_config(config)
            for name in (EPISODES, TIMINGS, ERRORS):
                cut_torn_line(self.path / name)
            self._match_timings(self._read_episodes())
            for name in (EPISODES, TIMINGS, ERRORS):
                self._files[name] = LineFile(self.path / name)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """Number of stored episodes."""
        return len(self._places)

    @property
    def done(self) -> set[tuple[int, int]]:
        """(task index, sample) of every stored episode."""
        return set(self._places)

    @property
    def stored(self) -> tuple[Stored, ...]:
        """What is known of the episodes that were there when the folder was opened."""
        return tuple(self._stored)

    def add(self, episode: Episode) -> None:
        """Store one episode: a failed one as an error, any other as a result.

        Raises:
            ResultsError: If the disk is full or the folder cannot be written to.
            ValueError: If the episode is already stored.
        """
        if episode.error is not None:
            self._files[ERRORS].append(episode.to_json(tokens=False))
            return
        if (episode.task_index, episode.sample) in self._places:
            raise ValueError(f"Episode {episode.id!r} is already in {self.path / EPISODES}")
        line = episode.to_json(tokens=self.save_tokens, timings=False)
        timing = {
            "id": episode.id,
            "wall_s": round(episode.wall_s, 6),
            "ended": round(time.time(), 3),
            "latency_s": [round(turn.latency_s, 6) for turn in episode.turns],
        }
        timed, _ = self._files[TIMINGS].append(json.dumps(timing, separators=(",", ":")))
        try:
            _, size = self._files[EPISODES].append(line)
        except ResultsError:
            self._files[TIMINGS].cut(timed)
            raise
        self._places.add(episode.task_index, episode.sample, size)

    def sort(self) -> None:
        """Replace ``episodes.jsonl`` by the same lines in the order of (task index, sample), atomically.

        Raises:
            ResultsError: If the new file cannot be written. The old one is then still there, whole.
        """
        path = self.path / EPISODES
        order = self._places.order()
        self._files[EPISODES].sync()
        if bool((order[:-1] < order[1:]).all()):
            return
        with explain(path), path.open("rb") as source:
            replace_file(path, (_read_at(source, *self._places.line(number)) for number in order.tolist()))
        self._files[EPISODES].close()
        self._files[EPISODES] = LineFile(path)
        self._places = self._places.reordered(order)

    def close(self) -> None:
        """Flush to disk, close the files and give the lock back."""
        with contextlib.ExitStack() as stack:  # closes all of them, even if one cannot be flushed
            lock, self._lock = self._lock, None
            if lock is not None:
                stack.callback(lock.release)
            files, self._files = self._files, {}
            for file in files.values():
                stack.callback(file.close)

    def __enter__(self) -> ResultsFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_or_compare_config(self, config: Mapping[str, Any]) -> None:
        path = self.path / CONFIG
        config = {"schema_version": SCHEMA_VERSION, **json.loads(json.dumps(config))}
        if not path.exists():
            with explain(path):
                write_atomically(path, json.dumps(config, indent=2) + "\n")
            return
        stored = read_config(self.path)
        changed = [
            (name, old, new)
            for name, old, new in differences(stored["identity"], config["identity"])
            if not (old is None and added_since(stored["schema_version"], name))
        ]
        if changed:
            listed = "".join(f"\n  {name}: {old!r} in the folder, {new!r} now" for name, old, new in changed)
            raise ResultsError(
                f"{self.path} holds a run with other settings, so it cannot be resumed with these:{listed}\n"
                "Give the same settings, or another --out."
            )

    def _read_episodes(self) -> set[str]:
        """Read what is stored; return the ids."""
        path = self.path / EPISODES
        ids: set[str] = set()
        for number, (line, record) in enumerate(parse_lines(path), start=1):
            try:
                key = record["id"]
                stored = Stored(record["task_index"], record["sample"], record["task_hash"], record["success"])
            except (KeyError, TypeError) as error:
                raise ResultsError(
                    f"{path}, line {number} is not an episode ({error!r}); restore or remove it"
                ) from error
            if key in ids:
                raise ResultsError(f"{path}, line {number}: episode {key!r} is there twice; remove one of the two")
            ids.add(key)
            self._stored.append(stored)
            self._places.add(stored.task_index, stored.sample, len(line))
        return ids

    def _match_timings(self, ids: Collection[str]) -> None:
        """Remove timings without an episode: it will be played again, and timed again."""
        path = self.path / TIMINGS
        kept: dict[str, bytes] = {}
        count = 0
        for count, (line, record) in enumerate(parse_lines(path), start=1):
            if not isinstance(record, dict) or "id" not in record:
                raise ResultsError(f"{path}, line {count} is not a timing; restore or remove it")
            if record["id"] in ids:
                kept[record["id"]] = line
        if len(kept) < count:
            with explain(path):
                replace_file(path, kept.values())


def check_usable(path: Path, *, resume: bool) -> None:
    """Check, without changing anything, that a run may start or go on in ``path``.

    Raises:
        ResultsError: If it may not.
    """
    writer = writer_of(path)
    if writer.state == "running":
        raise ResultsError(busy(path, writer.pid))
    _check_content(path, resume=resume)


def writer_of(path: str | Path) -> Writer:
    """Return who writes to a results folder, or wrote to it last (see :mod:`trainers.folder_lock`)."""
    path = Path(path)
    with explain(path):
        return find_writer(path)


def _lock(path: Path) -> FolderLock:
    try:
        return FolderLock(path)
    except FolderBusyError as error:
        raise ResultsError(str(error)) from None


def _read_at(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def _check_content(path: Path, *, resume: bool) -> None:
    with explain(path):
        if not path.exists():
            return
        if not path.is_dir():
            raise ResultsError(f"{path} is a file; --out names a folder")
        names = {entry.name for entry in path.iterdir()} - {LOCK, f"{CONFIG}.tmp"}
    if CONFIG in names:
        if not resume:
            raise ResultsError(f"{path} already holds a run. Add --resume to go on with it, or give another --out")
    elif names:
        raise ResultsError(f"{path} is not empty and holds no run ({CONFIG} is missing); give another --out")


def read_config(path: str | Path) -> dict[str, Any]:
    """Read the configuration of a run, of this or an older version (see :mod:`benchmarks.schema`).

    Raises:
        ResultsError: If there is none, or it is of a newer version.
    """
    file = Path(path) / CONFIG
    try:
        return upgrade(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ResultsError(f"{path} is no results folder: it has no {CONFIG}") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"Cannot read {file}: {error}") from error


def read_lines(path: str | Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the records of one of the folder's files, one at a time. A last line that was cut off is left out.

    Raises:
        ResultsError: If another line is not JSON.
    """
    for _, record in parse_lines(Path(path) / name):
        yield record


def differences(old: Any, new: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Return the settings that differ between two nested mappings as ``(dotted name, old, new)``; absent is None."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in dict.fromkeys([*old, *new]):
            found += differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
        return found
    return [] if old == new else [(prefix, old, new)]
