"""What tokens cost: a table of prices that the user gives, since prices change faster than software."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainers.team import SCRIPTED

__all__ = ["PER_TOKENS", "CostTally", "Price", "Prices", "PricesError", "read_prices"]

PER_TOKENS = 1_000_000
"""Prices are for so many tokens."""

_KEYS = ("currency", "per_million_tokens")
_DIRECTIONS = ("input", "output")
_EXAMPLE = 'per_million_tokens: {"openai:my-model*": {input: 0.5, output: 1.5}}'


class PricesError(ValueError):
    """A table of prices cannot be used. The message names the file, the entry and the fix."""


@dataclass(frozen=True)
class Price:
    """Price of a million tokens of each direction."""

    input: float
    output: float

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """Return what so many tokens cost."""
        return (self.input * tokens_in + self.output * tokens_out) / PER_TOKENS


@dataclass(frozen=True)
class Prices:
    """Prices by pattern; the first one that matches counts.

    Attributes:
        by_pattern: Prices by a shell-style pattern: ``*`` stands for any text, ``?`` for any character.
        currency: What the prices are in.
    """

    by_pattern: Mapping[str, Price]
    currency: str = "USD"

    def find(self, policy: str) -> Price | None:
        """Return the price of a policy, or None if there is none.

        A pattern may match the policy's name with its options, as it stands in a report, its spec without them, or the
        model alone. A policy without a model costs nothing unless a pattern says so.

        Args:
            policy: Name of the policy, such as ``openai:my-model@http://localhost:8000/v1 (timeout_s=5)``.

        Example:
            >>> prices = Prices({"my-*": Price(1.0, 2.0)})
            >>> prices.find("openai:my-model@http://localhost:8000/v1 (timeout_s=5)")
            Price(input=1.0, output=2.0)
        """
        spec = policy.partition(" (")[0]
        kind, _, rest = spec.partition(":")
        names = (policy, spec, rest, rest.partition("@")[0])
        for pattern, price in self.by_pattern.items():
            if any(fnmatchcase(name, pattern) for name in names if name):
                return price
        return Price(0.0, 0.0) if kind in SCRIPTED else None


class CostTally:
    """Tokens by policy, and what they cost.

    A policy has a cost if it has a price and counts its tokens; else the whole has none, since a sum that leaves
    somebody out would look like a bargain.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, list[int]] = {}

    def add(self, policy: str, tokens_in: int, tokens_out: int) -> None:
        """Count the tokens of a turn."""
        tokens = self._tokens.setdefault(policy, [0, 0])
        tokens[0] += tokens_in
        tokens[1] += tokens_out

    def total(self, prices: Prices) -> float | None:
        """Return what all of it cost, or None if that is not known."""
        costs = [self._cost(policy, prices) for policy in self._tokens]
        known = [cost for cost in costs if cost is not None]
        return math.fsum(known) if len(known) == len(costs) else None

    def unknown(self, prices: Prices) -> list[str]:
        """Return the policies whose cost is not known."""
        return [policy for policy in self._tokens if self._cost(policy, prices) is None]

    def _cost(self, policy: str, prices: Prices) -> float | None:
        price, tokens = prices.find(policy), self._tokens[policy]
        scripted = policy.partition(" (")[0].partition(":")[0] in SCRIPTED
        if price is None or not (any(tokens) or scripted):
            return None
        return price.of(*tokens)


def read_prices(path: str | Path) -> Prices:
    """Read a table of prices, YAML or JSON.

    Raises:
        PricesError: If it cannot be read, an entry is unknown, or a price is no number from 0 on.
    """
    path = Path(path)
    table = _load(path)
    if not isinstance(table, dict) or "per_million_tokens" not in table:
        raise PricesError(f"{path} holds no prices. It needs, for example: {_EXAMPLE}")
    _check_keys(path, table, _KEYS, "")
    by_pattern = table["per_million_tokens"]
    if not isinstance(by_pattern, dict) or not by_pattern:
        raise PricesError(f"{path}: per_million_tokens maps patterns to prices, for example: {_EXAMPLE}")
    currency = table.get("currency", "USD")
    if not isinstance(currency, str) or not currency.strip():
        raise PricesError(f"{path}: currency is a word such as USD, got {currency!r}")
    found = {}
    for pattern, entry in by_pattern.items():
        if not isinstance(entry, dict):
            raise PricesError(f"{path}: the price of {pattern!r} is {{input: …, output: …}}, got {entry!r}")
        _check_keys(path, entry, _DIRECTIONS, f" of {pattern!r}")
        found[str(pattern)] = Price(*(_number(path, str(pattern), name, entry.get(name)) for name in _DIRECTIONS))
    return Prices(found, currency.strip())


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PricesError(f"Cannot read the prices in {path}: {error}") from error
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise PricesError(f"{path} is not JSON: {error}") from error
    try:
        import yaml
    except ImportError as error:
        raise PricesError(
            f"reading {path} needs pyyaml: pip install pyyaml, or write the prices as a .json file"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PricesError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def _check_keys(path: Path, table: Mapping[Any, Any], known: tuple[str, ...], of: str) -> None:
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise PricesError(f"{path}: there is no entry {key!r}{of}; the entries are {', '.join(known)}.{hint}")


def _number(path: Path, pattern: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise PricesError(f"{path}: {name} of {pattern!r} must be a number from 0 on, got {value!r}")
    return float(value)
