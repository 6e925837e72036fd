"""Rules, solver and generator of plan-path's maps: by hand, and against searches of another kind."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.planning.grid import MOVES, Grid, MapError, draw_grid

#  0 1 2 3
ROWS = ("A..#", ".#..", "...G")


def all_distances(rows):
    """Least number of moves between any two cells, by Floyd and Warshall's algorithm; infinite without a way."""
    height, width = len(rows), len(rows[0])
    free = [(r, c) for r in range(height) for c in range(width) if rows[r][c] != "#"]
    least = np.full((height * width, height * width), np.inf)
    for r, c in free:
        least[r * width + c, r * width + c] = 0
        for near in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if near in free:
                least[r * width + c, near[0] * width + near[1]] = 1
    for k in range(len(least)):
        least = np.minimum(least, least[:, k, None] + least[None, k, :])
    return least


sides = st.integers(1, 6)


@st.composite
def maps(draw):
    """Any map with a start and a goal, whether or not a way leads between them."""
    height, width = draw(sides), draw(sides)
    if height * width < 2:
        width = 2
    cells = draw(st.lists(st.sampled_from("..#"), min_size=height * width, max_size=height * width))
    start, goal = draw(st.lists(st.integers(0, height * width - 1), min_size=2, max_size=2, unique=True))
    cells[start], cells[goal] = "A", "G"
    return tuple("".join(cells[r * width : (r + 1) * width]) for r in range(height))


# ---- rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "move", "after"),
    [
        (0, "R", 1), (0, "D", 4), (1, "L", 0), (4, "U", 0), (10, "R", 11), (6, "R", 7),
        (0, "U", None), (0, "L", None), (2, "R", None), (1, "D", None), (11, "R", None), (11, "D", None),
        (4, "R", None), (7, "R", None), (8, "L", None),  # no way round the edges
    ],
)  # fmt: skip
def test_moves(cell, move, after):
    assert Grid(ROWS).after(cell, move) == after


def test_obstacles_are_named():
    grid = Grid(ROWS)
    assert grid.obstacle(2, "R") == "there is a wall at r0c3"
    assert grid.obstacle(0, "U") == "r0c0 is at the edge of the map"
    assert grid.obstacle(8, "L") == "r2c0 is at the edge of the map"


def test_directions():
    grid = Grid(ROWS)
    assert [grid.direction(5, *at) for at in ((0, 1), (2, 1), (1, 0), (1, 2))] == list("UDLR")
    assert [grid.direction(5, *at) for at in ((1, 1), (0, 0), (1, 3), (9, 9))] == [None] * 4
    assert grid.direction(3, 1, 0) is None  # the next number, but in the next row


def test_distances_and_the_way_by_hand():
    grid = Grid(ROWS)
    assert grid.distances == (5, 4, 3, -1, 4, -1, 2, 1, 3, 2, 1, 0)
    assert grid.shortest(grid.start) == ["D", "D", "R", "R", "R"]  # not R R D D R: D comes before R
    assert grid.shortest(2) == ["D", "D", "R"]
    assert grid.shortest(grid.goal) == []
    assert grid.cells(2, ["D", "D", "R"]) == ["r1c2", "r2c2", "r2c3"]
    with pytest.raises(MapError, match="no way leads from r0c3"):
        grid.shortest(3)


@pytest.mark.parametrize("seed", range(60))
def test_distances_agree_with_another_algorithm(seed):
    rng = random.Random(seed)
    size = rng.choice([2, 3, 5, (4, 7), 8, 10])
    grid = draw_grid(rng, grid_size=size, wall_ratio=rng.choice([0.0, 0.22, 0.4]), min_length=1)
    expected = all_distances(grid.rows)[:, grid.goal]
    assert [d if d >= 0 else np.inf for d in grid.distances] == expected.tolist()


@given(maps())
def test_a_map_is_accepted_exactly_if_there_is_a_way(rows):
    cells = "".join(rows)
    least = all_distances(rows)[cells.index("A"), cells.index("G")]
    if np.isinf(least):
        with pytest.raises(MapError, match="no way leads from the start"):
            Grid(rows)
    else:
        grid = Grid(rows)
        assert len(grid.shortest(grid.start)) == least


@given(maps(), st.data())
def test_laws_of_moving(rows, data):
    try:
        grid = Grid(rows)
    except MapError:
        return
    back = {"U": "D", "D": "U", "L": "R", "R": "L"}
    cell = grid.start
    for move in data.draw(st.lists(st.sampled_from("UDLR"), max_size=20)):
        after = grid.after(cell, move)
        if after is None:
            assert grid.obstacle(cell, move)
            continue
        assert grid.after(after, back[move]) == cell
        assert abs(grid.distances[after] - grid.distances[cell]) == 1  # a grid is bipartite
        cell = after
        path = grid.shortest(cell)
        assert len(path) == grid.distances[cell]
        assert not path or grid.cells(cell, path)[-1] == grid.name(grid.goal)


