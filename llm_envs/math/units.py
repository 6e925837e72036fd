"""Units of measurement that may follow a number in an answer, with their exact ratios."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as powers of base units and an exact factor.

    Attributes:
        dimensions: Sorted ``(base unit, power)`` pairs, empty for a word that is only a label (``eggs``).
        scale: How many of the base unit one of this unit is, e.g. 1/100 for cents.
    """

    dimensions: tuple[tuple[str, int], ...]
    scale: Fraction = Fraction(1)


LABEL = Unit(())
PERCENT = Unit((("percent", 1),))
DEGREE = Unit((("degree", 1),))
DOLLAR = Unit((("dollar", 1),))
POUND_STERLING = Unit((("pound sterling", 1),))
EURO = Unit((("euro", 1),))

_SPELLINGS: dict[str, tuple[str, Fraction, str]] = {
    # base unit, factor, spellings
    "millimetre": ("metre", Fraction(1, 1000), "mm millimeter millimeters millimetre millimetres"),
    "centimetre": ("metre", Fraction(1, 100), "cm centimeter centimeters centimetre centimetres"),
    "metre": ("metre", Fraction(1), "m meter meters metre metres"),
    "kilometre": ("metre", Fraction(1000), "km kilometer kilometers kilometre kilometres"),
    "inch": ("inch", Fraction(1), "in inch inches"),
    "foot": ("inch", Fraction(12), "ft foot feet"),
    "yard": ("inch", Fraction(36), "yd yds yard yards"),
    "mile": ("inch", Fraction(63360), "mi mile miles"),
    "second": ("second", Fraction(1), "s sec secs second seconds"),
    "minute": ("second", Fraction(60), "min mins minute minutes"),
    "hour": ("second", Fraction(3600), "h hr hrs hour hours"),
    "day": ("second", Fraction(86400), "day days"),
    "week": ("second", Fraction(604800), "week weeks"),
    "month": ("month", Fraction(1), "month months"),
    "year": ("month", Fraction(12), "year years yr yrs"),
    "gram": ("gram", Fraction(1), "g gram grams"),
    "kilogram": ("gram", Fraction(1000), "kg kilogram kilograms"),
    "ounce": ("ounce", Fraction(1), "oz ounce ounces"),
    "pound": ("ounce", Fraction(16), "lb lbs pound pounds"),
    "litre": ("litre", Fraction(1), "L l liter liters litre litres"),
    "millilitre": ("litre", Fraction(1, 1000), "mL ml milliliter milliliters millilitre millilitres"),
    "gallon": ("gallon", Fraction(1), "gal gallon gallons"),
    "dollar": ("dollar", Fraction(1), "dollar dollars USD"),
    "cent": ("dollar", Fraction(1, 100), "cent cents"),
    "degree": ("degree", Fraction(1), "degree degrees deg"),
    "radian": ("radian", Fraction(1), "rad rads radian radians"),
    "percent": ("percent", Fraction(1), "percent"),
}
_UNITS = {word: (base, factor) for base, factor, spellings in _SPELLINGS.values() for word in spellings.split()}
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_NOT_LABELS = frozenset(
    "or and not mod more less than least most about approximately between to by if when where for with without "
    "from is are equals plus minus "
    "times over base half third quarter twice double infinity infinite undefined none all any every each no only "
    "one two three four five six seven eight nine ten pi".split()
)
_SHORT_PLAIN_WORDS = frozenset("mm cm km ft in lb kg oz".split())  # other pairs of letters are products of variables
_PLAIN_WORDS = (
    frozenset(word for word in _UNITS if len(word) > 2)
    | _SHORT_PLAIN_WORDS
    | frozenset(_MULTIPLIERS)
    | {"square", "cubic", "sq", "unit", "units", "mph"}
)
_PIECE = re.compile(r"([A-Za-z]+)\.?(?:\s*\^\s*\{?\s*([0-9])\s*\}?)?|(/)", re.ASCII)


def is_plain_unit_word(word: str) -> bool:
    r"""Whether ``word`` is read as a unit even outside ``\text{…}``; single letters are variables there."""
    return word in _PLAIN_WORDS


def parse_unit(text: str) -> tuple[Fraction, Unit] | None:
    r"""Read what follows a number, e.g. ``"square inches"``, ``"km/h"``, ``"million dollars"``, ``"eggs"``.

    Args:
        text: The words, powers written as ``^2``.

    Returns:
        The factor of a number word (1 without one) and the unit, or None where the words are no unit. One unknown word
        of three letters or more is a label; several unknown words are prose, not a unit.
    """
    words: list[tuple[str, int | None] | None] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            return None
        words.append(None if match.group(3) else (match.group(1), int(match.group(2)) if match.group(2) else None))
        position = match.end()
        while position < len(text) and text[position] == " ":
            position += 1
    multiplier = Fraction(1)
    while words and words[0] is not None and words[0][0].lower() in _MULTIPLIERS:
        multiplier *= _MULTIPLIERS[words[0][0].lower()]
        words = words[1:]
    if not words:
        return multiplier, LABEL
    unit = _compose(words)
    return None if unit is None else (multiplier, unit)


def _compose(words: list[tuple[str, int | None] | None]) -> Unit | None:
    powers: dict[str, int] = {}
    scale = Fraction(1)
    sign, pending, last = 1, 1, ""
    label = False
    for index, entry in enumerate(words):
        if entry is None or entry[0] == "per":
            if index == 0 or sign == -1 or index == len(words) - 1:
                return None
            sign = -1
            continue
        word, power = entry
        if word in _POWER_WORDS:
            if word in ("squared", "cubed"):
                if not last:
                    return None
                powers[last] = powers[last] * _POWER_WORDS[word]
                scale = scale ** _POWER_WORDS[word]
            else:
                pending = _POWER_WORDS[word]
            continue
        if word == "mph":
            powers["inch"], powers["second"] = 1, -1
            scale *= Fraction(63360, 3600)
            continue
        if word in ("unit", "units"):
            label, pending = True, 1
            continue
        known = _UNITS.get(word) or _UNITS.get(word.lower() if len(word) > 2 else word)
        if known is None:
            lower = word.lower()
            if len(lower) < 3 or lower in _NOT_LABELS or label or last:
                return None
            label, pending = True, 1
            continue
        base, factor = known
        exponent = sign * pending * (power or 1)
        powers[base] = powers.get(base, 0) + exponent
        scale *= factor**exponent
        pending, last = 1, base
    if label:
        return LABEL
    return Unit(tuple(sorted((base, power) for base, power in powers.items() if power)), scale)
