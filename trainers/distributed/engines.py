"""Engines: processes that sample. And the policy that asks them, in whatever process a request comes from.

The weights of a version are one object in Ray's object store. Every request says which version it wants, so an engine
that has been restarted and knows nothing fetches them before it answers. Engines of vLLM that are there can be sent new
weights in place of fetching them, see :mod:`.weight_groups`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from llm_envs.tasks import stable_hash
from trainers.distributed.pool import Pool, WorkersLostError
from trainers.distributed.weight_groups import EngineProcess, GroupTransfer
from trainers.policies.base import Completion, Policy, PolicyError, Request, make_policy
from trainers.quiet import quieten_libraries
from trainers.scheduling.load import BusyTime
from trainers.weight_sync import SyncReport, WeightSync, make_sync
from trainers.weight_transfer import EngineClient

__all__ = ["Engine", "EnginePolicy", "EngineSync", "Engines", "Sampler", "Weights"]


@dataclass(frozen=True, slots=True)
class Sampler:
    """How an engine makes a policy.

    Attributes:
        spec: The policy spec.
        options: Its options.
        lora: Whether the weights that it is given are those of an adapter.
    """

    spec: str
    options: Mapping[str, Any]
    lora: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """A version of a policy's weights.

    Attributes:
        version: Its number.
        refs: The object that holds them, what :meth:`.learners.RayLearner.publish` returns. In a list, since Ray would
            put the object itself in its place.
    """

    version: int
    refs: list[Any]


@dataclass(frozen=True, slots=True)
class Engines:
    """Which engines there are.

    Attributes:
        generation: How often they have changed.
        actors: The engines of each group.
    """

    generation: int
    actors: Mapping[str, Sequence[Any]]


class Engine:
    """The actor. It holds the policies of one group.

    Models are loaded at the first call of ``ready``, whose error reaches the driver as it is.
    """

    def __init__(self, samplers: Mapping[str, Sampler], threads: int | None) -> None:
        quieten_libraries()
        # Weights come as arrays in shared memory, which are only read.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        self._samplers = dict(samplers)
        self._policies: dict[str, Policy] = {}
        self._syncs: dict[str, WeightSync] = {}
        self._versions: dict[str, int] = {}
        self._arrivals: dict[str, Counter[str]] = {name: Counter() for name in samplers}
        self._process = uuid.uuid4().hex
        self._workers: dict[str, int] = {}
        self._locks = {name: asyncio.Lock() for name in samplers}
        self._busy = BusyTime()
        self._scratch = tempfile.TemporaryDirectory(prefix="llm-envs-engine-")

    async def ready(self) -> dict[str, Any]:
        """Load the models, and say where they are and what each is called in reports."""
        self._load()
        labels = {name: policy.label for name, policy in self._policies.items()}
        return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id(), "labels": labels}

    async def generate(self, name: str, request: Request, weights: Weights | None) -> list[Completion]:
        """Answer a request with the weights that it asks for."""
        await self.load(name, weights)
        tokens = 0
        self._busy.begin()
        try:
            completions = await self._policies[name].generate(request)
            tokens = sum(completion.completion_tokens or 0 for completion in completions)
        finally:
            self._busy.end(tokens)
        return completions

    async def usage(self) -> tuple[float, int]:
        """Return in how many seconds there were requests to answer, and the tokens sampled, since the last call."""
        return self._busy.take()

    async def load(self, name: str, weights: Weights | None) -> None:
        """Give a policy weights, unless it has them or newer ones."""
        self._load()
        if weights is None or self._versions.get(name, -1) >= weights.version:
            return
        async with self._locks[name]:
            if self._versions.get(name, -1) >= weights.version:
                return
            payload = await weights.refs[0]
            await self._syncs[name].push(_source(payload), weights.version)
            self._versions[name] = weights.version
            self._arrivals[name]["object store"] += 1

    async def arrivals(self, name: str) -> dict[str, int]:
        """Return how often weights of a policy have arrived in this process, by the way that they took."""
        return dict(self._arrivals[name])

    async def process(self, name: str) -> EngineProcess:
        """Say which process this is, for a policy that vLLM samples."""
        self._load()
        if name not in self._workers:
            self._workers[name] = len(await self._vllm(name).rpc("transfer_device"))
        return EngineProcess(self._process, self._workers[name])

    async def join(self, name: str, process: str, backend: str, init_info: Mapping[str, Any]) -> None:
        """Have vLLM's workers join the group of a learner; see :class:`.weight_groups.WeightSender`."""
        self._check_process(process)
        async with self._locks[name]:
            await self._vllm(name).rpc("open_weight_transfer", backend=backend)
            await self._vllm(name).rpc("init_weight_transfer_engine", init_info=dict(init_info))

    async def receive(
        self, name: str, process: str, version: int, update_info: Mapping[str, Any], timeout_s: float
    ) -> None:
        """Take what the learner sends to the group, all of it or nothing that would ever be sampled with."""
        self._check_process(process)

        def update(call: Callable[..., list[Any]]) -> None:
            client = EngineClient()
            client.call = call
            client.start_weight_update()
            client.update_weights(dict(update_info))
            client.finish_weight_update()

        async with self._locks[name]:
            self._versions.pop(name, None)  # so that after a failure every request fetches what it asks for
            await self._vllm(name).transfer(version, update, timeout_s)
            self._versions[name] = version
            self._arrivals[name]["group"] += 1

    async def settle(self, name: str, process: str) -> None:
        """Return once this process has nothing more to do with a transfer that it took part in."""
        if process == self._process:
            async with self._locks[name]:
                await self._vllm(name).settle()

    def _check_process(self, process: str) -> None:
        if process != self._process:
            raise RuntimeError("the process that was to take part in the transfer has died")

    def _vllm(self, name: str) -> Any:
        policy: Any = self._policies[name]
        return policy.engine

    def _load(self) -> None:
        for name, sampler in self._samplers.items():
            if name not in self._policies:
                policy = make_policy(sampler.spec, **sampler.options)
                if hasattr(policy, "load_weights") or hasattr(policy, "engine"):
                    self._syncs[name] = make_sync(policy, lora=sampler.lora, folder=Path(self._scratch.name) / name)
                self._policies[name] = policy


