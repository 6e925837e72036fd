"""Weights by gloo between two processes, and into an engine of vLLM: all arrive, or nothing of them is sampled with."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from trainers.models import build_tiny_model
from trainers.policies import PolicyError, Request, Sampling, make_policy
from trainers.weight_sync import VLLMSync
from trainers.weight_transfer import weight_source

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

TENSORS = (
    ("a.weight", torch.arange(12, dtype=torch.float32).reshape(3, 4)),
    ("a.bias", torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16)),
    ("empty", torch.empty(0, 4)),
    ("scale", torch.tensor(0.5, dtype=torch.float64)),
    ("across", torch.arange(6, dtype=torch.float32).reshape(2, 3).T),
    ("large", torch.arange(3_000_000, dtype=torch.int64)),
)


class Model:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.loaded: dict[str, torch.Tensor] = {}

    def load_weights(self, weights: Any) -> None:
        self.loaded = {name: tensor for name, tensor in weights if name != "refused" or self.refuse()}

    def refuse(self) -> bool:
        raise KeyError("refused")


def serve(connection: Any) -> None:
    """A worker of vLLM, as far as a back end needs it, in a process of its own."""
    from trainers.policies.vllm_gloo import GlooWorkerEngine

    model: Any = Model()
    config: Any = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_index=0, world_size=1, rank=0), model_config=None
    )
    engine = GlooWorkerEngine(SimpleNamespace(), config, torch.device("cpu"), model)  # type: ignore[arg-type]
    while (call := connection.recv()) is not None:
        method, argument = call
        try:
            if method == "join":
                engine.shutdown()
                engine.init_transfer_engine(engine.parse_init_info(argument))
            elif method == "receive":
                engine.update_weights(argument)
            held = io.BytesIO()
            torch.save(model.loaded, held)
            connection.send((None, held.getvalue()))
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            connection.send((f"{type(error).__name__}: {error}", b""))


class Peer:
    """The worker, and vLLM's client to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,))
        self.process.start()
        theirs.close()
        self._turn = threading.Lock()  # a push that has failed may still be waiting for its answer

    def call(self, method: str, argument: Any = None) -> dict[str, torch.Tensor]:
        with self._turn:
            self._ours.send((method, argument))
            error, loaded = self._ours.recv()
        if error is not None:
            raise RuntimeError(error)
        found: dict[str, torch.Tensor] = torch.load(io.BytesIO(loaded))
        return found

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.call("join", init_info)

    def start_weight_update(self) -> None:
        pass

    def update_weights(self, update_info: Any) -> None:
        self.call("receive", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        pass

    def close(self) -> None:
        if self.process.is_alive():
            self._ours.send(None)
        self.process.join(30)


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def sender(client: Any, source: Any, *, timeout_s: float = 60, rank: int = 0) -> Any:
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    from trainers.policies import vllm_gloo

    vllm_gloo.register()
    vllm_gloo.register()
    return WeightTransferTrainerFactory.trainer_init(
        vllm_gloo.GlooTrainerInitInfo("127.0.0.1", 2, timeout_s, rank=rank), client=client, source=source
    )


def assert_arrived(peer: Peer, tensors: Any) -> None:
    loaded = peer.call("look")
    assert list(loaded) == [name for name, _ in tensors]
    for name, tensor in tensors:
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_every_tensor_arrives_as_it_was_push_after_push(peer: Peer) -> None:
    weights = list(TENSORS)
    engine = sender(peer, weight_source(lambda: weights))
    engine.send_weights()
    assert_arrived(peer, TENSORS)
    weights[:] = [(name, tensor + 1) for name, tensor in TENSORS]
    engine.send_weights()
    assert_arrived(peer, weights)
    engine.shutdown()
    with pytest.raises(RuntimeError, match="has left its group"):
        engine.send_weights()


def test_the_default_process_group_is_not_touched(peer: Peer) -> None:
    engine = sender(peer, weight_source(lambda: TENSORS))
    assert not torch.distributed.is_initialized()
    engine.shutdown()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (TENSORS[:1], "ends where it has declared 'a.bias'"),
        ((("a.weight", torch.zeros(4, 3)), *TENSORS[1:]), r"gives 'a.weight' torch.float32 \(4, 3\) where"),
        ((("a.weight", torch.zeros(3, 4, dtype=torch.float16)), *TENSORS[1:]), "gives 'a.weight' torch.float16"),
        ((TENSORS[1], TENSORS[0], *TENSORS[2:]), "gives 'a.bias' .* where it has declared 'a.weight'"),
        ((*TENSORS, ("more", torch.ones(1))), "gives 'more' beyond what it has declared"),
    ],
)
def test_a_source_that_does_not_keep_to_its_metadata_is_refused(peer: Peer, given: Any, message: str) -> None:
    """And the worker, which waits for the rest, is not left waiting; a new group then serves both."""
    times = iter((TENSORS, given))
    engine = sender(peer, weight_source(lambda: next(times)))
    began = time.monotonic()
    with pytest.raises(ValueError, match=message):
        engine.send_weights()
    engine.shutdown()
    sender(peer, weight_source(lambda: TENSORS)).send_weights()
    assert_arrived(peer, TENSORS)
    assert time.monotonic() - began < 30


