"""Templates about grids of characters or numbers."""

from __future__ import annotations

from llm_envs.coding.templates.base import GRID, INT, INTS, ROWS, Template


def _count_islands(grid: list[str], k: int) -> int:
    seen = set()
    count = 0
    for row in range(len(grid)):
        for column in range(len(grid[0])):
            if grid[row][column] != "#" or (row, column) in seen:
                continue
            seen.add((row, column))
            stack = [(row, column)]
            size = 0
            while stack:
                r, c = stack.pop()
                size += 1
                for other in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                    inside = 0 <= other[0] < len(grid) and 0 <= other[1] < len(grid[0])
                    if inside and grid[other[0]][other[1]] == "#" and other not in seen:
                        seen.add(other)
                        stack.append(other)
            if size >= k:
                count += 1
    return count


def _grid_distance(grid: list[str], wall: str) -> int:
    from collections import deque

    rows, columns = len(grid), len(grid[0])
    distance = {(0, 0): 0}
    queue = deque([(0, 0)])
    while queue:
        r, c = queue.popleft()
        for other in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            inside = 0 <= other[0] < rows and 0 <= other[1] < columns
            if inside and grid[other[0]][other[1]] != wall and other not in distance:
                distance[other] = distance[r, c] + 1
                queue.append(other)
    return distance.get((rows - 1, columns - 1), -1)


def _count_neighbours(grid: list[str], k: int) -> int:
    count = 0
    for r in range(len(grid)):
        for c in range(len(grid[0])):
            near = 0
            for i in range(max(0, r - 1), min(len(grid), r + 2)):
                for j in range(max(0, c - 1), min(len(grid[0]), c + 2)):
                    if (i, j) != (r, c) and grid[i][j] == "#":
                        near += 1
            if grid[r][c] == "." and near == k:
                count += 1
    return count


def _largest_square(grid: list[str], mark: str) -> int:
    best = 0
    side = [[0] * len(grid[0]) for _ in grid]
    for r in range(len(grid)):
        for c in range(len(grid[0])):
            if grid[r][c] == mark:
                if r == 0 or c == 0:
                    side[r][c] = 1
                else:
                    side[r][c] = 1 + min(side[r - 1][c], side[r][c - 1], side[r - 1][c - 1])
                best = max(best, side[r][c])
    return best


def _turn_grid(grid: list[str], turns: int) -> list[str]:
    for _ in range(turns % 4):
        grid = ["".join(column) for column in zip(*grid[::-1], strict=True)]
    return grid


def _flood_fill(grid: list[str], color: str) -> list[str]:
    cells = [list(row) for row in grid]
    old = cells[0][0]
    if old == color:
        return grid
    stack = [(0, 0)]
    while stack:
        r, c = stack.pop()
        if 0 <= r < len(cells) and 0 <= c < len(cells[0]) and cells[r][c] == old:
            cells[r][c] = color
            stack.extend([(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)])
    return ["".join(row) for row in cells]


def _spiral(rows: list[list[int]], way: str) -> list[int]:
    grid = [list(row) for row in rows]
    if way != "clockwise":
        grid = [list(column) for column in zip(*grid, strict=True)]
    order = []
    while grid:
        order.extend(grid.pop(0))
        grid = [list(column) for column in zip(*grid, strict=True)][::-1]
    return order


def _peaks(rows: list[list[int]], margin: int) -> int:
    count = 0
    for r in range(len(rows)):
        for c in range(len(rows[0])):
            near = [
                rows[i][j]
                for i, j in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1))
                if 0 <= i < len(rows) and 0 <= j < len(rows[0])
            ]
            if all(rows[r][c] >= other + margin for other in near):
                count += 1
    return count


def _grid(rng, cells, fewest=2, most=6):  # type: ignore[no-untyped-def]
    width = rng.randint(fewest, most)
    return ["".join(rng.choice(cells) for _ in range(width)) for _ in range(rng.randint(fewest, most))]


def _islands(rng, k):  # type: ignore[no-untyped-def]
    return (_grid(rng, "##.." if k > 2 else "#..", 3, 7),)


def _maze(rng, wall):  # type: ignore[no-untyped-def]
    grid = _grid(rng, "...." + wall, 2, 6)
    grid[0] = "." + grid[0][1:]
    grid[-1] = grid[-1][:-1] + "."
    return (grid,)


def _squares(rng, mark):  # type: ignore[no-untyped-def]
    return (_grid(rng, mark * 4 + "-", 1, 6),)


def _numbers(rng, low=0, high=9):  # type: ignore[no-untyped-def]
    width = rng.randint(1, 5)
    return [[rng.randint(low, high) for _ in range(width)] for _ in range(rng.randint(1, 5))]


