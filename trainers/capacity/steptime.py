"""Seconds of an update, part by part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainers.capacity.devices import Device, Pool, assumptions
from trainers.capacity.shapes import ModelShape
from trainers.capacity.timing import Rates, decode_features, prefill_features, rates_of, update_features
from trainers.capacity.workload import PolicyWork
from trainers.config import TrainConfig

__all__ = ["PROBES", "PROBE_TOKENS", "StepTime", "between", "engine_limits", "learner_seconds", "step_time"]

PROBES = 2
"""Tasks whose first prompts are compared after a sync: ``trainers.proving.PROBE_TASKS``."""
PROBE_TOKENS = 16
"""Tokens of each of these answers: ``trainers.members.PROOF_TOKENS``."""

_VLLM_SEQUENCES = 256  # vLLM's max_num_seqs unless it is set
_HF_BATCH = 64  # HFPolicy's max_batch


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one update.

    Attributes:
        prefill: Reading prompts.
        decode: Writing answers. Where episodes are so few that devices wait for the longest, that wait.
        update: Forward and backward passes and optimiser steps.
        sync: Bringing weights to the engines; waking them and putting them to sleep.
        verify: The proof that they arrived, divided by ``verify_every``.
        measured: Whether the model is fitted to measured points.
    """

    prefill: float
    decode: float
    update: float
    sync: float
    verify: float
    measured: bool

    @property
    def total(self) -> float:
        """All of it."""
        return self.prefill + self.decode + self.update + self.sync + self.verify

    def parts(self) -> dict[str, float]:
        """Seconds by part."""
        return {name: getattr(self, name) for name in ("prefill", "decode", "update", "sync", "verify")}


def engine_limits(work: PolicyWork) -> int:
    """Most sequences of a batch of one engine."""
    if work.policy.backend == "vllm":
        return int(work.policy.engine.get("max_num_seqs", _VLLM_SEQUENCES))
    return int(work.policy.engine.get("max_batch", _HF_BATCH))


def step_time(
    config: TrainConfig,
    works: Sequence[PolicyWork],
    placement: str,
    learners: Pool,
    engines: Pool,
    sequences: Mapping[str, float],
    groups: Mapping[str, Sequence[PolicyWork]],
) -> StepTime:
    """Return the seconds of an update.

    Engines of several policies on one device share its time, and learners update one after the other on all of theirs.

    Args:
        config: The run.
        works: What each policy does.
        placement: ``colocated``, ``split`` or ``resident``.
        learners: Devices of the learners.
        engines: Devices of the engines.
        sequences: Sequences that fit in the caches, by engine.
        groups: The policies of each engine.
    """
    prefill = decode = update = sync = verify = 0.0
    alone = 0.0
    measured = True
    for name, members in groups.items():
        for work in members:
            part = _sampling(work, engines, sequences[name])
            prefill, decode = prefill + part[0], decode + part[1]
            alone += part[2]
            measured = measured and part[3]
    for work in works:
        if not work.policy.trainable:
            continue
        update += _update(config, work, learners)
        sync += _sync(work, placement, learners.device, engines)
        verify += _verify(work, engines.device) / config.verify_every
    return StepTime(prefill, max(decode, alone), update, sync, verify, measured)


