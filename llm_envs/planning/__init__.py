"""Planning: a planner, alone or with a coder, gives moves on the current state; a solver knows the shortest way.

The environments in PettingZoo's module form are attributes of this package, such as ``plan_path_1agent_v0``.
"""

from __future__ import annotations

import types

_NAMES = ("plan_path_", "sokoban_", "blocksworld_", "sudoku_")


def __getattr__(name: str) -> types.ModuleType:
    if name.startswith(_NAMES) and name.rpartition("_v")[2].isdigit():
        from llm_envs.registration import aec_module

        return aec_module(name.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
