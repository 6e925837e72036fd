"""`hf:<model>`: a policy that samples from a transformers model in this process, deterministically."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.models import resolve_model
from trainers.policies.base import (
    Completion,
    MissingBackendError,
    Policy,
    PolicyError,
    PolicySpec,
    PolicySpecError,
    Request,
    candidate_seed,
)
from trainers.policies.batching import Batcher, Job
from trainers.policies.chat import Prompter, check_length, completion_text, end_token_ids

if TYPE_CHECKING:
    import torch
    from peft import PeftConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TINY = 10_000_000  # parameters
_BATCH, _TINY_BATCH = 64, 256


class HFPolicy(Policy):
    """Samples with a batched loop of its own on a transformers model.

    Requests are held until every episode that joined waits; then they run in batches, in the order of their keys. The
    same run therefore repeats bit for bit on the same machine. The model runs in a worker thread.

    Attributes:
        model: The transformers model, or a peft model around it once an adapter was loaded.
        tokenizer: Its tokenizer.
        max_length: Longest sequence that the model takes, in tokens.
        threads: Threads that a batch is computed with on a CPU; torch's own number if None.
    """

    model: PreTrainedModel

    def __init__(
        self,
        model: str | Path,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        dtype: str | None = None,
        device: str | None = None,
        max_batch: int | None = None,
        threads: int | None = None,
        **model_options: Any,
    ) -> None:
        """Load a model.

        Args:
            model: Bundled name, local folder or hub id.
            name: The spec string; `hf:<model>` if not given.
            system_prompt: See `Prompter`.
            chat_template_kwargs: See `Prompter`.
            dtype: Name of the weights' type; `float32` on a CPU and the checkpoint's own elsewhere if not given.
            device: Where the model runs; the first GPU, or the CPU where there is none, if not given.
            max_batch: Most completions in one batch. If not given, 64, or 256 for a model of at most ten million
                parameters, of which every step costs much the same for few rows as for many.
            threads: See the attribute.
            **model_options: Passed on to `from_pretrained` of the model.

        Raises:
            MissingBackendError: If torch or transformers is not installed.
            ModelNotFoundError: If there is no such model.
            PolicySpecError: If the model takes no such option.
        """
        super().__init__(f"hf:{model}" if name is None else name)
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise MissingBackendError(
                f"policy {self.name!r} needs torch and transformers: install llm-envs[train] ({error})"
            ) from error
        source = str(resolve_model(model))
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if dtype is None:
            dtype = "float32" if torch.device(device).type == "cpu" else "auto"
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source)
        try:
            loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **model_options)
        except TypeError as error:
            if not model_options:
                raise
            raise PolicySpecError(
                f"policy {self.name!r}: transformers does not take the options {', '.join(model_options)} ({error})"
            ) from error
        self.model = loaded.to(device).eval()
        self.threads = threads
        self.max_length = int(self.model.config.get_text_config().max_position_embeddings)
        self._prompter = Prompter(
            self.tokenizer, system_prompt=system_prompt, chat_template_kwargs=chat_template_kwargs
        )
        self._end_ids = end_token_ids(self.tokenizer, self.model.generation_config)
        pad_id = self.tokenizer.pad_token_id
        self._pad_id = int(pad_id) if pad_id is not None else 0
        if max_batch is None:
            max_batch = _TINY_BATCH if self.tiny else _BATCH
        self._batcher = Batcher(self._answer, max_batch)

    @classmethod
    def from_spec(cls, spec: str, parsed: PolicySpec, **options: Any) -> HFPolicy:
        """Make the policy that a spec names."""
        return cls(parsed.target, name=spec, **options)

    @property
    def tiny(self) -> bool:
        """Whether the model has at most ten million parameters."""
        return bool(self.model.num_parameters() <= _TINY)

    def join(self) -> None:
        """Count an episode that starts: batches wait for it."""
        self._batcher.join()

    def leave(self) -> None:
        """Count an episode that has ended."""
        self._batcher.leave()

    async def generate(self, request: Request) -> list[Completion]:
        """Answer a request; see `Policy.generate`."""
        prompt_ids = self._prompter.encode(request.observation)
        check_length(self.name, len(prompt_ids), request.sampling.max_tokens, self.max_length)
        return await self._batcher.submit(Job(request, prompt_ids))

    def _answer(self, jobs: Sequence[Job]) -> list[list[Completion]]:
        """Sample all candidates of jobs with equal sampling settings; runs in the worker thread."""
        from trainers.policies.decode import Row, decode

        sampling = jobs[0].request.sampling
        rows = [
            Row(job.prompt_ids, candidate_seed(job.request.seed, index))
            for job in jobs
            for index in range(job.request.n)
        ]
        with _threads(self.threads):
            decoded = decode(
                self.model,
                rows,
                sampling,
                end_ids=self._end_ids,
                pad_id=self._pad_id,
                to_text=lambda ids: completion_text(self.tokenizer, ids, ()),
            )
        completions = iter(
            Completion(
                text=completion_text(self.tokenizer, result.token_ids, sampling.stop),
                finish_reason=result.finish_reason,
                prompt_ids=row.prompt_ids,
                token_ids=result.token_ids,
                logprobs=result.logprobs,
                weight_version=self.weight_version,
                prompt_tokens=len(row.prompt_ids),
                completion_tokens=len(result.token_ids),
            )
            for row, result in zip(rows, decoded, strict=True)
        )
        return [[next(completions) for _ in range(job.request.n)] for job in jobs]

    async def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Copy new weights into the model, between two batches.

        Args:
            named_tensors: Every parameter by the name that `model.named_parameters()` gives it. Tied weights come once.
            version: Version of the weights, for `Completion.weight_version`.

        Raises:
            PolicyError: If a parameter is unknown, missing, or has another shape. The model is then left as it was.
        """
        tensors = dict(named_tensors)
        own = dict(self.model.named_parameters())
        unknown = sorted(set(tensors) - set(own))
        missing = sorted(set(own) - set(tensors))
        wrong = sorted(name for name in set(own) & set(tensors) if own[name].shape != tensors[name].shape)
        if unknown or missing or wrong:
            raise PolicyError(
                f"policy {self.name!r}: the weights do not fit the model: unknown {unknown[:3]}, missing "
                f"{missing[:3]}, of another shape {wrong[:3]} (first three of each)"
            )
        await self._batcher.run(lambda: self._copy(own, tensors, version))

    def _copy(self, own: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor], version: int) -> None:
        import torch

        with torch.no_grad():
            for name, tensor in new.items():
                own[name].copy_(tensor)
        self.weight_version = version

    async def load_adapter(self, config: PeftConfig, tensors: Mapping[str, torch.Tensor], version: int) -> None:
        """Put a LoRA adapter on the model, or new weights into the one that it has, between two batches.

        Args:
            config: The adapter's peft configuration.
            tensors: The adapter's weights as `peft.get_peft_model_state_dict` gives them.
            version: Version of the weights.

        Raises:
            PolicyError: If the weights do not fit the adapter.
        """
        await self._batcher.run(lambda: self._adapt(config, tensors, version))

    def _adapt(self, config: PeftConfig, tensors: Mapping[str, torch.Tensor], version: int) -> None:
        import torch
        from peft import PeftModel, get_peft_model, set_peft_model_state_dict

        if not isinstance(self.model, PeftModel):
            with torch.random.fork_rng(devices=[]):  # peft draws first weights, which are overwritten below
                self.model = get_peft_model(self.model, copy.deepcopy(config)).eval()
        result = set_peft_model_state_dict(self.model, dict(tensors))
        if result.unexpected_keys:
            raise PolicyError(
                f"policy {self.name!r}: the adapter has no parameters {sorted(result.unexpected_keys)[:3]}"
            )
        self.weight_version = version


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let torch compute with so many threads; with as many as before if None."""
    import torch

    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
