from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from trainers.algorithms.losses import LossConfig
from trainers.batching import Sample
from trainers.capacity.devices import known_devices, parse_pools
from trainers.capacity.memory import engine_memory, layer_activation_bytes, learner_memory
from trainers.capacity.shapes import known_models, read_shape
from trainers.learner import Learner, LearnerConfig
from trainers.policy_config import LoraConfig, PolicyConfig
from trainers.recipe_files import ConfigError

QWEN = known_models()["Qwen/Qwen3-4B"][0]


def tiny(kind="llama", layers=2):
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[kind]
    return model(
        config(
            vocab_size=500, hidden_size=128, intermediate_size=384, num_hidden_layers=layers, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, tie_word_embeddings=True,
        )
    )  # fmt: skip


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)])
def test_weights_gradients_and_moments_are_what_the_learner_makes(lora):
    model = tiny()
    policy = PolicyConfig(model="it", lora=lora)
    expected = learner_memory(read_shape(model.config.to_dict(), "it"), policy, gpu=False)
    adapter = None if lora is None else {"r": 4, "target_modules": "all-linear"}
    learner = Learner(model, LearnerConfig(), LossConfig(importance="off"), lora=adapter)
    found = {}

    def look(optimizer, args, kwargs):
        found["gradients"] = size(p.grad for p in learner.model.parameters() if p.grad is not None)

    learner._optimizer.register_step_pre_hook(look)
    learner.update([Sample([1, 2, 3], [4, 5], None, 1.0, "a_0")])
    assert size(learner.model.parameters()) == expected.weights
    assert found["gradients"] == expected.gradients
    moments = [state[name] for state in learner._optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert size(moments) == expected.optimizer


def kept_bytes(kind, layers, *, half, tree, checkpointing=False, tokens=47):
    """Bytes that autograd keeps of a forward pass, but for weights and their bfloat16 copies."""
    model = tiny(kind, layers).train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    copies = {tuple(p.shape) for p in model.parameters()} | {
        tuple(p.t().shape) for p in model.parameters() if p.ndim == 2
    }
    kept, alive = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        is_copy = tensor.dtype == torch.bfloat16 and tensor.ndim == 2 and tuple(tensor.shape) in copies
        if storage.data_ptr() not in weights and not is_copy:
            kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)  # so that no other takes its place
        return tensor

    mask = torch.zeros(1, 1, tokens, tokens, dtype=torch.bfloat16 if half else torch.float32) if tree else None
    ids = torch.randint(0, 500, (1, tokens), generator=torch.Generator().manual_seed(0))
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=half),
    ):
        model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(kept.values()) / tokens, read_shape(model.config.to_dict(), "it")


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_activations_of_a_layer_are_what_autograd_keeps(kind, half, tree):
    two, shape = kept_bytes(kind, 2, half=half, tree=tree)
    three, _ = kept_bytes(kind, 3, half=half, tree=tree)
    assert three - two == layer_activation_bytes(shape, half=half, tree=tree)


def test_a_checkpointed_layer_keeps_its_input_only():
    two, shape = kept_bytes("llama", 2, half=True, tree=False, checkpointing=True)
    three, _ = kept_bytes("llama", 3, half=True, tree=False, checkpointing=True)
    assert three - two == 4 * shape.hidden


def test_a_learner_of_qwen3_4b_by_hand():
    n = QWEN.parameters
    policy = PolicyConfig(model="it", micro_batch_tokens=1000, gradient_checkpointing=True, packing="padded")
    found = learner_memory(QWEN, policy, gpu=True, shards=4, agents=2, reference=True)
    assert found.weights == 4 * n / 4
    assert found.optimizer == 8 * n / 4
    assert found.reference == 4 * n / 4
    assert found.gradients == 2 * 4 * n / 4  # of the agents so far, and of the one at work
    layer = 26 * 2560 + 8 * 9728 + (4 + 6) * (4096 + 1024) + 4 * 32 + 8 + 4 * (32 + 8)
    assert found.activations == 1000 * (layer + 36 * 4 * 2560 + 2 * 4 * 2560 + 8 * 128 + 12)
    assert found.mask == 0


def test_an_engine_of_qwen3_4b_by_hand():
    found = engine_memory(QWEN, PolicyConfig(model="it"), gpu=True, longest=4096, sequences=10, expected=1000)
    assert found.weights == 2 * QWEN.parameters
    assert found.kv_token == 36 * 2 * 8 * 128 * 2
    assert found.kv_sequence == 4096 * found.kv_token
    assert found.kv_wanted == 10 * 1000 * found.kv_token


@given(
    tokens=st.integers(1, 40_000),
    more=st.integers(0, 40_000),
    shards=st.integers(1, 64),
    agents=st.integers(1, 8),
    gpu=st.booleans(),
    checkpointing=st.booleans(),
    lora=st.none() | st.builds(LoraConfig, rank=st.integers(1, 64)),
)
@settings(deadline=None)
def test_more_work_never_takes_less_memory_and_more_devices_never_more(
    tokens, more, shards, agents, gpu, checkpointing, lora
):
    def total(tokens=tokens, shards=shards, agents=agents, checkpointing=checkpointing):
        policy = PolicyConfig(
            model="it", micro_batch_tokens=tokens, gradient_checkpointing=checkpointing, lora=lora, packing="padded"
        )
        found = learner_memory(QWEN, policy, gpu=gpu, shards=shards, agents=agents)
        assert all(value >= 0 for value in found.parts().values())
        return found.resident + found.transient

    assert total(tokens=tokens + more) >= total()
    assert total(agents=agents + 1) >= total()
    assert total(shards=2 * shards + 1) <= total() or shards == 1  # two gathered blocks are more than a tiny adapter
    assert total(checkpointing=True) <= total(checkpointing=False) or not checkpointing


def test_pools_are_read():
    pools = parse_pools("4xH100+2xl40s")
    assert [str(pool) for pool in pools] == ["4xH100", "2xL40S"]
    assert pools[0].device == known_devices()["H100"]
    assert not parse_pools("cpu")[0].device.gpu
    assert dataclasses.asdict(parse_pools("a100-80g")[0])["count"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8xH10", "Did you mean"),
        ("0xH100", "at least 1"),
        ("2xcpu", "once"),
        ("cpu+1xL4", "once"),
        ("8 H100", "of the form"),
    ],
)
def test_pools_that_make_no_sense_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_pools(text)
