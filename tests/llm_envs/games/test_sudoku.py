"""The rules of sudoku by hand and by law: geometry, text forms, fills, and what counts as solved."""

from __future__ import annotations

import random

import pytest
from gymnasium import error
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.games.sudoku import (
    BOXES,
    Fill,
    IllegalFill,
    apply_fill,
    cell_name,
    conflict,
    fill_text,
    geometry,
    grid_line,
    grid_text,
    is_solved,
    parse_fill,
    parse_grid,
    read_fill,
)
from llm_envs.games.sudoku_generator import draw_puzzle, random_solution
from llm_envs.games.sudoku_solver import solution_of

CLUES = parse_grid("1..4 ..1. .1.. 4..1")

puzzles = st.builds(
    lambda seed, size: draw_puzzle(random.Random(seed), grid_size=size),
    st.integers(0, 30),
    st.sampled_from(sorted(BOXES)),
)


def test_boxes_of_six_have_two_rows_and_three_columns():
    assert geometry(6).boxes[0] == (0, 1, 2, 6, 7, 8)
    assert geometry(6).boxes[1] == (3, 4, 5, 9, 10, 11)
    assert geometry(6).boxes[5] == (27, 28, 29, 33, 34, 35)


@pytest.mark.parametrize(("size", "peers"), [(4, 7), (6, 12), (9, 20)])
def test_every_cell_has_as_many_peers(size, peers):
    shape = geometry(size)
    assert len(shape.units) == 3 * size
    assert all(sorted(cell for unit in kind for cell in unit) == list(range(size * size))
               for kind in (shape.rows, shape.columns, shape.boxes))  # fmt: skip
    assert {len(set(cells)) for cells in shape.peers} == {peers}
    assert all(cell in shape.peers[other] for cell in range(size * size) for other in shape.peers[cell])


@pytest.mark.parametrize("size", [0, 1, 5, 8, 16, "9", True, None])
def test_other_sizes_are_refused(size):
    with pytest.raises(error.Error, match=r"one of 4, 6, 9, actual value"):
        geometry(size)


# ---- text ----------------------------------------------------------------------------------------------------------


def test_a_grid_is_read_from_any_of_its_forms():
    assert parse_grid("1..40010.1004..1") == CLUES
    assert grid_line(CLUES) == "1..4..1..1..4..1"
    assert grid_text(CLUES) == "1 . . 4\n. . 1 .\n. 1 . .\n4 . . 1"
    assert parse_grid(grid_text(CLUES)) == CLUES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1..4..1..1..4..", "found 15"),
        ("", "found 0"),
        ("." * 25, "found 25"),
        ("1..4..1..1..4..5", "values 1 to 4, found 5"),
        ("1..4..1..1..4..x", "found 'x'"),
        ("1..4..1..1..4..²", "found '²'"),
    ],
)
def test_what_is_no_grid_is_refused_with_the_reason(text, message):
    with pytest.raises(error.Error, match=message):
        parse_grid(text)


@given(puzzles)
def test_text_forms_are_read_back(puzzle):
    assert parse_grid(grid_line(puzzle)) == parse_grid(grid_text(puzzle)) == puzzle


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("r1c2=3", "r1c2=3"),
        ("R1C2 = 3", "r1c2=3"),
        ("r01c2=0", "r1c2=0"),
        ("r99c0=12", "r99c0=12"),
        ("r1c2", None),
        ("r1c2=", None),
        ("r1c2=-1", None),
        ("r1c2=3 ", None),
        ("r1c2==3", None),
        ("c2r1=3", None),
        ("(1,2)=3", None),
        ("r1c2=٣", None),
        ("r111c2=3", None),
        ("", None),
    ],
)
def test_the_spelling_of_fills(text, spelling):
    assert read_fill(text) == spelling


def test_cells_are_counted_from_one():
    assert parse_fill("r1c2=3", 4) == Fill(1, 3)
    assert parse_fill("r9c9=0", 9) == Fill(80, 0)
    assert cell_name(7, 6) == "r2c2"
    for size in BOXES:
        for cell in range(size * size):
            assert parse_fill(fill_text(Fill(cell, size), size), size) == Fill(cell, size)


@pytest.mark.parametrize("text", ["r0c1=1", "r1c0=1", "r5c1=1", "r1c5=1", "r1c2=5", "r99c99=99"])
def test_what_is_outside_the_grid_is_illegal(text):
    with pytest.raises(IllegalFill, match="1 to 4"):
        parse_fill(text, 4)


# ---- fills ---------------------------------------------------------------------------------------------------------


def after(*fills, clues=CLUES):
    grid = clues
    for fill in fills:
        grid = apply_fill(grid, clues, parse_fill(fill, 4))
    return grid


