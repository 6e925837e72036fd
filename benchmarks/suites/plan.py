"""A suite turned into runs: for each the settings, how many episodes and tokens it takes at most, and what it lacks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium.error

from benchmarks.protocols.apply import apply_protocol
from benchmarks.runner import RunSettings, SettingsError, check_settings, choose_tasks, make_env
from benchmarks.suites.config import BudgetConfig, EntryConfig, SuiteConfig
from benchmarks.suites.missing import Missing, missing_data, missing_packages, missing_policies, missing_sandbox
from benchmarks.suites.players import Given, check_given_options, check_given_roles, entry_players
from benchmarks.suites.tokens import TokenBound, bound_tokens
from benchmarks.tournament import DEFAULT_DEALS, check_game, parse_entrants, schedule
from llm_envs.registration import arguments
from llm_envs.registration import spec as find_env
from trainers.team import assign_players

__all__ = ["PlannedRun", "SuiteRequest", "plan_run", "plan_suite"]

_OF_DATA = ("task_options", "retriever", "corpus", "support_reward")
"""Arguments of environments that speak of the data; they are left out where the data is not there."""


@dataclass(frozen=True)
class SuiteRequest:
    """What the command line says about a suite.

    Attributes:
        policies: The policy under test, ``SPEC`` or ``role=SPEC``; nothing is the suite's own.
        options: Options of policies, by role.
        n: At most so many tasks of each entry.
        seed: Instead of the suite's.
        env_kwargs: Arguments of environments, for all entries whose environment takes them.
        concurrency: Instead of the suite's.
        only: Names of the entries to play; nothing is all of them.
        save_tokens: Keep token ids and log-probs.
    """

    policies: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    n: int | None = None
    seed: int | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int | None = None
    only: Sequence[str] = ()
    save_tokens: bool = False


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be played.

    Attributes:
        name: Of its folder: that of the entry, and with several runs of a protocol ``entry/run``.
        settings: Its settings, with the number of tasks settled; ``out`` is relative to the folder of the suite.
        tournament: Whether it is a tournament.
        specs: The policy specs that play.
        set_name: Name of the task set.
        budget: Bounds that hold while it is played.
        tasks: Tasks that are played; None if that is not known before the data is there.
        samples: Episodes of each; of a tournament its matches.
        tokens: What models read and write at most.
        missing: What it lacks here.
    """

    name: str
    settings: RunSettings
    tournament: bool
    specs: tuple[str, ...]
    set_name: str
    budget: BudgetConfig
    tasks: int | None
    samples: int
    tokens: TokenBound
    missing: tuple[Missing, ...]

    @property
    def episodes(self) -> int | None:
        """Episodes in all; None if the number of tasks is not known."""
        return None if self.tasks is None else self.tasks * self.samples


def plan_suite(suite: SuiteConfig, request: SuiteRequest) -> list[PlannedRun]:
    """Return the runs of a suite, in order.

    Raises:
        gymnasium.error.Error: If an environment or an argument of it does not exist.
        benchmarks.runner.SettingsError: If an entry does not exist, or asks for more tasks than there are.
        trainers.team.TeamError: If policies, roles or options do not fit.
        trainers.policies.PolicySpecError: If a spec is malformed.
    """
    given = Given(suite, request.policies, request.options)
    entries = _chosen(suite, request.only)
    _check_env_kwargs(entries, request.env_kwargs)
    looked = [_look(_base(suite, entry, request), entry.tournament) for entry in entries]
    check_given_roles(given, [(entry, look.agents) for entry, look in zip(entries, looked, strict=True)])
    cast = [entry_players(suite, entry, given, look.agents) for entry, look in zip(entries, looked, strict=True)]
    check_given_options(given, [options for _, options in cast])
    planned = []
    for entry, look, (policies, options) in zip(entries, looked, cast, strict=True):
        settings = replace(look.settings, policies=policies, options=options, out=Path(entry.name))
        protocol = suite.protocol_of(entry)
        runs = {protocol.name: settings} if protocol.name == "plain" else apply_protocol(protocol.name, settings)
        for label, each in runs.items():
            name = entry.name if len(runs) == 1 else f"{entry.name}/{label}"
            planned.append(_planned(name, replace(each, out=Path(name)), entry, look, request.n))
    return planned


def plan_run(settings: RunSettings, label: str = "", *, tournament: bool = False) -> PlannedRun:
    """Return a run of its own, as ``llm-bench run`` and ``llm-bench tournament`` describe it.

    Args:
        settings: The run.
        label: What to call it; the environment if empty.
        tournament: Whether it is a tournament.

    Raises:
        gymnasium.error.Error, SettingsError, TeamError, PolicySpecError: As :func:`plan_suite`.
    """
    entry = EntryConfig(name="run", env=settings.env, n=settings.n)
    return _planned(label or settings.env, settings, entry, _look(settings, tournament), None, tournament=tournament)


