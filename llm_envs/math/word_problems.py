"""Templated word problems of two to four steps, with whole numbers throughout.

Each template draws its numbers so that every quantity on the way is a whole number and not negative, and returns the
statement with the answer computed alongside.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from llm_envs.tasks import Draft

__all__ = ["TEMPLATES", "draw_word_problem"]

# fmt: off
NAMES = (
    "Ada", "Ben", "Chloe", "David", "Elena", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Keiko", "Liam",
    "Maya", "Noor", "Omar", "Paula", "Quinn", "Rosa", "Sam", "Tara", "Umar", "Vera", "Wei", "Ximena", "Yusuf",
    "Zoe",
)
THINGS = (
    "apples", "books", "candles", "cards", "coins", "eggs", "marbles", "notebooks", "pencils", "shells",
    "stamps", "stickers",
)
# fmt: on


def _names(rng: random.Random, count: int) -> list[str]:
    return rng.sample(NAMES, count)


def shopping(rng: random.Random) -> Draft:
    """Two purchases and the change."""
    (name,) = _names(rng, 1)
    first, second = rng.sample(THINGS, 2)
    n, m, p, q = rng.randint(2, 12), rng.randint(2, 12), rng.randint(2, 15), rng.randint(2, 15)
    paid = n * p + m * q + rng.randint(1, 60)
    return Draft(
        f"{name} buys {n} {first} at {p} dollars each and {m} {second} at {q} dollars each, and pays with {paid} "
        f"dollars. How many dollars of change does {name} get?",
        str(paid - n * p - m * q),
    )


def giving(rng: random.Random) -> Draft:
    """Packs, some given away, the rest shared."""
    name, friend = _names(rng, 2)
    thing = rng.choice(THINGS)
    people, share, given = rng.randint(2, 9), rng.randint(2, 25), rng.randint(2, 30)
    packs = rng.randint(2, 8)
    # Adjusted so that the packs hold a whole number each.
    given += -(people * share + given) % packs
    size = (people * share + given) // packs
    return Draft(
        f"{name} has {packs} packs of {size} {thing}. {name} gives {given} of the {thing} to {friend} and shares the "
        f"rest equally among {people} children. How many {thing} does each child get?",
        str(share),
    )


def comparison(rng: random.Random) -> Draft:
    """Times as many, fewer than, and a total."""
    a, b, c = _names(rng, 3)
    thing = rng.choice(THINGS)
    base, times = rng.randint(3, 60), rng.randint(2, 6)
    fewer = rng.randint(1, base * times - 1)
    second = base * times
    return Draft(
        f"{a} has {base} {thing}. {b} has {times} times as many {thing} as {a}. {c} has {fewer} fewer {thing} than "
        f"{b}. How many {thing} do the three have together?",
        str(base + second + second - fewer),
    )


def earning(rng: random.Random) -> Draft:
    """Hourly wages over a week, less an expense."""
    (name,) = _names(rng, 1)
    wage, hours, days = rng.randint(9, 40), rng.randint(2, 9), rng.randint(2, 6)
    bonus, spent = rng.randint(5, 90), rng.randint(5, wage * hours)
    return Draft(
        f"{name} earns {wage} dollars an hour and works {hours} hours a day for {days} days. At the end {name} "
        f"receives a bonus of {bonus} dollars and spends {spent} dollars. How many dollars does {name} have left of "
        "this money?",
        str(wage * hours * days + bonus - spent),
    )


def travel(rng: random.Random) -> Draft:
    """Two legs of a trip and what is left of it."""
    (name,) = _names(rng, 1)
    v, t, w, u = rng.randint(30, 110), rng.randint(2, 6), rng.randint(30, 110), rng.randint(2, 6)
    total = v * t + w * u
    extra = rng.randint(10, 300)
    return Draft(
        f"{name} drives for {t} hours at {v} kilometers per hour and then for {u} hours at {w} kilometers per hour. "
        f"The whole trip is {total + extra} kilometers long. How many kilometers are left?",
        str(extra),
    )


def savings(rng: random.Random) -> Draft:
    """Weeks until a price is reached."""
    (name,) = _names(rng, 1)
    weekly, weeks, start = rng.randint(4, 45), rng.randint(3, 40), rng.randint(2, 120)
    gift = rng.randint(2, 60)
    return Draft(
        f"{name} wants to buy a bicycle for {start + gift + weekly * weeks} dollars. {name} has {start} dollars, gets "
        f"{gift} dollars as a present, and then saves {weekly} dollars a week. After how many weeks does {name} have "
        "exactly enough?",
        str(weeks),
    )


def rectangle(rng: random.Random) -> Draft:
    """A fence around a garden and the ground inside."""
    (name,) = _names(rng, 1)
    width, longer, price = rng.randint(3, 60), rng.randint(1, 40), rng.randint(2, 30)
    length = width + longer
    if rng.random() < 0.5:
        return Draft(
            f"{name} has a rectangular garden that is {width} meters wide and {longer} meters longer than it is wide. "
            f"A fence costs {price} dollars per meter. How many dollars does a fence all around the garden cost?",
            str(2 * (width + length) * price),
        )
    return Draft(
        f"{name} has a rectangular garden that is {width} meters wide and {longer} meters longer than it is wide. "
        f"Grass costs {price} dollars per square meter. How many dollars does it cost to cover the whole garden with "
        "grass?",
        str(width * length * price),
    )


def ages(rng: random.Random) -> Draft:
    """Ages now and in some years."""
    a, b = _names(rng, 2)
    young, times, years = rng.randint(3, 15), rng.randint(2, 5), rng.randint(2, 40)
    return Draft(
        f"{a} is {young} years old, and {b} is {times} times as old as {a}. What will be the sum of their ages in "
        f"{years} years?",
        str(young + young * times + 2 * years),
    )


def percent(rng: random.Random) -> Draft:
    """A price reduced by a percentage, several times over."""
    (name,) = _names(rng, 1)
    thing = rng.choice(THINGS)
    off, price, count = rng.choice((10, 20, 25, 40, 50, 75)), 20 * rng.randint(1, 30), rng.randint(2, 12)
    extra = rng.randint(1, 60)
    return Draft(
        f"A box of {thing} costs {price} dollars. {name} buys {count} boxes with {off} percent off the price of each "
        f"and pays {extra} dollars for delivery. How many dollars does {name} pay in total?",
        str(price * (100 - off) // 100 * count + extra),
    )


def tank(rng: random.Random) -> Draft:
    """A tank that fills and leaks."""
    fill, minutes = rng.randint(12, 90), rng.randint(3, 30)
    leak, start = rng.randint(1, 11), rng.randint(0, 400)
    return Draft(
        f"A tank holds {start} liters of water. A pump adds {fill} liters per minute while a leak loses {leak} liters "
        f"per minute. How many liters does the tank hold after {minutes} minutes?",
        str(start + (fill - leak) * minutes),
    )


TEMPLATES: tuple[Callable[[random.Random], Draft], ...] = (
    shopping,
    giving,
    comparison,
    earning,
    travel,
    savings,
    rectangle,
    ages,
    percent,
    tank,
)


def draw_word_problem(rng: random.Random) -> Draft:
    """One of :data:`TEMPLATES`, with numbers, names and things drawn.

    Args:
        rng: Source of randomness.
    """
    return rng.choice(TEMPLATES)(rng)
