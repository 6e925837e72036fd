"""Train teams of language models on text environments: policies, rollouts, algorithms, learners.

>>> from trainers import train
>>> result = train("dr_mas_math_cpu", "updates=1", out="runs/first")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.api import train

__all__ = ["train"]


def __getattr__(name: str) -> object:
    """Import the training code, and with it torch, when it is first asked for."""
    if name == "train":
        from trainers.api import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
