"""Files that survive crashes: whole lines or none, whole files or none, one writer a folder, errors that help."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "LineFile",
    "ResultsError",
    "cut_torn_line",
    "explain",
    "parse_lines",
    "replace_file",
    "write_atomically",
]

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

    def cut(self, start: int) -> None:
        """Take back what was written from the offset ``start`` on."""
        with explain(self._path):
            os.ftruncate(self._fd, start)
        self._size = start

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


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a crash leaves either the old one or the new one, on the disk itself."""
    replace_file(path, [text.encode("utf-8")])


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file piece by piece so that a crash leaves either the old one or the new one, on the disk itself.

    Where that fails the old file is as it was, and what was written of the new one is removed.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()  # it would take up what a full disk has left
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
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
