"""The way of full weights to an engine in another process: which one is taken, what travels, what a failure does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainers.config import ConfigError, load_config
from trainers.policies import PolicyError, PolicySpecError, make_policy, vllm_async
from trainers.policies.vllm_async import AsyncVLLMEngine
from trainers.policies.vllm_worker import WorkerExtension
from trainers.policy_checks import check_devices, check_policies, check_transfers
from trainers.weight_sync import VLLMSync, WeightSyncError
from trainers.weight_transfer import EngineClient, WeightTransfer, choose_backend, device_id

# Which way


@pytest.mark.parametrize(
    ("learner", "workers", "backend"),
    [
        ("GPU-a", ["GPU-a"], "ipc"),
        ("GPU-a", ["GPU-b"], "nccl"),
        ("GPU-a", ["GPU-b", "GPU-c"], "nccl"),
        ("GPU-a", ["GPU-a", "GPU-b"], "shared"),  # NCCL takes a GPU once, and the handles are those of one GPU
        (None, ["GPU-a"], "shared"),
        ("GPU-a", [None], "shared"),
        (None, [None], "shared"),
    ],
)
def test_the_back_end_follows_from_where_both_ends_are(
    learner: str | None, workers: list[str | None], backend: str
) -> None:
    assert choose_backend(learner, workers) == backend
    assert choose_backend(learner, workers, backend) == backend
    assert choose_backend(learner, workers, "shared") == "shared"


@pytest.mark.parametrize(
    ("learner", "workers", "asked"),
    [("GPU-a", ["GPU-b"], "ipc"), (None, [None], "ipc"), ("GPU-a", ["GPU-a"], "nccl"), ("GPU-a", [None], "nccl")],
)
def test_a_back_end_that_cannot_join_them_is_refused(
    learner: str | None, workers: list[str | None], asked: str
) -> None:
    with pytest.raises(WeightSyncError, match=rf"transfer `{asked}`.*the learner is on {learner or 'no GPU'}"):
        choose_backend(learner, workers, asked)


def check_all(config: Any) -> None:
    check_policies(config)
    check_transfers(config)


def test_main_memory_is_no_gpu() -> None:
    assert device_id(torch.zeros(1)) is None
    worker = WorkerExtension()
    worker.device = torch.device("cpu")
    assert worker.transfer_device() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transfer": "rdma"}, r"'rdma'; it is one of auto, copy, shared, folder, ipc, nccl"),
        ({"transfer": "shared"}, "does not reach an engine of kind 'local': use the engine 'async'"),
        ({"transfer": "copy", "engine": "async"}, "does not reach an engine of kind 'async': use transfer 'auto'"),
        ({"engine": "async", "transfer_timeout": 0}, "number of seconds above 0"),
        ({"transfer": "gloo", "engine": "async"}, "'gloo' is a broadcast to the engines of a cluster.*use 'auto'"),
    ],
)
def test_a_policy_is_not_made_with_a_way_that_does_not_reach_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicySpecError, match=message):
        make_policy("vllm:nowhere", **options)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"engine": {"transfer": "nccl"}}, r"policies\.solver\.engine\.transfer: .*use the engine 'async'"),
        ({"engine": {"transfer": "copy"}, "lora": {}}, "no effect: .* has a lora"),
        ({"engine": {"transfer": "copy"}, "trainable": False}, "no effect: .* is frozen"),
        ({"engine": {"transfer_timeout": 5}}, "transfer_timeout has no effect"),
        (
            {"engine": {"engine": "async", "transfer": "folder", "transfer_timeout": 5}},
            "transfer_timeout has no effect",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(recipe: Any, policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_all(load_config(recipe({"backend": "vllm", **policy})))


@pytest.mark.parametrize("transfer", ["ipc", "nccl"])
def test_a_way_between_gpus_is_refused_without_one(recipe: Any, transfer: str) -> None:
    config = load_config(recipe({"backend": "vllm", "engine": {"engine": "async", "transfer": transfer}}))
    check_all(config)
    with pytest.raises(ConfigError, match=rf"transfer is '{transfer}', a way between GPUs, and there is none"):
        check_devices(config)


# What travels


def test_handles_travel_as_bytes_and_the_rest_as_it_is() -> None:
    """Handles hold types and tuples, which vLLM's messages would refuse or change."""
    received: list[dict[str, Any]] = []
    worker = WorkerExtension()
    worker.update_weights = received.append

    def call(method: str, **kwargs: Any) -> list[Any]:
        assert all(isinstance(value, bytes | dict) for value in kwargs.values())
        return [getattr(worker, method)(*kwargs.values())]

    client = EngineClient()
    client.call = call
    handles = [{"GPU-a": (torch.Tensor, torch.Size([2]), torch.float32, b"\0\1")}]
    client.update_weights({"names": ["a"], "ipc_handles": handles})
    client.update_weights({"names": ["b"]})
    assert received == [{"names": ["a"], "ipc_handles": handles}, {"names": ["b"]}]
    client.call = None
    with pytest.raises(WeightSyncError, match="outside of a transfer"):
        client.start_weight_update()


