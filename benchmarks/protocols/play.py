"""Plays the runs of a group one after the other, with the policies loaded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from benchmarks.protocols.group import Group, open_group
from benchmarks.protocols.shared import SharedPolicies
from benchmarks.runner import Observer, RunResult, RunSettings, run
from trainers.policies.base import Policy, make_policy

__all__ = ["play_group"]


async def play_group(
    path: Path,
    group: Group,
    runs: Mapping[str, RunSettings],
    watch: Callable[[str], AbstractContextManager[Observer]],
    *,
    resume: bool = False,
    make: Callable[..., Policy] = make_policy,
) -> list[RunResult]:
    """Play what is missing of the runs of a group.

    Args:
        path: The folder of the group; each run has a folder of its own in it.
        group: What it is.
        runs: The settings of its runs by label.
        watch: Returns the observer of the run of a label.
        resume: Go on with the group in ``path`` if there is one.
        make: Turns a policy spec and its options into a policy.

    Returns:
        How the runs ended, in order. After a run that gave up (see :func:`benchmarks.runner.run`) no other is begun.

    Raises:
        ResultsError: If the folder holds something else, or a group and ``resume`` is False.
        Exception: What :func:`benchmarks.runner.run` raises.
    """
    open_group(path, group, resume=resume)
    results = []
    async with SharedPolicies(make) as policies:
        for label, settings in runs.items():
            with watch(label) as observer:
                member = replace(settings, out=path / label, resume=True)
                results.append(await run(member, observer, make=policies.make))
            if results[-1].gave_up is not None:
                break
    return results
