"""The tables that runs are exported to: every column with its type and meaning, and the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.protocols.budget import planned_episodes
from benchmarks.results import EPISODES, TIMINGS, read_config, read_lines

__all__ = ["TABLES", "TOKEN_COLUMNS", "Column", "run_rows"]


class Column(NamedTuple):
    """A column.

    Attributes:
        name: Its name.
        kind: ``str``, ``int``, ``float``, ``bool``, ``json`` (text that holds JSON), ``ints`` or ``floats`` (lists).
        meaning: What it holds.
    """

    name: str
    kind: str
    meaning: str


TABLES: dict[str, tuple[Column, ...]] = {
    "episodes": (
        Column("run", "str", "name of the run, as in the table runs"),
        Column("id", "str", "id of the episode: the task and the sample"),
        Column("env", "str", "id of the environment"),
        Column("policy", "str", "who played"),
        Column("task", "str", "id of the task"),
        Column("task_index", "int", "index of the task in its set"),
        Column("task_hash", "str", "hash of the task's content; equal in all runs of that task"),
        Column("sample", "int", "which of the episodes of its task it is, from 0"),
        Column("seed", "int", "seed that the environment was reset with"),
        Column("success", "bool", "whether the task was solved"),
        Column("terminated", "bool", "whether the task ended by its own rules"),
        Column("truncated", "bool", "whether a limit ended it"),
        Column("returns", "json", "undiscounted sum of rewards by agent"),
        Column("reward_parts", "json", "the same by agent and named part"),
        Column("turns", "int", "number of turns"),
        Column("prompt_tokens", "int", "tokens of all prompts; 0 where no policy counts them"),
        Column("completion_tokens", "int", "tokens of all answers"),
        Column("seconds", "float", "from reset to end"),
        Column("ended", "float", "when it ended, in seconds since 1970; empty in runs of schema version 1"),
    ),
    "turns": (
        Column("run", "str", "name of the run"),
        Column("episode", "str", "id of the episode; with the run the key of its row in episodes"),
        Column("index", "int", "position of the turn in the episode, from 0"),
        Column("agent", "str", "who acted"),
        Column("agent_turn", "int", "position among the turns of this agent, from 0"),
        Column("policy", "str", "name of the policy that wrote the action"),
        Column("observation", "str", "the whole prompt"),
        Column("action", "str", "the answer"),
        Column("invalid", "str", "why the environment refused the action; empty if it did not"),
        Column("finish_reason", "str", "stop, or length where the answer was cut off"),
        Column("reward", "float", "what the agent received until its next turn"),
        Column("reward_parts", "json", "the same by named part"),
        Column("info", "json", "what else the environment said about the action"),
        Column("prompt_tokens", "int", "tokens of the prompt; 0 where the policy does not count them"),
        Column("completion_tokens", "int", "tokens of the answer"),
        Column("weight_version", "int", "version of the weights that wrote it"),
        Column("latency_s", "float", "seconds from request to answer"),
    ),
    "runs": (
        Column("run", "str", "name of the run: that of its folder"),
        Column("env", "str", "id of the environment"),
        Column("policy", "str", "who played"),
        Column("tasks", "str", "name of the task set"),
        Column("split", "str", "its split"),
        Column("planned", "int", "episodes that were asked for"),
        Column("episodes", "int", "episodes that were played"),
        Column("schema_version", "int", "version of the results folder"),
        Column("started", "str", "when it was started, in UTC"),
        Column("commit", "str", "git commit of llm-envs"),
        Column("config", "json", "all of config.json: settings, versions, hardware"),
    ),
}
"""The columns of every table."""

TOKEN_COLUMNS = (
    Column("prompt_ids", "ints", "token ids of the prompt"),
    Column("completion_ids", "ints", "token ids of the answer"),
    Column("logprobs", "floats", "log-probability of each id of the answer"),
)
"""Further columns of turns, if a run was played with ``--save-tokens``."""


def run_rows(path: str | Path, run: str, *, tokens: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a run as ``(table, row)``: those of an episode and its turns in turn, the run's own at the end.

    Args:
        path: The results folder.
        run: Its name in the tables.
        tokens: Whether turns have the columns :data:`TOKEN_COLUMNS`.

    Raises:
        ResultsError: If it is no results folder or a line of it cannot be read.
    """
    config = read_config(path)
    identity, context = config["identity"], config["context"]
    timings = {record["id"]: record for record in read_lines(path, TIMINGS)}
    played = 0
    for record in read_lines(path, EPISODES):
        played += 1
        timing = timings.get(record["id"], {})
        yield "episodes", _episode(record, run, str(context["label"]), timing)
        latency = timing.get("latency_s", ())
        for number, turn in enumerate(record["turns"]):
            row = _turn(turn, run, record["id"])
            row["latency_s"] = latency[number] if number < len(latency) else None
            if tokens:
                row.update({column.name: turn.get(column.name) for column in TOKEN_COLUMNS})
            yield "turns", row
    tasks = identity["tasks"]
    yield (
        "runs",
        {
            "run": run,
            "env": identity["env"],
            "policy": text(str(context["label"])),
            "tasks": text(str(tasks["name"])),
            "split": tasks.get("split"),
            "planned": planned_episodes(path, identity),
            "episodes": played,
            "schema_version": config["schema_version"],
            "started": context.get("started"),
            "commit": (context.get("source") or {}).get("commit"),
            "config": json.dumps(config),
        },
    )


def text(value: str) -> str:
    r"""Return text that UTF-8 can hold: a lone surrogate becomes its escape, such as ``\udc80``."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _episode(record: Mapping[str, Any], run: str, label: str, timing: Mapping[str, Any]) -> dict[str, Any]:
    names = ("env", "task_index", "task_hash", "sample", "seed", "success", "terminated", "truncated")
    return {
        "run": run,
        "id": text(record["id"]),
        "policy": text(label),
        "task": text(record["task"]),
        **{name: record[name] for name in names},
        "returns": json.dumps(record["returns"]),
        "reward_parts": json.dumps(record["reward_parts"]),
        "turns": len(record["turns"]),
        "prompt_tokens": sum(turn["prompt_tokens"] for turn in record["turns"]),
        "completion_tokens": sum(turn["completion_tokens"] for turn in record["turns"]),
        "seconds": timing.get("wall_s"),
        "ended": timing.get("ended"),
    }


def _turn(turn: Mapping[str, Any], run: str, episode: str) -> dict[str, Any]:
    names = ("index", "agent", "agent_turn", "finish_reason", "prompt_tokens", "completion_tokens", "weight_version")
    return {
        "run": run,
        "episode": text(episode),
        **{name: turn[name] for name in names},
        **{name: text(turn[name]) for name in ("policy", "observation", "action")},
        "invalid": None if turn["invalid"] is None else text(turn["invalid"]),
        "reward": float(sum(turn["reward_parts"].values())),
        "reward_parts": json.dumps(turn["reward_parts"]),
        "info": json.dumps(turn["info"]),
    }
