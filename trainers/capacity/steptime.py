"""Seconds of an update, part by part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainers.capacity.devices import Device, Pool, assumptions
from trainers.capacity.timing import decode_features, prefill_features, rates_of, update_features
from trainers.capacity.workload import PolicyWork
from trainers.config import TrainConfig

__all__ = ["PROBES", "PROBE_TOKENS", "StepTime", "engine_limits", "step_time"]

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
    prompts = prefill_features(work.shape, read, work.prompt, math.ceil(read / rows))
    single = rates.decode.seconds(decode_features(work.shape, 1, context, width)) / tensor_parallel
    turns = work.turns / max(work.sequences, 1.0)
    return (
        rates.prefill.seconds(prompts) / tensor_parallel,
        step * steps,
        single * work.completion * min(turns, len(work.agents) or 1),
        rates.measured,
    )


def _update(config: TrainConfig, work: PolicyWork, learners: Pool) -> float:
    policy, shape, n = work.policy, work.shape, learners.count
    rates = rates_of(learners.device, policy.backend)
    tokens = policy.epochs * work.update_tokens / n
    longest = max(policy.micro_batch_tokens, min(work.longest, work.prompt + work.completion))
    passes = math.ceil(tokens / longest)
    trained = shape.parameters if policy.lora is None else shape.lora_parameters(policy.lora.rank)
    loss = config.loss_of(work.name)
    steps = policy.epochs * policy.minibatches
    again = (1.0 if steps > 1 and loss.needs_old_logprobs else 0.0) + (1.0 if loss.kl_coef > 0 else 0.0)
    what = update_features(
        shape,
        tokens=tokens,
        length=work.prompt + work.completion,
        predicted=policy.epochs * work.turns * work.completion / n,
        passes=passes,
        steps=steps,
        trained=trained / n,
        recompute=policy.gradient_checkpointing,
        lora=policy.lora is not None,
        again=again / policy.epochs,
    )
    computing = rates.update.seconds(what)
    if n == 1 or not learners.device.gpu:
        return computing
    # Every micro-batch gathers bfloat16 weights twice and scatters float32 gradients once, beside the computation.
    moved = passes * (n - 1) / n * (2 * 2 * shape.parameters + 4 * trained)
    return max(computing, moved / (learners.device.link * assumptions()["link_bandwidth"]))


def _sync(work: PolicyWork, placement: str, device: Device, engines: Pool) -> float:
    """Weights through the slowest link on their way once; engines that slept also lose and get theirs."""
    shape, lora = work.shape, work.policy.lora
    size = 2.0 * (shape.parameters if lora is None else shape.lora_parameters(lora.rank))
    if not device.gpu:
        return 2 * size * rates_of(device, work.policy.backend).update.per_byte * 2  # float32, read and written
    share = assumptions()["link_bandwidth"]
    link = min(device.link, engines.device.link)
    if placement == "split" and device.name != engines.device.name:
        link = min(device.host_link, engines.device.host_link)
    seconds = size / (link * share)
    if placement == "colocated":
        seconds += 2 * 2.0 * shape.parameters / (device.host_link * share)
    return seconds


def _verify(work: PolicyWork, device: Device) -> float:
    rates = rates_of(device, work.policy.backend)
    rows, width = PROBES * max(1, len(work.agents)), 2 if device.gpu else 4
    written = PROBE_TOKENS * rates.decode.seconds(decode_features(work.shape, rows, work.prompt, width))
    # The sampler reads the prompts, and the learner one turn after the other.
    return written + 2 * rates.prefill.seconds(prefill_features(work.shape, rows, work.prompt, rows))
