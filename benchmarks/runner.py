"""One benchmark run: choose tasks, load the team, play what is missing, store every episode as it ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import llm_envs
from benchmarks.context import describe_run
from benchmarks.garbage import fewer_collections
from benchmarks.results import ResultsError, ResultsFolder, check_usable
from llm_envs.registration import arguments
from llm_envs.task_files import looks_like_path
from llm_envs.tasks import TaskSet, stable_hash
from trainers.policies.base import Policy, PolicyError, PolicySpecError, Sampling, make_policy, parse_spec
from trainers.rollout.episodes import Job, TooManyFailuresError, make_jobs, pending, play, run_episode
from trainers.rollout.records import Episode
from trainers.team import Team, assign_players, parse_policy_specs

__all__ = [
    "Observer",
    "Prepared",
    "RunResult",
    "RunSettings",
    "SettingsError",
    "check_settings",
    "choose_split",
    "choose_tasks",
    "default_folder",
    "load_policy",
    "make_env",
    "play_jobs",
    "play_missing",
    "prepared",
    "run",
]

MIN_FAILURES_IN_A_ROW = 16
"""Or as many as are in flight, if they are more: after so many failed episodes in a row a run gives up."""
SECRET_OPTIONS = {"api_key": "OPENAI_API_KEY"}
"""Options that must not end up in a results folder, and the environment variable to use instead."""


@dataclass(frozen=True)
class RunSettings:
    """What to run.

    Attributes:
        env: Id of the environment.
        policies: ``SPEC`` or ``role=SPEC``, as on the command line.
        options: Options of the policies by role (``*`` for all that have a model), JSON values.
        tasks: Name of a task set or path of a file; None is the environment's default set.
        split: Split of the task set. None means the test split of a named or procedural set, and all rows of a file.
        n: Number of tasks; None is all of them.
        samples: Episodes per task (the k of avg@k and pass@k).
        seed: Of everything that is drawn: answers, environments, the shuffle.
        shuffle: Take ``n`` tasks at random instead of the first ``n``.
        sampling: How completions are drawn.
        protocol: Name and run of the :mod:`protocol <benchmarks.protocols.catalogue>` that samples and sampling are of.
        env_kwargs: Further arguments of the environment.
        concurrency: Episodes in flight. Changes no result.
        out: Results folder; None makes one under ``runs/``.
        resume: Go on with the run in ``out``.
        save_tokens: Keep token ids and log-probs.
        command: The command line, for the record.
        arguments: Its arguments, for a later --resume without them.
    """

    env: str
    policies: Sequence[str]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tasks: str | None = None
    split: str | None = None
    n: int | None = None
    samples: int = 1
    seed: int = 0
    shuffle: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    protocol: tuple[str, str] | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 64
    out: Path | None = None
    resume: bool = False
    save_tokens: bool = False
    command: Sequence[str] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        path: The results folder.
        planned: Episodes asked for.
        stored: Episodes in the folder now.
        failed: Episodes that failed in this session.
        gave_up: Why the run stopped early, or None.
    """

    path: Path
    planned: int
    stored: int
    failed: int
    gave_up: str | None

    @property
    def complete(self) -> bool:
        """Whether every episode is there."""
        return self.stored == self.planned


class SettingsError(ValueError):
    """A run cannot be what its settings say. The message names the setting."""


class Observer(Protocol):
    """Is told how a run goes."""

    def loading(self, specs: Sequence[str]) -> None:
        """The policies are being made, which can take a minute."""

    def start(self, path: Path, label: str, planned: int) -> None:
        """The team is loaded and the folder is open."""

    def stored(self, task_index: int, success: bool) -> None:
        """An episode of an earlier session is there already."""

    def began(self, task_index: int, sample: int) -> None:
        """An episode begins."""

    def played(self, episode: Episode) -> None:
        """An episode ended or failed."""


async def run(
    settings: RunSettings,
    observer: Observer,
    *,
    make: Callable[..., Policy] = make_policy,
    go_on: Callable[[], bool] | None = None,
) -> RunResult:
    """Run a benchmark, or what is missing of it.

    Args:
        settings: What to run.
        observer: Is told how it goes.
        make: Makes the policies.
        go_on: Asked before each episode; once it says no, none is started any more, and the run ends incomplete.

    Raises:
        ResultsError: If the folder cannot be used (see :class:`benchmarks.results.ResultsFolder`), or a stored episode
            belongs to a task that has changed.
        gymnasium.error.Error: If the environment, its arguments or its tasks do not exist.
        SettingsError: If a number is out of its range or an option may not be stored.
        trainers.team.TeamError: If the policies or their options do not fit the environment's roles.
        trainers.policies.PolicySpecError: If a policy spec is malformed or the policy has no such option.
        trainers.policies.PolicyError: If a policy cannot be loaded, or cannot play in the environment.
    """
    async with prepared(settings, observer, make) as it:
        jobs = make_jobs(it.indices, settings.samples, settings.seed)
        return await play_missing(it.out, it.config, settings, it.env, it.team, jobs, observer, go_on)


