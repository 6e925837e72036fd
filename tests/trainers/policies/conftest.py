"""Tiny models for the tests of policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.models import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with tied embeddings and a byte-level tokenizer; large weights make its distributions uneven."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "tied", init_std=0.08, seed=1)


@pytest.fixture(scope="session")
def tiny_untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with an output head of its own, and other weights."""
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "untied", init_std=0.08, seed=2, tie_embeddings=False)
