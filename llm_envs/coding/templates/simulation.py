"""Templates about following a rule step by step."""

from __future__ import annotations

from llm_envs.coding.templates.base import GRID, INT, INTS, STR, WORDS, Template, text_of


def _robot_walk(commands: str, step: int, heading: str) -> list[int]:
    headings = ["north", "east", "south", "west"]
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    facing = headings.index(heading)
    x = y = 0
    for command in commands:
        if command == "L":
            facing = (facing - 1) % 4
        elif command == "R":
            facing = (facing + 1) % 4
        else:
            x += step * moves[facing][0]
            y += step * moves[facing][1]
    return [x, y]


def _last_in_circle(n: int, k: int) -> int:
    people = list(range(1, n + 1))
    position = 0
    while len(people) > 1:
        position = (position + k - 1) % len(people)
        people.pop(position)
    return people[0]


def _cell_step(cells: str, rule: int) -> str:
    padded = "." + cells + "."
    after = []
    for i in range(1, len(padded) - 1):
        alive = (padded[i - 1] == "#") + (padded[i + 1] == "#")
        if padded[i] == "#":
            after.append("#" if alive >= rule else ".")
        else:
            after.append("#" if alive == 2 else ".")
    return "".join(after)


def _account_balance(operations: list[int], limit: int) -> list[int]:
    balance = refused = 0
    for amount in operations:
        if balance + amount < -limit:
            refused += 1
        else:
            balance += amount
    return [balance, refused]


def _cache_hits(requests: list[int], capacity: int) -> int:
    cache: list[int] = []
    hits = 0
    for request in requests:
        if request in cache:
            hits += 1
            cache.remove(request)
        elif len(cache) == capacity:
            cache.pop(0)
        cache.append(request)
    return hits


def _rate_limit(times: list[int], most: int, window: int) -> list[int]:
    accepted: list[int] = []
    for time in times:
        if sum(1 for other in accepted if other > time - window) < most:
            accepted.append(time)
    return accepted


def _stack_machine(program: list[str], size: int) -> list[int]:
    stack: list[int] = []
    for word in program:
        if word in ("add", "mul", "swap"):
            if len(stack) < 2:
                continue
            b, a = stack.pop(), stack.pop()
            if word == "swap":
                stack += [b, a]
            else:
                stack.append(a + b if word == "add" else a * b)
        elif len(stack) < size:
            stack.append(int(word))
    return stack


def _falling_stones(grid: list[str], floor: str) -> list[str]:
    rows = [list(row) for row in grid]
    for r in range(len(rows) - 2, -1, -1):
        for c in range(len(rows[0])):
            if rows[r][c] == "o":
                below = r
                while below + 1 < len(rows) and rows[below + 1][c] == ".":
                    below += 1
                rows[r][c] = "."
                rows[below][c] = "o"
    return ["".join(row) for row in rows]


def _operations(rng, limit):  # type: ignore[no-untyped-def]
    balance = 0
    amounts = []
    for _ in range(rng.randint(3, 8)):
        amount = rng.choice([rng.randint(1, limit), -balance - limit, -balance - limit - 1, -rng.randint(1, limit)])
        amounts.append(amount)
        if balance + amount >= -limit:
            balance += amount
    return (amounts,)


