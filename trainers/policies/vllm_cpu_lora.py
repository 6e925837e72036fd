"""LoRA on a CPU in vLLM: one matrix product an adapter in place of a copy of the adapter for every token.

vLLM's own PyTorch operations look up the adapter's matrix for each token of a batch, which makes a copy of it a token:
tokens × width × rank numbers for every layer. Here the tokens of an adapter are taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["expand", "expand_slice", "install", "shrink"]


def shrink(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, indices: torch.Tensor, scaling: float = 1.0
) -> None:
    """Write ``scaling · x A`` of each token's adapter into ``output``, zeros where a token has none.

    Args:
        inputs: ``[tokens, width]``.
        weights: A of each slot, ``[slots, (1,) rank, width]``.
        output: ``[tokens, ≥ rank]``.
        indices: The slot of each token, ``[tokens]``; negative for none.
        scaling: The factor.
    """
    rank = weights.shape[-2]
    output[:, :rank] = 0.0
    for rows, weight in _by_adapter(weights, indices, len(inputs)):
        output[rows, :rank] = scaling * (inputs[rows].to(output.dtype) @ weight.to(output.dtype).T)


def expand_slice(
    inputs: torch.Tensor,
    weights: torch.Tensor,
    output: torch.Tensor,
    indices: torch.Tensor,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = True,
) -> None:
    """Add ``x B`` of each token's adapter to some columns of ``output``, or write it there.

    Args:
        inputs: ``[tokens, rank]``.
        weights: B of each slot, ``[slots, (1,) width, rank]``.
        output: ``[tokens, columns]``.
        indices: The slot of each token, ``[tokens]``; negative for none.
        slice_offset: The first of the columns.
        slice_size: How many.
        add_inputs: Whether to add.
    """
    columns = slice(slice_offset, slice_offset + slice_size)
    if not add_inputs:
        output[:, columns] = 0.0
    for rows, weight in _by_adapter(weights, indices, len(inputs)):
        output[rows, columns] += inputs[rows].to(output.dtype) @ weight[:slice_size].to(output.dtype).T


def expand(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, indices: torch.Tensor, add_inputs: bool = True
) -> None:
    """As :func:`expand_slice`, to the first columns; either side may be padded."""
    expand_slice(inputs, weights, output, indices, 0, min(weights.shape[-2], output.shape[1]), add_inputs)


def install() -> None:
    """Let vLLM use these operations in this process, where it runs on a CPU."""
    from vllm.lora.punica_wrapper import punica_cpu
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    punica_cpu.bgmv_shrink, punica_cpu.bgmv_expand, punica_cpu.bgmv_expand_slice = shrink, expand, expand_slice
    punica_cpu.sgmv_shrink, punica_cpu.sgmv_expand = _of_sequences(shrink), _of_sequences(expand)
    punica_cpu.sgmv_expand_slice = _of_sequences(expand_slice)


def _of_sequences(operation: Callable[..., None]) -> Callable[..., None]:
    """The same operation for slots that are given by sequence, as vLLM calls it while it reads prompts."""

    def run(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        output: torch.Tensor,
        starts: torch.Tensor,
        lengths: torch.Tensor,
        indices: torch.Tensor,
        batches: int,
        longest: int,
        tokens: int,
        *rest: Any,
    ) -> None:
        operation(inputs, weights, output, torch.repeat_interleave(indices, lengths), *rest)

    return run


def _by_adapter(
    weights: torch.Tensor, indices: torch.Tensor, tokens: int
) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
    """The rows of each adapter and its matrix; all rows at once where there is one adapter."""
    weights = weights.flatten(0, -3)
    used = indices.unique().tolist()
    for slot in used:
        if slot < 0:
            continue
        yield (slice(0, tokens) if len(used) == 1 else (indices == slot).nonzero(as_tuple=True)[0]), weights[slot]