@pytest.mark.parametrize(
    ("before", "fill", "reason"),
    [
        ([], "r1c1=2", "clue"),
        ([], "r1c1=1", "clue"),
        ([], "r1c1=0", "clue"),
        ([], "r1c2=0", "blank"),
        (["r1c2=2", "r1c2=0"], "r1c2=0", "blank"),
        ([], "r1c2=4", "row 1 already holds a 4, in r1c4"),
        ([], "r4c3=1", "row 4 already holds a 1, in r4c4"),  # and column 3 does: rows are named first
        ([], "r2c1=4", "column 1 already holds a 4, in r4c1"),
        ([], "r2c4=4", "column 4 already holds a 4, in r1c4"),
        (["r1c2=2"], "r2c1=2", "the box already holds a 2, in r1c2"),
        (["r1c2=2"], "r1c3=2", "row 1 already holds a 2, in r1c2"),
        (["r1c2=2", "r1c2=3"], "r1c3=3", "row 1 already holds a 3, in r1c2"),
    ],
)
def test_illegal_fills(before, fill, reason):
    with pytest.raises(IllegalFill, match=reason):
        apply_fill(after(*before), CLUES, parse_fill(fill, 4))


def test_only_the_grid_as_it_stands_counts():
    assert after("r1c2=2", "r1c2=3", "r1c3=2")[:4] == bytes([1, 3, 2, 4])
    assert after("r1c2=2", "r1c2=0", "r1c3=2")[:4] == bytes([1, 0, 2, 4])


def test_a_wrong_fill_is_legal_and_can_be_mended():
    puzzle = parse_grid("1... ..3. .4.. ...2")
    assert grid_line(solution_of(puzzle)) == "1324423124133142"
    wrong = apply_fill(puzzle, puzzle, Fill(1, 2))
    assert grid_line(apply_fill(wrong, puzzle, Fill(1, 3))) == "13....3..4.....2"
    assert apply_fill(wrong, puzzle, Fill(1, 0)) == puzzle
    assert apply_fill(wrong, puzzle, Fill(1, 2)) == wrong  # the same again is legal and changes nothing


@settings(max_examples=60)
@given(puzzles, st.data())
def test_no_sequence_of_fills_breaks_the_rules(puzzle, data):
    size = max(4, int(len(puzzle) ** 0.5))
    grid = puzzle
    cells, values = st.integers(0, size * size - 1), st.integers(0, size)
    for _ in range(data.draw(st.integers(0, 40))):
        fill = Fill(data.draw(cells), data.draw(values))
        before = grid
        try:
            grid = apply_fill(before, puzzle, fill)
        except IllegalFill:
            assert (
                puzzle[fill.cell]
                or before[fill.cell] == fill.value == 0
                or any(before[peer] == fill.value for peer in geometry(size).peers[fill.cell])
            )
            continue
        assert grid[fill.cell] == fill.value
        assert [i for i in range(size * size) if grid[i] != before[i]] in ([], [fill.cell])
        assert all(clue in (0, value) for clue, value in zip(puzzle, grid, strict=True))
        for unit in geometry(size).units:
            filled = [grid[cell] for cell in unit if grid[cell]]
            assert len(filled) == len(set(filled))
        if before[fill.cell] == 0 and fill.value:
            assert apply_fill(grid, puzzle, Fill(fill.cell, 0)) == before


@given(puzzles, st.data())
def test_a_conflict_is_found_exactly_where_there_is_one(puzzle, data):
    size = int(len(puzzle) ** 0.5)
    fill = Fill(data.draw(st.integers(0, size * size - 1)), data.draw(st.integers(0, size)))
    found = conflict(puzzle, fill)
    clashing = [c for c in geometry(size).peers[fill.cell] if fill.value and puzzle[c] == fill.value]
    assert (found in clashing) if clashing else found is None


# ---- solved --------------------------------------------------------------------------------------------------------


def test_one_grid_does_not_solve_other_puzzles():
    """The published check of a solution ignored the clues: one full grid solved all 400 puzzles."""
    grid = random_solution(random.Random(400), 4)
    drawn = [draw_puzzle(random.Random(seed)) for seed in range(400)]
    solved = [is_solved(grid, puzzle) for puzzle in drawn]
    assert solved == [solution_of(puzzle) == grid for puzzle in drawn]
    assert sum(solved) < 10
    assert is_solved(grid, bytes(16))  # it is a full, valid grid: only the clues are against it


@pytest.mark.parametrize(
    "line",
    [
        "1234 2341 3412 4123",  # rows and columns hold, boxes do not
        "1234 3412 1234 3412",  # rows and boxes hold, columns do not
        "1313 2424 3131 4242",  # columns and boxes hold, rows do not
    ],
)
def test_rows_columns_and_boxes_all_count(line):
    assert not is_solved(parse_grid(line), bytes(16))


@settings(max_examples=60)
@given(puzzles, st.data())
def test_solved_means_full_valid_and_clues_kept(puzzle, data):
    solution = solution_of(puzzle)
    assert is_solved(solution, puzzle)
    assert not is_solved(puzzle, puzzle)
    cell = data.draw(st.integers(0, len(puzzle) - 1))
    blanked = solution[:cell] + b"\x00" + solution[cell + 1 :]
    assert not is_solved(blanked, puzzle)
    swapped = bytes({1: 2, 2: 1}.get(value, value) for value in solution)  # valid and full, but other clues
    assert is_solved(swapped, bytes(len(puzzle)))
    assert not is_solved(swapped, puzzle)  # a unique puzzle has at least one of any two values as a clue


def test_grids_of_another_size_are_not_solved():
    assert not is_solved(random_solution(random.Random(0), 9), CLUES)
