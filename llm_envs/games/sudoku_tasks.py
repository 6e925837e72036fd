"""Sudoku task sets: generated puzzles, puzzle files, and rows with a puzzle.

====================  ============================================================================================
``sudoku``            Generated (:mod:`llm_envs.games.sudoku_generator`; the default)
``<file>.txt``        One puzzle a line (also ``.sdm``): N·N characters, ``.`` or ``0`` for a blank, sizes may mix
``<file>.jsonl`` …    Rows with a column ``puzzle`` (or quiz, quizzes, question) in that form
====================  ============================================================================================

A task's ``answer`` is the solution as a line of N·N digits. Its ``data`` holds ``puzzle`` (such a line), ``size`` (N),
``clues`` (how many), ``technique`` and ``difficulty`` (:mod:`llm_envs.games.sudoku_grading`), and ``optimal_length``
(the number of blanks: one fill each).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

from gymnasium import error

from llm_envs import task_rows
from llm_envs.games.sudoku import BOXES, Grid, grid_line, grid_text, parse_grid
from llm_envs.games.sudoku_generator import check_puzzle_options, draw_puzzle, relabel
from llm_envs.games.sudoku_grading import difficulty_of, hardest_technique
from llm_envs.games.sudoku_solver import solutions
from llm_envs.task_rows import Columns, ContentError, Row, RowError
from llm_envs.tasks import (
    Draft,
    ListTaskSet,
    Loader,
    ProceduralTaskSet,
    Task,
    TaskError,
    TaskSet,
    check_split,
    load_tasks,
    reject_options,
    split_of,
)

__all__ = [
    "DEFAULT_TASKS",
    "SUDOKU_TASKS",
    "draw_sudoku",
    "load_generated",
    "load_puzzle_file",
    "load_sudoku_tasks",
    "read_sudoku_row",
    "rules_text",
    "statement",
    "sudoku_draft",
    "unique_solution",
]

DEFAULT_TASKS = "sudoku"
VERSION = 1
MAX_RENAMINGS = 100

PUZZLE_FILES = (".txt", ".sdm")
PUZZLE_COLUMNS = ("puzzle", "quiz", "quizzes", "question")
PUZZLE_OPTIONS = ("grid_size", "difficulty", "min_clues", "max_clues", "minimal")


def rules_text(size: int) -> str:
    """The rules of a ``size`` × ``size`` grid, for people and models."""
    height, width = BOXES[size]
    return (
        f"Complete this {size}×{size} sudoku: every row, every column and every box of {height} rows and {width} "
        f"columns must hold each of the values 1 to {size} exactly once. A dot is a blank cell. The given values "
        "(clues) stay as they are."
    )


def unique_solution(puzzle: Grid) -> Grid:
    """The one solution of ``puzzle``.

    Raises:
        gymnasium.error.Error: ``puzzle`` has no blank cell, no solution, or more than one.
    """
    if 0 not in puzzle:
        raise error.Error(f"the sudoku {grid_line(puzzle)} has no blank cell")
    found = solutions(puzzle)
    solution = next(found, None)
    if solution is None:
        raise error.Error(f"the sudoku {grid_line(puzzle)} has no solution")
    if next(found, None) is not None:
        raise error.Error(f"the sudoku {grid_line(puzzle)} has more than one solution; add clues")
    return solution


def statement(puzzle: Grid) -> str:
    """The rules and ``puzzle``, as agents read them."""
    return f"{rules_text(isqrt(len(puzzle)))}\n\n{grid_text(puzzle)}"


def sudoku_draft(puzzle: Grid) -> Draft:
    """The task of solving ``puzzle``.

    Raises:
        gymnasium.error.Error: ``puzzle`` does not have exactly one solution, or no blank.
    """
    size, solution, technique = isqrt(len(puzzle)), unique_solution(puzzle), hardest_technique(puzzle)
    data = {
        "puzzle": grid_line(puzzle),
        "size": size,
        "clues": len(puzzle) - puzzle.count(0),
        "technique": technique,
        "difficulty": difficulty_of(technique),
        "optimal_length": puzzle.count(0),
    }
    return Draft(statement(puzzle), grid_line(solution), data)


# ---- generated ------------------------------------------------------------------------------------------------------


def draw_sudoku(rng: random.Random, *, split: str | None = None, **options: Any) -> Draft:
    """A generated task.

    Args:
        rng: Source of randomness.
        split: The values of a puzzle are renamed until its statement belongs to this split, where a renaming does (a
            task set draws again where none did): a tenth of the statements is for testing, and renaming costs far less
            than ten puzzles.
        **options: As in :func:`~llm_envs.games.sudoku_generator.draw_puzzle`.
    """
    puzzle = draw_puzzle(rng, **options)
    for _ in range(MAX_RENAMINGS):
        if split is None or split_of(statement(puzzle)) == split:
            break
        puzzle = relabel(rng, puzzle)
    return sudoku_draft(puzzle)


def load_generated(split: str | None = None, **options: Any) -> ProceduralTaskSet:
    """Returns generated puzzles.

    Args:
        split: ``"train"`` (also for None) or ``"test"``. A puzzle is in one of the two. (A puzzle that equals one of
            the other split but for the naming of its values counts as another.)
        **options: ``size`` (number of tasks) and ``seed``; ``grid_size``, ``difficulty``, ``min_clues``, ``max_clues``,
            ``minimal`` as in :func:`~llm_envs.games.sudoku_generator.draw_puzzle`.

    Raises:
        gymnasium.error.Error: An option is not known or not valid.
    """
    reject_options(DEFAULT_TASKS, options, ("size", "seed", *PUZZLE_OPTIONS))
    split = check_split(DEFAULT_TASKS, split or "train")
    chosen = {name: options[name] for name in PUZZLE_OPTIONS if options.get(name) is not None}
    check_puzzle_options(**chosen)
    counts = {name: options[name] for name in ("size", "seed") if name in options}
    return ProceduralTaskSet(
        DEFAULT_TASKS, split, draw_sudoku, options={"split": split, **chosen}, version=VERSION, **counts
    )


# ---- files ----------------------------------------------------------------------------------------------------------


def read_sudoku_row(row: Row, columns: Columns) -> Draft:
    """How this family reads a row: a puzzle from the first of :data:`PUZZLE_COLUMNS` that there is.

    The solution and the grade are computed; a solution that the row has is not looked at.

    Args:
        row: One row.
        columns: The user's column map; it wins. Its keys beyond puzzle and id go into ``Task.data``.

    Raises:
        RowError: The row has no puzzle, or it does not have exactly one solution.
    """
    puzzle = task_rows.pick(row, columns, "puzzle", PUZZLE_COLUMNS)
    if not isinstance(puzzle, str):
        raise RowError(f"the puzzle must be a text of N·N characters, got {puzzle!r:.60}")
    try:
        question, answer, data = sudoku_draft(parse_grid(puzzle))
    except error.Error as reason:
        raise ContentError(str(reason)) from reason
    return Draft(question, answer, {**task_rows.extra_data(row, columns), **data})


def _lines(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as reason:
        raise TaskError(f"{path} is not UTF-8 text (byte {reason.start}); convert it first") from reason
    except OSError as reason:
        raise TaskError(f"cannot read {path}: {reason}; give the path of a file with one puzzle a line") from reason
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield f"{path}:{number}", {"puzzle": line}


def load_puzzle_file(path: str | os.PathLike[str], split: str | None = None, **options: Any) -> ListTaskSet:
    """Returns the puzzles of a text file, one a line; empty lines and lines that begin with ``#`` are left out.

    Args:
        path: The file.
        split: None for all puzzles; ``"train"`` or ``"test"`` for those whose content belongs there.
        **options: ``skip_bad_rows``: leave out (and count) lines that are no puzzle with one solution.

    Raises:
        TaskError: The file or a line cannot be read, or nothing is left.
    """
    path = Path(path).expanduser()
    reject_options(str(path), options, ("skip_bad_rows",))
    tasks = task_rows.build(_lines(path), path.stem, source=str(path), reader=read_sudoku_row, **options)
    whole = ListTaskSet(tasks, name=path.stem)
    return whole if split is None else whole.only(split)


SUDOKU_TASKS: dict[str, Loader] = {DEFAULT_TASKS: load_generated}
"""Every named set of the family and its loader."""


def load_sudoku_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task] = DEFAULT_TASKS, split: str | None = None, **options: Any
) -> TaskSet:
    """Returns sudoku tasks: the generated set, a file, a hub data set, or tasks that are given.

    Args:
        tasks: ``"sudoku"``, the path of a puzzle file (:func:`load_puzzle_file`), or see
            :func:`llm_envs.tasks.load_tasks`.
        split: See there.
        **options: Options of the set: those of :func:`load_generated` or :func:`load_puzzle_file`; for rows
            ``columns`` and ``skip_bad_rows``.

    Raises:
        gymnasium.error.Error: There is no such set, split, file, option or column.
    """
    if isinstance(tasks, str | os.PathLike) and os.fspath(tasks).endswith(PUZZLE_FILES):
        return load_puzzle_file(tasks, split, **options)
    return load_tasks(tasks, split, family=SUDOKU_TASKS, reader=read_sudoku_row, **options)