def _sampling(work: PolicyWork, engines: Pool, sequences: float) -> tuple[float, float, float, bool]:
    """Seconds of prefill, of decoding, and of the answers of one episode after the other with nothing beside it."""
    rates = rates_of(engines.device, work.policy.backend)
    tensor_parallel = int(work.policy.engine.get("tensor_parallel_size", 1))
    replicas = max(1, engines.count // tensor_parallel)
    width = 2 if engines.device.gpu else 4
    rows = max(1.0, min(work.sequences, sequences, engine_limits(work) * replicas) / replicas)
    context = work.prompt + work.completion / 2
    step = rates.decode.seconds(decode_features(work.shape, rows, context, width)) / tensor_parallel
    steps = work.turns * work.completion / replicas / rows
    read = work.turns / replicas
    prompts = prefill_features(work.shape, read, work.prompt, math.ceil(read / rows), half=engines.device.gpu)
    single = rates.decode.seconds(decode_features(work.shape, 1, context, width)) / tensor_parallel
    turns = work.turns / max(work.sequences, 1.0)
    return (
        rates.prefill.seconds(prompts) / tensor_parallel,
        step * steps,
        single * work.completion * min(turns, len(work.agents) or 1),
        rates.measured,
    )


def learner_seconds(
    shape: ModelShape,
    rates: Rates,
    learners: Pool,
    *,
    tokens: float,
    length: float,
    predicted: float,
    micro_batch_tokens: float,
    steps: float,
    trained: float,
    recompute: bool,
    lora: bool,
    again: float = 0.0,
) -> float:
    """Seconds of an update that is divided among devices, weights and moments sharded over all of them.

    Every micro-batch gathers bfloat16 weights twice and scatters float32 gradients once; that goes on beside the
    computation, so the longer of the two counts.

    Args:
        shape: The model.
        rates: What a device does.
        learners: The devices.
        tokens: Tokens that are computed, over all devices and epochs.
        length: Mean tokens of a turn.
        predicted: Completion tokens among ``tokens``.
        micro_batch_tokens: Tokens of a forward pass of a device.
        steps: Optimiser steps.
        trained: Parameters that are trained.
        recompute: Whether layers are computed again in the backward pass.
        lora: Whether only adapters are trained.
        again: Forward passes without gradient over all tokens.
    """
    n = learners.count
    passes = math.ceil(tokens / n / micro_batch_tokens)
    what = update_features(
        shape,
        tokens=tokens / n,
        length=length,
        predicted=predicted / n,
        passes=passes,
        steps=steps,
        trained=trained / n,
        recompute=recompute,
        lora=lora,
        again=again,
        half=learners.device.gpu,
    )
    computing = rates.update.seconds(what)
    if n == 1:
        return computing
    moved = passes * (n - 1) / n * (2 * 2 * shape.parameters + 4 * trained)
    return max(computing, moved / between(learners.device, n))


def between(device: Device, devices: int) -> float:
    """Bytes/s that each of ``devices`` devices exchanges with the others: its link, or the network between machines."""
    share = assumptions()
    peak = device.link if devices <= share["machine_devices"] else min(device.link, share["network_gb_s"] * 1e9)
    return peak * share["link_bandwidth"]


def _update(config: TrainConfig, work: PolicyWork, learners: Pool) -> float:
    policy, shape = work.policy, work.shape
    loss, steps = config.loss_of(work.name), policy.epochs * policy.minibatches
    again = (1.0 if steps > 1 and loss.needs_old_logprobs else 0.0) + (1.0 if loss.kl_coef > 0 else 0.0)
    return learner_seconds(
        shape,
        rates_of(learners.device, policy.backend),
        learners,
        tokens=policy.epochs * work.update_tokens,
        length=work.prompt + work.completion,
        predicted=policy.epochs * work.turns * work.completion,
        micro_batch_tokens=max(policy.micro_batch_tokens, work.prompt + work.completion),
        steps=steps,
        trained=shape.parameters if policy.lora is None else shape.lora_parameters(policy.lora.rank),
        recompute=policy.gradient_checkpointing,
        lora=policy.lora is not None,
        again=again / policy.epochs,
    )


def _sync(work: PolicyWork, placement: str, device: Device, engines: Pool) -> float:
    """Weights through the slowest link on their way once; engines that slept also lose and get theirs."""
    shape, lora = work.shape, work.policy.lora
    size = 2.0 * (shape.parameters if lora is None else shape.lora_parameters(lora.rank))
    if not device.gpu:
        return 2 * size * rates_of(device, work.policy.backend).update.per_byte * 2  # float32, read and written
    share = assumptions()["link_bandwidth"]
    link = between(device, engines.count + 1)
    if device.name != engines.device.name:  # which are in different machines
        link = min(link, between(engines.device, int(assumptions()["machine_devices"]) + 1))
    seconds = size / link
    if placement == "colocated":
        seconds += 2 * 2.0 * shape.parameters / (device.host_link * share)
    return seconds


def _verify(work: PolicyWork, device: Device) -> float:
    rates = rates_of(device, work.policy.backend)
    rows, width = PROBES * max(1, len(work.agents)), 2 if device.gpu else 4
    written = PROBE_TOKENS * rates.decode.seconds(decode_features(work.shape, rows, work.prompt, width))
    # The sampler reads the prompts, and the learner one turn after the other.
    return written + 2 * rates.prefill.seconds(prefill_features(work.shape, rows, work.prompt, rows, half=device.gpu))
