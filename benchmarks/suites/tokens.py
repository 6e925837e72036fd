"""How many tokens a run can take at most, before anything is played."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from benchmarks.runner import RunSettings
from benchmarks.tournament import SEATS, parse_entrants, schedule
from trainers.team import EVERYONE, Player, assign_players, role_of

__all__ = ["TokenBound", "add", "bound_tokens"]

CHARACTERS_A_TOKEN = 4
"""A common rule of thumb for English text."""

MOVE_TOKENS = 8
"""About what a move of a game takes in the history of moves."""


class TokenBound(NamedTuple):
    """Tokens of a run; each is None where nothing bounds it.

    Attributes:
        answers: What models write at most: no run can exceed it.
        prompts: About what they read if they write that much: the first prompts, measured in characters, and before
            each turn the answers until then. Passages that are found and outputs of programs come on top.
    """

    answers: int | None
    prompts: int | None


def bound_tokens(env: Any, settings: RunSettings, tasks: int | None, *, tournament: bool) -> TokenBound:
    """Return how many tokens a run takes at most. Policies without a model take none.

    Args:
        env: The unwrapped environment; None if it could not be made.
        settings: The run.
        tasks: Number of tasks; None if it is not known.
        tournament: Whether it is a tournament.
    """
    casts = list(_tournament_casts(settings) if tournament else _run_casts(settings, env))
    if not any(casts):
        return TokenBound(0, 0)
    if env is None or tasks is None:
        return TokenBound(None, None)
    total = TokenBound(0, 0)
    for models in casts:
        total = add(total, _episode(env, models, settings.sampling.max_tokens))
    if total.answers is None or total.prompts is None:
        return total
    return TokenBound(total.answers * tasks, total.prompts * tasks)


def add(one: TokenBound, two: TokenBound) -> TokenBound:
    """Return the sum of two bounds, None where either is."""
    return TokenBound(*(None if a is None or b is None else a + b for a, b in zip(one, two, strict=True)))


def _run_casts(settings: RunSettings, env: Any) -> Iterable[Collection[str]]:
    """Yield, for each sample, the agents that a model plays."""
    agents = [] if env is None else env.possible_agents
    players = assign_players(settings.policies, settings.options, agents or None)
    if env is None:
        models: list[str] = [name for name, player in players.items() if not player.scripted]
    else:
        models = [agent for agent in agents if not _player(players, agent).scripted]
    return [models] * settings.samples


def _tournament_casts(settings: RunSettings) -> Iterable[Collection[str]]:
    """Yield, for each match, the seats that a model sits in."""
    entrants = {entrant.name: Player(entrant.spec) for entrant in parse_entrants(settings.policies, settings.options)}
    for match in schedule(list(entrants)):
        yield [seat for seat, name in zip(SEATS, match, strict=True) if not entrants[name].scripted]


def _player(players: dict[str, Player], agent: str) -> Player:
    return next(players[name] for name in (agent, role_of(agent), EVERYONE) if name in players)


def _episode(env: Any, models: Collection[str], max_tokens: int) -> TokenBound:
    """Return the bound of one episode in which a model plays these agents."""
    turns = env.most_turns(models)
    if turns is None:
        return TokenBound(None, None)
    # In a game the others see the move alone, elsewhere all that was written.
    shown = MOVE_TOKENS if env.metadata.get("zero_sum") else max_tokens
    prompts = turns * _first_prompt(env, models) + min(shown, max_tokens) * turns * (turns - 1) // 2
    return TokenBound(turns * max_tokens, prompts)


def _first_prompt(env: Any, models: Collection[str]) -> int:
    """Return the tokens, about, of the longest prompt at the beginning of the first task."""
    if not models:
        return 0
    env.reset(seed=0, options={"task_index": 0})
    return -(-max(len(env.observe(agent)) for agent in models) // CHARACTERS_A_TOKEN)
