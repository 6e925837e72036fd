"""Coding: a team writes a program; hidden tests judge it in the sandbox.

The environments in PettingZoo's module form are attributes of this package: ``code_1agent_v0``, ``code_2agent_v0``,
``code_3agent_v0``.
"""

from __future__ import annotations

import types


def __getattr__(name: str) -> types.ModuleType:
    if name.startswith("code_") and name.rpartition("_v")[2].isdigit():
        from llm_envs.registration import aec_module

        return aec_module(name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
