"""What the command line of ``llm-bench`` takes, and how it explains itself."""

from __future__ import annotations

import argparse

from benchmarks.cli_readers import add_readers
from benchmarks.protocols.arguments import Given, add_comparisons, add_protocol
from benchmarks.protocols.budget import UNITS
from benchmarks.suites.arguments import add_dry_run, add_entry, add_suites
from benchmarks.tournament import DEFAULT_DEALS
from benchmarks.viewer.command import add_view
from trainers.policies.base import SPEC_FORMS, Sampling

__all__ = ["make_parser"]

_DESCRIPTION = "Measure any policy on any environment, and read what was measured."

_RUN_DESCRIPTION = f"""\
Play tasks of an environment and store every episode in a results folder. In the place of an environment may stand a
suite, by its name (`llm-bench suites` lists them) or as a YAML file: its runs are played one after the other.

A policy SPEC is one of: {", ".join(SPEC_FORMS)}.
--policy SPEC plays all roles; --policy role=SPEC plays one. Equal specs share one loaded model.

--option KEY=VALUE sets an option of every policy that has a model, --option role.KEY=VALUE of one role's:
  hf, vllm, openai   system_prompt
  hf, vllm           chat_template_kwargs (JSON)
  hf                 dtype, device, max_batch and what from_pretrained takes
  vllm               engine (local or async), share, and vLLM's engine arguments, such as max_model_len
  openai             timeout_s, retries, backoff_s, max_concurrency, logprobs, extra_body (JSON)"""

_RUN_EXAMPLES = """\
examples:
  the environment's own solution, to see that all is in place
    llm-bench run math-2agent --policy oracle -n 20

  a small model through vLLM, 20 problems of a file, 4 samples each
    llm-bench run math-2agent --policy vllm:smollm2-135m --tasks gsm8k_test.jsonl -n 20 -k 4

  one model per role
    llm-bench run math-2agent --policy solver=vllm:Qwen/Qwen3-0.6B --policy verifier=openai:my-model@http://localhost:8000/v1

  one model, two system prompts
    llm-bench run math-2agent --policy vllm:smollm2-135m --option max_model_len=1024 \\
      --option solver.system_prompt="Answer in one line." --option verifier.system_prompt="Trust nobody."

  arguments of the environment, greedy decoding
    llm-bench run math-2agent --policy hf:smollm2-135m --env max_rounds=3 --temperature 0

  as published: avg@16 and pass@16 at temperature 0.6 and top-p 0.95; greedy and sampled, a folder each
    llm-bench run math-2agent --policy hf:smollm2-135m --protocol dr-mas
    llm-bench run plan-path-2agent --policy hf:smollm2-135m --protocol at-grpo --out runs/both

  a suite: several environments, one policy, one page to look at
    llm-bench run quick --policy vllm:smollm2-135m

  what would that play, how many tokens is it at most, and what is missing here?
    llm-bench run dr-mas-math --dry-run

  go on after a crash, Ctrl-C or failed episodes
    llm-bench run --resume --out runs/my-run

exit status: 0 all episodes are stored, 1 some failed or are missing, 2 the command is wrong, 130 interrupted"""


_TOURNAMENT_DESCRIPTION = f"""\
Let policies play a zero-sum game against each other: every two meet in every deal, once in each seat.

Wins, draws, losses and forfeits are shown by pairing and seat, and every player has an Elo rating: the Bradley–Terry
model fitted by maximum likelihood, a draw counting half a win, with the mean of all players as 0 and 95 % intervals by
deal. Where somebody took no point at all, half a virtual draw in every pairing keeps the ratings finite.

A policy SPEC is one of: {", ".join(SPEC_FORMS)}.
--policy SPEC is a player of that name; --policy NAME=SPEC calls it NAME, a word such as small. Equal specs with equal
options share one loaded model, which serves all pairings.

--option KEY=VALUE sets an option of every policy that has a model, --option NAME.KEY=VALUE of one player. Options of
the searching players may also follow a colon: mcts:sims=500,seed=1 and minimax:depth=4,nodes=20000."""

