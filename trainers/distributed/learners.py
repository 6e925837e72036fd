"""Learners: the ranks of one, each a process with its part of the weights, and what the trainer asks of all of them.

**An update is whole or not at all.** With its metrics every rank returns its part of the state after it, which lies in
Ray's object store and not in the rank. If a rank dies, before, during or after an update, all ranks of the learner are
started anew from the state after the last update that every one of them has finished, and what was asked is asked
again. Nothing in an update depends on when it is computed, so the second time gives what the first would have given.

The critic of a policy lives in the ranks of its learner. Its update is one of its own, with a state of its own: a rank
that dies in it does not have the learner's made again.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store
from torch.distributed.tensor import DTensor

from trainers.batching import Sample
from trainers.config import TrainConfig
from trainers.critic import Critic
from trainers.distributed.cluster import Placement
from trainers.distributed.fsdp import FSDPRanks, process_group, whole
from trainers.distributed.sharded_state import Place, read, write
from trainers.distributed.weight_groups import Push, WeightSender
from trainers.learner import Learner
from trainers.members import build_learner, build_loss
from trainers.quiet import quieten_libraries
from trainers.run_folder import RunError
from trainers.trained import Trained
from trainers.update_metrics import UpdateMetrics

__all__ = ["LearnerRank", "RayCritic", "RayLearner", "place_on"]

logger = logging.getLogger(__name__)

GRACE = 60.0
"""Seconds that the other ranks have, after the error of one, to end with theirs or to be found dead."""


class LearnerRank:
    """The actor: one rank of a learner."""

    def __init__(self, name: str, config: TrainConfig, rank: int) -> None:
        quieten_libraries()
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self._name, self._config, self._rank = name, config, rank
        self._size = config.cluster.learner_ranks
        self._group: Any = None
        self._store: Store | None = None
        self._learner: Learner
        self._critic: Critic
        self._parts: dict[str, Trained] = {}
        self._sender = WeightSender()

    def open_store(self) -> tuple[str, int]:
        """Open the store where the ranks meet, on the first of them; returns its address."""
        host = ray.util.get_node_ip_address()
        store = TCPStore(host, 0, self._size, is_master=True, wait_for_workers=False)
        self._store = store
        return host, int(store.port)

    def start(self, address: tuple[str, int], *states: Mapping[str, Any]) -> dict[str, Any]:
        """Join the others, load the model and take this rank's part; go on from ``states``, if there are any.

        Args:
            address: Of the store.
            *states: This rank's part of the learner's state and of the critic's, if there is one.
        """
        if self._store is None:
            self._store = TCPStore(*address, self._size, is_master=False)
        self._group = process_group(self._store, self._rank, self._size)
        self._group.__enter__()
        self._learner, critic = build_learner(self._name, self._config, FSDPRanks())
        self._parts = {"learner": self._learner}
        if critic is not None:
            self._critic = self._parts["critic"] = critic
        if states:
            for trained, state in zip(self._parts.values(), states, strict=True):
                _restore(trained, state)
        return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}

    def update(self, samples: Sequence[Sample], epochs: int, minibatches: int) -> tuple[UpdateMetrics, dict[str, Any]]:
        """Train; returns the metrics and this rank's part of the learner's state after it."""
        return self._learner.update(samples, epochs=epochs, minibatches=minibatches), _part(self._learner)

    def fit_values(self, *arguments: Any) -> tuple[dict[str, float], dict[str, Any]]:
        """Train the critic; returns the metrics and this rank's part of the critic's state after it."""
        return self._critic.update(*arguments), _part(self._critic)

    def values(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, None]:
        """Return, on the first rank, the values of prompts."""
        found = self._critic.values(prompts)
        return (found if self._rank == 0 else None), None

    def load(self, part: str, state: Mapping[str, Any] | Path) -> tuple[None, dict[str, Any]]:
        """Take a whole state, or one that any number of ranks has written; returns this rank's part."""
        trained = self._parts[part]
        trained.load_state_dict(read(state, place_on(trained), part) if isinstance(state, Path) else state)
        return None, _part(trained)

    def snapshot(self, part: str) -> tuple[None, dict[str, Any]]:
        """Return this rank's part of the state."""
        return None, _part(self._parts[part])

    def publish(self) -> tuple[None, dict[str, Any] | None]:
        """Return, on the first rank, the weights for samplers as arrays, and the configuration of the adapter."""
        learner = self._learner
        if not hasattr(learner.model, "peft_config"):
            return None, self._whole(dict(learner.full_named_tensors()), None)
        from peft import get_peft_model_state_dict

        adapter = learner.model.active_adapter
        tensors = get_peft_model_state_dict(learner.model, adapter_name=adapter)
        return None, self._whole(tensors, learner.model.peft_config[adapter])

    def send(self, push: Push, payload: Mapping[str, Any]) -> str:
        """Broadcast to engines what was published; returns what went wrong, if something did."""
        with warnings.catch_warnings():  # the arrays lie in shared memory, and are only read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            tensors = [(name, torch.from_numpy(array)) for name, array in payload["tensors"].items()]
        return self._sender.send(push, tensors, next(self._learner.model.parameters()))

    def weights(self) -> tuple[None, dict[str, Any] | None]:
        """Return, on the first rank, all weights that are trained, by the learner's own names."""
        return None, self._whole(dict(self._learner.trainable_named_tensors()), None)

    def write(self, folder: Path) -> tuple[None, None]:
        """Write this rank's part of a checkpoint."""
        state = self._learner.tensors()
        write({**state, "critic": self._critic.tensors()} if "critic" in self._parts else state, folder)
        return None, None

    def logprobs(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> tuple[Any, None]:
        """Return, on the first rank, the log-probs of completions."""
        found = self._learner.logprobs(prompts, completions)
        return (found if self._rank == 0 else None), None

    def reference_kl(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]) -> tuple[Any, None]:
        """Return, on the first rank, the divergence from the reference."""
        found = self._learner.reference_kl(prompts, completions)
        return (found if self._rank == 0 else None), None

    def _whole(self, tensors: Mapping[str, Tensor], adapter: Any) -> dict[str, Any] | None:
        arrays = {}
        for name, tensor in tensors.items():  # one at a time: the ranks hold one whole tensor each, the first holds all
            value = whole(tensor)
            if self._rank == 0:
                arrays[name] = value.numpy()
        return {"tensors": arrays, "adapter": adapter} if self._rank == 0 else None


