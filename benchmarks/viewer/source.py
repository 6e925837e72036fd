"""What can be looked at: a results folder, a training run, or a file of episodes. A line is read when it is wanted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.results import CONFIG, EPISODES, ERRORS, TIMINGS, ResultsError, read_config, read_lines
from benchmarks.storage import explain, parse_lines
from benchmarks.summary import summarize
from benchmarks.tournament_summary import is_tournament, summarize_tournament
from benchmarks.viewer.index import Index
from trainers.run_report_data import is_zero_sum
from trainers.tracking import METRICS_FILE, STOPPED_FILE, read_metrics

__all__ = ["Changed", "Source"]

TOKEN_FIELDS = ("prompt_ids", "completion_ids", "logprobs")
"""Fields of a turn that nobody reads as text."""

SEARCH_S = 0.15
"""Seconds of searching after which an answer with what was found so far is given."""


class Changed(Exception):
    """The files are no longer those that the index was made of."""


class _Line(NamedTuple):
    """Where the line of an episode is."""

    file: Path
    start: int
    size: int


class Source:
    """One run to look at. Only the index is kept in memory.

    Args:
        path: A results folder of ``llm-bench``, the folder of a training run, or a JSONL file of episodes
            (``Episode.to_json``), such as the trees of AT-GRPO.

    Raises:
        ResultsError: If it is none of them.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with explain(self.path):
            folder = self.path.is_dir()
            names = {entry.name for entry in self.path.iterdir()} if folder else set()
            if not folder and not self.path.is_file():
                raise ResultsError(f"{self.path} does not exist; give the folder of a run, or a file of episodes")
        self._training = METRICS_FILE in names
        self._config: dict[str, Any] | None = None
        if folder and not self._training:
            if CONFIG in names:
                self._config = read_config(self.path)
            elif EPISODES not in names:
                raise ResultsError(f"{self.path} is no run: it has neither {CONFIG} nor {METRICS_FILE} nor {EPISODES}")
        self._episodes = self.path / EPISODES if folder else self.path
        self._lines: list[_Line] = []
        self._latency: dict[str, list[float]] = {}
        self._signature: tuple[Any, ...] | None = None
        self._index: dict[str, Any] = {}
        self.generation = 0

    @property
    def kind(self) -> str:
        """``run``, ``tournament``, ``training`` or ``episodes``."""
        if self._config is not None:
            return "tournament" if is_tournament(self._config) else "run"
        return "training" if self._training else "episodes"

    def index(self) -> dict[str, Any]:
        """Return everything but the texts, as a JSON object; read again if a file has changed since the last call.

        Raises:
            ResultsError: If a line is not an episode.
        """
        signature = self._sign()
        if signature != self._signature:
            self._index = self._read()
            self._signature = signature
            self.generation += 1
        return {"generation": self.generation, **self._index}

    def summary(self) -> dict[str, Any] | None:
        """Return what ``llm-bench report --json`` says of a results folder; None of anything else."""
        if self._config is None:
            return None
        return summarize_tournament(self.path) if is_tournament(self._config) else summarize(self.path)

    def episode(self, number: int, generation: int) -> dict[str, Any]:
        """Return the record of an episode, without token ids.

        Raises:
            IndexError: If there is no such episode.
            Changed: If the files have changed since the index of this generation.
        """
        if generation != self.generation:
            raise Changed
        if not 0 <= number < len(self._lines):
            raise IndexError(f"there is no episode {number}; there are {len(self._lines)}")
        line = self._lines[number]
        try:
            with line.file.open("rb") as file:
                file.seek(line.start)
                record = json.loads(file.read(line.size))
        except (OSError, ValueError) as error:
            raise Changed from error
        if not isinstance(record, dict) or record.get("id") != self._index["columns"]["id"][number]:
            raise Changed  # the folder was sorted: lines have moved
        return self._text_only(record)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records of all episodes in the order of the index, without token ids."""
        for number in range(len(self._lines)):
            yield self.episode(number, self.generation)

    def search(self, query: str, start: int, generation: int, seconds: float = SEARCH_S) -> dict[str, Any]:
        """Look for a text in the episodes from ``start`` on, upper and lower case alike, for a moment.

        Returns:
            ``found``: numbers of episodes; ``next``: where to go on, or None at the end.

        Raises:
            Changed: If the files have changed since the index of this generation.
        """
        if generation != self.generation:
            raise Changed
        needle = query.lower()
        # JSON is all ASCII here, so a plain search of the bytes rules most lines out before they are parsed.
        quick = json.dumps(needle)[1:-1].encode("ascii") if needle.isascii() else b""
        until = time.monotonic() + seconds
        found = []
        for number in range(start, len(self._lines)):
            line = self._lines[number]
            with explain(line.file), line.file.open("rb") as file:
                file.seek(line.start)
                data = file.read(line.size)
            if quick in data.lower():
                try:
                    hit = any(needle in text.lower() for text in texts(json.loads(data)))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise Changed from error
                if hit:
                    found.append(number)
            if time.monotonic() > until:
                return {"found": found, "next": number + 1 if number + 1 < len(self._lines) else None}
        return {"found": found, "next": None}

    def _sign(self) -> tuple[Any, ...]:
        found: list[tuple[int, int, int] | None] = []
        for file in (self._episodes, *(self.path / name for name in (ERRORS, TIMINGS, METRICS_FILE, STOPPED_FILE))):
            try:
                state = file.stat()
            except OSError:
                found.append(None)
            else:
                found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(found)

    def _read(self) -> dict[str, Any]:
        zero_sum = self._is_zero_sum()
        index = Index(zero_sum=zero_sum)
        timings: dict[str, Any] = {}
        if self.path.is_dir():
            timings = {record["id"]: record for record in read_lines(self.path, TIMINGS)}
        self._latency = {key: record.get("latency_s") or [] for key, record in timings.items()}
        self._lines = []
        env = ""
        for line, record in self._read_lines():
            try:
                index.add(record, timings.get(record["id"]))
                env = env or str(record["env"])
            except (KeyError, TypeError, AttributeError) as error:
                raise ResultsError(
                    f"{line.file}: the line at byte {line.start} is not an episode ({error!r}); restore or remove it"
                ) from error
            self._lines.append(line)
        return {
            "name": str(self.path),
            "kind": self.kind,
            "zero_sum": zero_sum,
            **self._about(env),
            **index.to_dict(),
            "metrics": read_metrics(self.path) if self._training else [],
            "stopped": self._stopped(),
        }

    def _read_lines(self) -> Iterator[tuple[_Line, Any]]:
        """Yield the lines of all episodes, then those of the failed ones that were not played again since."""
        seen = set()
        start = 0
        for data, record in parse_lines(self._episodes):
            yield _Line(self._episodes, start, len(data)), record
            seen.add(record["id"])
            start += len(data)
        errors = self.path / ERRORS
        if not self.path.is_dir() or not errors.exists():
            return
        last: dict[str, tuple[_Line, Any]] = {}
        start = 0
        for data, record in parse_lines(errors):
            if record["id"] not in seen:
                last[record["id"]] = (_Line(errors, start, len(data)), record)
            start += len(data)
        yield from last.values()

    def _about(self, env: str) -> dict[str, Any]:
        """Return what the configuration says."""
        if self._config is None:
            return {
                "env": env,
                "policy": "",
                "protocol": None,
                "tasks": "",
                "planned": None,
                "matches": [],
                "config": self._settings(),
            }
        identity, context = self._config["identity"], self._config["context"]
        tasks = identity["tasks"]
        return {
            "env": identity["env"],
            "policy": context["label"],
            "protocol": context.get("protocol"),
            "tasks": f"{tasks['name']} ({tasks['split']})" if tasks.get("split") else str(tasks["name"]),
            "planned": None if identity["samples"] is None else identity["n"] * identity["samples"],
            "matches": identity["tournament"]["matches"] if is_tournament(self._config) else [],
            "config": self._settings(),
        }

    def _settings(self) -> Any:
        """Return the configuration as it was written; of a training run whatever its file holds."""
        if self._config is not None:
            return self._config
        try:
            return json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _is_zero_sum(self) -> bool:
        if self._config is not None:
            return bool(self._config["context"].get("zero_sum"))
        if self._training:
            settings = self._settings()
            env = settings.get("env") if isinstance(settings, dict) else None
            return is_zero_sum(env.get("id") if isinstance(env, dict) else None)
        for _, record in self._read_lines():
            return isinstance(record, dict) and is_zero_sum(record.get("env"))
        return False

    def _stopped(self) -> Any:
        """Return why a training run stopped itself, ``{"update", "error", "message"}``; None if it did not."""
        if not self._training:
            return None
        try:
            return json.loads((self.path / STOPPED_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _text_only(self, record: dict[str, Any]) -> dict[str, Any]:
        latency = self._latency.get(record["id"], [])
        for number, turn in enumerate(record["turns"]):
            for name in TOKEN_FIELDS:
                turn.pop(name, None)
            if number < len(latency):
                turn["latency_s"] = latency[number]
        return record


def texts(episode: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of an episode that a search looks into."""
    yield str(episode["id"])
    yield str(episode["error"] or "")
    for turn in episode["turns"]:
        yield turn["action"]
        yield turn["observation"]
        yield str(turn["invalid"] or "")
        for key, value in turn["info"].items():
            yield key
            yield value if isinstance(value, str) else json.dumps(value)
