"""Sudoku once more, for the tests only: an exact-cover solver and a grader on sets of candidates.

Nothing here is shared with `llm_envs.games`: not the geometry, not the representation, not the search.
"""

from __future__ import annotations

from itertools import combinations

BOX = {4: (2, 2), 6: (2, 3), 9: (3, 3)}


def solve(line: str, limit: int = 2) -> list[str]:
    """Up to `limit` solutions of a puzzle (digits, `.` for a blank), by Knuth's Algorithm X on dicts of sets."""
    n = {16: 4, 36: 6, 81: 9}[len(line)]
    height, width = BOX[n]
    rows = {}
    for cell, char in enumerate(line):
        r, c = divmod(cell, n)
        b = (r // height) * (n // width) + c // width
        for v in range(1, n + 1) if char == "." else (int(char),):
            rows[cell, v] = [("cell", cell), ("row", r, v), ("column", c, v), ("box", b, v)]
    columns: dict[tuple, set] = {("cell", cell): set() for cell in range(n * n)}
    for kind in ("row", "column", "box"):
        columns.update({(kind, i, v): set() for i in range(n) for v in range(1, n + 1)})
    for row, covered in rows.items():
        for column in covered:
            columns[column].add(row)
    found: list[str] = []
    chosen: list[tuple[int, int]] = []

    def select(row):
        taken = []
        for column in rows[row]:
            for other in columns[column]:
                for crossing in rows[other]:
                    if crossing != column:
                        columns[crossing].discard(other)
            taken.append(columns.pop(column))
        return taken

    def deselect(row, taken):
        for column in reversed(rows[row]):
            columns[column] = taken.pop()
            for other in columns[column]:
                for crossing in rows[other]:
                    if crossing != column:
                        columns[crossing].add(other)

    def search():
        if not columns:
            found.append("".join(str(v) for _, v in sorted(chosen)))
            return
        column = min(columns, key=lambda key: len(columns[key]))
        for row in sorted(columns[column]):
            chosen.append(row)
            taken = select(row)
            search()
            deselect(row, taken)
            chosen.pop()
            if len(found) == limit:
                return

    search()
    return found


def units(n: int) -> list[list[int]]:
    height, width = BOX[n]
    lines = [[n * r + c for c in range(n)] for r in range(n)] + [[n * r + c for r in range(n)] for c in range(n)]
    boxes: dict[tuple[int, int], list[int]] = {}
    for cell in range(n * n):
        boxes.setdefault((cell // n // height, cell % n // width), []).append(cell)
    return lines + list(boxes.values())


def grade(line: str) -> str:
    """The hardest technique that a puzzle needs; the easiest that finds something is always applied."""
    n = {16: 4, 36: 6, 81: 9}[len(line)]
    all_units = units(n)
    can = [set(range(1, n + 1)) if char == "." else {int(char)} for char in line]
    hardest = 0

    def drop(cells, values):
        changed = False
        for cell in cells:
            if can[cell] & values:
                can[cell] -= values
                changed = True
        return changed

    def naked():
        changed = False
        for unit in all_units:
            for cell in unit:
                if len(can[cell]) == 1:
                    changed |= drop([other for other in unit if other != cell], set(can[cell]))
        return changed

    def hidden():
        for unit in all_units:
            for v in range(1, n + 1):
                places = [cell for cell in unit if v in can[cell]]
                if len(places) == 1 and len(can[places[0]]) > 1:
                    can[places[0]] = {v}
                    return True
        return False

    def pair():
        for first in all_units:
            for second in all_units:
                common = set(first) & set(second)
                if first is second or len(common) < 2:
                    continue
                for v in range(1, n + 1):
                    places = {cell for cell in first if v in can[cell]}
                    if places <= common and drop(set(second) - common, {v}):
                        return True
        for unit in all_units:
            for a, b in combinations(unit, 2):
                if can[a] == can[b] and len(can[a]) == 2 and drop(set(unit) - {a, b}, set(can[a])):
                    return True
            for v, w in combinations(range(1, n + 1), 2):
                places = {cell for cell in unit if can[cell] & {v, w}}
                if len(places) == 2 and drop(places, set(range(1, n + 1)) - {v, w}):
                    return True
        return False

    names = ("naked single", "hidden single", "pair", "search")
    while True:
        if all(len(values) == 1 for values in can):
            return names[hardest]
        if naked():
            continue
        if hidden():
            hardest = max(hardest, 1)
        elif pair():
            hardest = 2
        else:
            return "search"
