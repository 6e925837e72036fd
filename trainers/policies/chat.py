"""Observation to prompt tokens, and the tokens that end a completion. Shared by the policies that hold a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trainers.policies.base import PolicyError

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

_REMEMBERED = 512


class Prompter:
    """Turns an observation into prompt token ids.

    The observation is one user message through the model's chat template, followed by the generation prompt. A base
    model without a chat template gets the raw text. The ids of the newest observations are remembered: the candidates
    of a group share their prompt, and a small game has few.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        system_prompt: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep the tokenizer.

        Args:
            tokenizer: The model's tokenizer.
            system_prompt: Text of a system message before the user's, which may be empty. None sends none: the
                template then may add its own.
            chat_template_kwargs: Further variables of the chat template, e.g. `{"enable_thinking": False}`.

        Raises:
            PolicyError: If a system prompt or template variables are given and the tokenizer has no chat template.
        """
        self.tokenizer = tokenizer
        self.system_prompt = system_prompt
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self.has_template = tokenizer.chat_template is not None
        self._encode = lru_cache(maxsize=_REMEMBERED)(self._tokenise)
        if not self.has_template and (system_prompt is not None or self.chat_template_kwargs):
            raise PolicyError(
                f"{tokenizer.name_or_path!r} has no chat template, so there is no place for a system prompt or for "
                "chat_template_kwargs: leave them out, or use an instruction-tuned model"
            )

    def text(self, observation: str) -> str:
        """Return the prompt as text, special tokens spelled out."""
        observation = str(observation)
        if not self.has_template:
            return observation
        messages = [{"role": "user", "content": observation}]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        text: str = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self.chat_template_kwargs
        )
        return text

    def encode(self, observation: str) -> tuple[int, ...]:
        """Return the prompt's token ids."""
        return self._encode(observation)

    def _tokenise(self, observation: str) -> tuple[int, ...]:
        ids = self.tokenizer(self.text(observation), add_special_tokens=not self.has_template)["input_ids"]
        return tuple(int(token) for token in ids)


def end_token_ids(tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig | None) -> tuple[int, ...]:
    """Return the ids that end a completion: the generation config's, the tokenizer's, and `<|im_end|>`; sorted."""
    ids: set[int] = set()
    for value in (getattr(generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        if isinstance(value, int):
            ids.add(value)
        elif value is not None:
            ids.update(int(token) for token in value)
    vocab = tokenizer.get_vocab()
    if "<|im_end|>" in vocab:
        ids.add(vocab["<|im_end|>"])
    return tuple(sorted(ids))


def check_length(policy: str, prompt_tokens: int, max_tokens: int, limit: int) -> None:
    """Check that a prompt and its completion fit the model.

    Raises:
        PolicyError: If they do not, or the prompt is empty.
    """
    if prompt_tokens == 0:
        raise PolicyError(f"policy {policy!r}: the prompt has no tokens")
    if prompt_tokens + max_tokens > limit:
        raise PolicyError(
            f"policy {policy!r}: a prompt of {prompt_tokens} tokens and max_tokens = {max_tokens} make "
            f"{prompt_tokens + max_tokens}, but the model holds {limit}: lower max_tokens to at most "
            f"{max(limit - prompt_tokens, 0)}, shorten the observation, or give vllm a larger max_model_len"
        )


def completion_text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], stop: tuple[str, ...]) -> str:
    """Return the text of a completion: without special tokens, and up to the first stop string in it."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    return text[: min((text.index(word) for word in stop if word in text), default=len(text))]
