"""Whether learners and engines fit on devices, in three placements, and how long an update takes there.

* ``colocated``: every device holds a shard of every learner and a replica of every engine. Engines sleep (weights in
  the host's memory, no cache) while learners work; weights and moments of the learners stay.
* ``split``: learners on some devices, engines on the others.
* ``resident``: everything at once on one device, which is what a run without a cluster does, and the only one on a CPU.

Learners of several policies update one after the other, so their gradients and activations never exist at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainers.capacity.devices import GIB, Device, Pool, assumptions
from trainers.capacity.memory import EngineMemory, LearnerMemory, engine_memory, learner_memory
from trainers.capacity.steptime import StepTime, step_time
from trainers.capacity.workload import PolicyWork
from trainers.config import TrainConfig
from trainers.policy_config import LoraConfig

__all__ = ["Fit", "Phase", "Placement", "place", "placements", "remedies"]

CPU_KV_GIB = 1.0
"""Cache of a vLLM engine on a CPU (``VLLM_CPU_KVCACHE_SPACE``), as the policies set it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Which devices learn and which sample.

    Attributes:
        name: ``colocated``, ``split`` or ``resident``.
        learners: Devices of the learners.
        engines: Devices of the engines; those of the learners unless ``split``.
    """

    name: str
    learners: Pool
    engines: Pool


@dataclass(slots=True)
class Phase:
    """What one device holds at a time: named parts in bytes, and what it has in all."""

    name: str
    device: Device
    parts: dict[str, float]

    @property
    def need(self) -> float:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def room(self) -> float:
        """Bytes that can be allocated."""
        return self.device.memory * assumptions()["usable"]

    @property
    def over(self) -> float:
        """Bytes too many; 0 where it fits."""
        return max(0.0, self.need - self.room)


@dataclass(slots=True)
class Fit:
    """A placement with its memory and its time.

    Attributes:
        placement: The placement.
        learners: Memory of each learner, by policy.
        engines: Memory of each engine, by the policies that share it, joined by ``+``.
        phases: What a device holds, phase by phase.
        sequences: How many sequences each engine holds in its caches at once, over all replicas.
        utilization: ``gpu_memory_utilization`` that gives an engine its part; empty on a CPU.
        problems: Why it does not fit; empty where it does.
        time: Seconds of an update; None where it does not fit.
    """

    placement: Placement
    learners: dict[str, LearnerMemory]
    engines: dict[str, EngineMemory]
    phases: list[Phase]
    sequences: dict[str, float] = field(default_factory=dict)
    utilization: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    time: StepTime | None = None


def placements(pools: Sequence[Pool]) -> list[Placement]:
    """The placements that are looked at: of one pool every split, of two pools learners on the first."""
    first = pools[0]
    if not first.device.gpu:
        return [Placement("resident", first, first)]
    if len(pools) == 1:
        found = [Placement("resident", first, first)] if first.count == 1 else []
        found.append(Placement("colocated", first, first))
        found += [
            Placement("split", Pool(k, first.device), Pool(first.count - k, first.device))
            for k in range(1, first.count)
            if k in (1, first.count // 4, first.count // 2, 3 * first.count // 4, first.count - 1)
        ]
        return found
    return [Placement("split", pools[0], pools[1])]


def _engine_groups(works: Sequence[PolicyWork]) -> dict[str, list[PolicyWork]]:
    """The policies of each engine: adapters on the same base with the same options share one."""
    groups: dict[tuple[str, ...], list[PolicyWork]] = {}
    for work in works:
        policy = work.policy
        options = {name: value for name, value in policy.engine.items() if name != "chat_template_kwargs"}
        alone = () if policy.lora is not None and policy.backend == "vllm" else (work.name,)
        key = (str(policy.model), policy.backend, repr(sorted(options.items())), *alone)
        groups.setdefault(key, []).append(work)
    return {"+".join(work.name for work in members): members for members in groups.values()}


def place(config: TrainConfig, works: Sequence[PolicyWork], placement: Placement) -> Fit:
    """Count the memory of a placement, find what does not fit, and else how long an update takes."""
    algorithm = config.algorithm.build()
    gpu = placement.engines.device.gpu
    trained = [work for work in works if work.policy.trainable]
    shards = placement.learners.count
    # In one process the frozen weights under several adapters are kept once (trainers.lora.Bases).
    once = placement.name == "resident"
    bases: set[str] = set()
    learners = {}
    for work in trained:
        model = str(work.policy.model)
        learners[work.name] = learner_memory(
            work.shape,
            work.policy,
            gpu=gpu,
            shards=shards,
            agents=len(work.agents),
            longest=work.longest,
            reference=algorithm.kl_in_reward > 0 or config.loss_of(work.name).kl_coef > 0,
            critic=algorithm.critic,
            with_base=not (once and model in bases),
        )
        if work.policy.lora is not None:
            bases.add(model)
    groups = _engine_groups(works)
    engines = {}
    for name, members in groups.items():
        width = int(members[0].policy.engine.get("tensor_parallel_size", 1))
        replicas = max(1, placement.engines.count // width)
        adapted = [work.policy.lora.rank for work in members if work.policy.lora is not None]
        engines[name] = engine_memory(
            members[0].shape,
            members[0].policy,
            gpu=gpu,
            tensor_parallel=width,
            adapters=len(adapted),
            rank=2 ** max(3, math.ceil(math.log2(max(adapted, default=1)))),
            longest=max(work.longest for work in members),
            sequences=sum(work.sequences for work in members) / replicas,
            expected=max(work.prompt + work.completion for work in members),
        )
    fit = Fit(placement, learners, engines, [])
    for members in groups.values():
        width = int(members[0].policy.engine.get("tensor_parallel_size", 1))
        if width > placement.engines.count:
            fit.problems.append(
                f"policies.{members[0].name}.engine.tensor_parallel_size is {width}, the engines have "
                f"{placement.engines.count} devices: lower it, or give more devices"
            )
    _phases(fit, groups)
    if not fit.problems:
        fit.time = step_time(
            config, works, placement.name, placement.learners, placement.engines, fit.sequences, groups
        )
    return fit


def _phases(fit: Fit, groups: Mapping[str, list[PolicyWork]]) -> None:
    """Lay out what a device holds, give the rest to the caches, and say what is too big."""
    placement, process = fit.placement, assumptions()["process_gib"] * GIB
    shared = placement.name != "split"
    gpu = placement.engines.device.gpu
    resident = {f"{name}: weights and optimiser": memory.resident for name, memory in fit.learners.items()}
    busiest = max(fit.learners, key=lambda name: fit.learners[name].transient, default=None)
    working = {} if busiest is None else {
        f"{busiest}: gradients": fit.learners[busiest].gradients + fit.learners[busiest].copies,
        f"{busiest}: activations": fit.learners[busiest].transient
        - fit.learners[busiest].gradients
        - fit.learners[busiest].copies,
    }  # fmt: skip
    awake = {f"{name}: engine": memory.fixed for name, memory in fit.engines.items()}
    runtime = {"processes": process * ((len(fit.engines) if shared else 0) + 1)} if gpu else {}
    engine_side = {**awake, **({"processes": process * len(fit.engines)} if gpu and not shared else runtime)}
    if shared:
        engine_side |= resident
    extra = working if placement.name == "resident" else {}
    sampling = Phase("sampling", placement.engines.device, {**engine_side, **extra})
    _caches(fit, sampling, groups)
    learning_parts = {**runtime, **resident, **working}
    learning = Phase("learning", placement.learners.device, learning_parts)
    fit.phases = [sampling] if placement.name == "resident" else [sampling, learning]
    for phase in fit.phases:
        if phase.over:
            name, size = max(phase.parts.items(), key=lambda item: item[1])
            fit.problems.append(
                f"{phase.name} needs {phase.need / GIB:.1f} GiB on each {phase.device.name}, which has "
                f"{phase.room / GIB:.1f}: {phase.over / GIB:.1f} too many. The largest part is {name} with "
                f"{size / GIB:.1f}"
            )


def _caches(fit: Fit, phase: Phase, groups: Mapping[str, list[PolicyWork]]) -> None:
    """Give each engine's cache what it is set to, or an even share of what is left, and no more than it can use."""
    free = phase.room - phase.need
    gpu = phase.device.gpu
    for name, memory in fit.engines.items():
        members = groups[name]
        set_to = members[0].policy.engine.get("gpu_memory_utilization") if gpu else None
        width = int(members[0].policy.engine.get("tensor_parallel_size", 1))
        replicas = max(1, fit.placement.engines.count // width)
        if set_to is not None:
            cache = float(set_to) * phase.device.memory - memory.fixed
        elif not gpu and members[0].policy.backend == "vllm":
            cache = CPU_KV_GIB * GIB
        else:
            cache = min(memory.kv_wanted, max(0.0, free) / len(fit.engines))
            cache = max(cache, memory.kv_sequence)
        if cache < memory.kv_sequence:
            fit.problems.append(
                f"policies.{members[0].name}: the engine's cache has {max(0.0, cache) / GIB:.2f} GiB, and one sequence "
                f"of max_model_len takes {memory.kv_sequence / GIB:.2f}: lower engine.max_model_len, or raise "
                "engine.gpu_memory_utilization"
            )
        cache = max(0.0, cache)
        phase.parts[f"{name}: cache"] = cache
        expected = min(max(work.prompt + work.completion for work in members), max(work.longest for work in members))
        fit.sequences[name] = replicas * max(1.0, cache / (memory.kv_token * expected))
        if gpu:
            share = (memory.fixed + cache) / phase.device.memory
            fit.utilization[name] = math.ceil(100 * share) / 100


def remedies(config: TrainConfig, works: Sequence[PolicyWork], placement: Placement) -> list[str]:
    """Changes of which each by itself makes the placement fit; the settings to try together where none does."""

    def changed(**update: object) -> list[PolicyWork]:
        return [replace(work, policy=work.policy.model_copy(update=update)) for work in works]

    tries: list[tuple[str, Sequence[PolicyWork]]] = []
    if any("gpu_memory_utilization" in work.policy.engine for work in works):
        tries.append(("policies.*.engine.gpu_memory_utilization={share}", [_unset(work) for work in works]))
    if not all(work.policy.gradient_checkpointing for work in works):
        tries.append(("policies.*.gradient_checkpointing=true", changed(gradient_checkpointing=True)))
    longest = max(work.longest for work in works)
    if any(work.policy.micro_batch_tokens > longest for work in works):
        text = f"policies.*.micro_batch_tokens={longest} (the longest turn)"
        tries.append((text, changed(micro_batch_tokens=longest)))
    if any(work.policy.lora is None and work.policy.trainable for work in works):
        text = "policies.*.lora.rank=16 (adapters in the place of all weights)"
        tries.append((text, changed(lora=LoraConfig())))
    found = []
    for text, other in tries:
        fit = place(config, other, placement)
        if not fit.problems:
            found.append(text.format(share=min(fit.utilization.values(), default=0.0)))
    if not found and tries:
        found.append("perhaps several of: " + "; ".join(text.partition("=")[0] for text, _ in tries))
    return found + _more_devices(config, works, placement)


def _more_devices(config: TrainConfig, works: Sequence[PolicyWork], placement: Placement) -> list[str]:
    if not placement.engines.device.gpu:
        return []
    name = "colocated" if placement.name == "resident" else placement.name
    for factor in (1, 2, 4, 8, 16):
        pools = [Pool(factor * pool.count, pool.device) for pool in (placement.learners, placement.engines)]
        if (factor > 1 or name != placement.name) and not place(config, works, Placement(name, *pools)).problems:
            return [f"{factor} times the devices, {name}" if factor > 1 else name]
    return []


def _unset(work: PolicyWork) -> PolicyWork:
    engine = {name: value for name, value in work.policy.engine.items() if name != "gpu_memory_utilization"}
    return replace(work, policy=work.policy.model_copy(update={"engine": engine}))
