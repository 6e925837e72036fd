"""The policies of a training run: of each the sampler that plays, the learner that trains, and the way between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.algorithms.loss_config import LossConfig
from trainers.checkpoint import State
from trainers.config import ConfigError, PolicyConfig, TrainConfig
from trainers.critic import Critic
from trainers.kernels import apply_kernels, check_kernels
from trainers.learner import Learner
from trainers.learner_api import PolicyCritic, PolicyLearner
from trainers.learner_config import LearnerConfig
from trainers.lora import Bases
from trainers.models import resolve_model
from trainers.policies.base import Policy, make_policy
from trainers.policy_checks import check_policies, check_transfers
from trainers.policy_config import LEARNING, engine_key
from trainers.ranks import Ranks
from trainers.scheduling.binding import bind_learners
from trainers.team import Team
from trainers.weight_sync import SyncReport, WeightSync, make_sync

logger = logging.getLogger(__name__)

PROOF_TOKENS = 16
"""Tokens of a completion in the proof that a sampler holds the learner's weights, unless sampling ends earlier."""


@dataclass(slots=True)
class Member:
    """One policy of the run.

    Attributes:
        name: Its name in the configuration.
        config: Its settings.
        policy: What plays.
        learner: What trains; None where the policy is frozen.
        critic: What values the states it meets; None where the algorithm has none, or the policy is frozen.
        sync: Brings the learner's weights to ``policy``; None where the policy is frozen.
    """

    name: str
    config: PolicyConfig
    policy: Policy
    learner: PolicyLearner | None = None
    critic: PolicyCritic | None = None
    sync: WeightSync | None = None

    def state_dict(self) -> State:
        """What a checkpoint holds of it: the learner's state, with the critic's as ``critic``."""
        state: State = {} if self.learner is None else self.learner.state_dict()
        if self.critic is None or callable(state):
            return state
        return {**state, "critic": self.critic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any] | Path) -> None:
        """Restore what :meth:`state_dict` returned, or what several processes wrote into a folder.

        Raises:
            KeyError: The state is that of a run without a critic.
            ValueError: The weights are those of another model, or the folder is that of a run without a critic.
        """
        if self.critic is not None:
            self.critic.load_state_dict(state if isinstance(state, Path) else state["critic"])
        if self.learner is not None:
            self.learner.load_state_dict(state)

    async def push(self, version: int, source: Any = None) -> None:
        """Give the sampler the learner's weights, as ``version``. A frozen policy keeps its own.

        Args:
            version: Their version.
            source: What :meth:`set_aside` has returned, if not the weights that the learner has now.
        """
        if self.sync is not None and self.learner is not None:
            await self.sync.push(self.learner if source is None else source, version)

    async def set_aside(self) -> Any:
        """Copy the learner's weights for a later :meth:`push`."""
        assert self.sync is not None and self.learner is not None  # noqa: S101, PT018  (for the type checker)
        return await self.sync.set_aside(self.learner)

    async def verify(self, prompts: Sequence[str], tolerance: float, seed: int) -> SyncReport | None:
        """Prove that the sampler holds the learner's weights; None where the policy is frozen.

        Compared are the log-probs that an update computes (same code, precision and temperature) with the sampler's. A
        temperature below 1 stretches log-probs, and their rounding, by its inverse; so it does ``tolerance``.

        Raises:
            WeightSyncError: It does not; the message names the layer group.
        """
        if self.learner is None or self.sync is None:
            return None
        sampling = self.config.sampling.build()
        return await self.sync.verify(
            self.learner,
            tolerance=tolerance / min(1.0, sampling.temperature),
            prompts=prompts,
            sampling=sampling,
            max_tokens=min(PROOF_TOKENS, self.config.sampling.max_tokens),
            seed=seed,
        )

    async def close(self) -> None:
        """Stop the sampler and remove what the sync left on disk."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.policy.close)
            if self.sync is not None:
                stack.push_async_callback(self.sync.close)


async def build_members(config: TrainConfig, scratch: Path) -> dict[str, Member]:
    """Load every policy of the configuration: sampler, learner and sync. If one fails, those before it are closed.

    Args:
        config: The configuration.
        scratch: Where adapters lie for a sampler to read; made when it is needed. A folder of the run's own, since one
            among the system's temporary files would stay there for ever when the run is killed.

    Raises:
        ConfigError: Settings that do not fit each other or the model.
    """
    check_policies(config)
    check_transfers(config)
    if config.serving.mode == "split":
        bind_learners(config)
    loras = loras_by_engine(config.policies)
    bases = Bases()
    members: dict[str, Member] = {}
    try:
        for name, policy in config.policies.items():
            sampler = make_policy(
                policy.spec, **{**sampler_options(policy, loras), **config.serving.options(name, policy)}
            )
            members[name] = Member(name, policy, sampler)
            _keep_to_one_thread(sampler)
            if policy.trainable:
                members[name].learner, members[name].critic = build_learner(name, config, bases=bases)
                members[name].sync = make_sync(sampler, lora=policy.lora is not None, folder=scratch / name)
    except BaseException:
        await close_members(members)
        raise
    return members


def _keep_to_one_thread(sampler: Policy) -> None:
    """Let a tiny model of this process sample with one thread, unless its options say otherwise.

    Learners have OpenMP threads of their own. Beside them those of a sampler take longer to meet, a few times in each
    layer, than a tiny model has to compute in between: its linear layers take four times as long with two threads.
    """
    from trainers.policies.hf import HFPolicy

    if isinstance(sampler, HFPolicy) and sampler.threads is None and sampler.tiny:
        sampler.threads = 1


async def close_members(members: Mapping[str, Member]) -> None:
    """Close all of them. One that fails to is logged: it must neither keep the others open nor hide why a run ended."""
    results = await asyncio.gather(*(member.close() for member in members.values()), return_exceptions=True)
    for name, result in zip(members, results, strict=True):
        if isinstance(result, BaseException):
            logger.error("Policy %r could not be closed: %s", name, result, exc_info=result)


def build_team(config: TrainConfig, members: Mapping[str, Member]) -> Team:
    """The team that plays: every role with its policy and sampling settings."""
    return Team(
        policies={name: member.policy for name, member in members.items()},
        roles=config.role_map(),
        sampling={name: member.config.sampling.build() for name, member in members.items()},
    )


def build_loss(name: str, config: TrainConfig) -> LossConfig:
    """The loss of a policy, with the length of its completions filled in."""
    return config.loss_of(name).with_max_tokens(config.policies[name].sampling.max_tokens)


def build_learner(
    name: str,
    config: TrainConfig,
    ranks: Ranks | None = None,
    bases: Bases | None = None,
    *,
    with_critic: bool = True,
) -> tuple[Learner, Critic | None]:
    """Load the model of a policy and what trains it.

    Args:
        name: The policy.
        config: The configuration.
        ranks: How learner and critic are divided over processes; not at all if not given.
        bases: Weights in memory that the frozen part of a policy with an adapter is taken from, or added to.
        with_critic: Build the critic too, if the algorithm has one.

    Raises:
        ConfigError: Settings that do not fit the model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    policy = config.policies[name]
    check_kernels(f"policies.{name}.kernels", policy.kernels)
    on_gpu = torch.cuda.is_available()
    bfloat16 = on_gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    # Weights that are trained are kept in float32 on a GPU too, so they are not read in less.
    half = bfloat16 and policy.lora is not None
    model = AutoModelForCausalLM.from_pretrained(
        str(resolve_model(str(policy.model))), dtype=torch.bfloat16 if half else torch.float32
    )
    if on_gpu:
        model = model.cuda()
    if bases is not None and policy.lora is not None:
        bases.share(str(policy.model), model)
    apply_kernels(f"policies.{name}.kernels", model, policy.kernels)
    steps = policy.epochs * policy.minibatches
    settings = LearnerConfig(
        lr=policy.learning_rate,
        betas=policy.betas,
        weight_decay=policy.weight_decay,
        max_grad_norm=policy.max_grad_norm,
        schedule=policy.schedule,
        warmup_steps=policy.warmup_updates * steps,
        total_steps=None if policy.schedule == "constant" else config.updates_of(name) * steps,
        min_lr_ratio=policy.final_learning_rate,
        minibatch_by=policy.minibatch_by,
        packing=policy.packing,
        micro_batch_tokens=policy.micro_batch_tokens,
        temperature=policy.sampling.temperature,
        gradient_checkpointing=policy.gradient_checkpointing,
        dtype="bfloat16" if bfloat16 else "float32",
        seed=config.seed,
    )
    lora = None
    if policy.lora is not None:
        lora = {
            "r": policy.lora.rank,
            "lora_alpha": policy.lora.alpha,
            "lora_dropout": policy.lora.dropout,
            "target_modules": policy.lora.target_modules,
        }
    algorithm = config.algorithm.build()
    critic = None
    if algorithm.critic is not None and with_critic:  # before the learner puts adapters on the model
        critic = Critic(
            model,
            algorithm.critic,
            name=name,
            micro_batch_tokens=settings.micro_batch_tokens,
            dtype=settings.dtype,
            seed=settings.seed,
            ranks=ranks,
        )
    loss = build_loss(name, config)
    try:
        return Learner(model, settings, loss, lora=lora, reference=algorithm.kl_in_reward > 0, ranks=ranks), critic
    except ValueError as problem:  # target modules that the model has not, say
        raise ConfigError(f"policies.{name}: {problem}") from problem


