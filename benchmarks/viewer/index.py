"""One row an episode: what the viewer lists, filters, sorts and plots, without any of the long texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.metrics import avg_at_k, success_interval
from benchmarks.outcomes import forfeiters, outcomes

__all__ = ["ERROR", "FAILURE", "SUCCESS", "Index"]

FAILURE, SUCCESS, ERROR = 0, 1, 2
"""Values of the column ``status``."""

EXCERPT = 80
"""Characters of the last action that the list shows."""

DIFFICULTY_KEYS = ("difficulty", "level", "optimal_length")
"""What environments call the difficulty of a task in the info of a turn; the first that is there counts."""

LEVELS = 8
"""More difficulties than these are put together into ranges with about equally many episodes."""

REASONS = 12
"""Reasons for invalid actions that are counted by name; the others are one row."""

_PLAIN = (
    "id", "task", "hash", "sample", "status", "ended", "turns", "tokens_in", "tokens_out", "invalid", "wall_s", "tree",
    "difficulty", "last", "error", "update",
)  # fmt: skip


class Index:
    """Columns over the episodes of a run, in the order in which they are added.

    Args:
        zero_sum: Whether one agent's success is another one's failure; then ``outcome`` is kept for every agent.
    """

    def __init__(self, *, zero_sum: bool = False) -> None:
        self._zero_sum = zero_sum
        self._rows: dict[str, list[Any]] = {name: [] for name in _PLAIN}
        self._agents: dict[str, dict[str, list[Any]]] = {}
        self._parts: dict[str, dict[str, float]] = {}
        self._policies: dict[str, dict[str, None]] = {}
        self._latency: dict[str, list[float]] = {}
        self._reasons: dict[tuple[str, str], int] = {}
        self._tasks: list[int] = []

    def __len__(self) -> int:
        return len(self._rows["id"])

    def add(self, episode: Mapping[str, Any], timing: Mapping[str, Any] | None = None) -> None:
        """Add one episode.

        Args:
            episode: Its record (``Episode.to_dict()``).
            timing: Its line of ``timings.jsonl``; None takes what the record itself holds.

        Raises:
            KeyError: If it is no record of an episode.
        """
        turns = [turn for turn in episode["turns"] if turn.get("chosen", True)]
        timing = timing or {}
        row = {
            "id": episode["id"],
            "task": episode["task"],
            "hash": str(episode["task_hash"])[:16],
            "sample": episode["sample"],
            "status": ERROR if episode["error"] is not None else int(bool(episode["success"])),
            "ended": "terminated" if episode["terminated"] else "truncated" if episode["truncated"] else "",
            "turns": len(turns),
            "tokens_in": sum(turn["prompt_tokens"] for turn in episode["turns"]),
            "tokens_out": sum(turn["completion_tokens"] for turn in episode["turns"]),
            "invalid": sum(turn["invalid"] is not None for turn in turns),
            "wall_s": timing.get("wall_s", episode.get("wall_s")),
            "tree": int(bool(episode.get("tree"))),
            "difficulty": _difficulty(turns),
            "last": turns[-1]["action"][-EXCERPT:] if turns else "",
            "error": episode["error"],
            "update": episode.get("update"),
        }
        self._tasks.append(episode["task_index"])
        self._add_agents(episode, turns)
        self._add_latency(episode, timing)
        for name, value in row.items():
            self._rows[name].append(value)

    def to_dict(self) -> dict[str, Any]:
        """Return the columns and what is known of the run as a whole, as a JSON object.

        ``columns`` and ``agents.<name>.columns`` are lists of one value an episode. ``agents`` also holds the sums of
        the reward parts over the episodes that did not fail, the policies, and the median and 90th percentile of the
        seconds an answer took. ``success`` is the mean over tasks with its 95 % interval, ``difficulty`` the same by
        difficulty; both leave out failed episodes and trees, whose path was chosen by reward.
        """
        return {
            "columns": self._rows,
            "agents": {
                name: {
                    "columns": columns,
                    "reward_parts": dict(sorted(self._parts.get(name, {}).items())),
                    "policies": list(self._policies.get(name, {})),
                    "latency_s": _quantiles(self._latency.get(name, ())),
                }
                for name, columns in self._agents.items()
            },
            "reasons": self._common_reasons(),
            "success": None if self._zero_sum else self._success(range(len(self))),
            "difficulty": [] if self._zero_sum else self._by_difficulty(),
        }

    def _add_agents(self, episode: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> None:
        at = len(self)
        failed = episode["error"] is not None
        outcome = outcomes(episode) if self._zero_sum and not failed else {}
        gave_up = forfeiters(episode) if self._zero_sum else frozenset()
        for name, value in episode["returns"].items():
            columns = self._agent(name)
            columns["return"][at:] = [None if failed else round(value, 6)]
            if self._zero_sum:
                columns["outcome"][at:] = [outcome.get(name)]
                columns["forfeit"][at:] = [int(name in gave_up)]
            if not failed:
                parts = self._parts.setdefault(name, {})
                for part, paid in episode["reward_parts"].get(name, {}).items():
                    parts[part] = parts.get(part, 0.0) + paid
        counted: dict[str, list[int]] = {}
        for turn in turns:
            name = turn["agent"]
            count = counted.setdefault(name, [0, 0, 0])
            count[0] += 1
            count[1] += turn["invalid"] is not None
            count[2] += turn["completion_tokens"]
            self._policies.setdefault(name, {})[turn["policy"]] = None
            if turn["invalid"] is not None:
                key = (name, str(turn["invalid"])[:200])
                self._reasons[key] = self._reasons.get(key, 0) + 1
        for name, count in counted.items():
            columns = self._agent(name)
            for column, value in zip(("turns", "invalid", "tokens_out"), count, strict=True):
                columns[column][at:] = [value]
        for columns in self._agents.values():
            for values in columns.values():
                if len(values) == at:
                    values.append(None)

    def _agent(self, name: str) -> dict[str, list[Any]]:
        found = self._agents.get(name)
        if found is None:
            names = ["return", "turns", "invalid", "tokens_out", *(("outcome", "forfeit") if self._zero_sum else ())]
            found = self._agents[name] = {column: [None] * len(self) for column in names}
        return found

    def _add_latency(self, episode: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        turns = episode["turns"]
        seconds = timing.get("latency_s") or [turn.get("latency_s") for turn in turns]
        for turn, value in zip(turns, seconds, strict=False):
            if value is not None:
                self._latency.setdefault(turn["agent"], []).append(value)

    def _common_reasons(self) -> list[tuple[str, str, int]]:
        ranked = sorted(self._reasons.items(), key=lambda item: (-item[1], item[0]))
        rows = [(agent, reason, count) for (agent, reason), count in ranked[:REASONS]]
        rest = sum(count for _, count in ranked[REASONS:])
        return [*rows, ("", "other reasons", rest)] if rest else rows

    def _success(self, at: Sequence[int]) -> dict[str, Any] | None:
        """Return the mean over tasks and its interval, of the episodes at these places."""
        by_task: dict[int, list[bool]] = {}
        for place in at:
            if self._rows["status"][place] != ERROR and not self._rows["tree"][place]:
                by_task.setdefault(self._tasks[place], []).append(self._rows["status"][place] == SUCCESS)
        if not by_task:
            return None
        solved = list(by_task.values())
        return {
            "value": avg_at_k(solved), "interval": success_interval(solved),
            "tasks": len(solved), "episodes": sum(map(len, solved)),
        }  # fmt: skip

    def _by_difficulty(self) -> list[dict[str, Any]]:
        at: dict[float, list[int]] = {}
        for place, value in enumerate(self._rows["difficulty"]):
            if value is not None:
                at.setdefault(value, []).append(place)
        if len(at) < 2:
            return []
        wanted = sum(map(len, at.values())) / LEVELS
        levels: list[tuple[float, float, list[int]]] = []
        for value, places in sorted(at.items()):
            if len(at) > LEVELS and levels and len(levels[-1][2]) + len(places) / 2 <= wanted:
                low, _, before = levels.pop()
                levels.append((low, value, before + places))
            else:
                levels.append((value, value, places))
        found = ((low, high, self._success(places)) for low, high, places in levels)
        return [{"from": low, "to": high, **success} for low, high, success in found if success is not None]


def _difficulty(turns: Sequence[Mapping[str, Any]]) -> float | None:
    for key in DIFFICULTY_KEYS:
        for turn in turns:
            value = turn["info"].get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
    return None


def _quantiles(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    middle, high = np.quantile(np.asarray(seconds, dtype=np.float64), [0.5, 0.9])
    return {"median": float(middle), "p90": float(high)}
