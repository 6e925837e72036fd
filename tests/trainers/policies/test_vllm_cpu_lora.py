"""LoRA on a CPU, an adapter at a time: token by token it is the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.policies import vllm_cpu_lora as ours

SLOTS, WIDTH, RANK, OUT = 3, 7, 4, 5


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(deadline=None)
@given(indices=st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=9), stacked=st.booleans(), add=st.booleans())
def test_token_by_token_it_is_the_same(indices: list[int], stacked: bool, add: bool) -> None:
    tokens = len(indices)
    x, a, b = drawn(tokens, WIDTH, seed=1), drawn(SLOTS, RANK, WIDTH, seed=2), drawn(SLOTS, OUT, RANK, seed=3)
    low, before = drawn(tokens, RANK, seed=4), drawn(tokens, OUT + 3, seed=5)
    output, slots = before.clone(), torch.tensor(indices)
    extra = (lambda weights: weights[:, None]) if stacked else (lambda weights: weights)
    ours.shrink(x, extra(a), low, slots, 0.5)
    ours.expand_slice(low, extra(b), output, slots, 2, OUT, add)
    for row, slot in enumerate(indices):
        small = 0.5 * (a[slot] @ x[row]) if slot >= 0 else torch.zeros(RANK, dtype=torch.float64)
        wanted = before[row].clone()
        wanted[2 : 2 + OUT] = (wanted[2 : 2 + OUT] if add else 0) + (b[slot] @ small if slot >= 0 else 0)
        torch.testing.assert_close(low[row], small)
        torch.testing.assert_close(output[row], wanted)


@pytest.mark.parametrize("columns", [OUT - 1, OUT, OUT + 2])
def test_either_side_may_be_padded(columns: int) -> None:
    low, b, output = (
        drawn(4, RANK, seed=1),
        drawn(SLOTS, OUT, RANK, seed=2),
        torch.zeros(4, columns, dtype=torch.float64),
    )
    ours.expand(low, b, output, torch.tensor([0, 0, 0, 0]))
    common = min(OUT, columns)
    torch.testing.assert_close(output[:, :common], (low @ b[0].T)[:, :common])
    assert not output[:, common:].any()


@pytest.mark.parametrize("indices", [[0, 0, 0], [2, 0, 2]])
def test_vllm_computes_the_same(indices: list[int]) -> None:
    pytest.importorskip("vllm")
    from vllm.lora.ops.torch_ops import lora_ops

    slots, x = torch.tensor(indices), drawn(3, WIDTH, seed=1).float()
    a, b = drawn(SLOTS, 1, RANK, WIDTH, seed=2).float(), drawn(SLOTS, 1, OUT, RANK, seed=3).float()
    results = []
    for shrink, expand in (
        (lora_ops.bgmv_shrink, lora_ops.bgmv_expand_slice),
        (ours.shrink, ours.expand_slice),
    ):
        low, output = torch.zeros(3, RANK), drawn(3, 2 * OUT, seed=4).float()
        shrink(x, a, low, slots, 2.0)
        expand(low, b, output, slots, OUT, OUT, True)
        results.append((low, output))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)
