"""The named protocols: what a published figure was measured with, in one place.

A protocol says how many episodes of each task are played and how answers are drawn. It says nothing of tasks, policies,
or the length of answers, which stay arguments of the command.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from trainers.policies.base import Sampling

__all__ = ["PROTOCOLS", "Protocol", "ProtocolError", "ProtocolRun", "find_protocol"]


class ProtocolError(ValueError):
    """There is no such protocol, or something contradicts the one that was named. The message says what to do."""


@dataclass(frozen=True)
class ProtocolRun:
    """One run of a protocol.

    Attributes:
        label: What tells it from the other runs of its protocol; the name of its folder where there are several.
        samples: Episodes of each task; None leaves it to the command.
        sampling: What it fixes of :class:`trainers.policies.Sampling`, by field; all else is left to the command.
        figures: The figures that are reported of it, as :func:`benchmarks.task_values.find_metric` names them.
    """

    label: str
    samples: int | None
    sampling: Mapping[str, Any]
    figures: tuple[str, ...] = ("avg",)

    def samples_of(self, asked: int) -> int:
        """Return the episodes of each task, where the command asks for ``asked``."""
        return asked if self.samples is None else self.samples

    def sampling_of(self, asked: Sampling) -> Sampling:
        """Return how answers are drawn, where the command asks for ``asked``."""
        return replace(asked, **self.sampling)


@dataclass(frozen=True)
class Protocol:
    """A protocol.

    Attributes:
        name: As ``--protocol`` takes it.
        description: What is measured, in a sentence.
        source: Where it is from.
        runs: What is run; one folder each.
    """

    name: str
    description: str
    source: str
    runs: tuple[ProtocolRun, ...]

    def run(self, label: str) -> ProtocolRun:
        """Return one of its runs.

        Raises:
            ProtocolError: If it has none of this label.
        """
        for each in self.runs:
            if each.label == label:
                return each
        raise ProtocolError(
            f"Protocol {self.name} has no run {label!r}; it has {', '.join(r.label for r in self.runs)}"
        )


_GREEDY = MappingProxyType({"temperature": 0.0, "top_p": 1.0, "top_k": -1})
_PUBLISHED = (
    Protocol(
        name="plain",
        description="Episodes and sampling as the command says: no protocol is claimed.",
        source="",
        runs=(ProtocolRun("plain", None, MappingProxyType({})),),
    ),
    Protocol(
        name="greedy",
        description="One episode a task, the most likely token every time.",
        source="Common practice",
        runs=(ProtocolRun("greedy", 1, _GREEDY),),
    ),
    Protocol(
        name="dr-mas",
        description="avg@16 and pass@16 at temperature 0.6 and top-p 0.95.",
        source="Dr. MAS, arXiv 2602.08847",
        runs=(
            ProtocolRun(
                "sampled",
                16,
                MappingProxyType({"temperature": 0.6, "top_p": 0.95, "top_k": -1}),
                ("avg", "pass@16"),
            ),
        ),
    ),
    Protocol(
        name="at-grpo",
        description="Success with greedy decoding, and with the sampling of training: temperature 1, four episodes a "
        "task.",
        source="AT-GRPO, arXiv 2510.11062. Its released code validates greedily, one episode a task, and trains at "
        "temperature 1 with four samples a turn.",
        runs=(
            ProtocolRun("greedy", 1, _GREEDY),
            ProtocolRun("sampled", 4, MappingProxyType({"temperature": 1.0, "top_p": 1.0, "top_k": -1})),
        ),
    ),
)

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType({protocol.name: protocol for protocol in _PUBLISHED})
"""All protocols by name."""


def find_protocol(name: str) -> Protocol:
    """Return a protocol by its name.

    Raises:
        ProtocolError: If there is none of this name; the message suggests one.
    """
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    close = difflib.get_close_matches(name, PROTOCOLS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ProtocolError(f"There is no protocol {name!r}; the protocols are {', '.join(PROTOCOLS)}.{hint}")
