"""Multi-agent environments for language models: PettingZoo AEC environments whose observations and actions are text.

>>> import llm_envs
>>> env = llm_envs.make("math-2agent")
>>> env.reset(seed=0)
>>> for agent in env.agent_iter():
...     observation, reward, termination, truncation, info = env.last()
...     env.step(None if termination or truncation else env.unwrapped.oracle(agent))
>>> info["success"]
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llm_envs.registration import make, make_parallel, pprint_registry, register, registry, spec

if TYPE_CHECKING:
    from llm_envs.wrappers.gym import as_gym

__version__ = "0.1.0"
__all__ = ["as_gym", "make", "make_parallel", "pprint_registry", "register", "registry", "spec"]


def __getattr__(name: str) -> Any:
    """``as_gym``, imported when it is used: `import llm_envs` stays light."""
    if name == "as_gym":
        from llm_envs.wrappers.gym import as_gym

        return as_gym
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register("math-1agent-v0", "llm_envs.math.env:Math1Agent")
register("math-2agent-v0", "llm_envs.math.env:Math2Agent")
register("math-4agent-v0", "llm_envs.math.env:Math4Agent")
register("math-tool-2agent-v0", "llm_envs.math.tool_env:MathTool2Agent", parallelizable=True)
register("math-debate-v0", "llm_envs.math.debate_env:MathDebate", parallelizable=True)
register("search-1agent-v0", "llm_envs.search.env:Search1Agent")
register("search-2agent-v0", "llm_envs.search.env:Search2Agent")
register("search-3agent-v0", "llm_envs.search.env:Search3Agent")
register("code-1agent-v0", "llm_envs.coding.env:Code1Agent")
register("code-2agent-v0", "llm_envs.coding.pair_env:Code2Agent", parallelizable=True)
register("code-3agent-v0", "llm_envs.coding.env:Code3Agent")
register("sudoku-1agent-v0", "llm_envs.games.sudoku_env:Sudoku1Agent")
register("sudoku-2agent-v0", "llm_envs.games.sudoku_env:Sudoku2Agent")
register("tictactoe-v0", "llm_envs.games.tictactoe_env:TicTacToe", alias="tictactoe-2agent")
register("connect-four-v0", "llm_envs.games.connect_four_env:ConnectFourGame", alias="connect-four-2agent")
register("kuhn-poker-v0", "llm_envs.games.kuhn_poker_env:KuhnPoker", alias="kuhn-poker-2agent")
register("negotiation-v0", "llm_envs.games.negotiation_env:Negotiation", alias="negotiation-2agent")
register("plan-path-1agent-v0", "llm_envs.planning.plan_path_env:PlanPath1Agent")
register("plan-path-2agent-v0", "llm_envs.planning.plan_path_env:PlanPath2Agent")
register("sokoban-1agent-v0", "llm_envs.planning.sokoban_env:Sokoban1Agent")
register("sokoban-2agent-v0", "llm_envs.planning.sokoban_env:Sokoban2Agent")
register("blocksworld-1agent-v0", "llm_envs.planning.blocksworld_env:Blocksworld1Agent")
register("blocksworld-2agent-v0", "llm_envs.planning.blocksworld_env:Blocksworld2Agent")
