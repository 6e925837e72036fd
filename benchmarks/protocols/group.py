"""A folder of several runs that belong together: the runs of a protocol, of a swap test, of an ablation.

Its ``group.json`` says which runs there are and what they are for; each run is a results folder of its own in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import CONFIG, ResultsError, differences
from benchmarks.storage import explain, write_atomically
from benchmarks.suites.manifest import holds_suite, suite_runs

__all__ = ["GROUP", "Group", "expand", "open_group", "read_group"]

GROUP = "group.json"
GROUP_VERSION = 1
"""Version of ``group.json``."""


@dataclass(frozen=True)
class Group:
    """What a folder of runs holds.

    Attributes:
        kind: ``protocol``, ``swap`` or ``ablation``.
        runs: Labels of the runs, which are the names of their folders, in the order in which they are played.
        about: What the kind's report needs to know of them.
        command: The command line, for the record.
        arguments: Its arguments, for a later --resume without them.
    """

    kind: str
    runs: tuple[str, ...]
    about: Mapping[str, Any]
    command: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


def open_group(path: Path, group: Group, *, resume: bool) -> None:
    """Make the folder of a group, or check that the one that is there is of the same group.

    Raises:
        ResultsError: If it holds something else, or a group and ``resume`` is False, or it cannot be written to.
    """
    stored = read_group(path)
    if stored is None:
        with explain(path):
            if path.exists() and (not path.is_dir() or {entry.name for entry in path.iterdir()} - {f"{GROUP}.tmp"}):
                raise ResultsError(f"{path} is not empty and holds no group of runs ({GROUP} is missing)")
            path.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"group_version": GROUP_VERSION, **asdict(group)}, indent=2)
            write_atomically(path / GROUP, text + "\n")
        return
    if not resume:
        raise ResultsError(f"{path} already holds runs. Add --resume to go on with them, or give another --out")
    changed = differences(_what(stored), _what(group))
    if changed:
        listed = "".join(f"\n  {name}: {old!r} in the folder, {new!r} now" for name, old, new in changed)
        raise ResultsError(f"{path} holds other runs, so it cannot be resumed with these settings:{listed}")


def read_group(path: str | Path) -> Group | None:
    """Return the group that a folder holds; None if it holds none.

    Raises:
        ResultsError: If its ``group.json`` cannot be read, or is of a newer version.
    """
    file = Path(path) / GROUP
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ResultsError(f"Cannot read {file}: {error}") from error
    try:
        version = record["group_version"]
        if version > GROUP_VERSION:
            raise ResultsError(
                f"{file} has version {version}, and this version of llm-envs reads up to {GROUP_VERSION}"
            )
        return Group(
            record["kind"], tuple(record["runs"]), record["about"], tuple(record["command"]), record["arguments"]
        )
    except (KeyError, TypeError) as error:
        raise ResultsError(f"{file} describes no group of runs ({error!r})") from error


def expand(paths: Iterable[str | Path]) -> list[Path]:
    """Return the paths with each group of runs, and each suite, replaced by those of its runs that have begun.

    Raises:
        ResultsError: If none of its runs has begun.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if holds_suite(path):
            found += suite_runs(path)
            continue
        group = read_group(path)
        if group is None:
            found.append(path)
            continue
        begun = [path / label for label in group.runs if (path / label / CONFIG).exists()]
        if not begun:
            raise ResultsError(f"{path} holds no run yet: {', '.join(group.runs)} are still to be played")
        found += begun
    return found


def _what(group: Group) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(json.dumps(asdict(group)))
    return {name: record[name] for name in ("kind", "runs", "about")}
