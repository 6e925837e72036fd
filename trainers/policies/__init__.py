"""Policies: who answers an observation, behind one interface and one spec string.

Only the interface is imported here. A backend (torch, vllm, transformers, openai) is imported when a policy that runs
on it is made.
"""

from __future__ import annotations

from trainers.policies.base import (
    SPEC_FORMS,
    Completion,
    MissingBackendError,
    Policy,
    PolicyError,
    PolicySpec,
    PolicySpecError,
    Request,
    Sampling,
    candidate_seed,
    make_policy,
    parse_spec,
)

__all__ = [
    "SPEC_FORMS",
    "Completion",
    "MissingBackendError",
    "Policy",
    "PolicyError",
    "PolicySpec",
    "PolicySpecError",
    "Request",
    "Sampling",
    "candidate_seed",
    "make_policy",
    "parse_spec",
]
