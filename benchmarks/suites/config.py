"""What a suite is, as data: typed, from YAML, with an error that suggests the right key for one that is unknown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from benchmarks.protocols.catalogue import Protocol, find_protocol
from benchmarks.suites.names import builtin_path, is_suite, suite_names
from trainers.config_checks import Section, explain
from trainers.policies.base import Sampling
from trainers.recipe_files import ConfigError, read_mapping
from trainers.team import EVERYONE

__all__ = [
    "POLICY",
    "BudgetConfig",
    "EntryConfig",
    "SuiteBudgetConfig",
    "SuiteConfig",
    "SuiteSampling",
    "load_suite",
]

POLICY = "$policy"
"""Stands in a suite for the policy under test, which ``--policy`` names."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")  # names a folder


class SuiteBudgetConfig(Section):
    """What all runs of a suite may use together.

    Attributes:
        tokens: Tokens of prompts and answers of policies with a model. When they are spent no further episode is
            started; those in flight are finished.
        seconds: Likewise, seconds of playing.
    """

    tokens: int | None = Field(None, ge=1)
    seconds: float | None = Field(None, gt=0)


class BudgetConfig(SuiteBudgetConfig):
    """What the runs of an entry may use, each for itself.

    Attributes:
        tasks: At most so many tasks, where the set has more.
        episodes: At most so many episodes: so many tasks are left out, from the last on, that all samples of those
            that remain fit.
    """

    tasks: int | None = Field(None, ge=1)
    episodes: int | None = Field(None, ge=1)


class SuiteSampling(Section):
    """How answers are drawn; what is left out is the suite's, and then the default of ``llm-bench run``."""

    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = None
    max_tokens: int | None = Field(None, ge=1)
    stop: tuple[str, ...] | None = None

    def given(self) -> dict[str, Any]:
        """Return the fields that are there."""
        return {name: value for name, value in self.model_dump().items() if value is not None}

    @model_validator(mode="after")
    def _check(self) -> SuiteSampling:
        Sampling(**self.given())
        return self


class EntryConfig(Section):
    """One entry of a suite: a run, or one for each run of its protocol.

    Attributes:
        name: Of its folder: lower-case letters, digits, dots and hyphens.
        env: Id of the environment.
        kwargs: Further arguments of the environment.
        tasks: A task set or a file; None is the environment's own.
        split: The split; None is the test split of a set, and all rows of a file.
        n: How many tasks, the first ones; None is all of them.
        shuffle: Take ``n`` tasks at random, chosen by the seed, instead.
        samples: Episodes a task; None is the suite's, or what the protocol says.
        protocol: A name of :data:`benchmarks.protocols.catalogue.PROTOCOLS`; None is the suite's.
        sampling: Where it differs from the suite's.
        policies: Who plays each role (``*``: all others). ``$policy`` is the policy under test, and the default.
        players: Instead of ``policies``, of a tournament: its players, each by a spec or as ``name=spec``.
        options: Options of the policies by role (of a tournament by name; ``*``: of all). They have an effect where a
            policy with a model plays the role.
        budget: Bounds.
    """

    name: str
    env: str
    kwargs: dict[str, Any] = Field(default_factory=dict)
    tasks: str | None = None
    split: str | None = None
    n: int | None = Field(None, ge=1)
    shuffle: bool = False
    samples: int | None = Field(None, ge=1)
    protocol: str | None = None
    sampling: SuiteSampling = Field(default_factory=SuiteSampling)
    policies: dict[str, str] = Field(default_factory=dict)
    players: list[str] = Field(default_factory=list)
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} names a folder: lower-case letters, digits, dots and hyphens")
        return name

    @field_validator("protocol")
    @classmethod
    def _check_protocol(cls, name: str | None) -> str | None:
        if name is not None:
            find_protocol(name)
        return name

    @model_validator(mode="after")
    def _check(self) -> EntryConfig:
        for name in ("tasks", "split"):
            if name in self.kwargs:
                raise ValueError(f"kwargs.{name} would take the place of {name}: set that one")
        if self.players and self.policies:
            raise ValueError("give `policies` for a run or `players` for a tournament, not both")
        if self.players and self.samples is not None:
            raise ValueError("`samples` of a tournament are its matches: leave it out; `n` is the number of deals")
        if self.players and self.split is not None:
            raise ValueError("`split` has no effect in a tournament: deals have none")
        return self

    @property
    def tournament(self) -> bool:
        """Whether it is a tournament."""
        return bool(self.players)

    def who(self) -> dict[str, str]:
        """Return who plays each role of a run."""
        return dict(self.policies) or {EVERYONE: POLICY}


