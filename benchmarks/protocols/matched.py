"""The compute-matched single agent: as many tokens on each task as a team spent on it, and not one agent more.

A team that talks to itself may win only because it says more. The baseline that tells is one agent with the same total
budget on the same tasks, spent on more samples (Wang et al. 2024, "Reasoning in Token Economies", arXiv 2406.06461).

On each task the agent plays one sample after the other as long as something is left of what the team spent there over
all its samples. The last one is played to its end and counts, so the agent is never given less than the team, and at
most one episode more. Which samples are played follows from their seeds alone: a resumed run ends like one that was
never interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.protocols.budget import Budget, TeamRun, cost_of
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.results import EPISODES, ResultsError, ResultsFolder, read_lines
from benchmarks.runner import Observer, RunResult, RunSettings, make_env, play_jobs, prepared
from llm_envs.tasks import TaskSet
from trainers.policies.base import Policy, Sampling, make_policy
from trainers.rollout.episodes import Job, make_jobs
from trainers.rollout.records import Episode
from trainers.team import EVERYONE, Player, parse_policy_specs

__all__ = ["BudgetJobs", "matched_settings", "play_matched"]

_SHOWN_TASKS = 3
_OTHER_UNIT = "take --budget characters"


class BudgetJobs:
    """What is to be played next: samples of each task, one after the other, until its budget is spent.

    An iterator to which jobs come while it is read: :meth:`played` must be told of each episode before the next job is
    taken.

    Args:
        budget: What may be spent on each task.
        seed: As that of a run.
        costs: What the samples that were played already cost, by task and in order.
    """

    def __init__(self, budget: Budget, seed: int, costs: Mapping[int, Sequence[int]]) -> None:
        self._budget = budget
        self._spent = {index: sum(costs.get(index, ())) for index in budget.by_task}
        first = {job.task_index: job for job in make_jobs(budget.by_task, 1, seed)}
        self._ready = deque(
            replace(first[index], sample=len(costs.get(index, ()))) for index in budget.unfinished(self._spent)
        )

    @property
    def unfinished(self) -> int:
        """Number of tasks on which something is left."""
        return len(self._budget.unfinished(self._spent))

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def played(self, job: Job, cost: int) -> bool:
        """Count what a sample cost; return whether another one of its task follows."""
        self._spent[job.task_index] += cost
        if self._spent[job.task_index] >= self._budget.by_task[job.task_index]:
            return False
        self._ready.append(replace(job, sample=job.sample + 1))
        return True


def matched_settings(team: TeamRun, settings: RunSettings, given: Mapping[str, Any]) -> RunSettings:
    """Return the settings of the single agent: tasks and seed of the team, and its sampling where none is given.

    Args:
        team: The run of the team.
        settings: Environment, policy and all else of the single agent. No policy means that of the team, if one plays
            all its roles.
        given: The fields of :class:`trainers.policies.Sampling` that were asked for.

    Raises:
        ProtocolError: If no policy is given and the team has several; or if the policy cannot spend the budget because
            it counts no tokens.
    """
    identity, context = team.config["identity"], team.config["context"]
    policies, options = settings.policies, settings.options
    if not policies:
        played = set(identity["policies"].values())
        if len(played) > 1 or identity["options"].keys() - {EVERYONE}:
            raise ProtocolError(
                f"{team.path} was played by {context['label']}; say with --policy who the single agent is"
            )
        policies = list(played)
        options = options or identity["options"]
    scripted = [spec for spec in parse_policy_specs(policies).values() if Player(spec).scripted]
    if scripted and team.budget.unit != "characters":
        raise ProtocolError(f"{scripted[0]} counts no tokens, so the budget would never be spent: {_OTHER_UNIT}")
    split = identity["tasks"].get("split")
    stop = {"stop": tuple(identity["sampling"]["stop"])}
    return replace(
        settings,
        policies=policies,
        options=options,
        tasks=context["tasks"] if settings.tasks is None else settings.tasks,
        split=None if split == "all" else split,
        n=identity["n"],
        shuffle=identity["shuffle"],
        seed=identity["seed"],
        sampling=Sampling(**{**identity["sampling"], **stop, **given}),
    )


async def play_matched(
    settings: RunSettings,
    team: TeamRun,
    observer: Observer,
    *,
    grown: Callable[[int], None] = lambda planned: None,
    make: Callable[..., Policy] = make_policy,
) -> RunResult:
    """Play the single agent, or what is missing of it.

    Args:
        settings: See :func:`matched_settings`; ``samples`` is not read.
        team: The run whose budget it gets.
        observer: Is told how it goes.
        grown: Is told the number of episodes, as far as it is known, whenever it grows.
        make: Makes the policies.

    Raises:
        ProtocolError: If the environment has several agents or other tasks than the team's, or the policy counts no
            tokens.
        Exception: What :func:`benchmarks.runner.run` raises.
    """
    env = make_env(settings)
    try:
        _check_environment(env, team)  # before a model is loaded for nothing
    finally:
        env.close()
    async with prepared(settings, observer, make) as it:
        budget = team.budget
        it.config["identity"].update(samples=None, budget=budget.to_json())
        with ResultsFolder(it.out, it.config, resume=settings.resume, save_tokens=settings.save_tokens) as folder:
            jobs = BudgetJobs(budget, settings.seed, _stored_costs(folder, team))
            planned = len(folder) + jobs.unfinished
            observer.start(it.out, str(it.config["context"]["label"]), planned)
            for stored in folder.stored:
                observer.stored(stored.task_index, stored.success)

            def spend(episode: Episode) -> None:
                nonlocal planned
                cost = cost_of(episode.to_dict(tokens=False, timings=False), budget.unit)
                if cost == 0:
                    raise ProtocolError(
                        f"{it.config['context']['label']} counts no tokens, so the budget would never be spent: "
                        f"{_OTHER_UNIT}"
                    )
                if jobs.played(Job(episode.task_index, episode.sample, episode.seed), cost):
                    planned += 1
                    grown(planned)

            failed, gave_up = await play_jobs(folder, it.env, it.team, jobs, settings.concurrency, observer, spend)
            if not jobs.unfinished:
                folder.sort()
            return RunResult(it.out, planned, len(folder), failed, gave_up)


def _check_environment(env: Any, team: TeamRun) -> None:
    agents = env.possible_agents
    if len(agents) != 1:
        raise ProtocolError(
            f"{env.unwrapped.spec.id} has the agents {', '.join(agents)}; the baseline of a team is a single agent, "
            "such as math-1agent, search-1agent, code-1agent or plan-path-1agent"
        )
    tasks: TaskSet = env.unwrapped.tasks
    other = [
        name
        for index, (name, content) in team.tasks.items()
        if not (index < len(tasks) and tasks[index].hash == content)
    ]
    if other:
        more = f" and {len(other) - _SHOWN_TASKS} more" if len(other) > _SHOWN_TASKS else ""
        kwargs = " ".join(f"--env {name}={value}" for name, value in team.config["identity"]["env_kwargs"].items())
        raise ProtocolError(
            f"{env.unwrapped.spec.id} has other tasks here than {team.path}, which played "
            f"{', '.join(other[:_SHOWN_TASKS])}{more}. Give the --tasks and those --env arguments that tasks depend on"
            + (f"; the team's were {kwargs}" if kwargs else "")
        )


def _stored_costs(folder: ResultsFolder, team: TeamRun) -> dict[int, list[int]]:
    """Return what the stored samples cost, by task and in order."""
    found: dict[int, dict[int, int]] = {}
    for record in read_lines(folder.path, EPISODES):
        index = record["task_index"]
        if index not in team.tasks or team.tasks[index][1] != record["task_hash"]:
            raise ResultsError(
                f"{folder.path} holds an episode of task {record['task']!r}, which the team has not played"
            )
        found.setdefault(index, {})[record["sample"]] = cost_of(record, team.budget.unit)
    for index, costs in found.items():
        if sorted(costs) != list(range(len(costs))):
            raise ResultsError(
                f"{folder.path} lacks samples of task {team.tasks[index][0]!r} before others that it holds"
            )
    return {index: [costs[sample] for sample in sorted(costs)] for index, costs in found.items()}
