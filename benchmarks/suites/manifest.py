"""The folder of a suite: one results folder a run, and ``suite.json``, which says what is in it and how it stands.

``suite.json`` is replaced as a whole, atomically, when the suite begins and after every run. Its fields:

==================  ====================================================================================================
``schema_version``  1
``name``            Of the suite, or the file that it was read from
``description``     What it measures
``suite``           The suite itself, with all its defaults
``request``         What the command line said: policies, options, bounds
``context``         When and where it was started, by which command
``runs``            One object a run, in order: ``name`` (its folder), ``env``, ``tournament``, ``status``, ``planned``,
                    ``stored``, ``failed``, ``seconds``, ``reason``
``page``            The page that shows all runs, once it is written
==================  ====================================================================================================

A ``status`` is ``pending``, ``complete``, ``incomplete`` (episodes failed), ``stopped`` (a budget was spent) or
``failed`` (the run could not be played; ``reason`` says why).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.context import describe_machine, describe_source
from benchmarks.results import CONFIG, ResultsError, differences
from benchmarks.storage import explain, write_atomically
from trainers.folder_lock import LOCK, FolderBusyError, FolderLock

__all__ = ["MANIFEST", "PAGE", "RunRecord", "SuiteFolder", "holds_suite", "read_manifest", "suite_runs"]

MANIFEST = "suite.json"
PAGE = "suite.html"
SCHEMA_VERSION = 1

Status = Literal["pending", "complete", "incomplete", "stopped", "failed"]

_MAY_CHANGE = ("description", "concurrency", "budget")
"""Fields of a suite that a resumed one may have otherwise: they change no episode."""

_OF_SESSION = ("concurrency", "only")
"""Likewise of what the command line said."""


@dataclass(frozen=True)
class RunRecord:
    """How a run of a suite stands."""

    name: str
    env: str
    tournament: bool
    status: Status = "pending"
    planned: int | None = None
    stored: int = 0
    failed: int = 0
    seconds: float = 0.0
    reason: str | None = None


class SuiteFolder:
    """An open folder of a suite, locked against other runners. Use it as a context manager.

    Args:
        path: The folder. It is created if it is not there.
        content: ``name``, ``description``, ``suite`` and ``request``.
        runs: The runs, in order.
        resume: Go on with the suite in the folder if there is one.
        command: The command line, for the record.

    Raises:
        ResultsError: If the folder holds a suite and ``resume`` is False, another suite, or something else; if another
            runner is at work in it; or if it cannot be written to.
    """

    def __init__(
        self,
        path: Path,
        content: Mapping[str, Any],
        runs: Iterable[RunRecord],
        *,
        resume: bool = False,
        command: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.runs = {run.name: run for run in runs}
        _check_usable(path, resume=resume)
        with explain(path):
            path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock = FolderLock(path)
            except FolderBusyError as error:
                raise ResultsError(str(error)) from None
        try:
            self._manifest = self._begin(dict(content), list(command))
            self.save()
        except BaseException:
            self._lock.release()
            raise

    def _begin(self, content: dict[str, Any], command: list[str]) -> dict[str, Any]:
        content = json.loads(json.dumps(content))
        if not holds_suite(self.path):
            context = {
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "machine": describe_machine(),
                "source": describe_source(),
                "command": command,
            }
            return {"schema_version": SCHEMA_VERSION, **content, "context": context, "page": None}
        stored = read_manifest(self.path)
        changed = differences(_identity(stored), _identity(content))
        if changed:
            listed = "".join(f"\n  {name}: {old!r} in the folder, {new!r} now" for name, old, new in changed)
            raise ResultsError(
                f"{self.path} holds a suite of other settings, so it cannot be resumed with these:{listed}"
            )
        known = {run["name"]: RunRecord(**run) for run in stored["runs"]}
        self.runs = {**self.runs, **known}
        return {**stored, **content}

    def record(self, run: RunRecord) -> None:
        """Keep how a run stands."""
        self.runs[run.name] = run
        self.save()

    def save(self, page: str | None = None) -> None:
        """Write ``suite.json``."""
        if page is not None:
            self._manifest["page"] = page
        record = {**self._manifest, "runs": [asdict(run) for run in self.runs.values()]}
        with explain(self.path):
            write_atomically(self.path / MANIFEST, json.dumps(record, indent=2) + "\n")

    def __enter__(self) -> SuiteFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def holds_suite(path: str | Path) -> bool:
    """Whether a folder holds a suite."""
    return (Path(path) / MANIFEST).is_file()


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return what ``suite.json`` says.

    Raises:
        ResultsError: If there is none, it cannot be read, or it is of a newer version.
    """
    file = Path(path) / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        version = manifest["schema_version"]
    except FileNotFoundError:
        raise ResultsError(f"{path} holds no suite: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"Cannot read {file}: {error}") from error
    if version > SCHEMA_VERSION:
        raise ResultsError(f"{file} has version {version}; this version of llm-envs reads up to {SCHEMA_VERSION}")
    return manifest


def suite_runs(path: str | Path) -> list[Path]:
    """Return the results folders of a suite that have begun, in order.

    Raises:
        ResultsError: If the folder holds no suite, or none of its runs has begun.
    """
    names = [run["name"] for run in read_manifest(path)["runs"]]
    begun = [folder for name in names if ((folder := Path(path) / name) / CONFIG).is_file()]
    if not begun:
        raise ResultsError(f"{path} holds no run yet: {', '.join(names)} are still to be played")
    return begun


def _identity(content: Mapping[str, Any]) -> dict[str, Any]:
    suite = {name: value for name, value in content["suite"].items() if name not in _MAY_CHANGE}
    suite["entries"] = {
        entry["name"]: {
            **{name: value for name, value in entry.items() if name != "budget"},
            "budget": {name: entry["budget"][name] for name in ("tasks", "episodes")},
        }
        for entry in suite["entries"]
    }
    request = {name: value for name, value in content["request"].items() if name not in _OF_SESSION}
    return {"suite": suite, "request": request}


def _check_usable(path: Path, *, resume: bool) -> None:
    with explain(path):
        if not path.exists():
            return
        if not path.is_dir():
            raise ResultsError(f"{path} is a file; --out names a folder")
        names = {entry.name for entry in path.iterdir()} - {LOCK, f"{MANIFEST}.tmp"}
    if MANIFEST in names:
        if not resume:
            raise ResultsError(f"{path} already holds a suite. Add --resume to go on with it, or give another --out")
    elif names:
        raise ResultsError(f"{path} is not empty and holds no suite ({MANIFEST} is missing); give another --out")
