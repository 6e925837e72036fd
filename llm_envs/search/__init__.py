"""Search: a team looks things up and answers a question; the answer must match exactly.

The environments in PettingZoo's module form are attributes of this package: ``search_1agent_v0``, ``search_2agent_v0``,
``search_3agent_v0``.
"""

from __future__ import annotations

import types


def __getattr__(name: str) -> types.ModuleType:
    if name.startswith("search_") and name.rpartition("_v")[2].isdigit():
        from llm_envs.registration import aec_module

        return aec_module(name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
