"""``llm-envs``: list the environments, describe one, play one in the terminal; index a corpus and serve it.

Examples:
  llm-envs list
  llm-envs info math-2agent
  llm-envs play math-2agent --you solver_0 --others oracle
  llm-envs index corpus.jsonl --retriever bm25 --out corpus-bm25
  llm-envs serve-retriever --index corpus-bm25 --port 8000
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence

from gymnasium import error
from pettingzoo import AECEnv

import llm_envs
from llm_envs.console import printable
from llm_envs.registration import arguments, summary
from llm_envs.tools.retrieval.cli import add_commands


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

    listing = commands.add_parser("list", help="all environments, a line each")
    listing.set_defaults(run=_list)

    info = commands.add_parser("info", help="roles, formats, rewards, arguments and a first prompt of one environment")
    info.add_argument("env", metavar="ID", help="such as math-2agent")
    info.set_defaults(run=_info)

    play = commands.add_parser(
        "play",
        help="play one or all roles yourself",
        description="Play one or all roles. You read the prompt that a model would read, and type the answer.",
    )
    play.add_argument("env", metavar="ID", help="such as math-2agent")
    play.add_argument(
        "--you", metavar="AGENT", action="append", help="a role that you play (may be repeated; default: all)"
    )
    play.add_argument(
        "--others", choices=("oracle", "random"), default="oracle", help="who plays the rest (default: oracle)"
    )
    play.add_argument("--tasks", help="a task set or a file of tasks")
    play.add_argument("--split", choices=("train", "test"), help="the split of the task set")
    play.add_argument("--seed", type=int, help="choose the task by seed")
    play.add_argument("--task-index", type=int, help="choose the task by position")
    play.set_defaults(run=_play)

    add_commands(commands)
    return parser


def _list(options: argparse.Namespace) -> int:
    width = max(map(len, llm_envs.registry))
    for env_spec in llm_envs.registry.values():
        rounds = " (parallel)" if env_spec.parallelizable else ""
        sys.stdout.write(f"{env_spec.id:{width}}  {summary(env_spec)}{rounds}\n")
    return 0


def _info(options: argparse.Namespace) -> int:
    env_spec = llm_envs.spec(options.env)
    out = sys.stdout.write
    out(f"{env_spec.id}\n\n{inspect.getdoc(env_spec.load())}\n\nArguments\n")
    for name, parameter in arguments(env_spec).items():
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        out(f"  {name}: {parameter.annotation}{default}\n")
    env = llm_envs.make(env_spec.id)
    env.reset(seed=0)
    out(f"\nThe first prompt (seed 0, {env.agent_selection})\n\n")
    out("".join(f"  | {line}\n" for line in env.observe(env.agent_selection).splitlines()))
    return 0


def _play(options: argparse.Namespace) -> int:
    extra = {key: value for key in ("tasks", "split") if (value := getattr(options, key)) is not None}
    env = llm_envs.make(options.env, **extra)
    you = options.you or env.possible_agents
    for agent in you:
        if agent not in env.possible_agents:
            raise error.Error(f"Unknown agent {agent!r}. The agents are {', '.join(env.possible_agents)}.")
    chosen = None if options.task_index is None else {"task_index": options.task_index}
    env.reset(seed=options.seed, options=chosen)
    sys.stdout.write(f"{options.env}, task {env.unwrapped.task.id}. You play {', '.join(you)}.\n{_HELP}\n")
    totals = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, termination, truncation, info = env.last()
        totals[agent] += reward
        if termination or truncation:
            env.step(None)
            continue
        if agent in you:
            sys.stdout.write(f"\n--- {agent} ---\n{printable(observation)}\n")
            action = _ask(env, agent)
            if action is None:
                sys.stdout.write("You left the episode.\n")
                return 0
        elif options.others == "oracle":
            action = env.unwrapped.oracle(agent)
        else:
            action = env.action_space(agent).sample()
        env.step(action)
        if agent in you:
            reason = env.infos[agent].get("invalid_action")
            if reason:
                sys.stdout.write(f"(unusable: {printable(reason)})\n")
        else:
            sys.stdout.write(f"\n--- {agent} ({options.others}) ---\n{printable(action)}\n")
    ending = "terminated by its rules" if termination else "stopped at its limit"
    sys.stdout.write(f"\n{'Solved.' if info['success'] else 'Not solved.'} The episode was {ending}.\n")
    sys.stdout.write("".join(f"  {agent}: {total:+.2f}\n" for agent, total in totals.items()))
    return 0


_HELP = (
    "Type your answer on one line. A line that opens a ``` block goes on until the block is closed.\n"
    "Commands: :prompt shows the prompt again, :oracle plays this turn for you, :quit leaves."
)


def _ask(env: AECEnv, agent: str) -> str | None:
    """One answer from the terminal; None to leave."""
    while True:
        line = input(f"{agent}> ")
        match line.strip():
            case ":quit":
                return None
            case ":prompt":
                sys.stdout.write(printable(env.observe(agent)) + "\n")
            case ":oracle":
                action = env.unwrapped.oracle(agent)
                sys.stdout.write(printable(action) + "\n")
                return action
            case stripped if stripped.startswith(":"):
                sys.stdout.write(f"Unknown command {stripped}. {_HELP}\n")
            case _:
                lines = [line]
                while sum(part.count("```") for part in lines) % 2:
                    lines.append(input("... "))
                return "\n".join(lines)
