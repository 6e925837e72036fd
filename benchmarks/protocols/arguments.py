"""What the sub-commands take that compare teams by playing them: ``swap``, ``ablate`` and ``matched``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.protocols.catalogue import PROTOCOLS

__all__ = ["Given", "add_comparisons", "add_protocol"]

_SWAP_DESCRIPTION = """\
Exchange the policies of the roles: does each of them need its own role?

Every assignment of the policies to the roles is a run on the same tasks with the same seeds, in a folder of its own
under one parent, and is compared with the team as it was given, task by task. Two roles make four runs: as given,
exchanged, and either policy in both roles. More roles make one run a permutation; --all makes those in which a policy
plays several roles as well. A policy that is given for no role stays where it is. Models are loaded once.

Options of a role (--option role.KEY=VALUE) belong to its policy, and move with it."""

_SWAP_EXAMPLES = """\
examples:
  llm-bench swap math-2agent --policy solver=vllm:./solver --policy verifier=vllm:./verifier -n 100 --out runs/swap
  llm-bench swap math-2agent --policy solver=oracle --policy verifier=random -n 20 --protocol dr-mas
  go on after a crash, and show the tables again
    llm-bench swap --resume --out runs/swap
    llm-bench report runs/swap

exit status: 0 all episodes are stored, 1 some failed or are missing, 2 the command is wrong, 130 interrupted"""

_ABLATE_DESCRIPTION = """\
Replace one role at a time, and see what the team loses: what each role contributes.

The whole team and every team with a role replaced are runs on the same tasks with the same seeds, in folders of their
own under one parent; the difference of their success is the contribution, paired by task. Models are loaded once.

With --replace oracle it is the other way round: how much more a perfect partner would bring (a negative contribution).
Who steps in gets the options that are meant for every model, not those of the role."""

_ABLATE_EXAMPLES = """\
examples:
  every role replaced by random actions, in turn
    llm-bench ablate math-2agent --policy vllm:smollm2-135m --replace random -n 100 --out runs/ablation
  both bounds, of one role
    llm-bench ablate math-2agent --policy vllm:smollm2-135m --role solver --replace random --replace oracle
  the verifier before its training
    llm-bench ablate math-2agent --policy vllm:./trained --replace verifier=vllm:./before
  go on after a crash, and show the tables again
    llm-bench ablate --resume --out runs/ablation
    llm-bench report runs/ablation

exit status: 0 all episodes are stored, 1 some failed or are missing, 2 the command is wrong, 130 interrupted"""


_MATCHED_DESCRIPTION = """\
Give one agent as many tokens on each task as a team spent on it: is the team better, or does it only say more?

The agent plays the team's tasks, one sample after the other, until what the team spent on the task over all its samples
is spent. The last sample counts too, so the agent is never given less, and at most one episode more. Then the two are
compared task by task: one try of each (avg@k), any of the tries (pass@k), and the majority of the tries where answers
can be compared (math and search). Tasks, seed and sampling are the team's.

Tokens are counted by each policy's own tokenizer, prompts in full. --budget written-tokens counts answers alone, and
--budget characters is for models with other tokenizers and for policies that count no tokens."""

_MATCHED_EXAMPLES = """\
examples:
  the same model alone
    llm-bench run math-2agent --policy vllm:smollm2-135m -n 100 --out runs/team
    llm-bench matched runs/team math-1agent --out runs/single
  another model, by characters
    llm-bench matched runs/team math-1agent --policy hf:other --budget characters --out runs/other
  go on after a crash, and show the comparison again
    llm-bench matched --resume --out runs/single
    llm-bench compare runs/team runs/single

exit status: 0 the budget of every task is spent, 1 episodes failed, 2 the command is wrong, 130 interrupted"""


class Given(argparse.Action):
    """Stores a value, and its name in ``given``: whether it was asked for or is the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store it."""
        setattr(namespace, self.dest, values)
        namespace.given = (*getattr(namespace, "given", ()), self.dest)


def add_protocol(group: argparse._ArgumentGroup) -> None:
    """Add ``--protocol``."""
    group.add_argument(
        "--protocol", metavar="NAME[/RUN]",
        help=f"fix -k and the sampling as published: one of {', '.join(PROTOCOLS)}; NAME/RUN is one run of it",
    )  # fmt: skip


def add_comparisons(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    add_run: Callable[[argparse.ArgumentParser], None],
    add_matched: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the sub-commands.

    Args:
        commands: Those of ``llm-bench``.
        add_run: Adds the arguments of a run.
        add_matched: Adds those of ``matched``.
    """
    raw = argparse.RawDescriptionHelpFormatter
    swap = commands.add_parser(
        "swap", help="exchange the policies of the roles", description=_SWAP_DESCRIPTION, epilog=_SWAP_EXAMPLES,
        formatter_class=raw,
    )  # fmt: skip
    add_run(swap)
    swap.add_argument(
        "--all", dest="every", action="store_true",
        help="all assignments, also of more than two roles, in which a policy may play several roles",
    )  # fmt: skip
    ablate = commands.add_parser(
        "ablate", help="replace one role at a time", description=_ABLATE_DESCRIPTION, epilog=_ABLATE_EXAMPLES,
        formatter_class=raw,
    )  # fmt: skip
    add_run(ablate)
    ablate.add_argument(
        "--replace", action="append", default=[], metavar="[ROLE=]SPEC",
        help="who steps in, for each role in turn or for one; may be repeated",
    )  # fmt: skip
    ablate.add_argument(
        "--role", action="append", default=[], metavar="ROLE",
        help="a role, or an agent, that is replaced; may be repeated (default: every role)",
    )  # fmt: skip
    add_matched(
        commands.add_parser(
            "matched", help="a single agent with the budget of a team", description=_MATCHED_DESCRIPTION,
            epilog=_MATCHED_EXAMPLES, formatter_class=raw,
        )
    )  # fmt: skip