@dataclass(frozen=True)
class Prepared:
    """A run that is about to be played.

    Attributes:
        env: The environment, with its tasks.
        indices: The tasks that are played.
        team: Who plays.
        out: The results folder, which is not there or may be used.
        config: Its configuration.
    """

    env: Any
    indices: Sequence[int]
    team: Team
    out: Path
    config: dict[str, Any]


@asynccontextmanager
async def prepared(
    settings: RunSettings, observer: Observer, make: Callable[..., Policy] = make_policy
) -> AsyncIterator[Prepared]:
    """Choose the tasks and load the team of a run, and close the team afterwards.

    Raises:
        Exception: What :func:`run` raises before it plays.
    """
    check_settings(settings)
    for player in assign_players(settings.policies, settings.options).values():  # before an environment is made
        parse_spec(player.spec)
    env = make_env(settings)
    tasks: TaskSet = env.unwrapped.tasks
    indices = choose_tasks(len(tasks), settings.n, settings.seed if settings.shuffle else None)
    players = assign_players(settings.policies, settings.options, env.possible_agents)
    specs = list(dict.fromkeys(player.spec for player in players.values()))
    out = settings.out or default_folder(env.unwrapped.spec.name, specs)
    check_usable(out, resume=settings.resume)  # before a model is loaded for nothing
    observer.loading(specs)
    team = Team.from_players(players, lambda spec, **options: load_policy(make, spec, options), settings.sampling)
    try:
        for policy in team.policies.values():
            policy.check(env.unwrapped)
        labels = {player.spec: team.policies[team.roles[role]].label for role, player in players.items()}
        who = {
            "policies": parse_policy_specs(settings.policies),
            "options": {role: dict(values) for role, values in settings.options.items()},
            "labels": labels,
        }
        config = describe_run(settings, env, indices, settings.samples, who, specs, team.label)
        yield Prepared(env, indices, team, out, config)
    finally:
        await team.close()


def check_settings(settings: RunSettings) -> None:
    """Check what can be checked before anything is loaded.

    Raises:
        SettingsError: If a number is out of its range or an option may not be stored.
    """
    for name, value in (("samples", settings.samples), ("n", settings.n), ("concurrency", settings.concurrency)):
        if value is not None and value < 1:
            raise SettingsError(f"{name} must be at least 1, got {value}")
    for values in settings.options.values():
        for name in sorted(SECRET_OPTIONS.keys() & values.keys()):
            raise SettingsError(f"Option {name} would be stored with the results; set ${SECRET_OPTIONS[name]} instead")


async def play_missing(
    out: Path,
    config: Mapping[str, Any],
    settings: RunSettings,
    env: Any,
    team: Team | Callable[[Job], Team],
    jobs: Sequence[Job],
    observer: Observer,
    go_on: Callable[[], bool] | None = None,
) -> RunResult:
    """Open the folder, play the jobs that it does not hold yet, and sort it when all are there.

    Raises:
        ResultsError: If the folder cannot be used, or a stored episode belongs to a task that has changed.
    """
    with ResultsFolder(out, config, resume=settings.resume, save_tokens=settings.save_tokens) as folder:
        _check_stored(folder, env.unwrapped.tasks, jobs)
        observer.start(out, str(config["context"]["label"]), len(jobs))
        for stored in folder.stored:
            observer.stored(stored.task_index, stored.success)
        missing: Iterable[Job] = pending(jobs, folder.done)
        if go_on is not None:
            missing = takewhile(lambda _: go_on(), missing)
        failed, gave_up = await play_jobs(folder, env, team, missing, settings.concurrency, observer)
        if len(folder) == len(jobs):
            folder.sort()
        return RunResult(out, len(jobs), len(folder), failed, gave_up)


