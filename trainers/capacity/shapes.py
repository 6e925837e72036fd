"""Shapes of decoder-only models and what follows from them: parameters, FLOP and bytes of a forward pass.

A multiplication and an addition are two FLOP. Counted are matrix products and attention; norms, rotations and
activations, which move bytes rather than compute, are not.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainers.models import BUNDLED_MODELS, ModelNotFoundError, resolve_model
from trainers.recipe_files import ConfigError

__all__ = ["KINDS", "ModelShape", "known_models", "read_shape", "shape_of"]

KINDS = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` of the architectures whose shapes are understood."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder with gated MLPs and grouped-query attention.

    Attributes:
        kind: Its architecture, one of :data:`KINDS`.
        layers: Number of layers.
        hidden: Width of the residual stream.
        intermediate: Width of an MLP.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        head_dim: Size of a head.
        vocabulary: Rows of the embedding.
        tied: Whether the output head is the embedding.
        max_length: Longest sequence in tokens.
    """

    kind: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    max_length: int

    @property
    def qk_norm(self) -> bool:
        """Whether queries and keys are normalised."""
        return self.kind == "qwen3"

    @property
    def query(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Width of all keys together, and of all values."""
        return self.kv_heads * self.head_dim

    @property
    def layer_matrices(self) -> int:
        """Entries of the matrices of one layer."""
        return self.hidden * (2 * self.query + 2 * self.key + 3 * self.intermediate)

    @property
    def decoder_matrices(self) -> int:
        """Entries of the matrices of all layers: what every token is multiplied with."""
        return self.layers * self.layer_matrices

    @property
    def head(self) -> int:
        """Entries of the output head: what every predicted token is multiplied with."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones counted once."""
        bias = self.query + 2 * self.key if self.kind == "qwen2" else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        embeddings = self.head * (1 if self.tied else 2)
        return embeddings + self.decoder_matrices + self.layers * (norms + bias) + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Parameters of adapters of a rank on all linear layers of the decoder: rank · (inputs + outputs) of each."""
        attention = (self.hidden + self.query) * 2 + (self.hidden + self.key) * 2
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    def kv_bytes(self, width: int) -> int:
        """Bytes that a token takes in the key-value cache, at ``width`` bytes a number."""
        return 2 * self.layers * self.key * width

    def forward_flops(self, tokens: float, context: float, predicted: float) -> float:
        """FLOP of a forward pass.

        Args:
            tokens: Tokens read.
            context: How many tokens each of them attends to, on average.
            predicted: Tokens whose logits are computed.
        """
        attention = 4 * self.layers * self.query * context
        return tokens * (2 * self.decoder_matrices + attention) + 2 * predicted * self.head

    def decode_bytes(self, rows: float, context: float, width: int) -> float:
        """Bytes that one decoding step reads: all matrices once, and the cache of every row."""
        return (self.decoder_matrices + self.head) * width + rows * context * self.kv_bytes(width)


def read_shape(config: Mapping[str, Any], name: str) -> ModelShape:
    """Read the shape in a model's ``config.json``.

    Raises:
        ConfigError: The architecture is not one of :data:`KINDS`, or a size is missing.
    """
    kind = config.get("model_type")
    if kind not in KINDS:
        raise ConfigError(f"{name} is of the architecture {kind!r}; the planner knows {', '.join(KINDS)}")
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return ModelShape(
            kind=kind,
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // heads),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            max_length=int(config["max_position_embeddings"]),
        )
    except KeyError as problem:
        raise ConfigError(f"config.json of {name} has no {problem}: the planner needs it") from problem


@cache
def known_models() -> dict[str, tuple[ModelShape, float]]:
    """The built-in table: shape, and the number of parameters that the maker states, by name."""
    table = yaml.safe_load((Path(__file__).parent / "models.yaml").read_text(encoding="utf-8"))["models"]
    names = {field.name for field in fields(ModelShape)}
    return {
        model: (ModelShape(**{key: value for key, value in row.items() if key in names}), float(row["published"]))
        for model, row in table.items()
    }


def shape_of(name: str) -> tuple[ModelShape, str]:
    """Return the shape of a model and where it was read. Nothing is downloaded or converted.

    Args:
        name: A bundled name, a local folder or a hub id.

    Raises:
        ConfigError: The model is neither at hand nor in the table, or its architecture is not known.
    """
    table = known_models()
    if name in BUNDLED_MODELS:
        return table[name][0], "built-in table"
    try:
        place = resolve_model(name)
    except ModelNotFoundError as problem:
        raise ConfigError(f"model: {problem}") from problem
    if isinstance(place, Path):
        return read_shape(json.loads((place / "config.json").read_text(encoding="utf-8")), name), "its config.json"
    cached = _cached_config(name)
    if cached is not None:
        return read_shape(json.loads(cached.read_text(encoding="utf-8")), name), "its config.json"
    if name.removesuffix("-Instruct") in table or name in table:
        return table[name if name in table else name.removesuffix("-Instruct")][0], "built-in table"
    close = difflib.get_close_matches(name, table, n=1)
    raise ConfigError(
        f"model {name!r} is neither in the hub's cache nor in the planner's table ({', '.join(table)}). "
        f"Download its configuration (hf download {name} config.json) or give the folder of a copy."
        + (f" Did you mean {close[0]!r}?" if close else "")
    )


def _cached_config(name: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = try_to_load_from_cache(name, "config.json")
    return Path(found) if isinstance(found, str) else None
