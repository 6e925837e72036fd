"""What the libraries under a policy say unasked, switched off for the command lines.

A run through vLLM starts with some twenty lines that ask nothing of the reader: which optimisations `enforce_eager`
leaves out, that triton has no CPU backend, which NUMA node holds the memory, deprecations between vLLM and torch, bars
for weights that load in a second. They bury the one line that matters. Errors are never hidden, and every setting
already in the environment wins: `VLLM_LOGGING_LEVEL=INFO` brings vLLM's log back.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # its default is stdout, which belongs to the results
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # the C++ parts of torch and vLLM; read once, when torch is imported
    "TOKENIZERS_PARALLELISM": "false",  # or each fork, as of a grading worker, gets a warning
}
_DEPRECATIONS = ("vllm", "torch", "transformers")


def quieten_libraries() -> None:
    """Silence what is no error in vLLM, torch and transformers. Call it before any of them is imported.

    It sets environment variables that are not set, which child processes such as vLLM's engine inherit, and filters for
    warnings of these libraries about each other. Progress bars of transformers stay where standard error is a terminal.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if os.environ["VLLM_LOGGING_LEVEL"] == "ERROR":  # vLLM looks for triton before it sets its level
        logging.getLogger("vllm").setLevel(logging.ERROR)
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own, and would say all twice
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers heeds it as well,
        os.environ.setdefault("TQDM_DISABLE", "1")  # except while it converts a GGUF file
    if sys.warnoptions:
        return  # python -W and PYTHONWARNINGS say what is wanted
    for library in _DEPRECATIONS:
        for category in (FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=rf"{library}(\.|$)")
    os.environ["PYTHONWARNINGS"] = "ignore::FutureWarning"  # of child processes; it knows no patterns of modules
