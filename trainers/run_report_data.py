"""What a report reads of a run: its metric lines, its configuration and versions, and how far it came."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymnasium import error

import llm_envs
from trainers.folder_lock import LOCK, Writer, find_writer
from trainers.tracking import METRICS_FILE, STOPPED_FILE, VERSIONS_FILE, is_torn, read_metrics

CONFIG_FILE = "config.json"

Points = list[tuple[int, float]]


class ReportError(ValueError):
    """There is nothing to report on, or a file of the run cannot be read. The message says what to do."""


@dataclass(slots=True)
class RunData:
    """One run.

    Attributes:
        name: What the report calls it.
        path: Its folder.
        rows: Its metric lines, oldest first; each has ``update``, and None for what was not finite.
        config: The configuration, or None where the folder has none.
        versions: What ran, one entry for each start with other versions: ``{"after_update": n, "versions": {…}}``.
        stopped: Why the run stopped itself, ``{"update", "error", "message"}``, or None.
        torn: Whether the last metric line is cut off, and left out.
        finished: Whether its trained models were saved, which is the last thing a run does.
        writer: Who writes to its folder, or wrote to it last; None where the folder does not say.
    """

    name: str
    path: Path
    rows: list[dict[str, Any]]
    config: dict[str, Any] | None = None
    versions: list[dict[str, Any]] = field(default_factory=list)
    stopped: dict[str, Any] | None = None
    torn: bool = False
    finished: bool = False
    writer: Writer | None = None

    @property
    def names(self) -> list[str]:
        """The names of all metrics, sorted."""
        return sorted({name for row in self.rows for name in row} - {"update"})

    @property
    def agents(self) -> list[str]:
        """The agents that have metrics, sorted."""
        return sorted({name.split("/")[1] for name in self.names if name.startswith("agent/") and name.count("/") > 1})

    @property
    def updates(self) -> int:
        """Updates done."""
        return int(self.rows[-1]["update"])

    @property
    def planned(self) -> int | None:
        """Updates that the configuration asks for."""
        planned = (self.config or {}).get("updates")
        return planned if isinstance(planned, int) else None

    @property
    def tree(self) -> bool:
        """Whether the batches are trees, whose success and returns are those of a path chosen by reward."""
        return any("train/path_success" in row for row in self.rows)

    @property
    def zero_sum(self) -> bool:
        """Whether the environment is a zero-sum game; False where it is not known."""
        return is_zero_sum(self.setting("env.id"))

    def series(self, name: str) -> Points:
        """The finite values of a metric as (update, value)."""
        return [(row["update"], float(row[name])) for row in self.rows if _is_number(row.get(name))]

    def not_finite(self, name: str) -> list[int]:
        """The updates in which a metric was logged and is not a number."""
        return [row["update"] for row in self.rows if name in row and not _is_number(row[name])]

    def setting(self, key: str) -> Any:
        """A setting by its dotted key, or None."""
        found: Any = self.config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found


def is_zero_sum(env_id: Any) -> bool:
    """Whether an id is that of a zero-sum game; False where it is not known."""
    if not isinstance(env_id, str):
        return False
    try:
        found = llm_envs.spec(env_id).load()
    except (error.Error, ImportError):  # of another installation, say
        return False
    return bool(getattr(found, "metadata", {}).get("zero_sum"))


def read_run(path: Path, name: str | None = None) -> RunData:
    """Read a run folder.

    Raises:
        ReportError: It is no run, has logged nothing yet, or a file of it cannot be read.
    """
    if not path.is_dir():
        raise ReportError(f"{path} is not a folder. Give the folder of a run, the one that --out named.")
    config = _read_json(path / CONFIG_FILE)
    try:
        rows: list[Any] = read_metrics(path)
    except (OSError, ValueError) as problem:
        raise ReportError(f"The metrics of {path} cannot be read: {problem}") from problem
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not isinstance(row.get("update"), int):
            raise ReportError(f"{path / METRICS_FILE}, line {number} is no metric line: it has no `update`")
    if not rows:
        if config is None and not (path / METRICS_FILE).exists():
            raise ReportError(f"{path} is no training run: it has neither {METRICS_FILE} nor {CONFIG_FILE}.")
        raise ReportError(f"The run in {path} has logged no update yet. Report on it after its first update.")
    versions = _read_json(path / VERSIONS_FILE)
    stopped = _read_json(path / STOPPED_FILE)
    return RunData(
        name=name or path.resolve().name,
        path=path,
        rows=rows,
        config=config if isinstance(config, dict) else None,
        versions=[entry for entry in versions if isinstance(entry, dict)] if isinstance(versions, list) else [],
        stopped=stopped if isinstance(stopped, dict) else None,
        torn=is_torn(path),
        finished=(path / "models").is_dir(),
        writer=find_writer(path) if (path / LOCK).exists() else None,
    )


def read_runs(paths: Sequence[Path]) -> list[RunData]:
    """Read several runs. Those whose folders are called alike go by their whole paths.

    Raises:
        ReportError: See :func:`read_run`; or a run is given twice.
    """
    resolved = [path.resolve() for path in paths]
    for path in resolved:
        if resolved.count(path) > 1:
            raise ReportError(f"{path} is given twice. Give every run once.")
    names = [path.name for path in resolved]
    return [
        read_run(given, name if names.count(name) == 1 else str(given))
        for given, name in zip(paths, names, strict=True)
    ]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return found


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise ReportError(f"{path} cannot be read: {problem}") from problem


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