def sampler_options(policy: PolicyConfig, loras: Mapping[tuple[str, str], list[PolicyConfig]]) -> dict[str, Any]:
    """The options that the sampler of a policy is made with; ``loras`` is what :func:`loras_by_engine` returns."""
    if policy.scripted:
        return dict(policy.engine)
    options: dict[str, Any] = {"system_prompt": policy.system_prompt, **policy.engine}
    if policy.backend != "vllm":
        return options
    if policy.lora is None:
        # Weights that are trained in full belong to one policy alone.
        return {**options, "share": not policy.trainable}
    sharing = loras[engine_key(policy)]
    rank = max(p.lora.rank for p in sharing if p.lora is not None)
    return {
        **options,
        "enable_lora": True,
        "max_loras": len(sharing) + 1,  # the new version of an adapter is loaded beside the old one
        "max_lora_rank": 2 ** max(3, math.ceil(math.log2(rank))),  # vLLM takes powers of two from 8 on
    }


def loras_by_engine(policies: Mapping[str, PolicyConfig]) -> dict[tuple[str, str], list[PolicyConfig]]:
    """The adapters that share an engine: same base model and same engine options."""
    groups: dict[tuple[str, str], list[PolicyConfig]] = {}
    for policy in policies.values():
        if policy.backend == "vllm" and policy.lora is not None:
            groups.setdefault(engine_key(policy), []).append(policy)
    return groups


def with_backend(config: TrainConfig, backend: str) -> TrainConfig:
    """The same run with every model sampled by ``backend``; engine options of another back end are dropped.

    What plays without a model of ours (a server, a script) stays what it is.
    """
    policies = {
        name: policy
        if policy.backend == backend or policy.backend not in LEARNING
        else policy.model_copy(update={"backend": backend, "engine": {}})
        for name, policy in config.policies.items()
    }
    return config.model_copy(update={"policies": policies})
