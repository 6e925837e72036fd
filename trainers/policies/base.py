"""The policy interface: a `Request` in, `Completion`s out, and the spec strings that name a policy.

A policy answers one observation of one agent. It knows nothing of episodes; the rollout calls `Policy.generate` and
may call it for many episodes at once. Token ids and log-probs travel with the text, so training never re-tokenises.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from types import TracebackType

    from llm_envs.core import TextEnv

SPEC_FORMS: tuple[str, ...] = (
    "oracle",
    "random",
    "replay:<run folder>",
    "minimax[:<options>]",
    "mcts[:<options>]",
    "hf:<model or path>",
    "vllm:<model or path>",
    "openai:<model>@<base url>",
)
"""Every form a policy spec can take, as shown in errors and help texts."""


class PolicyError(RuntimeError):
    """A policy could not answer a request. The episode that asked fails; it never gets an empty completion instead."""


class PolicySpecError(ValueError):
    """A spec string names no policy, or an option does not exist for the policy that it names."""


class MissingBackendError(ImportError):
    """The library that a policy runs on is not installed."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn.

    Attributes:
        temperature: Softmax temperature; 0 means greedy.
        top_p: Nucleus mass in (0, 1]; 1 keeps every token.
        top_k: Number of most likely tokens that are kept; -1 keeps every token.
        max_tokens: Upper bound on the completion's length in tokens.
        stop: Strings that end a completion. The string itself is not part of the text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 512
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: If a value is out of its range.
        """
        if not self.temperature >= 0.0:
            raise ValueError(f"temperature must be >= 0 (0 is greedy), got {self.temperature!r}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p!r}")
        if self.top_k != -1 and self.top_k < 1:
            raise ValueError(f"top_k must be -1 (all tokens) or >= 1, got {self.top_k!r}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be >= 1, got {self.max_tokens!r}")
        if isinstance(self.stop, str):
            raise ValueError(f"stop must be a tuple of strings, got the string {self.stop!r}; write ({self.stop!r},)")
        if any(not text for text in self.stop):
            raise ValueError(f"stop strings must not be empty, got {self.stop!r}")


@dataclass(frozen=True, slots=True)
class Request:
    """One agent's observation and how it is to be answered.

    Attributes:
        observation: The whole prompt of this turn as the environment shows it.
        agent: The agent that acts, e.g. `solver_0`.
        sampling: How completions are drawn.
        seed: Randomness of this request: the same seed gives the same completions, whatever else is in flight.
        n: Number of completions (candidates) wanted.
        key: Stable sort key that is unique among requests in flight. A rollout passes
            `(task index, sample, turn index, agent)`; `replay` reads sample and turn index from it.
        env: The unwrapped environment. Only scripted policies read it.
    """

    observation: str
    agent: str
    sampling: Sampling
    seed: int
    n: int = 1
    key: tuple[Any, ...] = ()
    env: TextEnv | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the number of candidates.

        Raises:
            ValueError: If `n` is less than 1.
        """
        if self.n < 1:
            raise ValueError(f"n must be >= 1, got {self.n!r}")


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer.

    Attributes:
        text: The answer as text, without special tokens and without the stop string.
        finish_reason: `stop` if the policy ended it, `length` if `max_tokens` did.
        prompt_ids: Token ids of the prompt, or None if the policy has no tokens.
        token_ids: Token ids that were sampled, including the end token if the model sampled one, never padding.
        logprobs: Log-probability of each of `token_ids` under the distribution it was drawn from (after temperature,
            top-k and top-p; greedy: under the plain softmax), same length.
        weight_version: Version of the weights that sampled it.
        prompt_tokens: Length of the prompt in tokens, if known.
        completion_tokens: Length of the completion in tokens, if known.
    """

    text: str
    finish_reason: Literal["stop", "length"]
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    weight_version: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Policy(ABC):
    """Answers requests.

    Attributes:
        name: The spec string that makes this policy.
        label: What runs, for reports, e.g. `vllm:smollm2-135m`.
        weight_version: Version of the weights now in use; 0 until the first weight update.
    """

    name: str
    label: str
    weight_version: int

    def __init__(self, name: str, label: str | None = None) -> None:
        """Name the policy.

        Args:
            name: The spec string.
            label: What runs, for reports; the spec string if not given.
        """
        self.name = name
        self.label = name if label is None else label
        self.weight_version = 0

    @abstractmethod
    async def generate(self, request: Request) -> list[Completion]:
        """Answer a request.

        Args:
            request: What to answer.

        Returns:
            `request.n` completions. Candidate i draws from the seed `candidate_seed(request.seed, i)`.

        Raises:
            PolicyError: If the request cannot be answered.
        """

    def check(self, env: TextEnv) -> None:  # noqa: B027  (an optional hook, not an abstract method)
        """Check, before anything is played, that this policy can play in an environment that was not reset yet.

        Args:
            env: The unwrapped environment.

        Raises:
            PolicyError: If it cannot.
            MissingBackendError: If a library that it needs for this environment is not installed.
        """

    def join(self) -> None:  # noqa: B027
        """Say that an episode which may ask this policy starts. A batching policy waits for all that joined."""

    def leave(self) -> None:  # noqa: B027
        """Say that an episode which joined has ended."""

    async def sleep(self, level: int = 1) -> None:  # noqa: B027
        """Give back what the policy can while nobody asks it; a request meanwhile is an error.

        Nothing where there is no engine: `hf:` holds its weights and a cache only for as long as a batch runs.

        Args:
            level: 1 keeps the weights somewhere; 2 discards them, so new ones must be given before the next request.
        """

    async def wake(self, parts: Collection[str] = ("weights", "kv_cache")) -> None:  # noqa: B027
        """Take it again. Waking what is awake does no harm.

        Args:
            parts: What wakes: `weights`, which can then be replaced, `kv_cache`, or both.
        """

    async def close(self) -> None:  # noqa: B027
        """Free what the policy holds. Calling it twice does no harm."""

    async def __aenter__(self) -> Policy:
        """Return the policy itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the policy."""
        await self.close()


def candidate_seed(seed: int, index: int) -> int:
    """Return the seed of candidate `index` of a request, in [0, 2**63).

    It depends only on its arguments, so the first candidate of n is the completion that n = 1 gives.
    """
    digest = hashlib.sha256(f"{seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A parsed spec string.

    Attributes:
        kind: The word before the colon.
        target: Run folder, model id or path, or the options of a searching player; empty for `oracle` and `random`.
        base_url: Address of the server, for `openai` only.
    """

    kind: str
    target: str = ""
    base_url: str = ""


