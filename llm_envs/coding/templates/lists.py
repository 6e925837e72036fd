"""Templates about lists of numbers."""

from __future__ import annotations

from llm_envs.coding.templates.base import INT, INTS, Template, integers


def _sum_of_multiples(numbers: list[int], k: int) -> int:
    return sum(number for number in numbers if number % k == 0)


def _best_window(numbers: list[int], k: int) -> int:
    if len(numbers) < k:
        return 0
    return max(sum(numbers[i : i + k]) for i in range(len(numbers) - k + 1))


def _rotate_left(numbers: list[int], k: int) -> list[int]:
    if not numbers:
        return []
    shift = k % len(numbers)
    return numbers[shift:] + numbers[:shift]


def _keep_first(numbers: list[int], k: int) -> list[int]:
    seen: dict[int, int] = {}
    kept = []
    for number in numbers:
        seen[number] = seen.get(number, 0) + 1
        if seen[number] <= k:
            kept.append(number)
    return kept


def _count_pairs(numbers: list[int], total: int) -> int:
    count = 0
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == total:
                count += 1
    return count


def _longest_climb(numbers: list[int], step: int) -> int:
    best = length = 1
    for i in range(1, len(numbers)):
        if 0 < numbers[i] - numbers[i - 1] <= step:
            length += 1
        else:
            length = 1
        best = max(best, length)
    return best


def _chunk_maxima(numbers: list[int], k: int) -> list[int]:
    return [max(numbers[i : i + k]) for i in range(0, len(numbers), k)]


def _larger_before(numbers: list[int], gap: int) -> list[int]:
    return [sum(1 for other in numbers[:i] if other >= number + gap) for i, number in enumerate(numbers)]


TEMPLATES = (
    Template(
        "sum-of-multiples",
        "Add up the numbers in `numbers` that are divisible by {k}. Zero and negative numbers can be divisible too.",
        _sum_of_multiples,
        {"numbers": INTS},
        INT,
        lambda rng, k: (
            [rng.choice([k * rng.randint(-5, 5), rng.randint(-30, 30)]) for _ in range(rng.randint(1, 9))],
        ),
        (
            ("number % k == 0", "number % k != 0"),
            ("number % k == 0", "number > 0 and number % k == 0"),
            ("sum(number for", "sum(1 for"),
        ),
        {"k": (3, 4, 5, 6, 7, 8, 9, 11, 12, 13)},
    ),
    Template(
        "best-window",
        "Return the largest sum of {k} neighbouring numbers of `numbers`, or 0 if there are fewer than {k} numbers.",
        _best_window,
        {"numbers": INTS},
        INT,
        lambda rng, k: (integers(rng, *rng.choice([(k - 1, k - 1), (k, k), (k, k + 5), (k, k + 5)])),),
        (
            ("len(numbers) - k + 1", "max(1, len(numbers) - k)"),
            ("len(numbers) < k", "len(numbers) <= k"),
            ("return 0", "return sum(numbers)"),
            ("i + k]", "i + k - 1]"),
        ),
        {"k": (2, 3, 4, 5, 6, 7)},
    ),
    Template(
        "rotate-left",
        "Move the first number of `numbers` to the end, {k} times in a row, and return the list.",
        _rotate_left,
        {"numbers": INTS},
        INTS,
        lambda rng, k: (integers(rng, *rng.choice([(0, k - 1), (2, k - 1), (k, k + 5)])),),
        (
            ("shift = k % len(numbers)", "shift = k"),
            ("shift = k % len(numbers)", "shift = -k % len(numbers)"),
            ("shift = k % len(numbers)", "shift = (k + 1) % len(numbers)"),
        ),
        {"k": (3, 4, 5, 6, 7, 8, 9)},
    ),
    Template(
        "keep-first",
        "Go through `numbers` and keep the first {k} occurrences of each value; drop the later ones. Return what is "
        "kept, in the order it had.",
        _keep_first,
        {"numbers": INTS},
        INTS,
        lambda rng, k: ([rng.randint(0, 3) for _ in range(rng.randint(2 * k, 4 * k + 4))],),
        (("<= k", "< k"), ("<= k", "== k"), ("return kept", "return sorted(kept)"), ("<= k", "<= k + 1")),
        {"k": (2, 3, 4, 5)},
    ),
    Template(
        "count-pairs",
        "Count the pairs of different positions i < j of `numbers` whose numbers add up to {total}.",
        _count_pairs,
        {"numbers": INTS},
        INT,
        lambda rng, total: ([rng.randint(total // 2 - 2, total - total // 2 + 2) for _ in range(rng.randint(3, 9))],),
        (("range(i + 1,", "range(i,"), ("range(i + 1,", "range("), ("== total", "<= total")),
        {"total": tuple(range(-6, 21, 2))},
    ),
    Template(
        "longest-climb",
        "A climb is a stretch of neighbouring numbers in which each is larger than the one before, by at most "
        "{step}. Return the length of the longest climb in `numbers` (a single number is a climb of length 1).",
        _longest_climb,
        {"numbers": INTS},
        INT,
        lambda rng, step: (_walk(rng, step),),
        (("0 < numbers", "0 <= numbers"), ("<= step", "< step"), ("            length = 1", "            length = 0")),
        {"step": (2, 3, 4, 5, 6, 7, 8, 9)},
    ),
    Template(
        "chunk-maxima",
        "Cut `numbers` into pieces of {k} numbers from the left; the last piece may be shorter. Return the largest "
        "number of each piece.",
        _chunk_maxima,
        {"numbers": INTS},
        INTS,
        lambda rng, k: (integers(rng, 1, 3 * k + 1),),
        (("[max(", "[min("), ("len(numbers), k)", "len(numbers) - k + 1, k)"), ("i + k]", "i + k - 1] or [0]")),
        {"k": (2, 3, 4, 5, 6, 7, 8)},
    ),
    Template(
        "larger-before",
        "For each number of `numbers`, count the numbers before it that exceed it by at least {gap}. Return the "
        "counts.",
        _larger_before,
        {"numbers": INTS},
        INTS,
        lambda rng, gap: ([rng.randint(0, 2 * gap) for _ in range(rng.randint(3, 8))],),
        ((">= number + gap", "> number + gap"), (">= number + gap", ">= number"), ("numbers[:i]", "numbers[i:]")),
        {"gap": (2, 3, 4, 5, 6, 7)},
    ),
)


def _walk(rng, step):  # type: ignore[no-untyped-def]
    numbers = [rng.randint(-5, 5)]
    for _ in range(rng.randint(0, 9)):
        numbers.append(numbers[-1] + rng.choice([0, -1, 1, 1, step, step, step + 1]))
    return numbers
