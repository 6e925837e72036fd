r"""Small tokenizers for tiny models: bytes, words, or the words and signs of an environment's own texts.

>>> tokenizer = build_tokenizer(["You are at r3c2, go: [r2c2, r2c1]"])
>>> ids = tokenizer("[r2c1, r2c2]")["input_ids"]
>>> len(ids), tokenizer.decode(ids)
(5, '[r2c1, r2c2]')
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

__all__ = ["UnknownTextError", "build_tokenizer", "byte_tokenizer", "encode_known", "pieces", "word_tokenizer"]

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
SPECIAL = ("<|pad|>", "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|unk|>")

_EDGE = "\u2581"  # stands for the edges of words while a text is put together
_SHOWN = 40


class UnknownTextError(ValueError):
    """A tokenizer has no token for a part of a text."""


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a byte, special tokens and a short chat template. It encodes any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finish(tokenizer)


def word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a white-space separated word, special tokens and a short chat template.

    Args:
        words: The vocabulary in the order of its ids; any other word becomes the unknown token. Repeats count once.

    Raises:
        ValueError: If a word is empty or holds white space.
    """
    from tokenizers import pre_tokenizers

    words = tuple(dict.fromkeys(words))
    bad = [word for word in words if word.split() != [word]]
    if bad:
        raise ValueError(f"a word must be non-empty and without white space, got {bad[0]!r}")
    return _finish(_word_level(words, pre_tokenizers.WhitespaceSplit()))


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose vocabulary are the words and signs of ``texts``.

    A run of letters, digits and underscores is one token (``r2c5``, ``planner_0``); the single space between two of
    them takes none. Every other character is a token, a sign with the space after it a token too. Texts come back from
    their tokens unchanged, and whatever tokens a model strings together make a text that has tokens.

    Args:
        texts: Everything that the tokenizer must be able to say, such as an environment's observations and actions.

    Raises:
        ValueError: If there is no text, or one holds a character that the tokenizer needs for itself.
    """
    from tokenizers import Regex, decoders

    found: dict[str, None] = {}
    for text in texts:
        if _EDGE in text:
            raise ValueError(f"the tokenizer needs the character {_EDGE!r} for itself, found in {_short(text)!r}")
        found.update(dict.fromkeys(pieces(text)))
    if not found:
        raise ValueError("there is no text to take a vocabulary from")
    # With and without the space: tokens may follow each other in any order.
    signs = {sign for piece in found if not _is_word(piece) and (sign := piece.strip(" "))}
    vocabulary = {" "} | {piece for piece in found if _is_word(piece)}
    vocabulary |= {with_space for sign in signs for with_space in (sign, f"{sign} ") if sign.strip()}
    vocabulary |= {sign for sign in signs if not sign.strip()}
    tokenizer = _word_level(sorted(vocabulary, key=lambda piece: (_is_word(piece), piece)), _splitter())
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(r"(?<!\w)(?=\w)"), _EDGE),
            decoders.Replace(Regex(r"(?<=\w)(?!\w)"), _EDGE),
            decoders.Fuse(),
            decoders.Replace(_EDGE * 2, " "),
            decoders.Replace(_EDGE, ""),
        ]
    )
    return _finish(tokenizer)


def pieces(text: str) -> list[str]:
    """Cut a text into the tokens of :func:`build_tokenizer`.

    >>> pieces("You are at r3c2, now [r2c2]")
    ['You', 'are', 'at', 'r3c2', ', ', 'now', ' ', '[', 'r2c2', ']']
    """
    return [piece for piece, _ in _splitter().pre_tokenize_str(text)]


def encode_known(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the token ids of ``text``, without special tokens added.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        ids: Its ids, where they are known already.

    Raises:
        UnknownTextError: If a part of it has no token. The unknown token would silently take its place.
    """
    found = tokenizer(text, add_special_tokens=False)["input_ids"] if ids is None else ids
    unknown = tokenizer.unk_token_id
    # Some tokenizers name their end token as the unknown one; those that cover every byte have no unknown text.
    if unknown is None or unknown == tokenizer.eos_token_id or unknown not in found:
        return tuple(map(int, found))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    spans = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    part = next((text[start:end] for token, (start, end) in spans if token == unknown), text)
    raise UnknownTextError(
        f"the tokenizer has no token for {_short(part)!r} in {_short(text)!r}: build it from texts that hold this, or "
        "use one that encodes any text"
    )


def _is_word(piece: str) -> bool:
    return piece[:1].isalnum() or piece[:1] == "_"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _splitter() -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"(?<=\w) (?=\w)"), "removed"),
            pre_tokenizers.Split(Regex(r"\w+|[^\w\s] ?|\s"), "isolated"),
        ]
    )


def _word_level(words: Iterable[str], splitter: PreTokenizer) -> Tokenizer:
    from tokenizers import Tokenizer, models

    names = [*SPECIAL, *(word for word in words if word not in SPECIAL)]
    vocab = {token: index for index, token in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocab, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = splitter
    return tokenizer


def _finish(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        unk_token="<|unk|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
