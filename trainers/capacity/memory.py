"""Bytes that a learner and an engine take on a device, part by part.

Weights, gradients and AdamW's moments are exact: they are the tensors that :class:`trainers.learner.Learner` makes. The
activations of a layer are the tensors that autograd keeps, counted in the transformers implementation of these
architectures (a test compares the count with what PyTorch keeps, to the byte). What a kernel uses in passing is not
counted; a device's ``usable`` share is room for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.algorithms.critic_config import CriticConfig
from trainers.capacity.devices import GIB, assumptions
from trainers.capacity.shapes import ModelShape
from trainers.policy_config import PolicyConfig

__all__ = ["EngineMemory", "LearnerMemory", "engine_memory", "layer_activation_bytes", "learner_memory"]

_LOGITS = 1024 * 49_152  # entries of the logits that exist at once: trainers.logprobs
_MASK_ENTRIES = 2**28  # trainers.packing
_FLOAT32, _BFLOAT16 = 4, 2


def layer_activation_bytes(shape: ModelShape, *, half: bool, tree: bool = False) -> int:
    """Bytes that a layer keeps of a token for its backward pass.

    In float32: inputs and normalised values of two norms and two residual sums, 6 vectors of the hidden size; gate, up,
    activation and product of the MLP, 4 of the intermediate size; queries and the attention's output; keys and values.
    Under bfloat16 autocast the residual stream stays in float32, and each of five products keeps a bfloat16 copy of its
    input.

    Args:
        shape: The model.
        half: Whether products are taken in bfloat16, the trained weights being float32.
        tree: Whether prefixes are shared, under a mask: keys and values are then repeated for every head.
    """
    h, i, q, k = shape.hidden, shape.intermediate, shape.query, shape.key
    width = _BFLOAT16 if half else _FLOAT32
    kept = 26 * h + 8 * i + 4 * q + 4 * k if half else 24 * h + 16 * i + 8 * q + 8 * k
    kept += 4 * shape.heads + 8  # normalisers of attention and of two norms, in float32
    if shape.qk_norm:
        kept += (6 if half else 8) * (q + k) + 4 * (shape.heads + shape.kv_heads)
    return kept + (2 * width * (q - k) if tree else 0)


@dataclass(frozen=True, slots=True)
class LearnerMemory:
    """Bytes of a learner on each of its devices.

    Attributes:
        weights: Weights, in float32 where they are trained (then they are the master weights); adapters included.
        optimizer: AdamW's two moments, float32.
        reference: A frozen copy for a KL term, and the value function's weights and moments.
        gradients: Gradients, float32; twice where a policy plays several agents, whose gradients are taken one by one.
        copies: bfloat16 copies of float32 weights; where weights are sharded, two gathered blocks.
        activations: What the layers keep of a micro-batch.
        logits: Logits of a chunk, their float32 copy, and its gradient and exponentials.
        mask: Attention mask of shared prefixes, at its largest.
    """

    weights: float
    optimizer: float
    reference: float
    gradients: float
    copies: float
    activations: float
    logits: float
    mask: float

    @property
    def resident(self) -> float:
        """What stays between updates."""
        return self.weights + self.optimizer + self.reference

    @property
    def transient(self) -> float:
        """What comes and goes with an update."""
        return self.gradients + self.copies + self.activations + self.logits + self.mask

    def parts(self) -> dict[str, float]:
        """All parts by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def learner_memory(
    shape: ModelShape,
    policy: PolicyConfig,
    *,
    gpu: bool,
    shards: int = 1,
    agents: int = 1,
    longest: int = 0,
    reference: bool = False,
    critic: CriticConfig | None = None,
    with_base: bool = True,
) -> LearnerMemory:
    """Count a learner's bytes.

    Args:
        shape: Its model.
        policy: Its settings.
        gpu: Whether products are taken in bfloat16; on a CPU all is float32.
        shards: Devices that weights, gradients and moments are divided among, evenly.
        agents: Agents that the policy plays.
        longest: Tokens of the longest turn, which makes a micro-batch of its own where it is above
            ``micro_batch_tokens``.
        reference: Whether a KL term needs the first weights.
        critic: The value function, if there is one.
        with_base: Whether the frozen weights under an adapter are its own; False where another learner holds them.
    """
    n, lora = shape.parameters, policy.lora
    trained = n if lora is None else shape.lora_parameters(lora.rank)
    base = 0 if lora is None or not with_base else n * (_BFLOAT16 if gpu else _FLOAT32)
    several = 2 if agents > 1 else 1
    backbone = n - (0 if shape.tied else shape.head) + shape.hidden + 1
    extra = 0.0
    extra_gradients = 0.0
    if reference and lora is None:
        extra += _FLOAT32 * n
    if critic is not None:
        extra += backbone * (3 * _FLOAT32 if critic.train_backbone else _FLOAT32 if not gpu else _BFLOAT16)
        extra_gradients = backbone * _FLOAT32 if critic.train_backbone else 0.0
    blocks = shape.layer_matrices + max(shape.layer_matrices, shape.head)
    width = _BFLOAT16 if gpu else _FLOAT32
    if shards > 1:
        copies = float(width * blocks)
    elif gpu:
        copies = float(_BFLOAT16 * (trained if lora is not None else shape.decoder_matrices + shape.head))
    else:
        copies = 0.0
    tokens = max(policy.micro_batch_tokens, longest)
    tree = policy.packing == "shared"
    layer = layer_activation_bytes(shape, half=gpu, tree=tree) * tokens
    kept = layer + shape.layers * _FLOAT32 * shape.hidden * tokens if policy.gradient_checkpointing else None
    activations = layer * shape.layers if kept is None else kept
    activations += tokens * (2 * _FLOAT32 * shape.hidden + 8 * shape.head_dim + 12)  # last norm, rotations, ids
    chunk = min(tokens, max(1, _LOGITS // shape.vocabulary))
    mask = tokens * min(tokens, _MASK_ENTRIES // tokens) * (width + 1) if tree else 0
    return LearnerMemory(
        weights=(base + _FLOAT32 * trained) / shards,
        optimizer=2 * _FLOAT32 * trained / shards,
        reference=extra / shards,
        gradients=max(several * _FLOAT32 * trained, extra_gradients) / shards,
        copies=copies,
        activations=float(activations),
        logits=float(chunk * shape.vocabulary * (width + 3 * _FLOAT32)),
        mask=float(mask),
    )


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Bytes of an engine on each of its devices.

    Attributes:
        weights: All weights; divided where the engine is tensor-parallel.
        adapters: Slots for LoRA adapters.
        runtime: Graphs and activations.
        kv_token: Bytes that a token takes in the cache.
        kv_sequence: The cache of the longest sequence.
        kv_wanted: The cache of all sequences in flight, each at its expected length.
    """

    weights: float
    adapters: float
    runtime: float
    kv_token: float
    kv_sequence: float
    kv_wanted: float

    @property
    def fixed(self) -> float:
        """What the engine takes before its cache."""
        return self.weights + self.adapters + self.runtime


def engine_memory(
    shape: ModelShape,
    policy: PolicyConfig,
    *,
    gpu: bool,
    tensor_parallel: int = 1,
    adapters: int = 0,
    rank: int = 0,
    longest: int,
    sequences: float,
    expected: float,
) -> EngineMemory:
    """Count an engine's bytes.

    Args:
        shape: Its model.
        policy: Settings of a policy that it plays.
        gpu: Whether it computes in bfloat16 on a GPU; elsewhere in float32.
        tensor_parallel: Devices that the engine is divided among.
        adapters: LoRA adapters that it serves; there is a slot more, for the next version of one.
        rank: Largest rank among them.
        longest: Tokens of the longest sequence that it takes.
        sequences: Sequences in flight.
        expected: Tokens of one of them, in the mean.
    """
    wide = str(policy.engine.get("dtype", "auto" if gpu else "float32")) == "float32"
    width = _FLOAT32 if wide else _BFLOAT16
    kv_token = shape.kv_bytes(width) / tensor_parallel
    slots = (adapters + 1) * shape.lora_parameters(rank) * width if adapters else 0
    return EngineMemory(
        weights=width * shape.parameters / tensor_parallel,
        adapters=slots / tensor_parallel,
        runtime=assumptions()["engine_gib"] * GIB if gpu else 0.0,
        kv_token=kv_token,
        kv_sequence=kv_token * longest,
        kv_wanted=kv_token * sequences * min(expected, longest),
    )
