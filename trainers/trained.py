"""What a learner and a critic have in common: weights that AdamW trains, and a state from which they go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trainers.ranks import Ranks

__all__ = ["Trained"]


class Trained:
    """Weights, their optimiser, and how often it has stepped. A subclass sets the weights and the optimiser.

    Args:
        ranks: How work and weights are divided over processes; not at all if not given.

    Attributes:
        part: What it is of a policy's state: ``learner`` or ``critic``.
        steps: Optimiser steps taken since the start of the run.
        updates: Calls of ``update`` that took their steps.
    """

    part: ClassVar[str]
    _trainable: dict[str, nn.Parameter]
    _optimizer: torch.optim.Optimizer

    def __init__(self, ranks: Ranks | None = None) -> None:
        self._ranks = ranks or Ranks()
        self.steps = 0
        self.updates = 0

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self._trainable.values())).device

    def trainable_named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that are trained, by their names in the state, without copying."""
        for name, parameter in self._trainable.items():
            yield name, parameter.detach()

    def parameters(self) -> list[Tensor]:
        """The weights that are trained, in the order in which the optimiser numbers them in :meth:`state_dict`."""
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on bit for bit: trained weights, AdamW's moments, counters. Copies, on the CPU.

        Learning rate and shuffling depend on the counters and the configuration only, so no generator is stored. The
        object holds tensors, numbers, strings, lists and dicts; ``torch.load(..., weights_only=True)`` reads it.
        """
        state = self.tensors()
        return {
            **state,
            "weights": {name: p.to("cpu", copy=True) for name, p in state["weights"].items()},
            "optimizer": {
                i: {key: value.to("cpu", copy=True) for key, value in moments.items()}
                for i, moments in state["optimizer"].items()
            },
        }

    def tensors(self) -> dict[str, Any]:
        """Return the same as :meth:`state_dict` without copying: the tensors are those that the next step changes."""
        return {
            "weights": dict(self.trainable_named_tensors()),
            "optimizer": {
                str(i): {key: value.detach() for key, value in moments.items()}
                for i, moments in self._optimizer.state_dict()["state"].items()
            },
            "steps": self.steps,
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any] | Path) -> None:
        """Restore what :meth:`state_dict` returned, into one that was built in the same way.

        A folder is read as :mod:`trainers.distributed.sharded_state` says, however many ranks have written it.

        Hyper-parameters are those of the configuration, and weights that are not trained (a reference, a frozen
        decoder) are no part of the state: build from the same initial model.

        Raises:
            ValueError: If the trained weights differ in name or shape. Nothing is changed then.
        """
        if isinstance(state, Path):
            from trainers.distributed.sharded_state import read_whole

            state = read_whole(state, self.part)
        weights: Mapping[str, Tensor] = state["weights"]
        ours = {name: tuple(p.shape) for name, p in self._trainable.items()}
        theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if ours != theirs:
            odd = sorted(set(ours.items()) ^ set(theirs.items()))
            raise ValueError(f"The saved weights are not those of this {self.part}; they differ in {odd[:4]}")
        with torch.no_grad():
            for name, parameter in self._trainable.items():
                parameter.copy_(self._ranks.local(parameter, weights[name]))
        owners = self.parameters()
        moments = {
            int(i): {
                key: self._ranks.local(owners[int(i)], value) if value.ndim else value for key, value in values.items()
            }
            for i, values in state["optimizer"].items()
        }
        self._optimizer.load_state_dict(
            {"state": moments, "param_groups": self._optimizer.state_dict()["param_groups"]}
        )
        self._optimizer.zero_grad(set_to_none=True)
        self.steps = int(state["steps"])
        self.updates = int(state["updates"])
