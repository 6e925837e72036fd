"""How it stands with a results folder: still being written, complete, stopped in order, or left by a killed runner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import writer_of

__all__ = ["missing_note", "run_state"]


def run_state(path: str | Path, *, complete: bool) -> dict[str, Any]:
    """Return the state of a results folder.

    Args:
        path: The folder.
        complete: Whether all its episodes are stored.

    Returns:
        ``state``: ``"running"`` while a runner holds the folder, else ``"complete"``; else ``"killed"`` if the last
        runner ended without closing it, or ``"stopped"`` if it did close it (Ctrl-C, too many errors). ``writer``: the
        process id of that runner; None of a complete or stopped run, and where it is not known.

    Raises:
        ResultsError: If the folder cannot be read.
    """
    state, pid = writer_of(path)
    if state == "running":
        return {"state": "running", "writer": pid}
    if complete:
        return {"state": "complete", "writer": None}
    return {"state": "killed" if state == "killed" else "stopped", "writer": pid}


def missing_note(summary: Mapping[str, Any], what: str) -> str | None:
    """Return what to say of a run that is not complete; None of one that is.

    Args:
        summary: Of a run or a tournament.
        what: What is missing: ``episodes`` or ``games``.
    """
    missing = summary["planned"] - summary["episodes"]
    process = f"process {summary['writer']}" if summary["writer"] else "another process"
    if summary["state"] == "running":
        return f"{summary['run']}: {process} is playing it now; {missing} of {summary['planned']} {what} are to come."
    if not missing:
        return None
    failed = f", {summary['failed']} of them failed (see errors.jsonl)" if summary["failed"] else ""
    killed = f"{process} was killed, or its machine went down; " if summary["state"] == "killed" else ""
    return (
        f"{summary['run']}: {killed}{missing} of {summary['planned']} {what} are missing{failed}. --resume plays them."
    )
