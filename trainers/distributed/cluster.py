"""A Ray cluster: connecting to one, whether a run fits, and the placement group that its workers are in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trainers.config import ConfigError, TrainConfig
from trainers.policy_config import LEARNING, PolicyConfig, engine_key
from trainers.run_folder import RunError

__all__ = ["Placement", "Slot", "connect", "engine_groups", "plan", "reserve"]


def connect(address: str) -> bool:
    """Connect this process to a cluster; one that it is connected to already is kept.

    Args:
        address: ``ray://host:port`` or ``host:port`` of a running cluster, ``auto`` for the one that this machine is a
            node of, or ``local:<n>`` to start one of ``n`` CPUs on this machine that ends with the process.

    Returns:
        Whether a connection was made, which is then to be ended with ``ray.shutdown()``.

    Raises:
        ConfigError: The address has none of these forms, or no cluster answers there.
    """
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"address": address, "log_to_driver": True}
    kind, _, number = address.partition(":")
    if kind == "local":
        if not (number.isdigit() and int(number)):
            raise ConfigError(f"--cluster {address!r}: write how many CPUs the cluster is to have, such as `local:8`")
        os.environ.setdefault("RAY_worker_niceness", "0")  # the run is what the machine is for; Ray's own is 15
        options = {"address": "local", "num_cpus": int(number), "include_dashboard": False}
    elif address != "auto" and ":" not in address:
        raise ConfigError(
            f"--cluster {address!r}: expected `auto`, `local:<n>`, `ray://host:port` or `host:port` of a Ray cluster"
        )
    try:
        ray.init(**options, logging_level="warning")
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise ConfigError(f"--cluster {address!r}: no Ray cluster could be reached or started: {problem}") from problem
    return True


@dataclass(frozen=True, slots=True)
class Slot:
    """Room for one worker.

    Attributes:
        kind: ``learner``, ``engine`` or ``runner``.
        owner: The policy that learns, or the group of engines; empty for a runner and for an engine of a pool.
        number: Which of its kind and owner it is.
        cpus: CPUs that it holds.
        gpus: GPUs that it holds.
    """

    kind: str
    owner: str
    number: int
    cpus: float
    gpus: int = 0

    @property
    def bundle(self) -> dict[str, float]:
        """The same as Ray writes it."""
        return {"CPU": self.cpus, **({"GPU": float(self.gpus)} if self.gpus else {})}


def engine_groups(policies: Mapping[str, PolicyConfig]) -> dict[str, list[str]]:
    """Which policies are sampled by the same engines: vLLM adapters of one base model; others by themselves.

    Returns:
        The policies of each group, by the name of its first. Policies that need no model of ours are in none.
    """
    groups: dict[str, list[str]] = {}
    first: dict[tuple[str, str], str] = {}
    for name, policy in policies.items():
        if policy.backend not in LEARNING:
            continue
        shared = policy.backend == "vllm" and policy.lora is not None
        owner = first.setdefault(engine_key(policy), name) if shared else name
        groups.setdefault(owner, []).append(name)
    return groups


def plan(config: TrainConfig) -> list[Slot]:
    """All workers of a run."""
    cluster = config.cluster
    learning = [name for name, policy in config.policies.items() if policy.trainable]
    return [
        *(
            Slot("learner", name, number, cluster.learner_cpus, cluster.learner_gpus)
            for name in learning
            for number in range(cluster.learner_ranks)
        ),
        *(
            Slot("engine", owner, number, cluster.engine_cpus, cluster.engine_gpus)
            for owner, engines in _engines(config).items()
            for number in range(engines)
        ),
        *(Slot("runner", "", number, cluster.runner_cpus) for number in range(cluster.runners)),
    ]


def _engines(config: TrainConfig) -> dict[str, int]:
    """How many engines each group has; those of a pool, which change hands, belong to none."""
    groups = engine_groups(config.policies)
    if config.cluster.engines != "auto":
        return dict.fromkeys(groups, config.cluster.engines)
    pool = config.cluster.engine_pool or 0
    if pool < len(groups):
        raise ConfigError(
            f"cluster.engine_pool is {pool}, and {len(groups)} policies or groups of them need an engine each "
            f"({', '.join(groups)}): raise it to {len(groups)} at least"
        )
    return {"": pool}


def check(slots: Sequence[Slot]) -> None:
    """Check that the cluster, were it empty, has room for the slots.

    Raises:
        ConfigError: It has not; the message says what is asked for and what there is.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for slot in slots:
        if not any(all(node.get(name, 0.0) >= n for name, n in slot.bundle.items()) for node in nodes):
            raise ConfigError(
                f"cluster: no node has {_amount(slot.bundle)} for one {slot.kind}; the nodes have: "
                + "; ".join(_amount(node) for node in nodes)
            )
    asked, there = _total(slot.bundle for slot in slots), _total(nodes)
    if any(there.get(name, 0.0) < n for name, n in asked.items()):
        counts: dict[str, list[Slot]] = {}
        for slot in slots:
            counts.setdefault(slot.kind, []).append(slot)
        what = ", ".join(f"{len(some)} {kind}s of {_amount(some[0].bundle)}" for kind, some in counts.items())
        raise ConfigError(
            f"cluster: the run asks for {_amount(asked)} ({what}), and the cluster has {_amount(there)} on "
            f"{len(nodes)} node(s). Lower cluster.runners, engines, learner_ranks or what each of them holds"
        )


class Placement:
    """Where the workers of a run are: a placement group with one bundle for each slot."""

    def __init__(self, slots: Sequence[Slot], group: PlacementGroup) -> None:
        self._bundles = {(slot.kind, slot.owner, slot.number): i for i, slot in enumerate(slots)}
        self._slots = slots
        self._group = group

    def options(self, kind: str, owner: str, number: int) -> dict[str, Any]:
        """The options of the actor that goes into a slot."""
        index = self._bundles[kind, owner, number]
        slot = self._slots[index]
        return {
            "num_cpus": slot.cpus,
            "num_gpus": slot.gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=index, placement_group_capture_child_tasks=False
            ),
        }

    def remove(self) -> None:
        """Give the room back. Workers that are still there are killed."""
        remove_placement_group(self._group)


def reserve(slots: Sequence[Slot], config: TrainConfig) -> Placement:
    """Reserve the room for all slots, or for none.

    Raises:
        RunError: It was not free in time.
    """
    group = placement_group([slot.bundle for slot in slots], strategy=config.cluster.spread.upper())
    if not group.wait(config.cluster.start_timeout):
        remove_placement_group(group)
        raise RunError(
            f"The cluster had no room for {_amount(_total(slot.bundle for slot in slots))} within "
            f"{config.cluster.start_timeout:g} s; free are {_amount(ray.available_resources())}. Others may hold the "
            "rest: wait for them, or raise cluster.start_timeout"
        )
    return Placement(slots, group)


def _total(amounts: Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for amount in amounts:
        for name, n in amount.items():
            total[name] = total.get(name, 0.0) + n
    return total


def _amount(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"