@pytest.mark.vllm
@pytest.mark.slow
class TestShared:
    """The back end through main memory, without an engine."""

    tensors = (
        ("a.weight", torch.arange(12, dtype=torch.float32).reshape(3, 4)),
        ("a.bias", torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16)),
        ("empty", torch.empty(0, 4)),
        ("scale", torch.tensor(0.5, dtype=torch.float64)),
        ("across", torch.arange(6, dtype=torch.float32).reshape(2, 3).T),
    )

    @staticmethod
    def sender(tensors: Any, call: Callable[..., list[Any]], rank: int = 0) -> Any:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        from trainers import weight_transfer
        from trainers.policies import vllm_shared

        vllm_shared.register()
        vllm_shared.register()
        client = EngineClient()
        client.call = call
        return WeightTransferTrainerFactory.trainer_init(
            vllm_shared.SharedTrainerInitInfo(rank=rank),
            client=client,
            source=weight_transfer.weight_source(lambda: tensors),
        )

    def test_every_tensor_arrives_as_it_was(self) -> None:
        from trainers.policies.vllm_shared import SharedUpdateInfo

        calls: list[str] = []
        mapped: list[tuple[str, torch.Tensor]] = []

        def call(method: str, **kwargs: Any) -> list[Any]:
            calls.append(method)
            if method == "update_weights":
                mapped.extend(SharedUpdateInfo(**kwargs["update_info"]).tensors())
            return [None]

        self.sender(self.tensors, call).send_weights()
        assert calls == [
            "init_weight_transfer_engine",
            "start_weight_update",
            "update_weights",
            "finish_weight_update",
            "repack_output_head",
        ]
        assert [name for name, _ in mapped] == [name for name, _ in self.tensors]
        for (_, one), (_, other) in zip(mapped, self.tensors, strict=True):  # the sender's file is closed by now
            assert one.dtype == other.dtype
            assert torch.equal(one, other)

    def test_ranks_that_do_not_send_only_gather(self) -> None:
        gathered: list[int] = []

        class Gathering(tuple[Any, ...]):
            def __iter__(self) -> Any:
                gathered.append(len(self))
                return super().__iter__()

        self.sender(Gathering(self.tensors), lambda method, **kwargs: pytest.fail(method), rank=1).send_weights()
        assert gathered == [5]

    def test_a_description_that_does_not_fit_the_file_is_refused(self) -> None:
        from trainers.policies.vllm_shared import SharedUpdateInfo

        with pytest.raises(ValueError, match="'a' does not lie inside"):
            SharedUpdateInfo("/dev/null", 8, ["a"], ["float32"], [[3]], [0])
        with pytest.raises(ValueError, match="equally many"):
            SharedUpdateInfo("/dev/null", 8, ["a"], ["float32"], [], [0])


# What a failure does


