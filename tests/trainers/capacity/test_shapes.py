from __future__ import annotations

import json

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from trainers.capacity.shapes import ModelShape, known_models, read_shape, shape_of
from trainers.models import build_tiny_model
from trainers.recipe_files import ConfigError

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def config_of(shape: ModelShape):
    return CLASSES[shape.kind][0](
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=shape.max_length,
    )


@pytest.mark.parametrize("name", ["smollm2-135m", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B"])
def test_parameters_are_those_of_the_real_architecture(name):
    shape = known_models()[name][0]
    with torch.device("meta"):
        model = CLASSES[shape.kind][1](config_of(shape))
    assert shape.parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", known_models())
def test_parameters_are_what_the_maker_states(name):
    shape, published = known_models()[name]
    assert shape.parameters == pytest.approx(published, rel=0.015)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_shape_survives_the_configuration_file(kind):
    shape = ModelShape(kind, 3, 96, 256, 3, 1, 32, 500, True, 64)
    assert read_shape(config_of(shape).to_dict(), "it") == shape


def test_a_tiny_model_is_read_from_its_folder(tmp_path):
    folder = build_tiny_model(tmp_path / "tiny", hidden_size=64, layers=2)
    model = LlamaForCausalLM.from_pretrained(folder)
    shape, source = shape_of(str(folder))
    assert shape.parameters == model.num_parameters()
    assert source == "its config.json"


def test_lora_parameters_are_those_that_peft_makes(tmp_path):
    from trainers.lora import add_lora

    folder = build_tiny_model(tmp_path / "tiny", hidden_size=64, layers=2)
    shape, _ = shape_of(str(folder))
    model = add_lora(LlamaForCausalLM.from_pretrained(folder), {"r": 4, "target_modules": "all-linear"}, 0)
    assert shape.lora_parameters(4) == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_forward_flops_by_hand():
    shape = ModelShape("llama", 1, 2, 3, 1, 1, 2, 5, True, 8)
    # Matrices: q, k, v, o of 4 entries, three of 6; the head has 10. A token that attends to 4: 4·4·2 for attention.
    assert shape.forward_flops(1, 4, 1) == 2 * (4 * 4 + 3 * 6) + 4 * 2 * 4 + 2 * 10
    assert shape.kv_bytes(2) == 2 * 2 * 2
    assert shape.decode_bytes(3, 4, 2) == (34 + 10) * 2 + 3 * 4 * 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Qwen/Qwen3-4X", "Did you mean 'Qwen/Qwen3-4B'"),
        ("./models/none", "expected a bundled model"),
    ],
)
def test_a_model_that_is_not_at_hand_is_named(name, message):
    with pytest.raises(ConfigError, match=message):
        shape_of(name)


def test_another_architecture_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(ConfigError, match=r"'mamba'.*llama"):
        shape_of(str(tmp_path))
