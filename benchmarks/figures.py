"""How figures are written in tables."""

from __future__ import annotations

import math
from typing import Any

from rich.markup import escape as escape_markup

from llm_envs.console import printable

__all__ = ["escape", "estimate", "money", "number", "percent", "seconds"]


def escape(text: str) -> str:
    """Make text from a folder safe to show: no control characters, no markup."""
    return escape_markup(printable(text))


def estimate(value: dict[str, Any] | None, *, interval: bool = True) -> str:
    """Return a share with its interval, ``42.0 % [31.2, 53.6]``."""
    if value is None:
        return "–"
    shown = f"{100 * value['value']:.1f} %"
    if not interval:
        return shown
    low, high = value["interval"]
    return f"{shown} [{100 * low:.1f}, {100 * high:.1f}]"


def percent(rate: float | None) -> str:
    """Return a share, ``42.0 %``."""
    return "–" if rate is None else f"{100 * rate:.1f} %"


def seconds(value: float | None) -> str:
    """Return a duration, ``0.125 s``."""
    return "–" if value is None else f"{value:.3f} s"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with thousands separated."""
    return "–" if value is None else f"{value:,.{digits}f}"


def money(value: float | None, currency: str) -> str:
    """Return a sum of money with two decimals, and at least three significant figures: ``0.00123 USD``."""
    if value is None:
        return "–"
    digits = 2 if value == 0 else max(2, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 12)}f} {currency}"
