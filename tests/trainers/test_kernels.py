"""Fused kernels of a learner: what is refused, and what the package is asked to do."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from trainers.config import ConfigError, load_config
from trainers.kernels import apply_kernels
from trainers.learner import Learner
from trainers.members import build_learner
from trainers.trainer import Trainer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def liger(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A package with one function of the real one's signature, which notes its calls."""
    calls: list[dict[str, Any]] = []

    def apply_liger_kernel_to_llama(
        rope: bool = True,
        cross_entropy: bool = False,
        fused_linear_cross_entropy: bool = True,
        rms_norm: bool = True,
        swiglu: bool = True,
        model: Any = None,
    ) -> None:
        calls.append({name: value for name, value in locals().items() if name != "calls"})

    package, transformers = ModuleType("liger_kernel"), ModuleType("liger_kernel.transformers")
    package.__spec__ = __spec__
    transformers.apply_liger_kernel_to_llama = apply_liger_kernel_to_llama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", transformers)
    return calls


class Model:
    def __init__(self, kind: str) -> None:
        self.config = type("Config", (), {"model_type": kind})


def test_without_a_gpu_liger_is_refused_before_anything_is_loaded(recipe, tmp_path, liger):
    config = load_config(recipe({"kernels": "liger"}))
    with pytest.raises(ConfigError, match=r"policies\.solver\.kernels is 'liger'.*NVIDIA GPU.*Set it to torch"):
        Trainer(config, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"policies\.solver\.kernels"):
        build_learner("solver", config)
    assert not liger


def test_without_its_package_liger_is_refused(recipe, gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    with pytest.raises(ConfigError, match=r"pip install 'llm-envs\[liger\]'"):
        apply_kernels("policies.a.kernels", Model("llama"), "liger")


def test_the_layers_are_replaced_and_the_losses_are_not(gpu, liger):
    model = Model("llama")
    apply_kernels("policies.a.kernels", model, "liger")
    layers = {"rope": True, "rms_norm": True, "swiglu": True}
    assert liger == [{**layers, "cross_entropy": False, "fused_linear_cross_entropy": False, "model": model}]


def test_a_kind_of_model_without_kernels_is_refused(gpu, liger):
    with pytest.raises(ConfigError, match="no kernels for models of type 'mamba'"):
        apply_kernels("policies.a.kernels", Model("mamba"), "liger")


def test_torch_is_the_default_and_needs_nothing(recipe, liger):
    config = load_config(recipe())
    assert config.policies["solver"].kernels == "torch"
    learner, _ = build_learner("solver", config)
    assert isinstance(learner, Learner)
    assert not liger


def test_a_learner_is_built_with_the_kernels_in_its_own_model(recipe, liger, monkeypatch):
    """As on a GPU; the model stays where this machine can compute."""
    config = load_config(recipe({"kernels": "liger"}))
    monkeypatch.setattr("trainers.kernels.check_kernels", lambda where, kernels: None)
    monkeypatch.setattr("trainers.members.check_kernels", lambda where, kernels: None)
    learner, _ = build_learner("solver", config)
    assert [call["model"] for call in liger] == [learner.model]