def load_policy(make: Callable[..., Policy], spec: str, options: Mapping[str, Any]) -> Policy:
    """Make a policy; what the libraries under it refuse (a name, a value, a file) becomes a PolicyError of one line."""
    try:
        return make(spec, **options)
    except PolicySpecError:
        raise
    except (OSError, TypeError, ValueError) as error:
        with_options = f" with {json.dumps(dict(options))}" if options else ""
        reason = " ".join(str(error).split())
        raise PolicyError(f"Cannot load {spec!r}{with_options}: {reason or type(error).__name__}") from error


def make_env(settings: RunSettings) -> Any:
    """Make the environment that the settings name, with its task set loaded."""
    kwargs = dict(settings.env_kwargs)
    if settings.tasks is not None:
        kwargs["tasks"] = settings.tasks
    split = choose_split(settings)
    if split is not None:
        kwargs["split"] = split
    return llm_envs.make(settings.env, **kwargs)


def choose_split(settings: RunSettings) -> str | None:
    """Return the split that is played: ``test`` where none is named, except of a file or a set that has none."""
    if settings.split is not None or "split" not in arguments(llm_envs.spec(settings.env)):
        return settings.split
    return None if settings.tasks and _is_file(settings.tasks) else "test"


def choose_tasks(size: int, n: int | None, shuffle_seed: int | None = None) -> list[int]:
    """Return the indices of the tasks to play, ascending.

    Args:
        size: Tasks there are.
        n: Tasks wanted; None is all.
        shuffle_seed: None takes the first ``n``; a seed takes ``n`` at random.

    Raises:
        SettingsError: If there are not so many.
    """
    if n is None:
        n = size
    if n > size:
        raise SettingsError(f"{n} tasks were asked for, but the set has {size}; use -n {size} or leave -n out")
    if shuffle_seed is None:
        return list(range(n))
    return sorted(sorted(range(size), key=lambda index: stable_hash("shuffle", shuffle_seed, index))[:n])


def default_folder(env: str, specs: Iterable[str]) -> Path:
    """Return a fresh ``runs/<env>-<policy>-<time>``."""
    policy = "-".join(dict.fromkeys(re.sub(r"[^A-Za-z0-9.]+", "_", spec).strip("_")[-40:] for spec in specs))
    base = Path("runs") / f"{env.replace('/', '-')}-{policy}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


async def play_jobs(
    folder: ResultsFolder,
    env: Any,
    team: Team | Callable[[Job], Team],
    jobs: Iterable[Job],
    concurrency: int,
    observer: Observer,
    stored: Callable[[Episode], None] = lambda episode: None,
) -> tuple[int, str | None]:
    """Play jobs and store every episode in an open folder.

    Args:
        folder: Where to.
        env: The environment, of which forks are played.
        team: Who plays, or who plays a job.
        jobs: What to play. Read as episodes start.
        concurrency: Episodes in flight.
        observer: Is told of each episode.
        stored: Is called with each episode that was stored, before the next job is taken.

    Returns:
        How many episodes failed, and why it gave up, or None.
    """
    failed = 0

    def keep(episode: Episode) -> None:
        nonlocal failed
        folder.add(episode)
        if episode.error is None:
            stored(episode)
        else:
            failed += 1
        observer.played(episode)

    async def begin(env: Any, team: Team, job: Job, *, executor: Executor | None = None) -> Episode:
        observer.began(job.task_index, job.sample)
        return await run_episode(env, team, job, executor=executor)

    try:
        with fewer_collections():
            await play(
                env.unwrapped.fork,  # shares the loaded tasks; the environment itself is never played
                team,
                jobs,
                keep,
                concurrency=concurrency,
                max_failures_in_a_row=max(MIN_FAILURES_IN_A_ROW, concurrency),
                run=begin,
            )
    except TooManyFailuresError as error:
        return failed, str(error)
    return failed, None


def _check_stored(folder: ResultsFolder, tasks: TaskSet, jobs: Sequence[Job]) -> None:
    planned = {(job.task_index, job.sample) for job in jobs}
    for stored in folder.stored:
        if (stored.task_index, stored.sample) not in planned:
            raise ResultsError(
                f"{folder.path} holds sample {stored.sample} of task {stored.task_index}, which was not asked for"
            )
        task = tasks[stored.task_index]
        if task.hash != stored.task_hash:
            raise ResultsError(
                f"{folder.path} holds an episode of task {task.id!r}, which has changed since. Give another --out"
            )


def _is_file(tasks: str) -> bool:
    return looks_like_path(tasks) or Path(tasks).exists()