def _times(rng, most, window):  # type: ignore[no-untyped-def]
    time = 0
    times = []
    for _ in range(rng.randint(most + 1, most + 8)):
        time += rng.choice([0, 0, 1, 1, window, max(1, window // most)])
        times.append(time)
    return (times,)


def _code(rng, size):  # type: ignore[no-untyped-def]
    words = []
    for _ in range(rng.randint(size, size + 8)):
        words.append(rng.choice(["add", "mul", "swap", "swap", *map(str, (rng.randint(0, 9) for _ in range(5)))]))
    if rng.random() < 0.5:
        words = [*map(str, rng.sample(range(10), 2)), "swap", *words]
    return ([*words, "swap"] if rng.random() < 0.5 else words,)


def _stones(rng, floor):  # type: ignore[no-untyped-def]
    width = rng.randint(1, 5)
    return (["".join(rng.choice("oo..." + floor) for _ in range(width)) for _ in range(rng.randint(3, 6))],)


TEMPLATES = (
    Template(
        "robot-walk",
        "A robot starts at x = 0, y = 0 and looks {heading}. It follows `commands`: L turns it left and R turns it "
        "right by a right angle, F moves it {step} forward. North is the direction of growing y, east that of "
        "growing x. Return x and y at the end.",
        _robot_walk,
        {"commands": STR},
        INTS,
        lambda rng, step, heading: (text_of(rng, "LRFFF", 1, 14),),
        (
            ("(facing - 1) % 4", "(facing + 1) % 4"),
            ("x += step * moves[facing][0]", "x += moves[facing][0]"),
            ("facing = headings.index(heading)", "facing = (headings.index(heading) + 2) % 4"),
        ),
        {"step": (2, 3, 4, 5, 6, 7), "heading": ("north", "east", "south", "west")},
    ),
    Template(
        "last-in-circle",
        "The people 1 to n stand in a circle. Counting starts with person 1 and goes round; every {k}-th person "
        "counted leaves the circle, and counting goes on with the next. Return the number of the person who is left.",
        _last_in_circle,
        {"n": INT},
        INT,
        lambda rng, k: (rng.randint(1, 40),),
        (("+ k - 1)", "+ k)"), ("range(1, n + 1)", "range(n)"), ("return people[0]", "return people[-1] % n + 1")),
        {"k": (2, 3, 4, 5, 6, 7, 8, 9)},
    ),
    Template(
        "cell-step",
        "`cells` is a row of living (#) and dead (.) cells; beyond both ends all is dead. In the next moment a "
        "living cell lives on if at least {rule} of its two neighbours live, and a dead cell comes to life if both "
        "its neighbours live. Return the row after one step.",
        _cell_step,
        {"cells": STR},
        STR,
        lambda rng, rule: (text_of(rng, "##.", 4, 14),),
        ((">= rule", "> rule"), ("alive == 2", "alive >= 1"), ('"." + cells + "."', '"#" + cells + "#"')),
        {"rule": (1, 2)},
    ),
    Template(
        "account-balance",
        "An account starts at 0. `operations` are amounts that are paid in (positive) or out (negative). An "
        "operation that would bring the balance below -{limit} is refused and changes nothing. Return the balance "
        "at the end and the number of refused operations.",
        _account_balance,
        {"operations": INTS},
        INTS,
        _operations,
        (("< -limit", "<= -limit"), ("< -limit", "< 0"), ("refused += 1", "balance = -limit")),
        {"limit": (5, 10, 20, 25, 30, 40, 50, 100)},
    ),
    Template(
        "cache-hits",
        "A cache holds at most {capacity} pages. Each number in `requests` asks for a page: if the cache holds it, "
        "that is a hit; if not, the page is put into the cache, and if the cache is full, the page that was not "
        "asked for the longest time is removed first. Return the number of hits.",
        _cache_hits,
        {"requests": INTS},
        INT,
        lambda rng, capacity: (
            [rng.randint(1, capacity + 2) for _ in range(rng.randint(3 * capacity, 6 * capacity + 4))],
        ),
        (
            ("            cache.remove(request)", "            continue"),
            ("== capacity", "== capacity - 1"),
            ("cache.pop(0)", "cache.pop()"),
        ),
        {"capacity": (2, 3, 4, 5, 6)},
    ),
    Template(
        "rate-limit",
        "`times` are the moments of requests in increasing order, some of them equal. A request at the moment t is "
        "accepted if fewer than {most} requests were accepted at moments later than t - {window}; if not, it is "
        "dropped. Return the moments of the accepted requests.",
        _rate_limit,
        {"times": INTS},
        INTS,
        _times,
        (
            ("> time - window", ">= time - window"),
            ("< most", "<= most"),
            ("in accepted if", "in times[: len(accepted)] if"),
        ),
        {"most": (1, 2, 3), "window": (3, 4, 5, 6, 8, 10)},
    ),
    Template(
        "stack-machine",
        "A machine has an empty stack for at most {size} numbers and goes through `program`. A number is put on the "
        "stack, or ignored if the stack is full. `add` and `mul` replace the two topmost numbers by their sum or "
        "product, `swap` exchanges them; all three are ignored if there are fewer than two numbers. Return the "
        "stack at the end, bottom first.",
        _stack_machine,
        {"program": WORDS},
        INTS,
        _code,
        (
            ("< size", "<= size"),
            ("+= [b, a]", "+= [a, b]"),
            ("a * b", "a - b"),
            ("                continue", "                break"),
        ),
        {"size": (2, 3, 4, 5)},
    ),
    Template(
        "falling-stones",
        "In `grid`, o is a stone, {floor} is a fixed block and . is empty. All stones fall straight down until they "
        "lie on a block, on another stone or on the bottom of the grid. Return the rows of the grid after that.",
        _falling_stones,
        {"grid": GRID},
        GRID,
        _stones,
        (
            ('rows[below + 1][c] == "."', 'rows[below + 1][c] != "o"'),
            ("range(len(rows) - 2, -1, -1)", "range(len(rows) - 1)"),
            ("while below", "if below"),
        ),
        {"floor": tuple("#X=%@&*")},
    ),
)