def _source(payload: Mapping[str, Any]) -> Any:
    """What :meth:`WeightSync.push` takes, from what a learner has published."""
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in payload["tensors"].items()}
    if payload["adapter"] is None:
        return list(tensors.items())
    from trainers.weight_sync import Adapter

    return Adapter("default", payload["adapter"], tensors)


class EnginePolicy(Policy):
    """Answers requests through the engines of a group.

    The samples of a task share their prompts, so they go to one engine, as long as that is not busier than others.
    Nobody waits for anybody: an engine batches what it has been asked. A completion is drawn with the seed of its
    request, so it depends on neither the engine nor the batch, but for rounding.

    Attributes:
        key: Its name in the engines.
        pool: The engines.
        weights: What requests ask for; None is what the engine has started with.
    """

    def __init__(self, key: str, spec: str, label: str, pool: Pool) -> None:
        super().__init__(spec, label)
        self.key = key
        self.pool = pool
        self.weights: Weights | None = None

    def use(self, weights: Weights | None) -> None:
        """Ask for these weights from now on."""
        self.weights = weights
        self.weight_version = 0 if weights is None else weights.version

    async def generate(self, request: Request) -> list[Completion]:
        """Answer a request; see :meth:`Policy.generate`."""
        return await self._ask(request)

    async def _ask(self, request: Request, only: int | None = None) -> list[Completion]:
        request = dataclasses.replace(request, env=None)  # an environment stays in its process
        home = stable_hash("engine", *request.key[:1])
        try:
            completions: list[Completion] = await self.pool.call(
                "generate", self.key, request, self.weights, home=home, only=only
            )
        except WorkersLostError as problem:
            raise PolicyError(f"policy {self.name!r}: {problem}") from problem
        return completions


class _Pinned(EnginePolicy):
    """The same policy on one engine."""

    def __init__(self, policy: EnginePolicy, engine: int) -> None:
        super().__init__(policy.key, policy.name, f"{policy.label}, engine {engine}", policy.pool)
        self.use(policy.weights)
        self._engine = engine

    async def generate(self, request: Request) -> list[Completion]:
        return await self._ask(request, only=self._engine)


class EngineSync(WeightSync):
    """Publishes a learner's weights once, gives them to every engine, and proves that each of them has them.

    Args:
        policy: The policy that asks the engines.
        group: How weights are broadcast to engines; without it they all fetch them from the object store.
    """

    def __init__(self, policy: EnginePolicy, group: GroupTransfer | None = None) -> None:
        self.policy: EnginePolicy = policy
        self._group = group

    async def set_aside(self, source: Any) -> list[Any]:
        """Return the object that holds the weights of a :class:`.learners.RayLearner` as they are now."""
        return [await asyncio.to_thread(source.publish)]  # not in this thread, which episodes may be waiting for

    async def push(self, source: Any, version: int) -> None:
        """Give the engines the weights of a :class:`.learners.RayLearner`, or what :meth:`set_aside` has returned.

        What was set aside is not broadcast: the ranks, which would send it, are at their next update.
        """
        learner, refs = (None, source) if isinstance(source, list) else (source, await self.set_aside(source))
        self.policy.use(Weights(version, refs))
        pool = self.policy.pool
        try:
            if self._group is not None and learner is not None:
                await self._group.send(learner, refs[0], version)
            # An engine that has them does nothing.
            await asyncio.gather(
                *(pool.call("load", self.policy.key, self.policy.weights, only=i) for i in range(len(pool.actors)))
            )
        except WorkersLostError as problem:
            raise PolicyError(f"policy {self.policy.name!r}: {problem}") from problem

    async def verify(self, learner: Any, **arguments: Any) -> SyncReport:
        """Prove that every engine samples with the learner's weights; see :meth:`WeightSync.verify`.

        Returns:
            The comparison of the engine that is furthest off.
        """
        reports = [
            await _verify(_Pinned(self.policy, engine), learner, arguments)
            for engine in range(len(self.policy.pool.actors))
        ]
        return max(reports, key=lambda report: report.max_abs_diff)


async def _verify(policy: EnginePolicy, learner: Any, arguments: Mapping[str, Any]) -> SyncReport:
    single = EngineSync(policy)
    return await WeightSync.verify(single, _LogprobsOnly(learner), **arguments)


class _LogprobsOnly:
    """A learner of which only log-probs are asked: its weights are not in this process to be compared."""

    def __init__(self, learner: Any) -> None:
        self.logprobs = learner.logprobs
