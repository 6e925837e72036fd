"""What every test shares: the environment of numeric libraries and vLLM, and where real data lies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# Read by the libraries at their first import, so set before any test module is imported. What is set already wins.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # two threads collapse when anything else runs on the machine
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",  # tests run on local data and on the bundled model
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MPLBACKEND": "Agg",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process loads in seconds
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
for _name, _value in _ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

# A shell starts background jobs with SIGINT ignored, which their children inherit: Ctrl-C could not be tested there.
signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: $LLM_ENVS_TEST_DATA, or ../shared/data beside the clone. Skips if absent."""
    named = os.environ.get("LLM_ENVS_TEST_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        if named:
            pytest.fail(f"LLM_ENVS_TEST_DATA={named} is not a folder")
        pytest.skip(f"no data sets at {folder}: put them there or set LLM_ENVS_TEST_DATA")
    return folder
