"""How the engines of a run in one process share its devices with the learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from trainers.config_checks import Section
from trainers.policy_config import PolicyConfig, engine_key
from trainers.recipe_files import ConfigError

if TYPE_CHECKING:
    from trainers.config import TrainConfig

__all__ = ["ServingConfig", "check_serving"]


class ServingConfig(Section):
    """Where engines are while learners work. The same turns are sampled and the same updates made in every mode.

    Attributes:
        mode: ``resident``: engines and learners hold what they have all the time. ``colocated``: vLLM's engines sleep
            while learners work, on the same devices. ``split``: engines on devices of their own, ``devices``.
        sleep_level: In ``colocated``: 1 frees the caches and moves the weights of engines to main memory; 2 discards
            them, and the new ones of the update take their place.
        devices: In ``split``: the devices of each policy that vLLM samples, numbers of GPUs, or of cores on a CPU.
            Learners have the rest.
    """

    mode: Literal["resident", "colocated", "split"] = "resident"
    sleep_level: Literal[1, 2] = 1
    devices: dict[str, list[int]] = Field(default_factory=dict)

    def options(self, name: str, policy: PolicyConfig) -> dict[str, Any]:
        """The options of the sampler of a policy, beside its own."""
        if policy.backend != "vllm" or self.mode == "resident":
            return {}
        if self.mode == "colocated":
            return {"enable_sleep_mode": True}
        return {"engine": "async", "devices": tuple(self.devices[name])}


def check_serving(config: TrainConfig) -> None:
    """Check that engines can do what ``serving`` says, and that none of its settings is without effect.

    Raises:
        ConfigError: They cannot, or one is.
    """
    serving = config.serving
    for name, policy in config.policies.items():
        for option in ("enable_sleep_mode", "devices"):
            if policy.backend == "vllm" and option in policy.engine:
                raise ConfigError(f"policies.{name}.engine.{option} cannot be set: it follows from serving.mode")
    served = [name for name, policy in config.policies.items() if policy.backend == "vllm"]
    if serving.mode != "resident" and not served:
        raise ConfigError(f"serving.mode is {serving.mode!r}, but no policy has the back end vllm: drop it")
    if serving.mode != "colocated" and serving.sleep_level != 1:
        raise ConfigError(
            f"serving.sleep_level has no effect with serving.mode={serving.mode}: drop it, or use colocated"
        )
    if serving.mode == "colocated":
        _check_colocated(config, served)
    if serving.mode == "split":
        _check_split(config, served)
    elif serving.devices:
        raise ConfigError(f"serving.devices has no effect with serving.mode={serving.mode}: drop it, or use split")


def _check_colocated(config: TrainConfig, served: list[str]) -> None:
    if config.max_staleness:
        raise ConfigError(
            f"max_staleness is {config.max_staleness}: batches are then played while learners work, and engines that "
            "sleep play nothing. Set it to 0, or serving.mode to resident or split"
        )
    if config.serving.sleep_level == 1:
        return
    for name in served:
        policy = config.policies[name]
        if not policy.trainable or policy.lora is not None:
            why = "is frozen" if not policy.trainable else "trains an adapter"
            raise ConfigError(
                f"serving.sleep_level is 2, which discards the weights of engines, and policies.{name} {why}: no "
                "update would bring them back. Use sleep_level 1"
            )


def _check_split(config: TrainConfig, served: list[str]) -> None:
    devices = config.serving.devices
    if missing := [name for name in served if name not in devices]:
        raise ConfigError(f"serving.devices names no devices for {', '.join(missing)}; serving.mode=split needs them")
    owners: dict[int, str] = {}
    engines: dict[str, str] = {}
    for name, numbers in devices.items():
        if name not in served:
            raise ConfigError(f"serving.devices.{name}: no policy of this name has the back end vllm: {served}")
        if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
            raise ConfigError(f"serving.devices.{name} is {numbers}: give one device or more, each once, from 0 on")
        key = _engine(config, name)
        first = engines.setdefault(key, name)
        if first != name and devices[first] != numbers:
            raise ConfigError(
                f"policies.{first} and policies.{name} share an engine, and serving.devices gives it both "
                f"{devices[first]} and {numbers}: give them the same devices"
            )
        for number in numbers:
            if owners.setdefault(number, key) != key:
                raise ConfigError(f"serving.devices gives device {number} to two engines: every device has one")
        if config.policies[name].engine.get("engine", "async") != "async":
            raise ConfigError(
                f"policies.{name}.engine.engine is {config.policies[name].engine['engine']!r}: an engine that has "
                "devices of its own is in a process of its own. Write async, or drop serving.mode=split"
            )


def _engine(config: TrainConfig, name: str) -> str:
    """A name for the engine that samples a policy: adapters of one base share it, frozen policies of one model too."""
    policy = config.policies[name]
    shared = policy.lora is not None or not policy.trainable
    return f"{engine_key(policy)} {policy.lora is not None}" if shared else f"policy {name}"