@pytest.mark.vllm
@pytest.mark.slow
class TestFailure:
    """An engine without vLLM behind it, whose workers do what a test says."""

    @pytest.fixture
    async def engine(self, team_model: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncVLLMEngine]:
        async def build(engine: AsyncVLLMEngine, options: Any) -> Any:
            return SimpleNamespace(
                model_config=SimpleNamespace(max_model_len=64, dtype=torch.float32),
                vllm_config=None,
                errored=False,
                output_handler=None,
                shutdown=lambda: None,
                collective_rpc=self.collective_rpc,
            )

        monkeypatch.setattr(AsyncVLLMEngine, "_build", build)
        monkeypatch.setattr(vllm_async, "sleeper", lambda config: "", raising=False)
        self.called: list[str] = []
        self.hanging = self.failing = ""
        engine = AsyncVLLMEngine(str(team_model))
        yield engine
        await engine.close()

    async def collective_rpc(self, method: str, kwargs: dict[str, Any] | None = None) -> list[Any]:
        self.called.append(method)
        if method == self.hanging:
            await asyncio.sleep(3600)
        if method == self.failing:
            raise RuntimeError(f"{method} went wrong")
        return [None]

    tensors = (("a", torch.ones(2)),)

    async def test_it_is_opened_once_and_every_push_counts(self, engine: AsyncVLLMEngine) -> None:
        transfer = WeightTransfer(engine, "auto", 30)
        await transfer.push(self.tensors, 1)
        await transfer.push(self.tensors, 2)
        assert transfer.backend == "shared"
        assert (engine.weight_version, engine.loads) == (2, 2)
        opening = ["transfer_device", "open_weight_transfer", "init_weight_transfer_engine"]
        update = ["start_weight_update", "update_weights", "finish_weight_update", "repack_output_head"]
        assert self.called == opening + 2 * update

    async def test_from_main_memory_a_folder_is_what_is_taken(self, engine: AsyncVLLMEngine) -> None:
        policy: Any = SimpleNamespace(name="vllm:it", engine=engine, transfer="auto", transfer_timeout=30)
        await VLLMSync(policy).push(self.tensors, 1)
        assert self.called == ["reload_weights", "repack_output_head"]
        policy.transfer = "shared"
        await VLLMSync(policy).push(self.tensors, 2)
        assert self.called[2:5] == ["transfer_device", "open_weight_transfer", "init_weight_transfer_engine"]
        assert engine.weight_version == 2

    @pytest.mark.parametrize("method", ["open_weight_transfer", "update_weights", "repack_output_head"])
    async def test_an_error_of_a_worker_is_one_of_the_sync(self, engine: AsyncVLLMEngine, method: str) -> None:
        self.failing = method
        with pytest.raises(WeightSyncError, match=rf"version 3 by 'shared': RuntimeError: {method} went wrong"):
            await WeightTransfer(engine, "auto", 30).push(self.tensors, 3)
        assert not engine.alive
        assert engine.weight_version == 0
        for request in (engine.generate((1, 2), None), engine.rpc("compare_weights")):
            with pytest.raises(PolicyError, match="its weights are unknown since a transfer has failed"):
                await request

    @pytest.mark.parametrize("method", ["transfer_device", "update_weights"])
    async def test_a_worker_that_hangs_is_not_waited_for(self, engine: AsyncVLLMEngine, method: str) -> None:
        self.hanging = method
        began = time.monotonic()
        with pytest.raises(WeightSyncError, match=r"within 0\.5 s"):
            await WeightTransfer(engine, "auto", 0.5).push(self.tensors, 1)
        assert time.monotonic() - began < 30
        assert not engine.alive

    async def test_a_meeting_that_does_not_take_place_ends(
        self, engine: AsyncVLLMEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """NCCL's back end as far as it goes without a GPU: workers wait for a learner that cannot come."""
        monkeypatch.setattr("trainers.weight_transfer.choose_backend", lambda *ends: "nccl")
        self.hanging = "init_weight_transfer_engine"
        began = time.monotonic()
        with pytest.raises(WeightSyncError, match="by 'nccl'"):
            await WeightTransfer(engine, "auto", 0.5).push(self.tensors, 1)
        assert time.monotonic() - began < 60
        assert not engine.alive
