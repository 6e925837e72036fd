"""Templates about whole numbers, and one about a mean."""

from __future__ import annotations

from llm_envs.coding.templates.base import BOOL, FLOAT, INT, INTS, Template, integers


def _digit_sum(n: int, base: int) -> int:
    total = 0
    while n > 0:
        total += n % base
        n //= base
    return total


def _count_divisors(n: int, k: int) -> int:
    return sum(1 for d in range(1, n + 1) if n % d == 0 and d % k != 0)


def _power_mod(a: int, b: int, m: int) -> int:
    result = 1 % m
    for _ in range(b):
        result = result * a % m
    return result


def _steps_to_zero(n: int, k: int) -> int:
    steps = 0
    while n > 0:
        if n % k == 0:
            n //= k
        else:
            n -= 1
        steps += 1
    return steps


def _lcm_of_all(numbers: list[int], cap: int) -> int:
    from math import gcd

    result = 1
    for number in numbers:
        result = result * number // gcd(result, number)
        if result > cap:
            return -1
    return result


def _recurrence(n: int, p: int, q: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, (p * b + q * a) % 1000
    return a


def _primes_between(low: int, high: int, digit: int) -> int:
    def is_prime(n: int) -> bool:
        return n >= 2 and all(n % d for d in range(2, int(n**0.5) + 1))

    return sum(1 for n in range(low, high + 1) if n % 10 == digit and is_prime(n))


def _trimmed_mean(numbers: list[int], k: int) -> float:
    kept = sorted(numbers)[k : len(numbers) - k]
    if not kept:
        return 0.0
    return sum(kept) / len(kept)


def _digits_divide(n: int, k: int) -> bool:
    return all(digit == "0" or (n + k) % int(digit) == 0 for digit in str(n))


TEMPLATES = (
    Template(
        "digit-sum",
        "Write the non-negative integer n in base {base} and return the sum of its digits (as an ordinary integer).",
        _digit_sum,
        {"n": INT},
        INT,
        lambda rng, base: (rng.choice([0, rng.randint(1, base), rng.randint(base, base**2), rng.randint(1, 10**6)]),),
        (("n % base", "n % 10"), ("while n > 0", "while n >= base"), ("n //= base", "n //= 10")),
        {"base": (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16)},
    ),
    Template(
        "count-divisors",
        "Count the positive divisors of the positive integer n that are not divisible by {k}.",
        _count_divisors,
        {"n": INT},
        INT,
        lambda rng, k: (rng.choice([1, k, k * rng.randint(1, 12), k * k * rng.randint(1, 4), rng.randint(1, 200)]),),
        (("d % k != 0", "d % k == 0"), ("range(1, n + 1)", "range(1, n)"), (" and d % k != 0", "")),
        {"k": (2, 3, 4, 5, 6, 7, 10)},
    ),
    Template(
        "power-mod",
        "Return the remainder of a to the power of b on division by {m}. a and b are non-negative; anything to the "
        "power of 0 is 1.",
        _power_mod,
        {"a": INT, "b": INT},
        INT,
        lambda rng, m: (rng.randint(0, 3 * m), rng.choice([0, 1, rng.randint(2, 30)])),
        (("range(b)", "range(b - 1)"), ("result * a % m", "(result + a) % m"), ("1 % m", "a % m")),
        {"m": (7, 9, 11, 13, 17, 19, 23, 29, 31, 97, 101)},
    ),
    Template(
        "steps-to-zero",
        "Start with the non-negative integer n and repeat until it is 0: if it is divisible by {k}, divide it by "
        "{k}; if not, subtract 1. Return the number of steps.",
        _steps_to_zero,
        {"n": INT},
        INT,
        lambda rng, k: (rng.choice([0, 1, k, k + 1, k * k, rng.randint(1, 100), rng.randint(100, 5000)]),),
        (("while n > 0", "while n > 1"), ("n -= 1", "n -= 2"), ("n //= k", "n -= k")),
        {"k": (2, 3, 4, 5, 6, 7, 8, 9)},
    ),
    Template(
        "lcm-of-all",
        "Return the least common multiple of the positive integers in `numbers` (1 if there are none), or -1 if it "
        "is larger than {cap}.",
        _lcm_of_all,
        {"numbers": INTS},
        INT,
        lambda rng, cap: (
            rng.choice(
                [
                    [cap],
                    [cap + 1],
                    [cap // 2, cap],
                    [1, cap],
                    [cap, 2],
                    integers(rng, 0, 4, 1, 12),
                    integers(rng, 0, 3, 1, 30),
                ]
            ),
        ),
        (
            ("result * number // gcd(result, number)", "result * number"),
            ("> cap", ">= cap"),
            ("return -1", "return cap"),
            ("result * number // gcd(result, number)", "max(result, number)"),
        ),
        {"cap": (60, 100, 120, 200, 360, 500, 840, 1000)},
    ),
    Template(
        "recurrence",
        "A sequence starts with f(0) = 0 and f(1) = 1 and goes on with f(i) = {p}·f(i-1) + {q}·f(i-2). Return the "
        "remainder of f(n) on division by 1000.",
        _recurrence,
        {"n": INT},
        INT,
        lambda rng, p, q: (rng.choice([0, 1, 2, 3, rng.randint(4, 12), rng.randint(4, 12), rng.randint(10, 200)]),),
        (("return a", "return b"), ("p * b + q * a", "p * a + q * b + 1"), ("% 1000", "% 100"), ("0, 1", "1, 1")),
        {"p": (1, 2, 3, 4, 5), "q": (1, 2, 3, 4, 5, 6)},
    ),
    Template(
        "primes-between",
        "Count the prime numbers from low to high, both included, whose last digit is {digit}.",
        _primes_between,
        {"low": INT, "high": INT},
        INT,
        lambda rng, digit: _prime_range(rng, digit),
        (
            ("range(low, high + 1)", "range(low, high)"),
            ("range(low, high + 1)", "range(low + 1, high + 1)"),
            ("int(n**0.5) + 1", "min(4, n)"),
            ("n % 10 == digit and ", ""),
        ),
        {"digit": (1, 3, 7, 9)},
    ),
    Template(
        "trimmed-mean",
        "Leave out the {k} smallest and the {k} largest of `numbers` and return the mean of the rest, or 0 if "
        "nothing is left. The answer may be off by one millionth.",
        _trimmed_mean,
        {"numbers": INTS},
        FLOAT,
        lambda rng, k: (integers(rng, max(1, 2 * k - 1), 2 * k + 6),),
        (("- k]", "]"), ("[k :", "[0 :"), ("sorted(numbers)", "numbers"), ("/ len", "// len")),
        {"k": (1, 2, 3, 4)},
        tolerance=1e-6,
    ),
    Template(
        "digits-divide",
        "Say whether every digit of the positive integer n, zeros left out, divides n + {k}.",
        _digits_divide,
        {"n": INT},
        BOOL,
        lambda rng, k: (_digits(rng, k),),
        (
            ("(n + k)", "n"),
            ("return all(", "return any("),
            ('digit == "0" or ', 'digit != "0" and '),
        ),
        {"k": (1, 2, 3, 4, 5, 6, 7, 8, 9)},
    ),
)


def _prime_range(rng, digit):  # type: ignore[no-untyped-def]
    ends = [p for p in (3, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71) if p % 10 == digit]
    low = rng.choice([*ends, rng.randint(0, 40)])
    return (low, rng.choice([low, *(p for p in ends if p >= low), low + rng.randint(0, 200)]))


def _digits(rng, k):  # type: ignore[no-untyped-def]
    """About half of the numbers have the property."""
    for _ in range(200 if rng.random() < 0.5 else 1):
        n = int("".join(rng.choice("0112345") for _ in range(rng.randint(1, 4))) or "1") or 1
        if _digits_divide(n, k):
            break
    return n