class SuiteConfig(Section):
    """A whole suite.

    Attributes:
        description: What it measures, in a line.
        policy: The policy under test where ``--policy`` names none; None asks for one.
        policy_options: Options of that policy. ``--policy`` replaces both.
        protocol: Of all entries that name none.
        samples: Episodes a task, likewise.
        sampling: How answers are drawn, where entries and protocols do not say.
        options: Options of the policies by role, for all entries that give none for the role.
        seed: Decides every draw.
        concurrency: Episodes in flight; changes no result.
        budget: Of all entries together.
        entries: What is run, in this order.
    """

    description: str
    policy: str | None = None
    policy_options: dict[str, Any] = Field(default_factory=dict)
    protocol: str | None = None
    samples: int | None = Field(None, ge=1)
    sampling: SuiteSampling = Field(default_factory=SuiteSampling)
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    seed: int = Field(0, ge=0, lt=2**63)
    concurrency: int = Field(64, ge=1)
    budget: SuiteBudgetConfig = Field(default_factory=SuiteBudgetConfig)
    entries: list[EntryConfig] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> SuiteConfig:
        if self.policy is None and self.policy_options:
            raise ConfigError("policy_options has no effect: there is no `policy` that they could be of")
        if self.protocol is not None:
            find_protocol(self.protocol)
        seen: set[str] = set()
        for entry in self.entries:
            if entry.name in seen:
                raise ConfigError(f"entries: two are called {entry.name!r}; each needs a name of its own")
            seen.add(entry.name)
            self._check_against_protocol(entry)
        return self

    def _check_against_protocol(self, entry: EntryConfig) -> None:
        """What a protocol fixes may not be set to anything else: then its name would say what was not done."""
        given = {**self.sampling.given(), **entry.sampling.given()}
        for run in self.protocol_of(entry).runs:
            for name, value in run.sampling.items():
                if given.get(name, value) != value:
                    raise ConfigError(
                        f"entries.{entry.name}: the protocol {self.protocol_of(entry).name!r} fixes {name} at {value}, "
                        f"and `sampling` says {given[name]}. Leave one of them out"
                    )
            samples = self.samples if entry.samples is None else entry.samples
            if run.samples is not None and samples not in (None, run.samples):
                raise ConfigError(
                    f"entries.{entry.name}: the protocol {self.protocol_of(entry).name!r} plays {run.samples} episodes "
                    f"of each task, and `samples` says {samples}. Leave one of them out"
                )

    def protocol_of(self, entry: EntryConfig) -> Protocol:
        """Return the protocol of an entry; ``plain`` where none is named."""
        return find_protocol(entry.protocol or self.protocol or "plain")

    def sampling_of(self, entry: EntryConfig) -> Sampling:
        """Return how answers are drawn in an entry, before its protocol has its say."""
        return Sampling(**{**self.sampling.given(), **entry.sampling.given()})

    def samples_of(self, entry: EntryConfig) -> int:
        """Return the episodes of each task of an entry, before its protocol has its say."""
        return entry.samples or self.samples or 1

    def options_of(self, entry: EntryConfig) -> dict[str, dict[str, Any]]:
        """Return the options of an entry by role: the suite's, and its own on top."""
        roles = dict.fromkeys([*self.options, *entry.options])
        return {role: {**self.options.get(role, {}), **entry.options.get(role, {})} for role in roles}


def load_suite(source: str | Path | Mapping[str, Any]) -> SuiteConfig:
    """Read a suite.

    Args:
        source: The name of one that ships with the package, a YAML file, or a mapping.

    Raises:
        ConfigError: There is no such suite, it is not YAML, or it holds an unknown key or a value out of range.

    Example:
        >>> load_suite("quick").entries[0].env
        'math-1agent'
    """
    if isinstance(source, Mapping):
        return _validate(source, "the suite")
    name = str(source)
    if name in suite_names():
        return _validate(read_mapping(builtin_path(name)), name)
    if not is_suite(name):
        close = difflib.get_close_matches(name, suite_names(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"There is no suite {name!r}; the suites are {', '.join(suite_names())}.{hint}")
    if not Path(name).is_file():
        raise ConfigError(f"There is no file {name!r}, and the suites that ship are: {', '.join(suite_names())}.")
    return _validate(read_mapping(Path(name)), name)


def _validate(values: Mapping[str, Any], name: str) -> SuiteConfig:
    try:
        return SuiteConfig.model_validate(dict(values))
    except ValidationError as problem:
        lines = [_line(entry, values) for entry in problem.errors()]
        raise ConfigError("\n".join(f"{name}: {line}" for line in lines)) from problem


def _line(error: Any, values: Mapping[str, Any]) -> str:
    """One line for an error of pydantic's, with the name of an entry in the place of its number."""
    location = list(error["loc"])
    line = explain(error, SuiteConfig)
    entries = values.get("entries")
    if len(location) > 1 and location[0] == "entries" and isinstance(entries, list):
        number = location[1]
        entry = entries[number] if isinstance(number, int) and number < len(entries) else None
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            line = line.replace(f"entries.{number}", f"entries.{entry['name']}", 1)
    return line
