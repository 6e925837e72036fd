"""Three designs of a run, on any number of devices: what learners and engines take, and their simulation.

* ``colocated``: all devices collect, then all learn; engines sleep meanwhile.
* ``split``: a quarter of the devices learn, the others collect, one after the other.
* ``overlapped``: the same split, and both at the same time: the batch is one update old.

One policy plays all agents. Engines are one device each; learners shard their weights over all of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.scale.costs import engine_costs
from benchmarks.scale.engine import Engine
from benchmarks.scale.lengths import Recorded
from benchmarks.scale.simulate import Flow, StepReport, simulate
from trainers.capacity.devices import GIB, Pool, assumptions, known_devices
from trainers.capacity.memory import engine_memory
from trainers.capacity.shapes import known_models
from trainers.capacity.steptime import between, learner_seconds
from trainers.capacity.timing import rates_of
from trainers.policy_config import PolicyConfig
from trainers.recipe_files import ConfigError

__all__ = ["DESIGNS", "Setting", "knee", "row", "run_design"]

Design = Literal["colocated", "split", "overlapped"]

DESIGNS: tuple[Design, ...] = ("colocated", "split", "overlapped")

_BF16 = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What is assumed of a run, besides the lengths of its episodes.

    Attributes:
        model: A name in the planner's table.
        device: A GPU in the planner's table.
        learner_share: Share of the devices that learn, where they are split.
        cores_per_device: Cores for environments, beside each device.
        micro_batch_tokens: Tokens of a forward pass of a learner.
        max_sequences: Most sequences of an engine.
        cache_share: Share of an engine's memory, beside its weights, that its cache takes; less where it is colocated.
    """

    model: str = "Qwen/Qwen3-4B"
    device: str = "H100"
    learner_share: float = 0.25
    cores_per_device: int = 8
    micro_batch_tokens: int = 24_576
    max_sequences: int = 256
    cache_share: float = 0.9

    def __post_init__(self) -> None:
        if self.model not in known_models() or self.device not in known_devices():
            raise ConfigError(
                f"{self.model!r} on {self.device!r}: models are {', '.join(known_models())}; devices "
                f"{', '.join(known_devices())}"
            )


def run_design(
    design: Design,
    devices: int,
    episodes: int,
    lengths: Recorded,
    setting: Setting,
    *,
    steps: int = 1,
    seed: int = 0,
) -> StepReport:
    """Simulate one design.

    Args:
        design: See the module.
        devices: How many there are, 2 or more.
        episodes: Episodes of a batch, all in flight at once.
        lengths: Their turns.
        setting: All else.
        steps: Batches.
        seed: Decides which episodes are drawn.

    Raises:
        ConfigError: There are too few devices, or the engine has no room for a sequence.
    """
    if devices < 2:
        raise ConfigError(f"{devices} devices: a design needs 2 or more")
    shape, device = known_models()[setting.model][0], known_devices()[setting.device]
    shared = design == "colocated"
    learning = devices if shared else max(1, round(devices * setting.learner_share))
    sampling = devices if shared else devices - learning
    rates, assumed = rates_of(device, "vllm"), assumptions()
    policy = PolicyConfig(model=setting.model, gradient_checkpointing=True)
    memory = engine_memory(shape, policy, gpu=True, longest=1, sequences=1, expected=1)
    taken = memory.fixed + assumed["process_gib"] * GIB
    taken += 12 * shape.parameters / learning if shared else 0  # weights and moments of the learner stay
    cache = setting.cache_share * (device.memory * assumed["usable"] - taken) / memory.kv_token
    longest = max(turn.prompt + turn.completion for episode in lengths.episodes for turn in episode)
    if cache < longest:
        raise ConfigError(
            f"{design} on {devices} x {device.name}: {max(0.0, cache):,.0f} tokens fit in the cache, and the longest "
            f"sequence has {longest:,}: take more devices, or a larger one"
        )
    costs = engine_costs(shape, rates, _BF16)
    network = between(device, devices)

    def update_s(tokens: int, completions: int) -> float:
        turns = max(1.0, completions / mean_completion)
        return learner_seconds(
            shape,
            rates,
            Pool(learning, device),
            tokens=tokens,
            length=tokens / turns,
            predicted=completions,
            micro_batch_tokens=setting.micro_batch_tokens,
            steps=1,
            trained=shape.parameters,
            recompute=True,
            lora=False,
        )

    turns = [turn.completion for episode in lengths.episodes for turn in episode]
    mean_completion = sum(turns) / len(turns)
    sync = _BF16 * shape.parameters / network
    if shared:  # to sleep and awake again
        sync += 2 * _BF16 * shape.parameters / (device.host_link * assumed["link_bandwidth"])
    return simulate(
        Flow(
            lengths=lengths,
            episodes=episodes,
            concurrency=episodes,
            make_engines=lambda env: [[Engine(env, costs, setting.max_sequences, cache) for _ in range(sampling)]],
            runner_cores=devices * setting.cores_per_device,
            update_s=update_s,
            sync_s=sync,
            order="overlapped" if design == "overlapped" else "synchronous",
            steps=steps,
            seed=seed,
        )
    )


def knee(rows: Mapping[int, float]) -> int | None:
    """The most devices at which each still does half of what it does at best; None if the last row still does.

    Args:
        rows: Tokens a second by number of devices.
    """
    each = {devices: rate / devices for devices, rate in rows.items()}
    good = [devices for devices in sorted(each) if each[devices] >= max(each.values()) / 2]
    return None if not good or good[-1] == max(each) else good[-1]


def row(design: str, devices: int, episodes: int, report: StepReport) -> dict[str, Any]:
    """A report as JSON values, to four digits."""
    values = {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in asdict(report).items()}
    return {"design": design, "devices": devices, "episodes": episodes, **values}
