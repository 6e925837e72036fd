"""Files that survive crashes: whole lines or none, whole files or none, one writer a folder, errors that help."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "LOCK",
    "FolderLock",
    "LineFile",
    "ResultsError",
    "cut_torn_line",
    "explain",
    "parse_lines",
    "sync_folder",
    "write_atomically",
]

LOCK = "lock"
"""Name of the file in a folder that its writer holds locked."""

SYNC_EVERY_S = 5.0
"""Seconds between two flushes to the disk itself."""


class ResultsError(Exception):
    """A results folder cannot be used as asked. The message names the folder and the way out."""


class LineFile:
    """A file that only grows, by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with explain(path):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size
        self._synced_at = time.monotonic()

    def append(self, line: str) -> tuple[int, int]:
        """Write one line; return its offset and length in bytes. What could not be written whole is taken back."""
        data = line.encode("ascii") + b"\n"
        start = self._size
        with explain(self._path):
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                os.ftruncate(self._fd, start)
                raise
            self._size += len(data)
        if time.monotonic() - self._synced_at >= SYNC_EVERY_S:
            self.sync()
        return start, len(data)

    def sync(self) -> None:
        """Flush to the disk itself. Raises ResultsError if that fails."""
        with explain(self._path):
            os.fsync(self._fd)
        self._synced_at = time.monotonic()

    def close(self) -> None:
        """Flush and close. Calling it twice does no harm."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            with explain(self._path):
                os.fsync(fd)
        finally:
            os.close(fd)


def parse_lines(path: Path) -> Iterator[tuple[bytes, Any]]:
    """Yield each whole line of a JSONL file with what it holds. Raises ResultsError at a line that is not JSON."""
    if not path.exists():
        return
    with explain(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield line, json.loads(line)
            except ValueError as error:
                raise ResultsError(f"{path}, line {number} is not JSON ({error}); restore or remove it") from error


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last newline: the line that was being written when the process died."""
    if not path.exists():
        return
    with explain(path), path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        keep = end
        while keep > 0:
            start = max(0, keep - 65536)
            file.seek(start)
            newline = file.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
        if keep < end:
            file.truncate(keep)


_locked_here: set[Path] = set()


class FolderLock:
    """A lock on the folder that the kernel gives back when this process ends, however it ends.

    It is a POSIX record lock, which child processes do not inherit: a grading worker that outlives a killed runner for
    a moment must not keep the folder. Such locks do not hold within one process, hence the set beside it.
    """

    def __init__(self, folder: Path) -> None:
        self._key = folder.resolve()
        if self._key in _locked_here:
            raise ResultsError(_busy(folder, str(os.getpid())))
        self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = os.read(self._fd, 32).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise ResultsError(_busy(folder, holder or "unknown")) from None
        except OSError:
            os.close(self._fd)
            raise
        _locked_here.add(self._key)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Give the lock back."""
        _locked_here.discard(self._key)
        os.close(self._fd)


def _busy(folder: Path, holder: str) -> str:
    return f"Another runner (process {holder}) is writing to {folder}; wait for it, or give another --out"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a crash leaves either the old one or the new one, on the disk itself."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder's list of names to the disk itself."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class explain:  # noqa: N801  (reads as a word in a with statement)
    """Turn an error of the operating system into one that says which file, and what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise ResultsError(
                f"Cannot use {self._path}: {error.strerror or error}. What was written before is kept; "
                "when that is mended, --resume goes on"
            ) from error