def _part(trained: Trained) -> dict[str, Any]:
    """What this rank has of a state, as arrays."""

    def part(tensor: Tensor) -> Any:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        return local.detach().to("cpu", copy=True).numpy()

    state = trained.tensors()
    return {
        **state,
        "weights": {name: part(tensor) for name, tensor in state["weights"].items()},
        "optimizer": {
            i: {key: part(value) for key, value in moments.items()} for i, moments in state["optimizer"].items()
        },
    }


def _restore(trained: Trained, state: Mapping[str, Any]) -> None:
    """Take back what :func:`_part` returned."""
    owners = trained.parameters()
    names = dict(trained.trainable_named_tensors())

    def back(array: Any, parameter: Tensor) -> Tensor:
        local = torch.from_numpy(array.copy())
        if not isinstance(parameter, DTensor) or local.ndim == 0:
            return local
        return DTensor.from_local(
            local.to(parameter.device),
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )

    trained.load_state_dict(
        {
            **state,
            "weights": {name: back(array, names[name]) for name, array in state["weights"].items()},
            "optimizer": {
                i: {key: back(value, owners[int(i)]) for key, value in moments.items()}
                for i, moments in state["optimizer"].items()
            },
        }
    )


def place_on(trained: Trained) -> Place:
    """Return what makes the tensors that a rank reads its parts of a saved state into."""
    named, numbered = dict(trained.trainable_named_tensors()), trained.parameters()

    def place(path: tuple[str, ...], size: torch.Size, dtype: torch.dtype) -> Tensor:
        owner = named.get(path[1]) if path[0] == "weights" else None
        if path[0] == "optimizer" and size:
            owner = numbered[int(path[1])]
        if owner is None or owner.shape != size:
            return torch.empty(size, dtype=dtype)
        return torch.empty_like(owner, dtype=dtype)

    return place


class _RankLost(RuntimeError):
    """A rank has died."""


