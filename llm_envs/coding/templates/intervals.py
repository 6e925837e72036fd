"""Templates about intervals. Each row of an argument is an interval: its start and its end."""

from __future__ import annotations

from llm_envs.coding.templates.base import INT, INTS, ROWS, Template


def _merge_close(intervals: list[list[int]], gap: int) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] <= gap:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def _most_at_once(intervals: list[list[int]], rest: int) -> int:
    best = 0
    for moment, _ in intervals:
        best = max(best, sum(1 for start, end in intervals if start <= moment < end + rest))
    return best


def _covered_length(intervals: list[list[int]], limit: int) -> int:
    covered: set[int] = set()
    for start, end in intervals:
        covered.update(range(max(start, 0), min(end, limit)))
    return len(covered)


def _most_meetings(intervals: list[list[int]], pause: int) -> int:
    count = 0
    free_from = None
    for end, start in sorted((end, start) for start, end in intervals):
        if free_from is None or start >= free_from:
            count += 1
            free_from = end + pause
    return count


def _free_slots(intervals: list[list[int]], limit: int, least: int) -> list[list[int]]:
    slots = []
    position = 0
    for start, end in [*sorted(intervals), [limit, limit]]:
        if start - position >= least:
            slots.append([position, start])
        position = max(position, end)
    return slots


def _busy_intervals(intervals: list[list[int]], points: list[int], k: int) -> int:
    return sum(1 for start, end in intervals if sum(1 for point in points if start <= point <= end) >= k)


def _points_needed(intervals: list[list[int]], reach: int) -> int:
    count = 0
    last = None
    for end, start in sorted((end, start) for start, end in intervals):
        if last is None or last < start - reach:
            count += 1
            last = end + reach
    return count


def _spans(rng, most=7, high=24, longest=6):  # type: ignore[no-untyped-def]
    rows = []
    for _ in range(rng.randint(1, most)):
        start = rng.randint(0, high)
        rows.append([start, start + rng.randint(1, longest)])
    return rows


def _dated(rng, pause):  # type: ignore[no-untyped-def]
    """Intervals whose distances are often just the pause, or one less."""
    rows = []
    end = 1
    for _ in range(rng.randint(2, 5)):
        start = end + rng.choice([pause, pause, pause - 1, pause + 1, 0])
        end = start + rng.randint(1, 4)
        rows.append([start, end])
    if rng.random() < 0.5:  # One that holds all others.
        rows.append([rows[0][0] - 1, rows[-1][1] + 3])
    rng.shuffle(rows)
    return rows


_ROW = "Each row of `intervals` is an interval: its start and its end, with start < end."

TEMPLATES = (
    Template(
        "merge-close",
        f"{_ROW} Merge intervals that overlap, touch, or have at most {{gap}} between the end of one and the start "
        f"of the "
        "next, again and again until none are left to merge. Return the intervals in increasing order.",
        _merge_close,
        {"intervals": ROWS},
        ROWS,
        lambda rng, gap: (_dated(rng, gap),),
        (("<= gap", "< gap"), ("max(merged[-1][1], end)", "end"), ("sorted(intervals)", "intervals")),
        {"gap": (1, 2, 3, 4, 5, 6, 7)},
    ),
    Template(
        "most-at-once",
        f"{_ROW} It is a visit to a room, and after its end the room is cleaned for {{rest}} more minutes, so the "
        f"visit takes "
        "up a room from start until end + {rest}; at that minute the room is free again. Return how many rooms are "
        "needed.",
        _most_at_once,
        {"intervals": ROWS},
        INT,
        lambda rng, rest: (_dated(rng, rest) if rng.random() < 0.6 else _spans(rng, high=10),),
        (("< end + rest", "<= end + rest"), ("< end + rest", "< end"), ("start <= moment", "start < moment")),
        {"rest": (1, 2, 3, 4, 5, 6, 7, 8)},
    ),
    Template(
        "covered-length",
        f"{_ROW} Return the total length between 0 and {{limit}} that is covered by at least one interval.",
        _covered_length,
        {"intervals": ROWS},
        INT,
        lambda rng, limit: ([[a - 5, b - 5] for a, b in _spans(rng, 6, limit + 6, 8)],),
        (("max(start, 0)", "start"), ("min(end, limit)", "end"), ("min(end, limit)", "min(end + 1, limit)")),
        {"limit": (8, 9, 10, 11, 12, 13, 14, 15)},
    ),
    Template(
        "most-meetings",
        f"{_ROW} Choose as many intervals as possible so that between the end of one and the start of the next "
        f"there are at "
        "least {pause}. Return how many can be chosen.",
        _most_meetings,
        {"intervals": ROWS},
        INT,
        lambda rng, pause: (_dated(rng, pause),),
        (
            ("start >= free_from", "start > free_from"),
            ("end + pause", "end"),
            (
                "for end, start in sorted((end, start) for start, end in intervals)",
                "for start, end in sorted(intervals)",
            ),
        ),
        {"pause": (1, 2, 3, 4, 5, 6)},
    ),
    Template(
        "free-slots",
        _ROW + " It is a booked time. Return the free times between 0 and {limit} that are at least {least} long, in "
        "increasing order, each with its start and its end. All intervals lie between 0 and {limit}.",
        _free_slots,
        {"intervals": ROWS},
        ROWS,
        lambda rng, limit, least: (
            [
                [min(a, limit - 1), min(b, limit)]
                for a, b in (_dated(rng, least) if rng.random() < 0.7 else _spans(rng, 3))
            ],
        ),
        ((">= least", "> least"), ("max(position, end)", "end"), (", [limit, limit]]", "]")),
        {"limit": (20, 22, 24, 26, 30), "least": (2, 3, 4, 5)},
    ),
    Template(
        "busy-intervals",
        f"{_ROW} Count the intervals that contain at least {{k}} of the numbers in `points`; start and end belong "
        f"to the "
        "interval, and a number that occurs twice counts twice.",
        _busy_intervals,
        {"intervals": ROWS, "points": INTS},
        INT,
        lambda rng, k: (_spans(rng, 6, 10, 4), [rng.randint(0, 9) for _ in range(rng.randint(3 * k, 6 * k))]),
        ((">= k", "> k"), ("point <= end", "point < end"), ("in points if", "in set(points) if")),
        {"k": (2, 3, 4, 5, 6)},
    ),
    Template(
        "points-needed",
        f"{_ROW} A point serves an interval if it lies in it or at most {{reach}} away from it. Return the smallest "
        f"number of "
        "points that serve all intervals.",
        _points_needed,
        {"intervals": ROWS},
        INT,
        lambda rng, reach: (_dated(rng, 2 * reach),),
        (("last < start - reach", "last <= start - reach"), ("end + reach", "end"), ("last < start - reach", "True")),
        {"reach": (1, 2, 3, 4, 5)},
    ),
)