@dataclass(frozen=True)
class _Look:
    """What was found out about an environment; ``env`` is None where it cannot be made here."""

    settings: RunSettings
    env: Any
    agents: tuple[str, ...]
    size: int | None
    missing: tuple[Missing, ...]


def _base(suite: SuiteConfig, entry: EntryConfig, request: SuiteRequest) -> RunSettings:
    takes = arguments(find_env(entry.env))
    more = {name: value for name, value in request.env_kwargs.items() if name in takes}
    return RunSettings(
        env=entry.env,
        policies=(),
        tasks=entry.tasks,
        split=entry.split,
        n=entry.n,
        samples=suite.samples_of(entry),
        seed=suite.seed if request.seed is None else request.seed,
        shuffle=entry.shuffle,
        sampling=suite.sampling_of(entry),
        env_kwargs={**entry.kwargs, **more},
        concurrency=request.concurrency or suite.concurrency,
        save_tokens=request.save_tokens,
    )


def _look(settings: RunSettings, tournament: bool) -> _Look:
    """Make the environment; where its data is missing, make it without, to see its agents and limits."""
    packages = tuple(missing_packages(settings))
    data = tuple(missing_data(settings))
    missing = (*packages, *data, *missing_sandbox(settings))
    env = None
    try:
        env = make_env(_without_data(settings) if packages or data else settings)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        if not packages:
            raise SettingsError(f"{settings.env} cannot be made: {error}") from error
    except gymnasium.error.Error:
        if not packages:  # what cannot be imported cannot be asked for what it is called, either
            raise
    if env is None:
        return _Look(settings, None, (), None, missing)
    if tournament:
        check_game(env.unwrapped)
    size = None if data else len(env.unwrapped.tasks)
    return _Look(settings, env.unwrapped, tuple(env.possible_agents), size, missing)


def _without_data(settings: RunSettings) -> RunSettings:
    kwargs = {name: value for name, value in settings.env_kwargs.items() if name not in _OF_DATA}
    return replace(settings, tasks=None, split=None, env_kwargs=kwargs)


def _planned(
    name: str, settings: RunSettings, entry: EntryConfig, look: _Look, most: int | None, *, tournament: bool = False
) -> PlannedRun:
    tournament = tournament or entry.tournament
    if tournament:
        entrants = parse_entrants(settings.policies, settings.options)
        specs = list(dict.fromkeys(entrant.spec for entrant in entrants))
        samples = len(schedule([entrant.name for entrant in entrants]))
    else:
        players = assign_players(settings.policies, settings.options, look.agents or None)
        specs = list(dict.fromkeys(player.spec for player in players.values()))
        samples = settings.samples
    tasks = _count(entry, look.size, samples, most, tournament)
    settings = replace(settings, n=tasks)
    check_settings(settings)
    return PlannedRun(
        name=name,
        settings=settings,
        tournament=tournament,
        specs=tuple(specs),
        set_name=settings.tasks or ("" if look.env is None else look.env.tasks.name),
        budget=entry.budget,
        tasks=tasks,
        samples=samples,
        tokens=bound_tokens(look.env, settings, tasks, tournament=tournament),
        missing=(*look.missing, *missing_policies(specs)),
    )


def _count(entry: EntryConfig, size: int | None, samples: int, most: int | None, tournament: bool) -> int | None:
    """Return how many tasks are played; None where all are, and their number is not known."""
    asked = entry.n
    if asked is None and tournament:
        asked = DEFAULT_DEALS if size is None else min(DEFAULT_DEALS, size)
    bounds = [asked, entry.budget.tasks, most]
    if entry.budget.episodes is not None:
        bounds.append(entry.budget.episodes // samples)
        if bounds[-1] == 0:
            raise SettingsError(
                f"Entry {entry.name!r}: a budget of {entry.budget.episodes} episodes does not hold the {samples} of "
                "one task; raise it"
            )
    known = [bound for bound in bounds if bound is not None]
    if size is None:
        return min(known, default=None)
    try:
        choose_tasks(size, asked)
    except SettingsError as error:
        raise SettingsError(f"Entry {entry.name!r}: {error}") from error
    return min([*known, size])


def _chosen(suite: SuiteConfig, only: Sequence[str]) -> list[EntryConfig]:
    names = [entry.name for entry in suite.entries]
    for name in only:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"The suite has no entry {name!r}; it has {', '.join(names)}.{hint}")
    return [entry for entry in suite.entries if not only or entry.name in only]


def _check_env_kwargs(entries: Sequence[EntryConfig], given: Mapping[str, Any]) -> None:
    takes = {name for entry in entries for name in arguments(find_env(entry.env))}
    for name in given:
        if name not in takes:
            close = difflib.get_close_matches(name, sorted(takes), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise SettingsError(f"--env {name}=… : no environment of the suite takes it.{hint}")