_TOURNAMENT_EXAMPLES = """\
examples:
  no model needed: how much better is perfect play than a tree search, and that than chance?
    llm-bench tournament tictactoe --policy minimax --policy mcts:sims=50 --policy random -n 20

  a small model through vLLM against both ends
    llm-bench tournament tictactoe --policy vllm:smollm2-135m --policy random --policy minimax -n 10 --max-tokens 16

  one model under two system prompts
    llm-bench tournament kuhn-poker --policy bold=vllm:smollm2-135m --policy shy=vllm:smollm2-135m \\
      --option bold.system_prompt="Always bet." --option shy.system_prompt="Bet on the king only."

  more variety in a game without chance: random openings
    llm-bench tournament connect-four --policy mcts:sims=50 --policy mcts:sims=200 -n 50 --env opening_moves=4

  go on after a crash, Ctrl-C or failed games; show the tables again
    llm-bench tournament --resume --out runs/my-tournament
    llm-bench report runs/my-tournament

exit status: 0 all games are stored, 1 some failed or are missing, 2 the command is wrong, 130 interrupted"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``llm-bench``."""
    parser = argparse.ArgumentParser(prog="llm-bench", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    raw = argparse.RawDescriptionHelpFormatter
    run = commands.add_parser(
        "run", help="play tasks and store the episodes", description=_RUN_DESCRIPTION, epilog=_RUN_EXAMPLES,
        formatter_class=raw,
    )  # fmt: skip
    _add_run(run)
    add_entry(run)
    tournament = commands.add_parser(
        "tournament", help="let policies play a game against each other, and rate them",
        description=_TOURNAMENT_DESCRIPTION, epilog=_TOURNAMENT_EXAMPLES, formatter_class=raw,
    )  # fmt: skip
    _add_tournament(tournament)
    add_suites(commands)
    add_comparisons(commands, _add_run, _add_matched)
    for name in ("run", "tournament", "swap", "ablate"):
        add_dry_run(commands.choices[name])
    add_readers(commands)
    add_view(commands)
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("env", nargs="?", metavar="ENV|SUITE", help="environment id (`llm-envs list`) or suite (`llm-bench suites`)")
    add("--policy", action="append", default=[], metavar="[ROLE=]SPEC", help="who plays; may be given once per role")
    add(
        "--option", action="append", default=[], metavar="[ROLE.]KEY=VALUE",
        help="option of the policies, JSON or text; may be repeated",
    )  # fmt: skip
    what = parser.add_argument_group("tasks")
    add = what.add_argument
    add("--tasks", metavar="SET|PATH", help="task set or file (default: the environment's own set)")
    add("--split", help="split of the set (default: test; all rows of a file)")
    add("-n", type=int, metavar="TASKS", help="play the first TASKS tasks (default: all)")
    add("--shuffle", action="store_true", help="play TASKS random tasks, chosen by --seed, instead of the first")
    add("-k", type=int, default=1, metavar="SAMPLES", action=Given, help="episodes per task (default: 1)")
    _add_common(what)
    _add_sampling(parser, Sampling(), protocol=True)
    _add_where(parser)


def _add_tournament(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("env", nargs="?", metavar="GAME", help="a zero-sum game of two players, such as tictactoe or openspiel/hex")
    add("--policy", action="append", default=[], metavar="[NAME=]SPEC", help="a player; give at least two")
    add(
        "--option", action="append", default=[], metavar="[NAME.]KEY=VALUE",
        help="option of the players, JSON or text; may be repeated",
    )  # fmt: skip
    what = parser.add_argument_group("deals")
    add = what.add_argument
    add("--tasks", metavar="SET|PATH", help="the deals (default: the game's own)")
    add(
        "-n", type=int, metavar="DEALS",
        help=f"every pairing plays the first DEALS deals, each in both seats (default: {DEFAULT_DEALS})",
    )  # fmt: skip
    add("--shuffle", action="store_true", help="play DEALS random deals, chosen by --seed, instead of the first")
    _add_common(what)
    _add_sampling(parser, Sampling())
    _add_where(parser)
    parser.set_defaults(split=None, k=1)


def _add_matched(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("team", nargs="?", metavar="TEAM_RUN", help="results folder of the team's run")
    add("env", nargs="?", metavar="ENV", help="environment of one agent with the same tasks, such as math-1agent")
    add("--policy", action="append", default=[], metavar="SPEC", help="who plays (default: the team's policy, if one)")
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="option of the policy; may be repeated")
    add(
        "--budget", choices=UNITS, default=UNITS[0],
        help="what is counted: tokens of prompts and answers, of answers alone, or characters (default: %(default)s)",
    )  # fmt: skip
    what = parser.add_argument_group("tasks")
    what.add_argument("--tasks", metavar="SET|PATH", help="task set or file (default: the team's)")
    _add_env(what)
    _add_sampling(parser, None)
    _add_where(parser)
    parser.set_defaults(split=None, n=None, k=1, seed=0, shuffle=False)


def _add_common(what: argparse._ArgumentGroup) -> None:
    """Add what runs and tournaments share of what is played."""
    what.add_argument("--seed", type=int, default=0, action=Given, help="of everything that is drawn (default: 0)")
    _add_env(what)


def _add_env(what: argparse._ArgumentGroup) -> None:
    what.add_argument(
        "--env", dest="env_arguments", action="append", default=[], metavar="KEY=VALUE",
        help="argument of the environment, JSON or text; may be repeated",
    )  # fmt: skip


def _add_sampling(parser: argparse.ArgumentParser, defaults: Sampling | None, *, protocol: bool = False) -> None:
    """Add how answers are drawn; without defaults it is that of a team."""
    how = parser.add_argument_group("sampling")
    if protocol:
        add_protocol(how)
    for flag, kind, what in (
        ("--temperature", float, "0 is greedy"),
        ("--top-p", float, "nucleus mass"),
        ("--top-k", int, "most likely tokens kept, -1 for all"),
        ("--max-tokens", int, "per answer"),
    ):
        default = None if defaults is None else getattr(defaults, flag[2:].replace("-", "_"))
        shown = "the team's" if defaults is None else "%(default)s"
        how.add_argument(flag, type=kind, default=default, action=Given, help=f"{what} (default: {shown})")


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("run")
    add = where.add_argument
    add(
        "--concurrency", type=int, default=64, action=Given,
        help="episodes in flight; changes no result (default: %(default)s)",
    )  # fmt: skip
    add("--out", metavar="DIR", help="results folder (default: one under runs/)")
    add("--resume", action="store_true", help="go on with the run in --out, or start it if there is none")
    add("--save-tokens", action="store_true", help="store token ids and log-probs as well")
    add("--quiet", action="store_true", help="no progress, only the report")