TEMPLATES = (
    Template(
        "count-islands",
        "In `grid`, # is land and . is water. An island is a connected piece of land; cells are connected upwards, "
        "downwards and sideways, not diagonally. Count the islands of at least {k} cells.",
        _count_islands,
        {"grid": GRID},
        INT,
        _islands,
        (
            (">= k", "> k"),
            ("(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)", "(r + 1, c), (r - 1, c)"),
            (
                "(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)",
                "(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1), (r + 1, c + 1), (r + 1, c - 1)",
            ),
        ),
        {"k": (1, 2, 3, 4)},
    ),
    Template(
        "grid-distance",
        "In `grid`, {wall} is a wall and . is free. Return the smallest number of steps from the top left cell to "
        "the bottom right cell, both of which are free, or -1 if there is no way. A step goes one cell up, down, "
        "left or right, never into a wall.",
        _grid_distance,
        {"grid": GRID},
        INT,
        _maze,
        (
            ("(rows - 1, columns - 1), -1", "(rows - 1, columns - 1), 0"),
            (" and grid[other[0]][other[1]] != wall", ""),
            ("(0, 0): 0", "(0, 0): 1"),
        ),
        {"wall": tuple("#X*ow%@&")},
    ),
    Template(
        "count-neighbours",
        "In `grid`, count the cells . that have exactly {k} cells # among their neighbours. A cell inside the grid "
        "has eight neighbours, diagonal ones included; at the border it has fewer.",
        _count_neighbours,
        {"grid": GRID},
        INT,
        lambda rng, k: (_grid(rng, "##." if k > 3 else "##..." if k > 1 else "#....", 3, 6),),
        (("near == k", "near >= k"), ('grid[r][c] == "." and ', ""), ("max(0, c - 1)", "c")),
        {"k": (1, 2, 3, 4, 5)},
    ),
    Template(
        "largest-square",
        "Return the side of the largest square in `grid` all of whose cells are {mark}, or 0 if there is no such cell.",
        _largest_square,
        {"grid": GRID},
        INT,
        _squares,
        (
            ("min(side[r - 1][c], side[r][c - 1], side[r - 1][c - 1])", "min(side[r - 1][c], side[r][c - 1])"),
            ("1 + min(", "1 + max("),
            ("best = max(best, side[r][c])", "best += side[r][c] > 0"),
        ),
        {"mark": tuple("#XOabcvw+")},
    ),
    Template(
        "turn-grid",
        "Turn `grid` clockwise by a right angle, {turns} times, and return its rows.",
        _turn_grid,
        {"grid": GRID},
        GRID,
        lambda rng, turns: (_grid(rng, "abc", 2, 5),),
        (("turns % 4", "(turns + 1) % 4"), ("*grid[::-1]", "*grid"), ("return grid", "return grid[::-1]")),
        {"turns": (1, 2, 3, 5, 6, 7, 9, 10, 11)},
    ),
    Template(
        "flood-fill",
        "Paint `grid` from the top left cell: that cell and all cells connected to it through cells of the same "
        "letter become {color}. Cells are connected upwards, downwards and sideways, not diagonally. Return the "
        "rows of the painted grid.",
        _flood_fill,
        {"grid": GRID},
        GRID,
        lambda rng, color: (_grid(rng, "aab", 2, 5),),
        (
            ("(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)", "(r + 1, c), (r, c + 1)"),
            (
                "(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)",
                "(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1), (r + 1, c + 1)",
            ),
            ("stack.extend(", "list("),
        ),
        {"color": tuple("xyzuvwrst")},
    ),
    Template(
        "spiral",
        "Read `rows`, a rectangle of numbers, in a {way} spiral that starts in the top left corner and runs inwards "
        "(clockwise begins to the right, counter-clockwise downwards). Return the numbers in that order.",
        _spiral,
        {"rows": ROWS},
        INTS,
        lambda rng, way: (_numbers(rng, 0, 99),),
        (
            ('way != "clockwise"', 'way == "clockwise"'),
            ("[::-1]", ""),
            ("order.extend(grid.pop(0))", "order += grid.pop()"),
        ),
        {"way": ("clockwise", "counter-clockwise")},
    ),
    Template(
        "peaks",
        "Count the numbers in `rows`, a rectangle of numbers, that exceed each of their neighbours above, below, to "
        "the left and to the right, as far as there are any, by at least {margin}.",
        _peaks,
        {"rows": ROWS},
        INT,
        lambda rng, margin: (_numbers(rng, 0, margin + 3),),
        ((">= other + margin", "> other + margin"), (">= other + margin", ">= other"), ("if all(", "if any(")),
        {"margin": (1, 2, 3, 4, 5)},
    ),
)
