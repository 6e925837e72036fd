"""A person at the terminal plays one or all roles of an environment; somebody else plays the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from llm_envs.console import printable

HELP = (
    "Type your answer on one line. A line that opens a ``` block goes on until the block is closed.\n"
    "Commands: :prompt shows the prompt again, :oracle plays this turn for you, :quit leaves."
)
GAME_HELP = (
    "Type your move, with or without its brackets. A move that is not legal is explained and costs nothing here.\n"
    "Commands: :prompt shows the whole prompt, :moves the legal moves, :oracle plays this turn for you, :quit leaves."
)

UNSEEN = "(It has moved. What you may know of that is in your prompt.)"

Others = Callable[[Any, str, int], str]
"""``others(env, agent, turn)`` returns the action of an agent that the person does not play."""


class Session:
    """One episode, with a person in it.

    In a game (an environment that lists legal moves) only what is new is shown after the first prompt, and what the
    person types is tried on a copy first, so that a slip of the keyboard does not forfeit the game.

    Of what the rest say the person reads no more, and no sooner, than the agent in whose place it sits: an answer that
    is given at the same time is shown after the person's own, a move that the game hides is not shown.

    Args:
        env: The environment, after its reset.
        you: The agents that the person plays.
        others: Who plays the rest.
        name: What the rest is called.
    """

    def __init__(self, env: Any, you: Sequence[str], others: Others, name: str) -> None:
        self._env = env
        self._you = you
        self._others = others
        self._name = name
        self._game = callable(getattr(env.unwrapped, "legal_actions", None))
        self._shown: dict[str, list[str]] = {}
        self._held: list[str] = []

    def play(self) -> bool:
        """Play to the end, and say how it went. Returns whether the person stayed until then."""
        env = self._env
        _say(f"You play {', '.join(self._you)}.\n{GAME_HELP if self._game else HELP}\n")
        totals = dict.fromkeys(env.possible_agents, 0.0)
        infos: dict[str, Any] = {}
        turn = 0
        for agent in env.agent_iter():
            observation, reward, termination, truncation, info = env.last()
            totals[agent] += reward
            if termination or truncation:
                infos[agent] = info
                env.step(None)
                continue
            if agent in self._you:
                self._show(agent, str(observation))
                action = self._ask(agent)
                if action is None:
                    _say("You left the episode.\n")
                    return False
            else:
                action = self._others(env.unwrapped, agent, turn)
            turn += 1
            mine_next = any(other in self._you for other in env.unwrapped.round_agents[1:])
            env.step(action)
            if agent in self._you:
                reason = env.infos[agent].get("invalid_action")
                if reason:
                    _say(f"(unusable: {printable(reason)})\n")
            else:
                text = printable(action) if getattr(env.unwrapped, "public_moves", True) else UNSEEN
                self._held.append(f"\n--- {agent} ({self._name}) ---\n{text}\n")
            if not mine_next:  # nobody of the person's is still to act on what was known before
                _say("".join(self._held))
                self._held = []
        self._say_result(infos, totals, bool(termination))
        return True

    def _show(self, agent: str, observation: str) -> None:
        """Show the prompt: all of it, or in a game what comes after the lines that were shown before."""
        lines = observation.split("\n")
        seen = self._shown.get(agent, []) if self._game else []
        known = next((i for i, (old, new) in enumerate(zip(seen, lines, strict=False)) if old != new), len(seen))
        self._shown[agent] = lines
        new = "\n".join(lines[known:])
        _say(f"\n--- {agent} ---\n{printable(new)}\n")

    def _ask(self, agent: str) -> str | None:
        """One answer from the terminal; None to leave."""
        env = self._env
        while True:
            line = input(f"{agent}> ")
            match line.strip():
                case ":quit":
                    return None
                case ":prompt":
                    _say(printable(str(env.observe(agent))) + "\n")
                case ":moves" if self._game:
                    _say(printable(" ".join(env.unwrapped.legal_actions(agent))) + "\n")
                case ":oracle":
                    action = env.unwrapped.oracle(agent)
                    _say(printable(action) + "\n")
                    return action
                case stripped if stripped.startswith(":"):
                    _say(f"Unknown command {stripped}. {GAME_HELP if self._game else HELP}\n")
                case _:
                    lines = [line]
                    while sum(part.count("```") for part in lines) % 2:
                        lines.append(input("... "))
                    action = "\n".join(lines)
                    if not self._game:
                        return action
                    action = action if "[" in action else f"[{action.strip()}]"
                    reason = self._refusal(agent, action)
                    if reason is None:
                        return action
                    _say(f"{printable(reason)}\n")

    def _refusal(self, agent: str, action: str) -> str | None:
        """Why a move would not be accepted; None if it would be."""
        trial = self._env.unwrapped.fork()
        trial.step(action)
        return trial.infos[agent].get("invalid_action")

    def _say_result(self, infos: dict[str, Any], totals: dict[str, float], terminated: bool) -> None:
        outcomes = {agent: info.get("outcome") for agent, info in infos.items()}
        if self._game and any(outcomes.values()):
            _say(f"\n{printable(_final_board(self._env.unwrapped))}\n\n")
            _say("".join(f"{line}\n" for line in _verdicts(outcomes, self._you, _forfeiter(infos))))
        else:
            solved = any(info["success"] for info in infos.values())
            ending = "terminated by its rules" if terminated else "stopped at its limit"
            _say(f"\n{'Solved.' if solved else 'Not solved.'} The episode was {ending}.\n")
        _say("".join(f"  {agent}: {total:+.2f}\n" for agent, total in totals.items()))


_YOU = {"win": "You won.", "draw": "You drew.", "loss": "You lost."}
_THEY = {"win": "won", "draw": "drew", "loss": "lost"}


def _verdicts(outcomes: dict[str, str | None], you: Sequence[str], forfeiter: str | None) -> list[str]:
    """Return the lines that say who won: of you where you played one seat, of everybody where you played several."""
    mine = [agent for agent in you if outcomes.get(agent)]
    if len(mine) == 1:
        lines = [_YOU[str(outcomes[mine[0]])]]
    else:
        lines = [f"{agent} {_THEY[str(outcome)]}." for agent, outcome in sorted(outcomes.items())]
    return [*lines, *([f"{forfeiter} forfeited."] if forfeiter else [])]


def _forfeiter(infos: dict[str, Any]) -> str | None:
    return next((str(info["forfeit"]) for info in infos.values() if info.get("forfeit")), None)


def _final_board(base: Any) -> str:
    """The whole position at the end, when nothing has to be hidden any more."""
    if hasattr(base, "match"):
        return str(base.match.board())
    table = getattr(base, "_table", None)
    return str(table()) if table is not None else str(base.state())


def _say(text: str) -> None:
    sys.stdout.write(text)