_CLASSES: dict[str, tuple[str, str]] = {
    "oracle": ("trainers.policies.scripted", "OraclePolicy"),
    "random": ("trainers.policies.scripted", "RandomPolicy"),
    "replay": ("trainers.policies.scripted", "ReplayPolicy"),
    "minimax": ("trainers.policies.scripted_games", "OpponentPolicy"),
    "mcts": ("trainers.policies.scripted_games", "OpponentPolicy"),
    "hf": ("trainers.policies.hf", "HFPolicy"),
    "vllm": ("trainers.policies.vllm", "VLLMPolicy"),
    "openai": ("trainers.policies.openai", "OpenAIPolicy"),
}
_SERVER = re.compile(r"(?P<model>[^@].*?)@(?P<url>https?://\S+)", re.ASCII)


def _spec_error(spec: object, reason: str) -> PolicySpecError:
    return PolicySpecError(f"policy spec {spec!r}: {reason}. The forms are: {', '.join(SPEC_FORMS)}")


def parse_spec(spec: str) -> PolicySpec:
    """Parse a policy spec.

    >>> parse_spec("openai:qwen@http://localhost:8000/v1")
    PolicySpec(kind='openai', target='qwen', base_url='http://localhost:8000/v1')

    Raises:
        PolicySpecError: If the string has none of the forms in `SPEC_FORMS`.
    """
    if not isinstance(spec, str):
        raise _spec_error(spec, f"expected a string, got {type(spec).__name__}")
    kind, colon, target = spec.strip().partition(":")
    target = target.strip()
    if kind not in _CLASSES:
        raise _spec_error(spec, f"{kind!r} is no kind of policy" if kind else "the kind of policy is missing")
    if kind in ("oracle", "random"):
        if colon:
            raise _spec_error(spec, f"{kind!r} takes nothing after it")
        return PolicySpec(kind)
    if kind in ("minimax", "mcts") and not colon:
        return PolicySpec(kind)
    if not target:
        raise _spec_error(spec, f"{kind!r} needs something after the colon")
    if kind != "openai":
        return PolicySpec(kind, target)
    match = _SERVER.fullmatch(target)
    if match is None:
        raise _spec_error(spec, "expected a model, '@' and a base url that starts with http:// or https://")
    return PolicySpec(kind, match["model"], match["url"].rstrip("/"))


def make_policy(spec: str, **options: Any) -> Policy:
    """Make a policy from its spec string.

    Args:
        spec: One of the forms in `SPEC_FORMS`.
        **options: Options of the policy class that the spec names, e.g. `system_prompt` for `hf`, `vllm` and `openai`,
            or engine options for `vllm`.

    Returns:
        The policy. Models are loaded now, so a wrong name fails here and not in the first episode.

    Raises:
        PolicySpecError: If the spec has none of the forms, or the policy has no such option.
        MissingBackendError: If the library that the policy runs on is not installed.
    """
    parsed = parse_spec(spec)
    module, class_name = _CLASSES[parsed.kind]
    cls = getattr(importlib.import_module(module), class_name)
    accepted = inspect.signature(cls.from_spec).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        unknown = sorted(set(options) - set(accepted))
        if unknown:
            known = ", ".join(sorted(set(accepted) - {"spec", "parsed"})) or "none"
            raise PolicySpecError(f"policy spec {spec!r}: no option {', '.join(unknown)} (options: {known})")
    policy: Policy = cls.from_spec(spec, parsed, **options)
    return policy
