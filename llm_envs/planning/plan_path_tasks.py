"""Plan-path task sets: generated maps, and maps of the user's own.

``plan-path`` is generated (:func:`llm_envs.planning.grid.draw_grid`). A file ending in ``.txt`` holds maps, separated
by empty lines; a JSONL, JSON or Parquet file has them in the column ``map`` (text, or a list of rows)::

    A..#
    .#..
    ...G

The question of a task is the map with coordinates, its answer a shortest way, and its data hold the ``map`` and the
``optimal_length``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from llm_envs import task_rows
from llm_envs.planning.grid import Grid, MapError, draw_grid
from llm_envs.task_rows import Columns, ContentError, Row, RowError
from llm_envs.tasks import (
    Draft,
    ListTaskSet,
    ProceduralTaskSet,
    Task,
    TaskError,
    TaskSet,
    load_tasks,
    reject_options,
)

__all__ = ["DEFAULT_TASKS", "PLAN_PATH_TASKS", "grid_of", "load_plan_path_tasks", "read_map_row"]

DEFAULT_TASKS = "plan-path"
OPTIONS = ("grid_size", "wall_ratio", "min_length", "max_length")


def load_plan_path(split: str | None = None, *, size: int | None = None, seed: int = 0, **options: Any) -> TaskSet:
    """Returns generated maps.

    Args:
        split: ``"train"`` (also for None) or ``"test"``. A map is in one of the two.
        size: Number of tasks.
        seed: Another seed gives other maps.
        **options: Of :func:`~llm_envs.planning.grid.draw_grid`: grid_size, wall_ratio, min_length, max_length.

    Raises:
        TaskError: There is no such split or option, or no map is possible with them.
    """
    reject_options(DEFAULT_TASKS, options, (*OPTIONS, "size", "seed"))
    try:
        draw_map(random.Random(0), **options)  # bad options are refused here and not at the first reset
    except MapError as reason:
        raise TaskError(f"{DEFAULT_TASKS}: {reason}") from reason
    return ProceduralTaskSet(DEFAULT_TASKS, split, draw_map, options=options, size=size, seed=seed)


def draw_map(rng: random.Random, **options: Any) -> Draft:
    """A random map as a task. Options as :func:`~llm_envs.planning.grid.draw_grid`."""
    return _draft(draw_grid(rng, **options))


def read_map_row(row: Row, columns: Columns) -> Draft:
    """How this family reads a row of a file: the column ``map``, as text or as a list of rows.

    Raises:
        RowError: There is no such column, or its map cannot be played.
    """
    value = task_rows.pick(row, columns, "map", ("map",))
    if not isinstance(value, str) and not (
        isinstance(value, Sequence) and all(isinstance(line, str) for line in value)
    ):
        raise RowError(f"a map is text or a list of rows, got {value!r:.80}")
    try:
        draft = _draft(Grid(value.split() if isinstance(value, str) else value))
    except MapError as reason:
        raise ContentError(f"the map cannot be played: {reason}") from reason
    extra = {name: kept for name, kept in task_rows.extra_data(row, columns).items() if name != "map"}
    return draft._replace(data={**extra, **draft.data})


PLAN_PATH_TASKS = {DEFAULT_TASKS: load_plan_path}
"""The named sets of plan-path."""


def load_plan_path_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task], split: str | None = None, **options: Any
) -> TaskSet:
    """Returns the tasks that a user asked for, as :func:`llm_envs.tasks.load_tasks`; a ``.txt`` file holds maps.

    Raises:
        TaskError: If there is no such set, split, file or option, or a map cannot be played.
    """
    if isinstance(tasks, str | os.PathLike) and os.fspath(tasks).endswith(".txt"):
        reject_options(os.fspath(tasks), options, ())
        return _load_maps(Path(tasks).expanduser(), split)
    return load_tasks(tasks, split, family=PLAN_PATH_TASKS, reader=read_map_row, **options)


def grid_of(task: Task) -> Grid:
    """The map of a task.

    Raises:
        TaskError: The task has no map, or one that cannot be played.
    """
    rows = task.data.get("map")
    if not isinstance(rows, tuple):
        raise TaskError(f"the task {task.id} has no map; give data={{'map': ['A.', '.G'], 'optimal_length': 2}}")
    try:
        return _grid(rows)
    except MapError as reason:
        raise TaskError(f"the task {task.id} cannot be played: {reason}") from reason


_grid = lru_cache(maxsize=4096)(Grid)  # as many as a procedural set keeps of its tasks


def _draft(grid: Grid) -> Draft:
    path = grid.shortest(grid.start)
    data = {"map": grid.rows, "optimal_length": len(path)}
    return Draft(grid.text(grid.start), f"[{', '.join(path)}]", data)


def _load_maps(path: Path, split: str | None) -> TaskSet:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as reason:
        raise TaskError(f"the file of maps {str(path)!r} cannot be read: {reason}") from reason
    tasks: list[Task] = []
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            lines.append(line.strip())
        elif lines:
            try:
                tasks.append(Task(f"{path.stem}/{len(tasks)}", *_draft(Grid(lines))))
            except MapError as reason:
                raise TaskError(
                    f"{path}: the map that ends at line {number - 1} cannot be played: {reason}"
                ) from reason
            lines = []
    if not tasks:
        raise TaskError(f"{path} holds no map; write rows of A G # . and an empty line between maps")
    rows = ListTaskSet(tasks, name=path.stem)
    return rows if split is None else rows.only(split)
