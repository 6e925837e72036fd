"""`openai:<model>@<base url>`: a policy that asks any server with an OpenAI-compatible chat completions API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from trainers.policies.base import (
    Completion,
    MissingBackendError,
    Policy,
    PolicyError,
    PolicySpec,
    Request,
    candidate_seed,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_RETRY_STATUS = frozenset({408, 409, 429})
_SEED_BITS = 31  # servers differ in the seeds that they take; all take this range


class OpenAIPolicy(Policy):
    """Asks a server, one request a candidate, and retries what may pass.

    Text, finish reason and token counts are the server's. Log-probs are reported if the server gives one for each
    completion token; token ids are unknown, so such a policy cannot be trained. Whether a seed is honoured is up to
    the server.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 5,
        backoff_s: float = 1.0,
        max_concurrency: int = 64,
        logprobs: bool = True,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the server. Nothing is sent yet.

        Args:
            model: Name of the model at the server.
            base_url: Address up to and including the API's version, e.g. `http://localhost:8000/v1`.
            name: The spec string; `openai:<model>@<base url>` if not given.
            system_prompt: Text of a system message before the observation; None sends none.
            api_key: Key; `$OPENAI_API_KEY` if not given, and a dummy where that is not set either, as local servers
                want.
            timeout_s: Longest wait for one answer, in seconds.
            retries: Further attempts after a status 408, 409, 429 or 5xx, a timeout or a failed connection.
            backoff_s: Wait before the first retry in seconds; it doubles with every further one, up to 60 s.
            max_concurrency: Most requests in flight.
            logprobs: Whether to ask for log-probs. Set it to False for a server that refuses the field.
            extra_body: Further fields of the request, e.g. `{"chat_template_kwargs": {"enable_thinking": False}}`.

        Raises:
            MissingBackendError: If the `openai` package is not installed.
            ValueError: If `retries` is negative or `max_concurrency` is less than 1.
        """
        base_url = base_url.rstrip("/")
        super().__init__(f"openai:{model}@{base_url}" if name is None else name)
        if retries < 0 or max_concurrency < 1:
            raise ValueError(f"retries must be >= 0 and max_concurrency >= 1, got {retries!r} and {max_concurrency!r}")
        try:
            import openai
        except ImportError as error:
            raise MissingBackendError(f"policy {self.name!r} needs the package openai: pip install openai") from error
        self._openai = openai
        self.model = model
        self.base_url = base_url
        self.retries = retries
        self.backoff_s = backoff_s
        self.max_concurrency = max_concurrency
        self._system_prompt = system_prompt
        self._logprobs = logprobs
        self._extra_body = dict(extra_body or {})
        self._api_key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
        self._timeout_s = timeout_s
        # A client belongs to the event loop that it was first used on.
        self._client: tuple[asyncio.AbstractEventLoop, AsyncOpenAI, asyncio.Semaphore] | None = None

    @classmethod
    def from_spec(
        cls,
        spec: str,
        parsed: PolicySpec,
        *,
        system_prompt: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 5,
        backoff_s: float = 1.0,
        max_concurrency: int = 64,
        logprobs: bool = True,
        extra_body: Mapping[str, Any] | None = None,
    ) -> OpenAIPolicy:
        """Make the policy that a spec names."""
        return cls(
            parsed.target,
            parsed.base_url,
            name=spec,
            system_prompt=system_prompt,
            api_key=api_key,
            timeout_s=timeout_s,
            retries=retries,
            backoff_s=backoff_s,
            max_concurrency=max_concurrency,
            logprobs=logprobs,
            extra_body=extra_body,
        )

    def _connect(self) -> tuple[AsyncOpenAI, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            client = self._openai.AsyncOpenAI(
                api_key=self._api_key, base_url=self.base_url, timeout=self._timeout_s, max_retries=0
            )
            self._client = loop, client, asyncio.Semaphore(self.max_concurrency)
        return self._client[1:]

    async def generate(self, request: Request) -> list[Completion]:
        """Answer a request; see `Policy.generate`.

        Raises:
            PolicyError: If the server refuses the request, or still fails after the last retry. The message names its
                URL.
        """
        seeds = [candidate_seed(request.seed, index) % 2**_SEED_BITS for index in range(request.n)]
        tasks = [asyncio.ensure_future(self._complete(request, seed)) for seed in seeds]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _complete(self, request: Request, seed: int) -> Completion:
        client, semaphore = self._connect()
        body = self._body(request, seed)
        attempt = 0
        while True:
            try:
                async with semaphore:
                    response = await client.chat.completions.create(**body)
                return self._completion(response)
            except self._openai.APIError as error:
                attempt += 1
                if attempt > self.retries or not self._may_pass(error):
                    raise self._failure(error, attempt) from error
            await asyncio.sleep(min(self.backoff_s * 2.0 ** (attempt - 1), 60.0))

    def _body(self, request: Request, seed: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": str(request.observation)}]
        if self._system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self._system_prompt})
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._logprobs:
            body["logprobs"] = True
        extra = dict(self._extra_body)
        if sampling.top_k != -1:  # not part of the original API, but of vLLM's, SGLang's and llama.cpp's
            extra["top_k"] = sampling.top_k
        if extra:
            body["extra_body"] = extra
        return body

    def _may_pass(self, error: Exception) -> bool:
        if isinstance(error, self._openai.APIConnectionError):  # includes timeouts
            return True
        status = getattr(error, "status_code", None)
        return isinstance(status, int) and (status in _RETRY_STATUS or status >= 500)

    def _failure(self, error: Exception, attempts: int) -> PolicyError:
        tried = f" after {attempts} attempts" if attempts > 1 else ""
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        return PolicyError(
            f"policy {self.name!r}: the server at {self.base_url} failed{tried}: {type(error).__name__}: {error}{cause}"
        )

    def _completion(self, response: Any) -> Completion:
        choices = getattr(response, "choices", None)
        if not choices:
            raise PolicyError(f"policy {self.name!r}: the server at {self.base_url} sent an answer without choices")
        choice = choices[0]
        reason: Literal["stop", "length"]
        if choice.finish_reason == "length":
            reason = "length"
        elif choice.finish_reason == "stop":
            reason = "stop"
        else:
            raise PolicyError(
                f"policy {self.name!r}: the server at {self.base_url} ended an answer with {choice.finish_reason!r}"
            )
        if choice.message.content is None:
            raise PolicyError(f"policy {self.name!r}: the server at {self.base_url} sent an answer without content")
        usage = response.usage
        count = usage.completion_tokens if usage else None
        entries = choice.logprobs.content if choice.logprobs else None
        logprobs = tuple(float(entry.logprob) for entry in entries) if entries else None
        return Completion(
            text=choice.message.content,
            finish_reason=reason,
            logprobs=logprobs if logprobs is not None and count in (None, len(logprobs)) else None,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=count,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._client[0] is asyncio.get_running_loop():
            await self._client[1].close()
        self._client = None
