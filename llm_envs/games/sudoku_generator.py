"""Random sudoku puzzles with exactly one solution: a random full grid, from which clues are left out one by one.

Clues are tried in random order, each once, and left out where the puzzle stays solvable: uniquely, or, for the
difficulties that name a technique, by that technique alone (which implies uniquely). A clue that cannot be left out now
cannot be left out later either, so a puzzle from which all were tried is minimal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import isqrt

from gymnasium import error

from llm_envs.games.sudoku import BOXES, Grid, geometry
from llm_envs.games.sudoku_grading import DIFFICULTIES, difficulty_of, hardest_technique, solved_by_singles
from llm_envs.games.sudoku_solver import has_other_value, solutions

__all__ = ["DEFAULT_CLUES", "FEWEST_CLUES", "check_puzzle_options", "dig", "draw_puzzle", "random_solution", "relabel"]

FEWEST_CLUES = {4: 4, 6: 8, 9: 17}
"""The fewest clues that any puzzle with one solution has, by size (9×9: McGuire, Tugemann and Civario 2014,
arXiv 1201.0749)."""

DEFAULT_CLUES = {4: (4, 8), 6: (10, 16), 9: (24, 36)}
"""The range of the number of clues, by size, where neither a range nor a difficulty is asked for."""

MAX_TRIES = 1000

MaySkip = Callable[[Grid, int, int], bool]
"""Whether a puzzle, in which a cell was just blanked, may do without the value that was there."""


def random_solution(rng: random.Random, size: int) -> Grid:
    """A random full grid. Every grid can come, not all equally often."""
    geometry(size)
    return next(solutions(bytes(size * size), rng=rng))


def dig(rng: random.Random, solution: Grid, clues: int, may_skip: MaySkip) -> Grid:
    """Leaves out clues of ``solution`` in random order until ``clues`` are left, or every one was tried."""
    puzzle, left = solution, len(solution)
    cells = list(range(len(solution)))
    rng.shuffle(cells)
    for cell in cells:
        if left <= clues:
            break
        blanked = puzzle[:cell] + b"\x00" + puzzle[cell + 1 :]
        if may_skip(blanked, cell, solution[cell]):
            puzzle, left = blanked, left - 1
    return puzzle


def relabel(rng: random.Random, puzzle: Grid) -> Grid:
    """``puzzle`` with its values renamed at random: as many solutions, and as hard."""
    size = isqrt(len(puzzle))
    values = list(range(1, size + 1))
    rng.shuffle(values)
    return puzzle.translate(bytes((0, *values, *range(size + 1, 256))))


def _stays_unique(puzzle: Grid, cell: int, value: int) -> bool:
    return not has_other_value(puzzle, cell, value)


def _stays_easy(puzzle: Grid, cell: int, value: int) -> bool:
    return solved_by_singles(puzzle, hidden=False)


def _stays_medium(puzzle: Grid, cell: int, value: int) -> bool:
    return solved_by_singles(puzzle, hidden=True)


_MAY_SKIP: dict[str | None, MaySkip] = {"easy": _stays_easy, "medium": _stays_medium}


def draw_puzzle(
    rng: random.Random,
    *,
    grid_size: int = 4,
    difficulty: str | None = None,
    min_clues: int | None = None,
    max_clues: int | None = None,
    minimal: bool = False,
) -> Grid:
    """A random puzzle with exactly one solution. It depends on the state of ``rng`` and the options only.

    Args:
        rng: Source of randomness.
        grid_size: N: 4, 6 or 9.
        difficulty: ``"easy"``, ``"medium"`` or ``"hard"`` (see :mod:`llm_envs.games.sudoku_grading`), or None for any.
            Easy puzzles need naked singles only; every 4×4 puzzle is easy.
        min_clues: The fewest clues.
        max_clues: The most clues. The number is drawn between the two; a bound that is left out is the possible one.
            Where both are left out: :data:`DEFAULT_CLUES` without a difficulty, with one as few clues as keep it.
        minimal: As few clues as possible: none can be left out without another solution coming up (with
            ``difficulty="easy"`` or ``"medium"``: without the puzzle becoming harder or ambiguous).

    Raises:
        gymnasium.error.Error: The options are not valid, or no puzzle like that was found in :data:`MAX_TRIES` tries.
    """
    check_puzzle_options(grid_size, difficulty, min_clues, max_clues, minimal)
    if min_clues is None and max_clues is None and difficulty is None and not minimal:
        fewest, most = DEFAULT_CLUES[grid_size]
    else:
        minimal = minimal or (min_clues is None and max_clues is None)
        fewest = FEWEST_CLUES[grid_size] if min_clues is None else min_clues
        most = grid_size * grid_size - 1 if max_clues is None else max_clues
    may_skip = _MAY_SKIP.get(difficulty, _stays_unique)
    for _ in range(MAX_TRIES):
        target = 0 if minimal else rng.randint(fewest, most)
        puzzle = dig(rng, random_solution(rng, grid_size), target, may_skip)
        if not fewest <= grid_size * grid_size - puzzle.count(0) <= most:
            continue
        if difficulty is None or difficulty_of(hardest_technique(puzzle)) == difficulty:
            return puzzle
    raise error.Error(
        f"No {grid_size}×{grid_size} sudoku with {fewest} to {most} clues and difficulty {difficulty!r} was found in "
        f"{MAX_TRIES} tries; widen the range of clues or leave the difficulty out."
    )


def check_puzzle_options(
    grid_size: int = 4,
    difficulty: str | None = None,
    min_clues: int | None = None,
    max_clues: int | None = None,
    minimal: bool = False,
) -> None:
    """Checks the options of :func:`draw_puzzle`.

    Raises:
        gymnasium.error.Error: One of them is not valid, or they exclude each other.
    """
    geometry(grid_size)
    if difficulty is not None and difficulty not in DIFFICULTIES:
        raise error.Error(
            f"`difficulty` must be None or one of {', '.join(DIFFICULTIES)}, actual value: {difficulty!r}."
        )
    if grid_size == min(BOXES) and difficulty not in (None, "easy"):
        raise error.Error(
            f"Every {grid_size}×{grid_size} sudoku is easy, there is none with difficulty {difficulty!r}; "
            "take a larger `grid_size`."
        )
    if not isinstance(minimal, bool):
        raise error.Error(f"`minimal` must be True or False, actual value: {minimal!r}.")
    least, most = FEWEST_CLUES[grid_size], grid_size * grid_size - 1
    for name, value in (("min_clues", min_clues), ("max_clues", max_clues)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
            raise error.Error(
                f"`{name}` must be an integer in [{least}, {most}] for a {grid_size}×{grid_size} grid, "
                f"actual value: {value!r}."
            )
    if min_clues is not None and max_clues is not None and min_clues > max_clues:
        raise error.Error(f"`min_clues` ({min_clues}) must not be larger than `max_clues` ({max_clues}).")