def test_a_worker_that_cannot_load_ends_the_push(peer: Peer) -> None:
    tensors = (("refused", torch.zeros(1)), *(("later", TENSORS[-1][1]) for _ in range(20)))
    engine = sender(peer, weight_source(lambda: tensors))
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        engine.send_weights()
    assert time.monotonic() - began < 30
    engine.shutdown()


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ((["a"], ["float32"], []), "equally many"),
        ((["a"], ["real"], [[1]]), "'a' has the type 'real'"),
        ((["a"], ["float32"], [[2, -1]]), r"'a' has the shape \[2, -1\]"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(info: Any, message: str) -> None:
    from trainers.policies.vllm_gloo import GlooUpdateInfo

    with pytest.raises(ValueError, match=message):
        GlooUpdateInfo(*info)


def test_a_worker_that_dies_is_an_error_soon() -> None:
    peer = Peer()
    weights: Any = TENSORS

    def until_it_is_dead() -> Iterator[tuple[str, torch.Tensor]]:
        yield TENSORS[0]
        os.kill(peer.process.pid or 0, signal.SIGKILL)
        peer.process.join()
        yield from TENSORS[1:]

    engine = sender(peer, weight_source(lambda: weights))
    engine.source.__class__.__iter__ = lambda self: until_it_is_dead()
    began = time.monotonic()
    with pytest.raises((RuntimeError, EOFError, ConnectionError)):
        engine.send_weights()
    assert time.monotonic() - began < 20
    engine.shutdown()


@pytest.mark.parametrize(
    ("join", "error", "message"),
    [
        (lambda info: time.sleep(5), TimeoutError, r"1 of 1 workers did not come within 0\.5 s"),
        (lambda info: 1 / 0, ZeroDivisionError, "division"),
        (lambda info: None, RuntimeError, "say that they have joined, and rank 1 has not"),
    ],
    ids=["late", "failed", "elsewhere"],
)
def test_workers_that_do_not_come_are_not_waited_for(
    join: Callable[[Any], None], error: type[Exception], message: str
) -> None:
    client = SimpleNamespace(init_weight_transfer_engine=join)
    began = time.monotonic()
    with pytest.raises(error, match=message):
        sender(client, weight_source(lambda: TENSORS), timeout_s=0.5)
    assert time.monotonic() - began < 5


def test_ranks_that_do_not_send_only_gather() -> None:
    asked: list[None] = []
    engine = sender(None, weight_source(lambda: asked.append(None) or TENSORS), rank=1)
    engine.send_weights()
    assert len(asked) == 2  # once for the metadata, and once to gather


class EngineOfThisProcess:
    """vLLM's client to an engine in this process, called from another thread."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.engine, self.loop = engine, loop
        self.version = 0

    def wait_for(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.wait_for(self.engine.rpc("open_weight_transfer", backend="gloo"))
        self.wait_for(self.engine.rpc("init_weight_transfer_engine", init_info=init_info))

    def start_weight_update(self) -> None:
        pass

    def update_weights(self, update_info: Any) -> None:
        def update(call: Callable[..., Any]) -> None:
            call("start_weight_update")
            call("update_weights", update_info=update_info)
            call("finish_weight_update")
            call("repack_output_head")

        self.wait_for(self.engine.transfer(self.version, update, 60))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        pass


@pytest.mark.parametrize("options", [{}, {"engine": "async", "transfer": "folder"}], ids=["local", "async"])
async def test_an_engine_that_has_got_half_serves_nothing_until_it_has_all(
    tmp_path: Any, options: dict[str, Any]
) -> None:
    """Fused layers are cut in the middle: two of the three parts of the attention's are there, and the third is not."""
    folder = build_tiny_model(tmp_path / "model", init_std=0.08, seed=1)
    policy: Any = make_policy(f"vllm:{folder}", share=False, **options)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    weights = [(name, parameter.detach()) for name, parameter in model.named_parameters()]
    client = EngineOfThisProcess(policy.engine, asyncio.get_running_loop())
    given: list[Any] = [weights]
    source = weight_source(lambda: weights if len(given) == 1 else given.pop())
    request = Request("go", "a_0", Sampling(max_tokens=4), seed=0)

    def moved() -> None:
        with torch.no_grad():
            for _, tensor in weights:
                tensor += 0.05 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(client.version))

    with ThreadPoolExecutor(1) as thread:

        async def beside(function: Callable[[], Any]) -> Any:
            return await asyncio.get_running_loop().run_in_executor(thread, function)

        engine = await beside(lambda: sender(client, source))
        sync = VLLMSync(policy)
        for client.version in (1, 2):
            moved()
            await beside(engine.send_weights)
            assert (await sync.verify(model)).max_abs_diff < 2e-5
            assert (policy.weight_version, policy.engine.loads) == (client.version, client.version)
        moved()
        cut = next(i for i, (name, _) in enumerate(weights) if name.endswith("layers.1.self_attn.v_proj.weight"))
        given[1:] = [weights[:cut], weights]  # what is given, after what is declared
        with pytest.raises(ValueError, match=r"ends where it has declared .*layers\.1\.self_attn\.v_proj"):
            await beside(engine.send_weights)
        engine.shutdown()
        await policy.engine.settle()
        assert not policy.engine.alive
        assert policy.weight_version == 2
        with pytest.raises(PolicyError, match="its weights are unknown since a transfer has failed"):
            await policy.generate(request)
        client.version = 4
        with pytest.raises(PolicyError, match="its weights are unknown"):
            await policy.engine.transfer(4, lambda call: None, 60)
        await sync.push(model, 3)
        assert policy.engine.alive
        assert (await sync.verify(model)).max_abs_diff < 2e-5
        moved()
        engine = await beside(lambda: sender(client, source))
        await beside(engine.send_weights)
        assert (await sync.verify(model)).max_abs_diff < 2e-5
        assert (await policy.generate(request))[0].weight_version == 4
        engine.shutdown()
    await policy.close()
