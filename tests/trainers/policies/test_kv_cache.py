"""The cache with room holds what transformers' own cache holds."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache, LlamaConfig
from transformers.cache_utils import DynamicSlidingWindowLayer

from trainers.policies.kv_cache import RoomyLayer, make_cache

CONFIG = LlamaConfig(num_hidden_layers=2, hidden_size=8, num_attention_heads=2, num_key_value_heads=2)


def states(rows: int, tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(rows, 2, tokens, 4, generator=generator) for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("prompt", [1, 5, 200])
def test_it_holds_what_the_copying_cache_holds(prompt: int) -> None:
    ours, theirs = make_cache(CONFIG), DynamicCache(config=CONFIG)
    assert all(isinstance(layer, RoomyLayer) for layer in ours.layers)
    rows, total = 3, 0
    for step, tokens in enumerate([prompt, *[1] * 90]):
        total += tokens
        for layer in range(2):
            keys, values = states(rows, tokens, 100 * step + layer)
            found, expected = ours.update(keys, values, layer), theirs.update(keys, values, layer)
            assert all(map(torch.equal, found, expected))
            assert found[0].shape == (rows, 2, total, 4)
        assert ours.get_seq_length() == theirs.get_seq_length() == total
        chosen = {7: [0, 2, 2, 1, 0], 40: [4, 1]}.get(step)
        if chosen is not None:
            ours.batch_select_indices(torch.tensor(chosen))
            theirs.batch_select_indices(torch.tensor(chosen))
            rows = len(chosen)


def test_rows_of_one_prompt_go_on_independently() -> None:
    cache = make_cache(CONFIG)
    cache.update(*states(1, 3, 0), 0)
    cache.batch_select_indices(torch.tensor([0, 0]))
    keys, _ = cache.update(*states(2, 1, 1), 0)
    assert torch.equal(keys[0, :, :3], keys[1, :, :3])
    assert not torch.equal(keys[0, :, 3], keys[1, :, 3])


def test_sliding_windows_stay_as_they_are() -> None:
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types, config.sliding_window = ["full_attention", "sliding_attention"], 16
    full, sliding = make_cache(config).layers
    assert isinstance(full, RoomyLayer)
    assert type(sliding) is DynamicSlidingWindowLayer
