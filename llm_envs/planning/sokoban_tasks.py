"""Sokoban task sets: generated rooms, and levels of the user's own.

``sokoban`` is generated (:mod:`llm_envs.planning.sokoban_rooms`). A ``.txt`` file holds levels in the format of Boxoban
(:mod:`llm_envs.planning.sokoban`), a folder such files; a JSONL, JSON or Parquet file has a level in each row, in the
column ``level`` (text, or a list of rows).

The question of a task is the first board, its data hold the ``level`` as rows. Generated tasks also have a solution as
their answer, and its length in the data; nothing is solved when a file is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from llm_envs import task_rows
from llm_envs.planning.sokoban import LevelError, State, parse_level, render, solved
from llm_envs.planning.sokoban_levels import parse_levels
from llm_envs.planning.sokoban_rooms import FLOOR, draw_room
from llm_envs.task_rows import Columns, ContentError, Row, RowError
from llm_envs.tasks import (
    Draft,
    ListTaskSet,
    ProceduralTaskSet,
    Task,
    TaskError,
    TaskSet,
    check_split,
    load_tasks,
    reject_options,
)

__all__ = ["DEFAULT_TASKS", "SOKOBAN_TASKS", "load_sokoban", "load_sokoban_tasks", "read_level_row", "start_of"]

DEFAULT_TASKS = "sokoban"

OPTIONS = ("grid_size", "boxes", "wall_ratio", "min_length", "max_length")
_MAX_SIDE, _MAX_BOXES = 20, 8


def load_sokoban(
    split: str | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    grid_size: int | Sequence[int] = 6,
    boxes: int = 1,
    wall_ratio: float = 0.2,
    min_length: int = 3,
    max_length: int | None = None,
    **options: Any,
) -> TaskSet:
    """Returns generated rooms.

    Args:
        split: ``"train"`` (also for None) or ``"test"``. A level is in one of the two.
        size: Number of tasks.
        seed: Another seed gives other rooms.
        grid_size: Number of rows and columns, or both as a pair, the walls around the room included.
        boxes: Number of boxes and goals.
        wall_ratio: The share of the cells inside that are wall (rounded to a whole number of cells).
        min_length: The fewest moves that a shortest solution may have.
        max_length: The most.
        **options: None are known; any is an error.

    Raises:
        TaskError: There is no such split or option, or its value is out of range.
    """
    reject_options(DEFAULT_TASKS, options, (*OPTIONS, "size", "seed"))
    split = check_split(DEFAULT_TASKS, split or "train")
    sides = tuple(grid_size) if isinstance(grid_size, Sequence) else (grid_size, grid_size)
    if len(sides) != 2 or not all(type(side) is int and 4 <= side <= _MAX_SIDE for side in sides):
        raise TaskError(
            f"{DEFAULT_TASKS}: grid_size must be a whole number from 4 to {_MAX_SIDE}, or a pair of them, got "
            f"{grid_size!r}"
        )
    _check_whole("boxes", boxes, 1, _MAX_BOXES)
    if isinstance(wall_ratio, bool) or not isinstance(wall_ratio, int | float) or not 0 <= wall_ratio <= 0.7:
        raise TaskError(f"{DEFAULT_TASKS}: wall_ratio must be a number from 0 to 0.7, got {wall_ratio!r}")
    _check_whole("min_length", min_length, 1, None)
    if max_length is not None:
        _check_whole("max_length", max_length, min_length, None)
    inside = (sides[0] - 2) * (sides[1] - 2)
    floor = inside - round(wall_ratio * inside)
    if floor < 2 * boxes + 1:
        raise TaskError(
            f"{DEFAULT_TASKS}: boxes={boxes} needs {2 * boxes + 1} cells of floor, a room with grid_size={grid_size!r} "
            f"and wall_ratio={wall_ratio} has {floor}; take a larger room, fewer walls or fewer boxes"
        )
    values = (sides, boxes, wall_ratio, min_length, max_length)
    chosen = {**dict(zip(OPTIONS, values, strict=True)), "split": split}
    return ProceduralTaskSet(DEFAULT_TASKS, split, draw_room, options=chosen, size=size, seed=seed)


def _check_whole(what: str, value: int, least: int, most: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise TaskError(f"{DEFAULT_TASKS}: {what} must be a whole number {limits}, got {value!r}")


SOKOBAN_TASKS = {DEFAULT_TASKS: load_sokoban}
"""The named sets of Sokoban."""


def load_sokoban_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task], split: str | None = None, **options: Any
) -> TaskSet:
    """Returns the tasks that a user asked for, as :func:`llm_envs.tasks.load_tasks`.

    A ``.txt`` file, or a folder that holds such files, is read as levels; their ids are ``<file>/<n>``, where n counts
    the levels of a file from 0 (which is what the headers of Boxoban say).

    Raises:
        TaskError: If there is no such set, split, file or option, or a level cannot be read or is solved already.
    """
    if isinstance(tasks, str | os.PathLike):
        path = Path(tasks).expanduser()
        files = sorted(path.glob("*.txt")) if path.is_dir() else [path] if path.suffix == ".txt" else []
        if files and os.fspath(tasks) not in SOKOBAN_TASKS:
            reject_options(os.fspath(tasks), options, ())
            levels = ListTaskSet((task for file in files for task in _tasks_of(file)), name=path.stem)
            return levels if split is None else levels.only(split)
    return load_tasks(tasks, split, family=SOKOBAN_TASKS, reader=read_level_row, **options)


def _tasks_of(path: Path) -> Iterable[Task]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as reason:
        raise TaskError(f"the file of levels {str(path)!r} cannot be read: {reason}") from reason
    try:
        levels = parse_levels(text, place=str(path))
    except LevelError as reason:
        raise TaskError(str(reason)) from reason
    for number, level in enumerate(levels):
        if solved(level.start):
            raise TaskError(f"{path}: level {number} (from 0) is solved already; take it out")
        yield Task(f"{path.stem}/{number}", *_draft(level.start))


def _draft(start: State) -> Draft:
    return Draft(render(start, floor=FLOOR), "", {"level": render(start).split("\n")})


def read_level_row(row: Row, columns: Columns) -> Draft:
    """How this family reads a row of a file: the column ``level``, as text or as a list of rows.

    Raises:
        RowError: There is no such column, or its level cannot be played.
    """
    value = task_rows.pick(row, columns, "level", ("level",))
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise RowError(f"a level is text or a list of rows, got {value!r:.80}")
    try:
        start = parse_level(value)
    except LevelError as reason:
        raise ContentError(f"the level cannot be played: {reason}") from reason
    if solved(start):
        raise ContentError("the level is solved already")
    draft = _draft(start)
    return draft._replace(data={**task_rows.extra_data(row, columns), **draft.data})


def start_of(task: Task) -> State:
    """The first state of a task.

    Raises:
        TaskError: The task has no level, or one that cannot be played.
    """
    rows = task.data.get("level")
    if not isinstance(rows, tuple) or not all(isinstance(row, str) for row in rows):
        raise TaskError(f"the task {task.id} has no level; give data={{'level': ['#####', '#@$.#', '#####']}}")
    try:
        return _start(rows)
    except LevelError as reason:
        raise TaskError(f"the task {task.id} cannot be played: {reason}") from reason


@lru_cache(maxsize=4096)
def _start(rows: tuple[str, ...]) -> State:
    return parse_level("\n".join(rows))
