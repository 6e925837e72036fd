"""Fused kernels for the layers of a learner's model, in place of its own.

`liger` is `Liger-Kernel <https://github.com/linkedin/Liger-Kernel>`_ (arXiv 2410.10989): RMSNorm, the gated MLP and
rotary embeddings as one Triton kernel each. Its losses are left off: the learner's own works on packed turns.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import Any

from trainers.recipe_files import ConfigError

__all__ = ["apply_kernels", "check_kernels"]

_LAYERS = ("rope", "rms_norm", "swiglu", "geglu")
_PACKAGE = "liger_kernel"


def check_kernels(where: str, kernels: str) -> None:
    """Check that kernels can run in this process.

    Args:
        where: The setting, for messages.
        kernels: `torch` or `liger`.

    Raises:
        ConfigError: `liger` without a GPU or without its package.
    """
    import torch

    if kernels == "torch":
        return
    if not torch.cuda.is_available():
        raise ConfigError(f"{where} is {kernels!r}: its kernels need an NVIDIA GPU, and there is none. Set it to torch")
    if importlib.util.find_spec(_PACKAGE) is None:
        raise ConfigError(f"{where} is {kernels!r}: `pip install 'llm-envs[liger]'`, or set it to torch")


def apply_kernels(where: str, model: Any, kernels: str) -> None:
    """Put kernels into a loaded model.

    Those that its layers are patched with are the ones that the package switches on for models of this kind.

    Args:
        where: The setting, for messages.
        model: A transformers model; changed in place. `liger` also replaces the layers' classes and functions for
            models of the same kind that this process loads later.
        kernels: `torch` changes nothing; or `liger`.

    Raises:
        ConfigError: They cannot run here, or there are none for this kind of model.
    """
    check_kernels(where, kernels)
    if kernels == "torch":
        return
    transformers = importlib.import_module(f"{_PACKAGE}.transformers")
    kind = model.config.model_type
    apply = getattr(transformers, f"apply_liger_kernel_to_{kind}", None)
    if apply is None:
        raise ConfigError(f"{where} is {kernels!r}, which has no kernels for models of type {kind!r}. Set it to torch")
    switches = {
        name: name in _LAYERS and parameter.default
        for name, parameter in inspect.signature(apply).parameters.items()
        if isinstance(parameter.default, bool)
    }
    apply(**switches, model=model)
