"""Mathematics: a team answers a question; the answer is graded exactly.

The environments in PettingZoo's module form are attributes of this package: ``math_1agent_v0``, ``math_2agent_v0``,
``math_4agent_v0``, ``math_tool_2agent_v0``, ``math_debate_v0``.
"""

from __future__ import annotations

import types


def __getattr__(name: str) -> types.ModuleType:
    if name.startswith("math_") and name.rpartition("_v")[2].isdigit():
        from llm_envs.registration import aec_module

        return aec_module(name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
