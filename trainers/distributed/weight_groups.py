"""Full weights from a learner to all vLLM engines of its policy at once, through vLLM's own weight transfer.

The first rank of a learner and the workers of all engines are one process group, in which the rank broadcasts what the
learner has published: by `nccl`, vLLM's, from GPU to GPUs, or by `gloo` (:mod:`trainers.policies.vllm_gloo`), from and
to main memory. The group is formed at the first push and kept; another one is formed when an engine or the rank is no
longer the process that it was, and after a failure.

A failure is none of the run's. The object in Ray's object store remains what a version is: whoever did not receive it
from the group fetches it from there before it answers anything. Who hangs is ended, and Ray starts it anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from trainers.config import ConfigError, TrainConfig
from trainers.distributed.pool import Pool
from trainers.weight_check import WeightSyncError
from trainers.weight_transfer import Tensors, at_rest, nccl_info, weight_source

if TYPE_CHECKING:
    import torch
    from vllm.distributed.weight_transfer.base import TrainerInitInfo

__all__ = ["EngineProcess", "EnginesClient", "GroupTransfer", "Push", "WeightSender", "group_backend"]

logger = logging.getLogger(__name__)

GROUPS = ("nccl", "gloo")
"""Back ends that broadcast to the engines of a cluster."""

TIMEOUT = 300.0
"""Seconds that a push may take, where `transfer_timeout` does not say."""

SETTLE = 30.0
"""Seconds in which an engine must have come to an end with a transfer that has failed."""


def group_backend(name: str, config: TrainConfig) -> str | None:
    """Return the back end by which new weights of a policy are broadcast to its engines on a cluster.

    Args:
        name: The policy.
        config: The configuration of the run.

    Returns:
        The name of the back end; None where engines fetch weights from the object store.

    Raises:
        ConfigError: The way that was asked for does not lead there.
    """
    policy, cluster = config.policies[name], config.cluster
    where = f"policies.{name}.engine"
    if policy.backend != "vllm":
        if policy.backend == "hf" and "transfer" in policy.engine:
            raise ConfigError(
                f"{where}.transfer has no effect: only vLLM's engines are sent weights, those of transformers fetch "
                "them from the object store. Drop it"
            )
        return None
    if not policy.trainable or policy.lora is not None:
        return None
    asked, gpus = policy.engine.get("transfer", "auto"), min(cluster.learner_gpus, cluster.engine_gpus)
    if asked in ("ipc", "shared", "folder"):
        raise ConfigError(
            f"{where}.transfer is {asked!r}: it joins a learner and an engine of one machine, and on a cluster engines "
            "have processes and devices of their own. Take one of auto, copy, nccl, gloo"
        )
    if asked not in ("auto", "copy", *GROUPS):
        raise ConfigError(f"{where}.transfer is {asked!r}; on a cluster it is one of auto, copy, nccl, gloo")
    if asked == "nccl" and not gpus:
        raise ConfigError(
            f"{where}.transfer is 'nccl', a way between GPUs, and cluster.learner_gpus is {cluster.learner_gpus}, "
            f"cluster.engine_gpus {cluster.engine_gpus}. Give both GPUs, or take 'gloo' or 'auto'"
        )
    backend = asked if asked in GROUPS else "nccl" if asked == "auto" and gpus else None
    if "transfer_timeout" in policy.engine:
        timeout = policy.engine["transfer_timeout"]
        if backend is None:
            raise ConfigError(f"{where}.transfer_timeout has no effect: engines fetch weights themselves. Drop it")
        if not (isinstance(timeout, int | float) and timeout > 0):
            raise ConfigError(f"{where}.transfer_timeout is {timeout!r}; it is a number of seconds above 0")
    return backend


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """The process that an engine is, until Ray has to start another.

    Attributes:
        token: What no other process has.
        workers: The workers that vLLM has in it.
    """

    token: str
    workers: int


@dataclass(frozen=True, slots=True)
class Push:
    """What the first rank of a learner must know to send a version.

    Attributes:
        policy: The policy.
        version: Version of the weights.
        backend: `nccl` or `gloo`.
        engines: The actors.
        processes: The process of each.
        timeout_s: Seconds that all of it may take.
    """

    policy: str
    version: int
    backend: str
    engines: Sequence[Any]
    processes: Sequence[EngineProcess]
    timeout_s: float


class EnginesClient:
    """vLLM's `VLLMWeightSyncClient` for the engines of a cluster.

    vLLM's client makes four calls to one server. Here they go to every engine, which has ranks of its own in the group;
    and an update, three calls there, is one, so that no engine is left in the middle of it when the learner dies.
    """

    def __init__(self, push: Push) -> None:
        """Call the engines of a push, whose seconds begin now."""
        self._push = push
        self._ends = time.monotonic() + push.timeout_s

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have the workers of all engines join the group."""
        offset, infos = init_info["rank_offset"], []
        for process in self._push.processes:
            infos.append({**init_info, "rank_offset": offset})
            offset += process.workers
        self._on_engines("join", [(self._push.backend, info) for info in infos])

    def start_weight_update(self) -> None:
        """Nothing: see :meth:`update_weights`."""

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Have the workers of all engines make ready, receive and serve the weights."""
        push = self._push
        self._on_engines("receive", [(push.version, update_info, push.timeout_s)] * len(push.engines))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Nothing: see :meth:`update_weights`."""

    def _on_engines(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        """Call a method of every engine at once, and end with the first error."""
        push = self._push
        calls = {
            getattr(engine, method).remote(push.policy, process.token, *more): number
            for number, (engine, process, more) in enumerate(zip(push.engines, push.processes, arguments, strict=True))
        }
        while calls:
            done, _ = ray.wait(list(calls), num_returns=1, timeout=max(0.0, self._ends - time.monotonic()))
            if not done:
                numbers = ", ".join(str(number) for number in sorted(calls.values()))
                raise WeightSyncError(f"`{method}` of engine {numbers} took more than {push.timeout_s:g} s")
            number = calls.pop(done[0])
            try:
                ray.get(done[0])
            except RayActorError as error:
                raise WeightSyncError(f"engine {number} died in `{method}`") from error
            except RayTaskError as error:
                cause = error.cause if isinstance(error.cause, BaseException) else error
                raise WeightSyncError(
                    f"`{method}` of engine {number} failed: {type(cause).__name__}: {_first_line(cause)}"
                ) from error


class WeightSender:
    """The learner's end: the first rank's, which keeps the group from push to push."""

    def __init__(self) -> None:
        self._joined: tuple[str, tuple[EngineProcess, ...]] | None = None
        self._sender: Any = None
        self._tensors: Tensors = ()

    def send(self, push: Push, tensors: Tensors, parameter: torch.Tensor) -> str:
        """Broadcast weights to all engines, in a new group if the one that there is has other members.

        Args:
            push: Where to.
            tensors: The weights under the names of the checkpoint, in main memory.
            parameter: One of the learner's own, which says which GPU it has.

        Returns:
            What went wrong, if something did; the group is then given up, and any engine may be without the weights.
        """
        self._tensors = tensors
        try:
            with at_rest(parameter):
                client = EnginesClient(push)
                members = push.backend, tuple(push.processes)
                if self._joined != members:
                    self._leave()
                    self._sender = self._join(push, client, parameter)
                    self._joined = members
                self._sender.client = client
                self._sender.send_weights()
        except Exception as error:  # noqa: BLE001  (whatever it is: the driver is told, and the weights have another way)
            traceback.clear_frames(error.__traceback__)  # they hold the store that workers may wait at
            self._leave()
            return f"{type(error).__name__}: {_first_line(error)}"
        finally:
            self._tensors = ()
        return ""

    def _join(self, push: Push, client: EnginesClient, parameter: torch.Tensor) -> Any:
        from trainers.policies.vllm_base import import_vllm

        import_vllm(push.policy)
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        device = parameter.device if push.backend == "nccl" else None
        source = weight_source(lambda: self._tensors, device)
        return WeightTransferTrainerFactory.trainer_init(_init_info(push), client=client, source=source)

    def _leave(self) -> None:
        sender, self._sender, self._joined = self._sender, None, None
        if sender is not None:
            sender.shutdown()


def _init_info(push: Push) -> TrainerInitInfo:
    """What the learner's end of a back end is opened with."""
    workers, address = sum(process.workers for process in push.processes), ray.util.get_node_ip_address()
    if push.backend == "nccl":
        return nccl_info(workers, address)
    from trainers.policies import vllm_gloo

    vllm_gloo.register()
    return vllm_gloo.GlooTrainerInitInfo(address, 1 + workers, push.timeout_s, rank=0)


class GroupTransfer:
    """The driver's part: asks who the engines are, has the learner send, and ends what hangs.

    Args:
        pool: The engines.
        name: The policy.
        config: The configuration of the run.
        backend: `nccl` or `gloo`.
    """

    def __init__(self, pool: Pool, name: str, config: TrainConfig, backend: str) -> None:
        options: Mapping[str, Any] = config.policies[name].engine
        self._pool, self._name, self._backend = pool, name, backend
        self._timeout_s = float(options.get("transfer_timeout", TIMEOUT))
        self._attempts = config.cluster.attempts
        self._failed = 0

    async def send(self, learner: Any, payload: Any, version: int) -> None:
        """Have published weights sent to every engine.

        Args:
            learner: The :class:`.learners.RayLearner`.
            payload: What it has published.
            version: Version of the weights.

        Raises:
            WeightSyncError: It has failed as often, one push after the other, as ``cluster.attempts`` says.
            WorkersLostError: An engine cannot be restarted.
        """
        engines = list(self._pool.actors)
        processes = await asyncio.gather(
            *(self._pool.call("process", self._name, only=number) for number in range(len(engines)))
        )
        push = Push(self._name, version, self._backend, engines, processes, self._timeout_s)
        problem = await asyncio.to_thread(learner.send, push, payload)
        if not problem:
            self._failed = 0
            return
        self._failed += 1
        if self._failed >= self._attempts:
            raise WeightSyncError(
                f"policy {self._name!r}: {self._failed} pushes in a row did not reach all engines by "
                f"{self._backend!r}, the last one, of version {version}, because: {problem}. Raise transfer_timeout, "
                "or set transfer to 'copy', which has engines fetch weights from the object store"
            )
        logger.warning(
            "Weights of %r, version %d, did not reach all engines by %r: %s. Those without them fetch them from the "
            "object store",
            self._name,
            version,
            self._backend,
            problem,
        )
        await asyncio.gather(*(self._settle(push, number) for number in range(len(engines))))

    async def _settle(self, push: Push, number: int) -> None:
        """Wait until an engine has come to an end with what has failed; end it if it does not."""
        engine = push.engines[number]
        try:
            await asyncio.wait_for(engine.settle.remote(push.policy, push.processes[number].token), SETTLE)
        except RayActorError:  # it has died of it, which the pool will see
            pass
        except TimeoutError:
            logger.warning("Engine %d of %r hangs in the transfer that has failed, and is ended", number, push.policy)
            ray.kill(engine, no_restart=False)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]
