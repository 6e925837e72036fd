"""What is checked of the policies of a run before any of them is loaded."""

from __future__ import annotations

from trainers.config import ConfigError, PolicyConfig, TrainConfig
from trainers.kernels import check_kernels
from trainers.policies.base import PolicySpecError

__all__ = ["check_devices", "check_policies", "check_transfers"]

_LORA_OPTIONS = ("enable_lora", "max_loras", "max_lora_rank")


def check_policies(config: TrainConfig) -> None:
    """Check what can be known of the policies without loading them.

    Raises:
        ConfigError: Settings that contradict each other or would have no effect.
    """
    for name, policy in config.policies.items():
        loss = config.loss_of(name)
        where = f"policies.{name}"
        ours = ["name", "model", "system_prompt", *(["share"] if policy.backend == "vllm" else [])]
        ours += _LORA_OPTIONS if policy.backend == "vllm" and policy.lora is not None else ()
        for option in ours:
            if option in policy.engine:
                raise ConfigError(
                    f"{where}.engine.{option} cannot be set: it follows from the other settings of {where}"
                )
        if policy.backend == "vllm":
            _check_sent(where, policy)
        if not policy.trainable:
            if policy.loss:
                raise ConfigError(f"{where} is frozen, so its loss has no effect. Drop one of them.")
            if policy.lora is not None:
                raise ConfigError(f"{where} is frozen and has a lora: nothing would ever train it. Drop one of them.")
            continue
        sampling = policy.sampling
        if sampling.temperature < 1e-5:  # which samplers take for greedy
            raise ConfigError(
                f"{where}.sampling.temperature is {sampling.temperature:g}: a policy that learns must be "
                "sampled, not greedy."
            )
        if (sampling.top_p < 1 or sampling.top_k != -1) and loss.needs_sampler_logprobs:
            raise ConfigError(
                f"{where}.sampling cuts the distribution (top_p {sampling.top_p}, top_k {sampling.top_k}), so the "
                "sampler's log-probs are not the learner's. Use top_p 1 and top_k -1, or set "
                "algorithm.loss.importance=off and reference=learner."
            )


def check_devices(config: TrainConfig) -> None:
    """Check that this process has the GPU that settings of its learners ask for.

    Raises:
        ConfigError: It has none.
    """
    import torch

    for name, policy in config.policies.items():
        if not policy.trainable:
            continue
        check_kernels(f"policies.{name}.kernels", policy.kernels)
        transfer = policy.engine.get("transfer")
        if transfer in ("ipc", "nccl") and not torch.cuda.is_available():
            raise ConfigError(
                f"policies.{name}.engine.transfer is {transfer!r}, a way between GPUs, and there is none. Drop it"
            )


def check_transfers(config: TrainConfig) -> None:
    """Check how new weights are to reach vLLM's engines where learners are in this process.

    Raises:
        ConfigError: They cannot.
    """
    for name, policy in config.policies.items():
        setting = _transfer_setting(policy)
        if policy.backend != "vllm" or setting is None:
            continue
        from trainers.policies.vllm import check_transfer

        where = f"policies.{name}.engine"
        kind, transfer = policy.engine.get("engine", "local"), policy.engine.get("transfer", "auto")
        try:
            check_transfer(kind, transfer, policy.engine.get("transfer_timeout", 1))
        except PolicySpecError as problem:
            raise ConfigError(f"{where}.{setting}: {problem}") from problem
        if "transfer_timeout" in policy.engine and (kind == "local" or transfer == "folder"):
            raise ConfigError(f"{where}.transfer_timeout has no effect: no other process is waited for. Drop it.")


def _check_sent(where: str, policy: PolicyConfig) -> None:
    """Check that new full weights are sent to a policy's engine at all, if it is said how.

    Raises:
        ConfigError: They are not.
    """
    setting = _transfer_setting(policy)
    if setting is not None and (not policy.trainable or policy.lora is not None):
        what = "has a lora, whose adapters are sent as files" if policy.trainable else "is frozen"
        raise ConfigError(f"{where}.engine.{setting} has no effect: {where} {what}. Drop one of them.")


def _transfer_setting(policy: PolicyConfig) -> str | None:
    """The first option of a policy that says how new weights are sent."""
    return next((option for option in ("transfer", "transfer_timeout") if option in policy.engine), None)
