"""The vLLM engine in this process: `LLMEngine`, stepped by a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trainers.policies.base import PolicyError
from trainers.policies.vllm_base import Engine, contained, engine_args, import_vllm, refused, sleeper
from trainers.policies.vllm_sleep import PARTS

_T = TypeVar("_T")


class _Turns:
    """A lock that is handed on in the order of arrival, so that no engine starves another."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._next = self._serving = 0

    def __enter__(self) -> None:
        with self._condition:
            ticket = self._next
            self._next += 1
            self._condition.wait_for(lambda: self._serving == ticket)

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._serving += 1
            self._condition.notify_all()


_TURNS = _Turns()  # vLLM keeps the state of a forward pass in module globals: one engine of this process runs at a time
_LIVE: set[VLLMEngine] = set()  # engines of this process, which share vLLM's process groups; changed inside _TURNS only


@dataclass(eq=False, slots=True)
class _Generate:
    prompt_ids: Sequence[int]
    params: Any
    lora: Any
    future: Future[Any] = field(default_factory=Future)
    cancelled: bool = False
    version: int = 0


@dataclass(eq=False, slots=True)
class _Call:
    function: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


class VLLMEngine(Engine):
    """vLLM's `LLMEngine` in this process, stepped by one dedicated thread."""

    in_process = True

    def __init__(self, model: str, **options: Any) -> None:
        """Start the engine and wait until it serves.

        Args:
            model: Folder or hub id.
            **options: vLLM's engine arguments.

        Raises:
            MissingBackendError: If vLLM is not installed.
            PolicyError: If an option is unknown.
        """
        super().__init__(model)
        import_vllm(f"vllm:{model}")
        self._options = options
        self._inbox: queue.SimpleQueue[_Generate | _Call | None] = queue.SimpleQueue()
        self._pending: deque[_Generate | _Call] = deque()
        self._running: dict[str, _Generate] = {}
        self._ids = itertools.count()
        self._error: BaseException | None = None
        self._lock = threading.Lock()  # nothing enters the inbox once the thread has failed what was in it
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, args=(started,), name="vllm-engine", daemon=True)
        self._thread.start()
        started.result()
        self.describe()

    @property
    def alive(self) -> bool:
        """Whether the engine serves; see `Engine.alive`."""
        return self._error is None and not self._broken

    def _main(self, started: Future[None]) -> None:
        try:
            with _TURNS:
                self._engine = self._build()
                _LIVE.add(self)
        except BaseException as error:  # noqa: BLE001  (handed to the thread that waits for the start)
            self._error = error
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            while self._turn():
                pass
            self._fail_all(PolicyError(f"the vLLM engine of {self.model!r} is closed"))
        except Exception as error:  # noqa: BLE001  (handed to every request that waits)
            self._fail_all(error)
        with _TURNS:
            self._stop()

    def _stop(self) -> None:
        _LIVE.discard(self)
        client = self._engine.engine_core
        del self._engine
        if not _LIVE:
            client.shutdown()
            return
        # The full shutdown, which vLLM also calls when the client is collected, destroys the process groups that the
        # other engines still use. The last engine does it.
        client._finalizer.detach()
        client.engine_core.model_executor.shutdown()
        client.engine_core.scheduler.shutdown()

    def _build(self) -> Any:
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine
        from vllm.v1.executor import Executor

        with contained():
            config = engine_args(self.model, self._options).create_engine_config(UsageContext.LLM_CLASS)
            engine = LLMEngine(
                vllm_config=config,
                executor_class=Executor.get_class(config),
                log_stats=False,
                usage_context=UsageContext.LLM_CLASS,
                multiprocess_mode=False,
            )
        self.max_length = int(config.model_config.max_model_len)
        self.dtype = str(config.model_config.dtype).removeprefix("torch.")
        self._eager = bool(config.model_config.enforce_eager)
        self.sleeper = sleeper(config)
        return engine

    def _turn(self) -> bool:
        """Take what has arrived, step the engine once, hand out what is finished; False once closed."""
        while True:
            idle = not self._running and not self._pending
            try:
                item = self._inbox.get(block=idle)
            except queue.Empty:
                break
            if item is None:
                return False
            self._pending.append(item)
        self._abort_cancelled()
        while self._pending:
            head = self._pending[0]
            if isinstance(head, _Call) and self._running:
                break  # let the running requests end; nothing that came later overtakes the call
            self._pending.popleft()
            if head.future.set_running_or_notify_cancel():
                self._start(head)
        if self._running:
            for output in self._step():
                if output.finished:
                    item = self._running.pop(output.request_id)
                    item.future.set_result((output, item.version))
        return True

    def _step(self) -> list[Any]:
        import torch

        # vLLM compiles a small function of its sampler even with enforce_eager, which takes 15 s and a C++ compiler on
        # a CPU.
        stance = torch.compiler.set_stance("force_eager") if self._eager else contextlib.nullcontext()
        with _TURNS, stance:
            outputs: list[Any] = self._engine.step()
        return outputs

    def _start(self, item: _Generate | _Call) -> None:
        try:
            if isinstance(item, _Call):
                with _TURNS:
                    result = item.function()
                item.future.set_result(result)
                return
            self._check_weights()
            self.sleep_state.check_request(self.loads)
            request_id = str(next(self._ids))
            self._engine.add_request(request_id, self.prompt(item.prompt_ids), item.params, lora_request=item.lora)
            item.version = self.weight_version
            self._running[request_id] = item
        except Exception as error:  # noqa: BLE001  (the failure of one item, handed to who waits for it)
            ours = isinstance(item, _Call) or isinstance(error, PolicyError)
            item.future.set_exception(error if ours else refused(self.model, error))

    def _abort_cancelled(self) -> None:
        ids = [request_id for request_id, item in self._running.items() if item.cancelled]
        if ids:
            self._engine.abort_request(ids)
            for request_id in ids:
                del self._running[request_id]

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            self._error = error
            while not self._inbox.empty():
                item = self._inbox.get_nowait()
                if item is not None:
                    self._pending.append(item)
        for waiting in (*self._running.values(), *self._pending):
            if not waiting.future.done():
                waiting.future.set_exception(self._failure())
        self._running.clear()
        self._pending.clear()

    def _failure(self) -> PolicyError:
        error = self._error
        if isinstance(error, PolicyError):
            return PolicyError(*error.args)
        failure = PolicyError(f"the vLLM engine of {self.model!r} failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def _put(self, item: _Generate | _Call | None) -> None:
        with self._lock:
            if self._error is not None:
                raise self._failure()
            self._inbox.put(item)

    async def generate(self, prompt_ids: Sequence[int], params: Any, lora: Any = None) -> tuple[Any, int]:
        """Answer one request; see `Engine.generate`."""
        item = _Generate(prompt_ids, params, lora)
        self._put(item)
        try:
            result: tuple[Any, int] = await asyncio.wrap_future(item.future)
            return result
        except asyncio.CancelledError:
            item.cancelled = True
            raise

    async def call(self, function: Callable[[Any], _T]) -> _T:
        """Run `function(vllm_llm_engine)` on the engine's thread when no request runs, and return its result."""
        item = _Call(lambda: function(self._engine))
        self._put(item)
        result: _T = await asyncio.wrap_future(item.future)
        return result

    async def rpc(self, method: str, **kwargs: Any) -> list[Any]:
        """Call a method of every worker; see `Engine.rpc`."""
        return await self.call(lambda engine: engine.collective_rpc(method, kwargs=kwargs))

    async def reload(self, version: int, **source: Any) -> None:
        """Replace the base weights; see `Engine.reload`."""

        def replace(engine: Any) -> None:
            self.sleep_state.check_weights()
            if self._broken:
                engine.collective_rpc("abandon_weight_update")
            engine.collective_rpc("reload_weights", kwargs=source)
            engine.collective_rpc("repack_output_head")
            self._broken = False
            self.weight_version = version
            self.loads += 1

        await self.call(replace)

    async def transfer(self, version: int, send: Callable[[Callable[..., list[Any]]], None], timeout_s: float) -> None:
        """Let ``send`` replace the base weights, on the engine's thread; see `Engine.transfer`."""

        def replace(engine: Any) -> None:
            self._check_weights()
            self.sleep_state.check_weights()
            self._broken = True
            send(lambda method, **kwargs: engine.collective_rpc(method, kwargs=kwargs))
            self._broken = False
            self.weight_version = version
            self.loads += 1

        await asyncio.wait_for(self.call(replace), timeout_s)

    async def settle(self) -> None:
        """Return once the workers answer; see `Engine.settle`."""
        await self.rpc("transfer_device")

    async def sleep(self, level: int = 1) -> None:
        """Give back memory; see `Engine.sleep`."""
        self.check_sleep(level)

        def fall_asleep(engine: Any) -> None:
            if self.sleep_state.asleep:
                return
            if self.sleeper == "vllm":
                engine.sleep(level)
            else:
                engine.reset_prefix_cache()  # its blocks go
                engine.collective_rpc("release_memory", kwargs={"level": level})
            self.sleep_state.fall_asleep(level, self.loads)

        await self.call(fall_asleep)

    async def wake(self, parts: Collection[str] = PARTS) -> None:
        """Take memory again; see `Engine.wake`."""

        def wake(engine: Any) -> None:
            waking = self.sleep_state.waking(parts)
            if not waking:
                return
            if self.sleeper == "vllm":
                engine.wake_up(waking)
            else:
                engine.collective_rpc("restore_memory", kwargs={"parts": waking})
            self.sleep_state.woken(waking)

        await self.call(wake)

    async def add_lora(self, lora: Any) -> None:
        """Load an adapter; see `Engine.add_lora`."""

        def add(engine: Any) -> None:
            self.sleep_state.check_weights()
            engine.collective_rpc("group_cpu_lora")
            engine.add_lora(lora)

        await self.call(add)

    async def remove_lora(self, lora: Any) -> None:
        """Drop an adapter; see `Engine.remove_lora`."""
        await self.call(lambda engine: engine.remove_lora(lora.lora_int_id))

    async def close(self) -> None:
        """Stop the engine; see `Engine.close`."""
        with contextlib.suppress(PolicyError):  # closed or failed already
            self._put(None)
        await asyncio.to_thread(self._thread.join)