class RayLearner:
    """A learner whose ranks are actors. What it does is what :class:`trainers.learner.Learner` does.

    Args:
        name: The policy.
        config: The configuration of the run.
        placement: Where the ranks go.

    Attributes:
        critic: The critic that lives in the ranks, if the algorithm has one.
    """

    def __init__(self, name: str, config: TrainConfig, placement: Placement) -> None:
        self.loss = build_loss(name, config)
        self._name, self._run, self._placement = name, config, placement
        self._size = config.cluster.learner_ranks
        self.ranks: list[Any] = []
        self.where: list[dict[str, Any]] = []
        self._published: list[Any] = []
        self.critic = None if config.algorithm.build().critic is None else RayCritic(self)
        self._state: dict[str, list[Any]] = {}
        self.restarts = 0
        """How often the ranks were started anew."""

    def start(self) -> None:
        """Start the ranks, from the state of the last finished update if there is one."""
        actor = ray.remote(LearnerRank)
        self.ranks = [
            actor.options(**self._placement.options("learner", self._name, rank)).remote(self._name, self._run, rank)
            for rank in range(self._size)
        ]
        timeout = self._run.cluster.start_timeout
        (address,) = self._outcomes([self.ranks[0].open_store.remote()], timeout)
        states = [[parts[rank] for parts in self._state.values()] for rank in range(self._size)]
        self.where = self._outcomes(
            [rank.start.remote(address, *own) for rank, own in zip(self.ranks, states, strict=True)], timeout
        )
        if not self._state:
            self._state = {part: self._snapshot(part) for part in ["learner", *(["critic"] if self.critic else [])]}

    def stop(self) -> None:
        """End the ranks."""
        for rank in self.ranks:
            ray.kill(rank)
        self.ranks = []

    def update(self, samples: Sequence[Sample], *, epochs: int = 1, minibatches: int = 1) -> UpdateMetrics:
        """Train on a batch of turns; see :meth:`Learner.update`."""
        metrics: UpdateMetrics = self._ask("update", ray.put(list(samples)), epochs, minibatches, changes="learner")[0]
        return metrics

    def logprobs(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> Sequence[Tensor]:
        """Return the log-prob of every completion token; see :meth:`Learner.logprobs`."""
        found: Sequence[Tensor] = self._ask("logprobs", prompt_ids, completion_ids)[0]
        return found

    def reference_kl(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> list[float]:
        """Return the divergence from the reference; see :meth:`Learner.reference_kl`."""
        found: list[float] = self._ask("reference_kl", prompt_ids, completion_ids)[0]
        return found

    def publish(self) -> Any:
        """Return the object that holds the newest weights for samplers; this process does not fetch it."""
        self._ask("publish")
        return self._published[0]

    def send(self, push: Push, payload: Any) -> str:
        """Have the first rank broadcast to engines what :meth:`publish` has returned.

        Returns:
            What went wrong, in which case any of them may be without these weights; empty if nothing did. If it was
            the learner, its ranks are started anew, from the state after the last finished update.
        """
        sent = self.ranks[0].send.remote(push, payload)
        ready, _ = ray.wait([sent], timeout=push.timeout_s + GRACE)
        problem = f"the learner has not come to an end within {push.timeout_s + GRACE:g} s"
        try:
            if ready:
                found: str = ray.get(sent)
                return found
        except RayActorError as error:
            problem = f"the first rank of the learner died: {str(error).strip().splitlines()[0]}"
        self.stop()
        self.restarts += 1
        return problem

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model where ``from_pretrained`` finds it: whole, in this process."""
        self._ask("weights")
        payload = ray.get(self._published[0])
        weights = {name: torch.from_numpy(array.copy()) for name, array in payload["tensors"].items()}
        learner, _ = build_learner(self._name, self._run, with_critic=False)
        learner.load_state_dict({"weights": weights, "optimizer": {}, "steps": 0, "updates": 0})
        learner.save_pretrained(folder)

    def state_dict(self) -> Callable[[Path], None]:
        """Return what writes the state, with the critic's, into a folder, which all ranks do together."""
        return self._write

    def load_state_dict(self, state: Mapping[str, Any] | Path) -> None:
        """Restore a state that ranks wrote, however many, or that of a learner of one process."""
        own = state if isinstance(state, Path) else {key: value for key, value in state.items() if key != "critic"}
        self._load("learner", own)

    def _load(self, part: str, state: Mapping[str, Any] | Path) -> None:
        self._ask("load", part, state.resolve() if isinstance(state, Path) else ray.put(dict(state)), changes=part)

    def _snapshot(self, part: str) -> list[Any]:
        pairs = self._submit("snapshot", part)
        self._outcomes([first for first, _ in pairs])
        return [second for _, second in pairs]

    def _write(self, folder: Path) -> None:
        self._ask("write", folder.resolve())

    def _ask(self, method: str, *args: Any, changes: str | None = None) -> list[Any]:
        """Call a method of every rank; if one dies, start all anew and call again.

        Args:
            method: Its name. It returns two values, of which this returns the first of each rank.
            *args: Its arguments.
            changes: Whose new state the second is a rank's part of: ``learner``, ``critic`` or nobody's.
        """
        lost: Exception | None = None
        for _ in range(self._run.cluster.attempts):
            try:
                if not self.ranks:
                    self.start()
                pairs = self._submit(method, *args)
                found = self._outcomes([first for first, _ in pairs])
            except _RankLost as problem:
                lost = problem
                logger.warning("A rank of the learner of %r died: all of them are started anew", self._name)
                self.stop()
                self.restarts += 1
                continue
            self._published = [second for _, second in pairs]
            if changes is not None:
                self._state[changes] = self._published
            return found
        raise RunError(
            f"The learner of policy {self._name!r} lost a rank {self._run.cluster.attempts} times at `{method}`: {lost}"
        ) from lost

    def _submit(self, method: str, *args: Any) -> list[Any]:
        return [getattr(rank, method).options(num_returns=2).remote(*args) for rank in self.ranks]

    def _outcomes(self, refs: Sequence[Any], timeout: float | None = None) -> list[Any]:
        """Wait for all ranks, ``timeout`` seconds for each.

        Raises:
            _RankLost: One has died. The error that another one had because of it is of no interest.
            RunError: One is not there in time, or the state that it was to go on from is lost.
            Exception: What the ranks have raised.
        """
        pending, failure = list(refs), None
        found: dict[Any, Any] = {}
        while pending:
            ready, pending = ray.wait(pending, num_returns=1, timeout=timeout if failure is None else GRACE)
            if not ready and failure is None:
                raise RunError(
                    f"The learner of policy {self._name!r} did not start within {timeout:g} s: the cluster has lost "
                    "the room for its ranks, or cluster.start_timeout is too short. Go on with --resume"
                )
            if not ready:
                break
            try:
                found[ready[0]] = ray.get(ready[0])
            except RayActorError as error:
                raise _RankLost(str(error)) from error
            except ObjectLostError as error:
                raise RunError(
                    f"The state of the learner of policy {self._name!r} was lost with a node. Go on with --resume"
                ) from error
            except RayTaskError as error:
                failure = error
        if failure is not None:
            cause = getattr(failure, "cause", None)
            raise cause if isinstance(cause, Exception) else failure
        return [found[ref] for ref in refs]


class RayCritic:
    """The critic in the ranks of a learner. What it does is what :class:`trainers.critic.Critic` does."""

    def __init__(self, learner: RayLearner) -> None:
        self._learner = learner

    def values(self, prompts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the value of each prompt; see :meth:`Critic.values`."""
        found: NDArray[np.float64] = self._learner._ask("values", ray.put(list(prompts)))[0]
        return found

    def update(
        self, prompts: Sequence[Sequence[int]], targets: NDArray[np.float64], old_values: NDArray[np.float64]
    ) -> dict[str, float]:
        """Fit the values of prompts to their targets; see :meth:`Critic.update`."""
        metrics: dict[str, float] = self._learner._ask(
            "fit_values", ray.put(list(prompts)), targets, old_values, changes="critic"
        )[0]
        return metrics

    def state_dict(self) -> Callable[[Path], None]:
        """Return what writes the state, with the learner's, into a folder."""
        return self._learner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Path) -> None:
        """Restore a state that ranks wrote, however many, or that of a critic of one process."""
        self._learner._load("critic", state)
