"""One writer a folder: a lock that the kernel gives back when its process ends, and what is left of it afterwards.

The lock file says who writes (its process id, and ``open``) and is emptied when the folder is closed in order. So a
folder that is not locked but has such a file was left by a process that was killed, or whose machine went down.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["LOCK", "FolderBusyError", "FolderLock", "Writer", "busy", "find_writer"]

LOCK = "lock"
"""Name of the file in a folder that its writer holds locked."""

_OPEN = "open"
_READ_BYTES = 64
# struct flock of C, with the type at the given place: whether, and by whom, a file is locked.
_DARWIN = struct.Struct("@qqihh")
_LINUX = struct.Struct("@hhqqi4x")


class FolderBusyError(RuntimeError):
    """Another process, or another part of this one, is writing to the folder."""


class Writer(NamedTuple):
    """Who writes to a folder, or wrote to it last.

    Attributes:
        state: ``"running"``; ``"killed"`` if it ended without closing the folder; ``"closed"`` if it did close it, and
            where nobody ever wrote.
        pid: Its process id; None if it closed the folder or its id is not known.
    """

    state: Literal["running", "killed", "closed"]
    pid: int | None


_locked_here: set[Path] = set()


class FolderLock:
    """A lock on a folder.

    It is a POSIX record lock, which child processes do not inherit: a grading worker that outlives a killed runner for
    a moment must not keep the folder. Such locks do not hold within one process, hence the set beside it.

    Args:
        folder: The folder, which is there.

    Raises:
        FolderBusyError: If somebody else holds it. The message names the process.
        OSError: If the lock file cannot be written (a full disk, a folder that may only be read).
    """

    def __init__(self, folder: Path) -> None:
        self._key = folder.resolve()
        if self._key in _locked_here:
            raise FolderBusyError(busy(folder, os.getpid()))
        self._fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n{_OPEN}\n".encode("ascii"), 0)
        except (BlockingIOError, PermissionError):
            pid = _holder(self._fd)
            os.close(self._fd)
            raise FolderBusyError(busy(folder, pid)) from None
        except OSError:
            os.close(self._fd)
            raise
        _locked_here.add(self._key)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Say that the folder was closed in order, and give the lock back."""
        with contextlib.suppress(OSError):  # the lock matters more than the word
            os.ftruncate(self._fd, 0)
        _locked_here.discard(self._key)
        os.close(self._fd)


def find_writer(folder: Path) -> Writer:
    """Return who writes to a folder. Nothing is locked or changed, so a writer that starts meanwhile is not disturbed.

    Raises:
        OSError: If the lock file is there and cannot be read.
    """
    if folder.resolve() in _locked_here:  # to open and close the file would give the lock back
        return Writer("running", os.getpid())
    try:
        fd = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return Writer("closed", None)
    try:
        named, marked = _written(fd)
        held, pid = _query(fd)
        if held:
            return Writer("running", pid or named)
        return Writer("killed", named) if marked else Writer("closed", None)
    finally:
        os.close(fd)


def busy(folder: Path, pid: int | None) -> str:
    """Return what to say to whoever wants to write to a folder that another process writes to."""
    who = f"process {pid}" if pid else "of an unknown process"
    return f"Another runner ({who}) is writing to {folder}; wait for it, or give another --out"


def _holder(fd: int) -> int | None:
    """Return the process that holds the lock: the kernel knows it before it stands in the file."""
    _, pid = _query(fd)
    return pid or _written(fd)[0]


def _written(fd: int) -> tuple[int | None, bool]:
    """Return the process id in the file, and whether it says that the folder is open. Older files have the id alone."""
    words = os.pread(fd, _READ_BYTES, 0).decode("ascii", "replace").split()
    pid = int(words[0]) if words and words[0].isdecimal() else None
    return pid, words[1:] == [_OPEN]


def _query(fd: int) -> tuple[bool, int | None]:
    """Return whether another process holds the lock, and its id (None in another namespace or on another machine)."""
    try:
        if sys.platform == "darwin":
            query = _DARWIN.pack(0, 0, 0, fcntl.F_RDLCK, os.SEEK_SET)
            _, _, pid, kind, _ = _DARWIN.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
        else:
            query = _LINUX.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _LINUX.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
    except OSError:  # a file system without locks
        return False, None
    return kind != fcntl.F_UNLCK, pid if kind != fcntl.F_UNLCK and pid > 0 else None
