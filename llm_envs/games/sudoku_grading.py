"""How hard a sudoku puzzle is: the hardest technique that solving it without guessing needs.

====================  ==========  ==================================================================================
technique             difficulty  what it finds
====================  ==========  ==================================================================================
``naked single``      easy        a cell that can hold one value only
``hidden single``     medium      a value that has one place left in a row, column or box
``pair``              hard        values ruled out by locked candidates (all places of a value in a box lie in one row
                                  or column, or the other way round: pointing and claiming), or by two cells of a unit
                                  that share two values (naked and hidden pairs)
``search``            hard        none of these gets to the end: harder patterns, or trying values
====================  ==========  ==================================================================================

Techniques are tried in this order and the easiest that finds something is applied, so the grade does not depend on
where one looks first: each of them only ever removes candidates, and a candidate that can be removed stays removable.
"""

from __future__ import annotations

from itertools import combinations
from math import isqrt

from gymnasium import error

from llm_envs.games.sudoku import Grid, grid_line
from llm_envs.games.sudoku_solver import Masks, Places, initial_places, masks, propagate

__all__ = ["DIFFICULTIES", "TECHNIQUES", "difficulty_of", "hardest_technique", "solved_by_singles"]

TECHNIQUES = ("naked single", "hidden single", "pair", "search")
"""From the easiest to the hardest."""

_LEVEL = {"naked single": "easy", "hidden single": "medium", "pair": "hard", "search": "hard"}

DIFFICULTIES = ("easy", "medium", "hard")
"""From the easiest to the hardest."""


def difficulty_of(technique: str) -> str:
    """The difficulty of a puzzle whose hardest technique is ``technique``."""
    return _LEVEL[technique]


def solved_by_singles(puzzle: Grid, *, hidden: bool) -> bool:
    """Whether naked singles alone (or with ``hidden`` both kinds of singles) fill ``puzzle``. It is unique then."""
    shape = masks(isqrt(len(puzzle)))
    return propagate(initial_places(puzzle), 0, shape, hidden=hidden) == shape.full


def hardest_technique(puzzle: Grid) -> str:
    """The hardest of :data:`TECHNIQUES` that solving ``puzzle`` needs.

    Args:
        puzzle: A grid with exactly one solution.

    Raises:
        gymnasium.error.Error: ``puzzle`` contradicts itself. (That it has one solution is the caller's to check.)
    """
    shape = masks(isqrt(len(puzzle)))
    if _fill(puzzle, initial_places(puzzle), 0, hidden=False) == shape.full:
        return "naked single"
    places = initial_places(puzzle)
    done = _fill(puzzle, places, 0, hidden=True)
    if done == shape.full:
        return "hidden single"
    while _locked_candidates(places, shape) or _naked_pairs(places, shape) or _hidden_pairs(places, shape):
        done = _fill(puzzle, places, done, hidden=True)
        if done == shape.full:
            return "pair"
    return "search"


def _fill(puzzle: Grid, places: Places, done: int, *, hidden: bool) -> int:
    done_now = propagate(places, done, masks(isqrt(len(puzzle))), hidden=hidden)
    if done_now is None:
        raise error.Error(f"the sudoku {grid_line(puzzle)} has no solution, so it has no difficulty")
    return done_now


def _locked_candidates(places: Places, shape: Masks) -> bool:
    """Pointing and claiming: a value whose places in one unit all lie in another leaves the rest of that one."""
    changed = False
    crossings = [(box, line) for box in shape.boxes for line in shape.rows + shape.columns if box & line]
    for index in range(shape.size):
        for box, line in crossings:
            for inside, outside in ((box, line), (line, box)):
                cells = places[index]
                if not cells & inside & ~outside and cells & outside & ~inside:
                    places[index] = cells & ~(outside & ~inside)
                    changed = True
    return changed


def _naked_pairs(places: Places, shape: Masks) -> bool:
    """Two cells of a unit with the same two candidates: no other cell of the unit holds either."""
    changed = False
    for first, second in combinations(range(shape.size), 2):
        others = 0
        for index, cells in enumerate(places):
            if index not in (first, second):
                others |= cells
        pairs = places[first] & places[second] & ~others
        for unit in shape.units:
            pair = pairs & unit
            rest = unit & ~pair
            if pair.bit_count() == 2 and (places[first] | places[second]) & rest:
                places[first] &= ~rest
                places[second] &= ~rest
                changed = True
    return changed


def _hidden_pairs(places: Places, shape: Masks) -> bool:
    """Two values of a unit with the same two places: those cells hold nothing else."""
    changed = False
    for first, second in combinations(range(shape.size), 2):
        for unit in shape.units:
            pair = places[first] & unit
            if pair != places[second] & unit or pair.bit_count() != 2:
                continue
            for index, cells in enumerate(places):
                if index not in (first, second) and cells & pair:
                    places[index] = cells & ~pair
                    changed = True
    return changed
