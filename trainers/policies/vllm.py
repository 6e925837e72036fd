"""`vllm:<model>`: a policy that samples through a vLLM engine, with continuous batching.

Policies with the same model and the same engine options share one engine, e.g. several LoRA adapters on one base.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import Any

from trainers.models import resolve_model
from trainers.policies.base import (
    Completion,
    Policy,
    PolicyError,
    PolicySpec,
    PolicySpecError,
    Request,
    Sampling,
    candidate_seed,
)
from trainers.policies.chat import Prompter, check_length, completion_text, end_token_ids
from trainers.policies.vllm_async import AsyncVLLMEngine
from trainers.policies.vllm_base import Engine, import_vllm
from trainers.policies.vllm_engine import VLLMEngine
from trainers.policies.vllm_sleep import PARTS

_KINDS: Mapping[str, type[VLLMEngine] | type[AsyncVLLMEngine]] = {"local": VLLMEngine, "async": AsyncVLLMEngine}
_TRANSFERS: Mapping[str, tuple[str, ...]] = {
    "local": ("auto", "copy"),
    "async": ("auto", "shared", "folder", "ipc", "nccl"),
}
_SHARED: dict[tuple[str, str, str], Engine] = {}


def acquire_engine(model: str, *, kind: str = "local", share: bool = True, **options: Any) -> Engine:
    """Return an engine for a model: a running one with the same settings, or a new one.

    Args:
        model: Bundled name, local folder or hub id.
        kind: `local` for an engine in this process, `async` for vLLM's `AsyncLLM`.
        share: False gives an engine that no other call returns. Policies whose full weights are trained apart need
            that.
        **options: vLLM's engine arguments.

    Raises:
        PolicySpecError: If the kind is unknown.
        MissingBackendError: If vLLM is not installed.
    """
    if kind not in _KINDS:
        raise PolicySpecError(f"no vLLM engine {kind!r}: expected one of {', '.join(_KINDS)}")
    import_vllm(f"vllm:{model}")
    source = str(resolve_model(model))
    key = (source, kind, repr(sorted(options.items())))
    engine = _SHARED.get(key) if share else None
    if engine is None or not engine.alive:
        engine = _KINDS[kind](source, **options)
        if share:
            _SHARED[key] = engine
    return engine


def check_transfer(kind: str, transfer: str, timeout_s: float) -> None:
    """Check the way that new weights are to take to an engine; see :class:`VLLMPolicy`.

    Raises:
        PolicySpecError: There is no such way, or not to this kind of engine.
    """
    known = [name for names in _TRANSFERS.values() for name in names]
    if transfer == "gloo":
        raise PolicySpecError(
            "transfer 'gloo' is a broadcast to the engines of a cluster, and here they are in one process with the "
            "learner, or beside it: use 'auto', or run with --cluster"
        )
    if transfer not in known:
        raise PolicySpecError(f"transfer is {transfer!r}; it is one of {', '.join(dict.fromkeys(known))}")
    if transfer not in _TRANSFERS.get(kind, known):
        fix = "transfer 'auto' or an engine of this process ('local')" if transfer == "copy" else "the engine 'async'"
        raise PolicySpecError(f"transfer {transfer!r} does not reach an engine of kind {kind!r}: use {fix}")
    if transfer == "shared" and not hasattr(os, "memfd_create"):
        raise PolicySpecError("transfer 'shared' needs Linux: use 'folder'")
    if not (isinstance(timeout_s, int | float) and timeout_s > 0):
        raise PolicySpecError(f"transfer_timeout is {timeout_s!r}; it is a number of seconds above 0")


class VLLMPolicy(Policy):
    """Samples through a vLLM engine.

    Attributes:
        engine: The engine, which other policies may share.
        lora: vLLM's `LoRARequest` of the adapter in use, or None for the base weights. Weight sync sets it.
        transfer: How weight sync brings new full weights to the engine: `copy` in this process; `shared` memory, `ipc`
            or `nccl` through vLLM's weight transfer, or a `folder`, to another; `auto` chooses.
        transfer_timeout: Seconds that this may take.
    """

    def __init__(
        self,
        engine: Engine,
        lora: Any = None,
        *,
        name: str | None = None,
        label: str | None = None,
        system_prompt: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        transfer: str = "auto",
        transfer_timeout: float = 300.0,
    ) -> None:
        """Use an engine; it is closed when the last policy that uses it is closed.

        Args:
            engine: A running engine.
            lora: Adapter, or None.
            name: The spec string; `vllm:<model>` if not given.
            label: What runs, for reports.
            system_prompt: See `Prompter`.
            chat_template_kwargs: See `Prompter`.
            transfer: See the attribute.
            transfer_timeout: See the attribute.
        """
        self.engine = engine
        self.transfer = transfer
        self.transfer_timeout = transfer_timeout
        self.lora = lora
        self._adapter_version = 0
        super().__init__(f"vllm:{engine.model}" if name is None else name, label)
        self._prompter = Prompter(
            engine.tokenizer, system_prompt=system_prompt, chat_template_kwargs=chat_template_kwargs
        )
        self._end_ids = list(end_token_ids(engine.tokenizer, engine.generation_config))
        self._open = True
        engine.users += 1

    @classmethod
    def from_spec(
        cls,
        spec: str,
        parsed: PolicySpec,
        *,
        engine: str = "local",
        share: bool = True,
        system_prompt: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        transfer: str = "auto",
        transfer_timeout: float = 300.0,
        **options: Any,
    ) -> VLLMPolicy:
        """Make the policy that a spec names; see `acquire_engine` for `engine`, `share` and the options."""
        check_transfer(engine, transfer, transfer_timeout)
        running = acquire_engine(parsed.target, kind=engine, share=share, **options)
        return cls(
            running,
            name=spec,
            system_prompt=system_prompt,
            chat_template_kwargs=chat_template_kwargs,
            transfer=transfer,
            transfer_timeout=transfer_timeout,
        )

    @property
    def weight_version(self) -> int:
        """Version of the adapter in use, or of the engine's base weights without one."""
        return self._adapter_version if self.lora is not None else self.engine.weight_version

    @weight_version.setter
    def weight_version(self, version: int) -> None:
        if self.lora is not None:
            self._adapter_version = version
        else:
            self.engine.weight_version = version

    async def generate(self, request: Request) -> list[Completion]:
        """Answer a request; see `Policy.generate`. Cancelling the call aborts its candidates."""
        prompt_ids = self._prompter.encode(request.observation)
        check_length(self.name, len(prompt_ids), request.sampling.max_tokens, self.engine.max_length)
        seeds = [candidate_seed(request.seed, index) for index in range(request.n)]
        if len(seeds) == 1:
            return [await self._sample(prompt_ids, request.sampling, seeds[0])]
        tasks = [asyncio.ensure_future(self._sample(prompt_ids, request.sampling, seed)) for seed in seeds]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:  # after a failure or a cancellation the other candidates are of no use
                task.cancel()

    async def _sample(self, prompt_ids: tuple[int, ...], sampling: Sampling, seed: int) -> Completion:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            stop=list(sampling.stop) or None,
            stop_token_ids=self._end_ids,
            seed=seed,
            logprobs=0,
            detokenize=bool(sampling.stop),  # only to find stop strings; the text is decoded once, at the end
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        lora, adapter_version = self.lora, self._adapter_version
        output, base_version = await self.engine.generate(prompt_ids, params, lora)
        version = base_version if lora is None else adapter_version
        return self._completion(prompt_ids, output.outputs[0], sampling.stop, version)

    def _completion(self, prompt_ids: tuple[int, ...], output: Any, stop: tuple[str, ...], version: int) -> Completion:
        if output.finish_reason not in ("stop", "length"):
            raise PolicyError(f"policy {self.name!r}: the engine ended a request with {output.finish_reason!r}")
        ids = tuple(int(token) for token in output.token_ids)
        logprobs = tuple(float(entry[token].logprob) for token, entry in zip(ids, output.logprobs, strict=True))
        return Completion(
            text=completion_text(self.engine.tokenizer, ids, stop),
            finish_reason=output.finish_reason,
            prompt_ids=prompt_ids,
            token_ids=ids,
            logprobs=logprobs,
            weight_version=version,
            prompt_tokens=len(prompt_ids),
            completion_tokens=len(ids),
        )

    async def sleep(self, level: int = 1) -> None:
        """Put the engine to sleep, which other policies may share; see `Policy.sleep`."""
        await self.engine.sleep(level)

    async def wake(self, parts: Collection[str] = PARTS) -> None:
        """Wake the engine; see `Policy.wake`."""
        await self.engine.wake(parts)

    async def close(self) -> None:
        """Leave the engine, and stop it if no other policy uses it."""
        if not self._open:
            return
        self._open = False
        self.engine.users -= 1
        if self.engine.users == 0:
            for key in [key for key, engine in _SHARED.items() if engine is self.engine]:
                del _SHARED[key]
            await self.engine.close()
