"""A protocol applied to the settings of a run: which runs it makes of them, and what it does not let them say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.protocols.catalogue import ProtocolError, ProtocolRun, find_protocol
from benchmarks.runner import RunSettings

__all__ = ["apply_protocol"]

_FLAGS = {"samples": "-k", "temperature": "--temperature", "top_p": "--top-p", "top_k": "--top-k"}


def apply_protocol(name: str, settings: RunSettings, given: Collection[str] = ()) -> dict[str, RunSettings]:
    """Return the settings of the runs of a protocol, by their labels.

    Args:
        name: A protocol, or one run of it: ``at-grpo`` or ``at-grpo/greedy``.
        settings: What to run. ``out`` is left as it is.
        given: Which of ``samples``, ``temperature``, ``top_p`` and ``top_k`` were asked for, and are not just defaults:
            those must not contradict the protocol.

    Raises:
        ProtocolError: If there is no such protocol, or something that was asked for contradicts it.

    Example:
        >>> runs = apply_protocol("at-grpo", RunSettings("math-2agent", ["oracle"]))
        >>> [(label, run.samples, run.sampling.temperature) for label, run in runs.items()]
        [('greedy', 1, 0.0), ('sampled', 4, 1.0)]
    """
    wanted, slash, label = name.partition("/")
    protocol = find_protocol(wanted)
    runs = (protocol.run(label),) if slash else protocol.runs
    for setting in _FLAGS:
        if setting in given:
            _check(name, runs, setting, settings)
    return {
        run.label: replace(
            settings,
            samples=run.samples_of(settings.samples),
            sampling=run.sampling_of(settings.sampling),
            protocol=(protocol.name, run.label),
            arguments={**settings.arguments, "protocol": f"{protocol.name}/{run.label}"} if settings.arguments else {},
        )
        for run in runs
    }


def _check(name: str, runs: Collection[ProtocolRun], setting: str, settings: RunSettings) -> None:
    asked = settings.samples if setting == "samples" else getattr(settings.sampling, setting)
    fixed = {run.label: value for run in runs if (value := _fixed(run, setting)) is not None}
    if all(value == asked for value in fixed.values()):
        return
    if len(fixed) == 1 or len(set(fixed.values())) == 1:
        at = f"{next(iter(fixed.values())):g}"
    else:
        at = " and ".join(f"{value:g} ({label})" for label, value in fixed.items())
    flag = _FLAGS[setting]
    raise ProtocolError(
        f"{flag} {asked:g} contradicts --protocol {name}, which fixes {flag} at {at}. Leave one of the two out"
    )


def _fixed(run: ProtocolRun, setting: str) -> Any:
    fixed: Mapping[str, Any] = {**run.sampling, "samples": run.samples}
    return fixed.get(setting)