# ---- maps and texts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "the map is empty"),
        (("",), "the map is empty"),
        (("A.", "G"), r"equally long, these have \[2, 1\] characters"),
        (("A.", "..", "xG"), "this one has 'x'"),
        (("A..",), r"exactly one goal \(G\), this one 0"),
        (("AAG",), r"exactly one start \(A\), this one 2"),
        (("A#G",), "no way leads from the start r0c0 to the goal r0c2"),
        (("A" + "." * 100 + "G",), "at most 100 rows and columns, this one 1 and 102"),
    ],
)
def test_maps_that_cannot_be_played(rows, message):
    with pytest.raises(MapError, match=message):
        Grid(rows)


def test_text_by_hand():
    assert Grid(ROWS).text(6) == (
        "  0 1 2 3\n"
        "0 . . . #\n"
        "1 . # A .\n"
        "2 . . . G\n"
        "You are at r1c2, the goal is at r2c3."
    )  # fmt: skip
    assert Grid(ROWS).plain(6) == "...#\n.#A.\n...G"
    assert Grid(ROWS).plain(11) == "...#\n.#..\n...A"


@pytest.mark.parametrize("size", [2, 10, 11, (3, 12), (12, 3)])
def test_the_text_shows_every_cell_where_it_is(size):
    grid = draw_grid(random.Random(0), grid_size=size, wall_ratio=0.1)
    for cell in range(grid.height * grid.width):
        header, *lines = [line.split() for line in grid.text(cell).splitlines()[:-1]]
        assert header == [str(column) for column in range(grid.width)]
        assert [line[0] for line in lines] == [str(row) for row in range(grid.height)]
        assert ["".join(line[1:]) for line in lines] == grid.plain(cell).splitlines()
        assert {len(line) for line in grid.text(cell).splitlines()[:-1]} == {len(grid.text(cell).splitlines()[0])}


def test_a_copy_is_the_same_object():
    grid = Grid(ROWS)
    assert copy.copy(grid) is grid
    assert copy.deepcopy({"a": [grid]})["a"][0] is grid


# ---- generator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"grid_size": 5},
        {"grid_size": [4, 9], "wall_ratio": 0.3, "min_length": 6},
        {"grid_size": 5, "min_length": 3, "max_length": 3},
        {"grid_size": 10, "min_length": 20, "max_length": 25},
        {"grid_size": 2, "wall_ratio": 0.9, "min_length": 1},
        {"grid_size": (1, 2), "wall_ratio": 0.0, "min_length": 1},
    ],
)
def test_drawn_maps_keep_what_was_asked(options):
    size = options.get("grid_size", 10)
    height, width = (size, size) if isinstance(size, int) else size
    for seed in range(40):
        grid = draw_grid(random.Random(seed), **options)
        assert (grid.height, grid.width) == (height, width)
        walls = min(round(options.get("wall_ratio", 0.22) * height * width), height * width - 2)
        assert "".join(grid.rows).count("#") == walls
        length = grid.distances[grid.start]
        assert options.get("min_length", 2) <= length <= options.get("max_length", length)
        assert draw_grid(random.Random(seed), **options).rows == grid.rows


def test_drawn_maps_differ_and_use_every_cell_and_move():
    grids = [draw_grid(random.Random(seed), grid_size=4) for seed in range(300)]
    assert len({grid.rows for grid in grids}) > 295
    assert {grid.start for grid in grids} == {grid.goal for grid in grids} == set(range(16))
    assert {grid.shortest(grid.start)[0] for grid in grids} == set(MOVES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid_size": 1}, "grid_size must be 2 to 100"),
        ({"grid_size": (3, 4, 5)}, "grid_size must be"),
        ({"grid_size": (0, 4)}, "grid_size must be"),
        ({"grid_size": True}, "grid_size must be"),
        ({"grid_size": "10"}, "grid_size must be"),
        ({"wall_ratio": 1.0}, "wall_ratio must be at least 0 and less than 1, got 1.0"),
        ({"wall_ratio": -0.1}, "wall_ratio"),
        ({"min_length": 0}, "min_length must be a whole number of at least 1, got 0"),
        ({"min_length": 5, "max_length": 4}, r"max_length must be a whole number of at least min_length \(5\), got 4"),
        ({"grid_size": 3, "min_length": 9}, "no map of 3×3 cells with 2 walls and a shortest way of at least 9 moves"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(MapError, match=message):
        draw_grid(random.Random(0), **options)
