"""``llm-envs``: list the environments, describe one, play one in the terminal; index a corpus and serve it.

Examples:
  llm-envs list
  llm-envs info math-2agent
  llm-envs play math-2agent --you solver_0 --others oracle
  llm-envs play tictactoe --you player_0 --opponent minimax
  llm-envs index corpus.jsonl --retriever bm25 --out corpus-bm25
  llm-envs serve-retriever --index corpus-bm25 --port 8000
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from gymnasium import error
from pettingzoo import AECEnv

import llm_envs
from llm_envs.console import read_value
from llm_envs.games.opponents import has_legal_actions, make_opponent
from llm_envs.play import Others, Session
from llm_envs.registration import ADAPTERS, arguments, summary
from llm_envs.tasks import stable_hash
from llm_envs.tools.retrieval.cli import add_commands

_PLAY_EXAMPLES = """\
examples:
  answer the questions yourself, and let the oracle verify
    llm-envs play math-2agent --you solver_0

  tic-tac-toe against perfect play; you move first, or second
    llm-envs play tictactoe --you player_0 --opponent minimax
    llm-envs play tictactoe --you player_1 --opponent minimax

  connect four against a weaker and a stronger tree search
    llm-envs play connect-four --opponent mcts:sims=20
    llm-envs play connect-four --opponent mcts:sims=2000

  a game of OpenSpiel, on a board of your own
    llm-envs play openspiel/hex --env board_size=5 --opponent mcts"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    options = _parser().parse_args(argv)
    try:
        return options.run(options)
    except error.Error as problem:
        sys.stderr.write(f"llm-envs: {problem}\n")
        return 2
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llm-envs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="all environments, a line each; or the games of another library")
    listing.add_argument(
        "library", nargs="?", choices=tuple(ADAPTERS), help="list its games, each of which is an id: openspiel/hex"
    )
    listing.set_defaults(run=_list)

    info = commands.add_parser("info", help="roles, formats, rewards, arguments and a first prompt of one environment")
    info.add_argument("env", metavar="ID", help="such as math-2agent")
    info.set_defaults(run=_info)

    play = commands.add_parser(
        "play",
        help="play one or all roles yourself",
        description="Play one or all roles. You read the prompt that a model would read, and type the answer.",
        epilog=_PLAY_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    play.add_argument("env", metavar="ID", help="such as math-2agent")
    play.add_argument(
        "--you", metavar="AGENT", action="append", help="a role that you play (may be repeated; default: all)"
    )
    play.add_argument(
        "--others", choices=("oracle", "random"), default="oracle", help="who plays the rest (default: oracle)"
    )
    play.add_argument(
        "--opponent", metavar="SPEC",
        help="who plays against you in a game: random, oracle, minimax or mcts, with options: mcts:sims=500",
    )  # fmt: skip
    play.add_argument(
        "--env", dest="env_arguments", action="append", default=[], metavar="KEY=VALUE",
        help="argument of the environment, JSON or text; may be repeated",
    )  # fmt: skip
    play.add_argument("--tasks", help="a task set or a file of tasks")
    play.add_argument("--split", choices=("train", "test"), help="the split of the task set")
    play.add_argument("--seed", type=int, help="choose the task by seed")
    play.add_argument("--task-index", type=int, help="choose the task by position")
    play.set_defaults(run=_play)

    add_commands(commands)
    return parser


def _list(options: argparse.Namespace) -> int:
    if options.library:
        games = importlib.import_module(ADAPTERS[options.library]).names()
        sys.stdout.write("".join(f"{options.library}/{game}\n" for game in games))
        return 0
    width = max(map(len, llm_envs.registry))
    for env_spec in llm_envs.registry.values():
        rounds = " (parallel)" if env_spec.parallelizable else ""
        sys.stdout.write(f"{env_spec.id:{width}}  {summary(env_spec)}{rounds}\n")
    for library in ADAPTERS:
        sys.stdout.write(f"{f'{library}/…':{width}}  Games of another library: `llm-envs list {library}`.\n")
    return 0


def _info(options: argparse.Namespace) -> int:
    env_spec = llm_envs.spec(options.env)
    out = sys.stdout.write
    out(f"{env_spec.id}\n\n{inspect.getdoc(env_spec.load())}\n\nArguments\n")
    for name, parameter in arguments(env_spec).items():
        if name in env_spec.kwargs:  # the name of a game, which the id has
            continue
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        out(f"  {name}: {parameter.annotation}{default}\n")
    given: dict[str, Any] = {}
    if env_spec.name.startswith("openspiel/"):
        game = importlib.import_module(ADAPTERS["openspiel"]).entry(env_spec.kwargs["game_name"])
        given = dict(game.example)
        out("".join(f"  {name} = {default!r} (of the game)\n" for name, default in game.parameters.items()))
    env = llm_envs.make(env_spec.id, **given)
    env.reset(seed=0)
    out(f"\nThe first prompt (seed 0, {env.agent_selection})\n\n")
    out("".join(f"  | {line}\n" for line in env.observe(env.agent_selection).splitlines()))
    return 0


def _play(options: argparse.Namespace) -> int:
    extra = _environment_arguments(options.env_arguments)
    extra.update({key: value for key in ("tasks", "split") if (value := getattr(options, key)) is not None})
    env = llm_envs.make(options.env, **extra)
    you = options.you or (env.possible_agents if options.opponent is None else env.possible_agents[:1])
    for agent in you:
        if agent not in env.possible_agents:
            raise error.Error(f"Unknown agent {agent!r}. The agents are {', '.join(env.possible_agents)}.")
    if options.opponent is not None and set(you) == set(env.possible_agents):
        raise error.Error(f"You play everybody, so --opponent {options.opponent} has nobody to play; name one --you.")
    others, name = _others(env.unwrapped, options)
    chosen = None if options.task_index is None else {"task_index": options.task_index}
    env.reset(seed=options.seed, options=chosen)
    sys.stdout.write(f"{options.env}, task {env.unwrapped.task.id}. ")
    Session(env, you, others, name).play()
    return 0


def _environment_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """The arguments that are given as ``KEY=VALUE``."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise error.Error(f"--env takes KEY=VALUE, such as board_size=5, actual value: {pair!r}.")
        found[key] = read_value(value)
    return found


def _others(env: AECEnv, options: argparse.Namespace) -> tuple[Others, str]:
    """Who plays the seats that the person does not, and what they are called."""
    if options.opponent is not None or (options.others == "random" and has_legal_actions(env)):
        name = options.opponent or options.others
        opponent = make_opponent(name)
        opponent.check(env)

        def choose(env: Any, agent: str, turn: int) -> str:
            return opponent.choose(env, agent, stable_hash("opponent", env.task.id, options.seed or 0, turn))

        return choose, name
    if options.others == "random":
        return (lambda env, agent, turn: env.action_space(agent).sample()), "random"
    return (lambda env, agent, turn: env.oracle(agent)), "oracle"
