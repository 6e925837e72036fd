"""A key-value cache with room: tokens are written into it where transformers' own copies all of it for every token.

On a CPU that copy takes most of the time of a small model's step.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

_ROOM = 32
"""Tokens of room when a layer is made or full; it then grows by a quarter."""


class RoomyLayer(DynamicLayer):
    """The keys and values of one layer, in front of buffers that have room for more; shapes as in ``DynamicLayer``."""

    keys: torch.Tensor
    values: torch.Tensor
    _buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append new states and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < end:
            room = end + max(_ROOM, end // 4)
            self._buffers = (
                _with_room(key_states, self.keys, start, room),
                _with_room(value_states, self.values, start, room),
            )
        keys, values = self._buffers
        keys[..., start:end, :] = key_states
        values[..., start:end, :] = value_states
        self.keys, self.values = keys[..., :end, :], values[..., :end, :]
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep the rows ``indices``, in this order; a row may be named several times."""
        if self._buffers is None:
            return
        length = self.get_seq_length()
        room = self._buffers[0].shape[-2]
        keys, values = self.keys[indices], self.values[indices]
        self._buffers = _with_room(keys, keys, length, room), _with_room(values, values, length, room)
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)


def _with_room(like: torch.Tensor, held: torch.Tensor, length: int, room: int) -> torch.Tensor:
    """A buffer for ``room`` tokens, shaped as ``like`` otherwise; it begins with the ``length`` tokens of ``held``."""
    buffer = like.new_empty((*like.shape[:-2], room, like.shape[-1]))
    if length:
        buffer[..., :length, :] = held
    return buffer


def make_cache(config: PreTrainedConfig) -> DynamicCache:
    """Return the cache that transformers makes for a model, its plain layers replaced by ones with room."""
    cache = DynamicCache(config=config)
    # Sliding windows and other special layers stay as they are.
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
