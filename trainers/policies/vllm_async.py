"""vLLM's `AsyncLLM`: an engine in a process of its own, behind the same interface as the one in this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from trainers.policies.base import PolicyError
from trainers.policies.devices import on_devices
from trainers.policies.vllm_base import Engine, contained, engine_args, import_vllm, refused, sleeper
from trainers.policies.vllm_sleep import PARTS

_T = TypeVar("_T")


class _Gate:
    """Many requests at once, or one control call alone. A control call that waits holds up the requests after it."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._running = 0
        self._taken = False

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._condition:
            await self._condition.wait_for(lambda: not self._taken)
            self._running += 1
        try:
            yield
        finally:
            async with self._condition:
                self._running -= 1
                self._condition.notify_all()

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._condition:
            await self._condition.wait_for(lambda: not self._taken)
            self._taken = True
        try:
            async with self._condition:
                await self._condition.wait_for(lambda: self._running == 0)
            yield
        finally:
            async with self._condition:
                self._taken = False
                self._condition.notify_all()


def _in_thread(function: Callable[[], None]) -> Future[None]:
    """Run a function in a thread that the end of the process does not wait for."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  (handed to who waits)
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, name="vllm-transfer", daemon=True).start()
    return future


class AsyncVLLMEngine(Engine):
    """vLLM's `AsyncLLM`: the engine runs in a process of its own, and a thread of this one talks to it."""

    in_process = False

    def __init__(self, model: str, *, devices: Sequence[int] | None = None, **options: Any) -> None:
        """Start the engine's process and wait until it serves; see `VLLMEngine`.

        Args:
            model: Folder or hub id.
            devices: The GPUs, or cores, that its process has; all of them if not given.
            **options: vLLM's engine arguments.
        """
        super().__init__(model)
        self._devices = devices
        import_vllm(f"vllm:{model}")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-async", daemon=True)
        self._thread.start()
        self._ids = itertools.count()
        self._gate = _Gate()
        self._closed = False
        try:
            self._engine = asyncio.run_coroutine_threadsafe(self._build(options), self._loop).result()
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise
        self.max_length = int(self._engine.model_config.max_model_len)
        self.dtype = str(self._engine.model_config.dtype).removeprefix("torch.")
        self.sleeper = sleeper(self._engine.vllm_config)
        self.describe()

    @property
    def alive(self) -> bool:
        """Whether the engine serves; see `Engine.alive`."""
        return not (self._closed or self._broken or self._engine.errored)

    async def _build(self, options: Mapping[str, Any]) -> Any:
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = engine_args(self.model, options)
        with contained(), on_devices(self._devices):
            if arguments.enforce_eager:
                os.environ["TORCH_COMPILE_DISABLE"] = "1"  # for the child, see VLLMEngine._step
            return AsyncLLM.from_engine_args(arguments)

    async def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if self._closed:
            coroutine.close()
            raise PolicyError(f"the vLLM engine of {self.model!r} is closed")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def generate(self, prompt_ids: Sequence[int], params: Any, lora: Any = None) -> tuple[Any, int]:
        """Answer one request; see `Engine.generate`."""
        return await self._run(self._generate(prompt_ids, params, lora))

    async def _generate(self, prompt_ids: Sequence[int], params: Any, lora: Any) -> tuple[Any, int]:
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        async with self._gate.shared():
            self._check_weights()
            self.sleep_state.check_request(self.loads)
            prompt = self.prompt(prompt_ids)
            version, output = self.weight_version, None
            stream = self._engine.generate(prompt, params, str(next(self._ids)), lora_request=lora)
            try:
                async for part in stream:
                    output = part
            except (EngineDeadError, EngineGenerateError) as error:
                raise PolicyError(
                    f"the vLLM engine of {self.model!r} failed: {type(error).__name__}: {error}"
                ) from error
            except (VLLMClientError, ValueError) as error:
                raise refused(self.model, error) from error
        return output, version

    async def _idle(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a control call after the running requests have ended and before any other starts."""
        async with self._gate.exclusive():
            try:
                self._check_weights()
            except PolicyError:
                coroutine.close()
                raise
            return await coroutine

    async def _alone(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Like `_idle`, but also where the weights are unknown."""
        async with self._gate.exclusive():
            return await coroutine

    async def rpc(self, method: str, **kwargs: Any) -> list[Any]:
        """Call a method of every worker; see `Engine.rpc`."""
        result: list[Any] = await self._run(self._idle(self._engine.collective_rpc(method, kwargs=kwargs)))
        return result

    async def reload(self, version: int, **source: Any) -> None:
        """Replace the base weights; see `Engine.reload`."""

        async def replace() -> None:
            self.sleep_state.check_weights()
            if self._broken:
                await self._engine.collective_rpc("abandon_weight_update")
            await self._engine.collective_rpc("reload_weights", kwargs=source)
            await self._engine.collective_rpc("repack_output_head")
            self._broken = False
            self.weight_version = version
            self.loads += 1

        await self._run(self._alone(replace()))

    async def settle(self) -> None:
        """Return once the workers answer; see `Engine.settle`."""
        await self._run(self._alone(self._engine.collective_rpc("transfer_device")))

    async def transfer(self, version: int, send: Callable[[Callable[..., list[Any]]], None], timeout_s: float) -> None:
        """Let ``send`` replace the base weights; see `Engine.transfer`.

        It runs in a thread of its own that is left behind when it takes too long, so that neither this call nor the end
        of the process waits for it.
        """

        def call(method: str, **kwargs: Any) -> list[Any]:
            rpc = self._engine.collective_rpc(method, kwargs=kwargs)
            found: list[Any] = asyncio.run_coroutine_threadsafe(rpc, self._loop).result(timeout_s)
            return found

        async def replace() -> None:
            self.sleep_state.check_weights()
            self._broken = True
            await asyncio.wait_for(asyncio.wrap_future(_in_thread(lambda: send(call))), timeout_s)
            self._broken = False
            self.weight_version = version
            self.loads += 1

        await self._run(self._idle(replace()))

    async def sleep(self, level: int = 1) -> None:
        """Give back memory; see `Engine.sleep`."""
        self.check_sleep(level)

        async def fall_asleep() -> None:
            if self.sleep_state.asleep:
                return
            if self.sleeper == "vllm":
                await self._engine.sleep(level)
            else:
                await self._engine.reset_prefix_cache()  # its blocks go
                await self._engine.collective_rpc("release_memory", kwargs={"level": level})
            self.sleep_state.fall_asleep(level, self.loads)

        await self._run(self._idle(fall_asleep()))

    async def wake(self, parts: Collection[str] = PARTS) -> None:
        """Take memory again; see `Engine.wake`."""

        async def wake() -> None:
            waking = self.sleep_state.waking(parts)
            if not waking:
                return
            if self.sleeper == "vllm":
                await self._engine.wake_up(waking)
            else:
                await self._engine.collective_rpc("restore_memory", kwargs={"parts": waking})
            self.sleep_state.woken(waking)

        await self._run(self._idle(wake()))

    async def add_lora(self, lora: Any) -> None:
        """Load an adapter; see `Engine.add_lora`."""

        async def add() -> None:
            self.sleep_state.check_weights()
            await self._engine.collective_rpc("group_cpu_lora")
            await self._engine.add_lora(lora)

        await self._run(self._idle(add()))

    async def remove_lora(self, lora: Any) -> None:
        """Drop an adapter; see `Engine.remove_lora`."""
        await self._run(self._idle(self._engine.remove_lora(lora.lora_int_id)))

    async def close(self) -> None:
        """Stop the engine; see `Engine.close`."""
        if self._closed:
            return
        self._closed = True
        # vLLM's reader first: it would take the end of the process for a crash.
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._stop_reading(), self._loop))
        await asyncio.to_thread(self._engine.shutdown)
        del self._engine
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _stop_reading(self) -> None:
        reader = self._engine.output_handler
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            self._engine.output_handler = None
