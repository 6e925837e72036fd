"""Games: zero-sum games for two players, and what shares their folder.

The environments in PettingZoo's module form are attributes of this package: ``tictactoe_v0``, ``connect_four_v0``, …
"""

from __future__ import annotations

import types


def __getattr__(name: str) -> types.ModuleType:
    if "_v" in name and name.rpartition("_v")[2].isdigit():
        from llm_envs.registration import aec_module

        return aec_module(name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
