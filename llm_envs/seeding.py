"""Seeds of episodes, and the state of an episode's generator."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from llm_envs.copying import copy_state

__all__ = ["episode_hash", "generator_state"]

_EPISODE_HASH = hashlib.blake2b(b"8:sepisode", digest_size=8)


def episode_hash(seed: int, number: int) -> int:
    """``stable_hash("episode", seed, number)``, with the part that is always the same hashed once."""
    first, second = str(seed), str(number)
    digest = _EPISODE_HASH.copy()
    digest.update(f"{len(first) + 1}:i{first}{len(second) + 1}:i{second}".encode())
    return int.from_bytes(digest.digest())


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """What a fork keeps of the generator: its state alone, because making one is costly and few forks draw from it."""
    bits = generator.bit_generator
    if bits.seed_seq.n_children_spawned:  # type: ignore[attr-defined]
        return {"_np_random": copy_state(generator)}
    return {"_np_random": None, "_np_state": bits.state}
