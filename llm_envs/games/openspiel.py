"""Every OpenSpiel game of turns or rounds with a text observation, as a text environment.

>>> import llm_envs
>>> env = llm_envs.make("openspiel/kuhn_poker")
>>> env.reset(seed=0)
>>> env.unwrapped.legal_actions("player_0")
['[0]', '[1]']
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence
from typing import Any

from gymnasium import error

from llm_envs.core import Outcome, RenderMode, TextEnv
from llm_envs.games.base import bracketed, check_integer
from llm_envs.games.deals import DEALS, drawn, load_deals
from llm_envs.games.openspiel_catalog import NAMESPACE, load, shown
from llm_envs.games.openspiel_match import Event, Match, Rules
from llm_envs.games.openspiel_search import best_move
from llm_envs.parsing import InvalidAction
from llm_envs.rewards import TEAM
from llm_envs.tasks import Task, TaskSet, stable_hash

_TOKEN = re.compile(r"\[([^\[\]]*)\]")
_EXAMPLES = 6


def deal(rng: random.Random, **parameters: Any) -> dict[str, Any]:
    """The draw of an OpenSpiel game: a seed for all that chance decides."""
    return {"chance": rng.getrandbits(48)}


class OpenSpiel(TextEnv):
    """A game of OpenSpiel, played in text.

    | Agents | Acts in | Action | Rewards | Ends |
    |---|---|---|---|---|
    | `player_0` … | turns or rounds | one legal move in square brackets | the game's utilities | as the game |

    Make it with the name of a game and its parameters: `llm_envs.make("openspiel/hex", board_size=5)`.

    ## Observations
    The name of the game, its parameters, the number of players and what kind of game it is; for a game decided in one
    round also OpenSpiel's description of it (the table of payoffs). Where nothing is hidden, all moves so far. Then
    what OpenSpiel says that this player knows now: its information state and its observation, never anybody else's.
    Where the game has no information state, the player's own moves so far come before it; earlier observations do not
    (`llm_envs.wrappers.memory` adds them). Then the legal moves with numbers and names. OpenSpiel has no rules in
    words: an agent that does not know the game by its name has to learn it.

    ## Actions
    One legal move in square brackets, such as `[3]` or `[x(1,1)]`. The number is OpenSpiel's; a name that is itself a
    number is written in quotes (`["7"]`). Several different moves in brackets are ambiguous, and unusable. After
    `max_retries` more tries the player forfeits the game. In a round there is no second try within the round: the round
    is played again by all, and nobody learns what anybody chose.

    ## Rewards
    The `team` part is what OpenSpiel pays the player: at the end, or move by move where the game does. A forfeit ends
    the game and gives whoever forfeits the worst utility of the game, over the whole episode. In a constant-sum game
    the other players share the rest of the sum equally (and all players share it if all forfeit at once); in a game
    with identical utilities all players get the worst one; in any other game the others keep what they have earned.

    ## Episode end
    Terminated: the game is over, or somebody forfeited. Truncated: `turn_limit` moves were made. Success: in a game of
    several players whose results differ, whoever has the highest return; in a cooperative game and in a game of one
    player, everybody if the return is the highest that the game has. A forfeit is no success for anyone. `infos` tell
    the `return` of each player, the `outcome` (`win`, `draw`, `loss`) where the utilities are constant-sum, and who
    forfeited (`forfeit`).

    ## Arguments
    - tasks: the deals, each of which decides everything that chance does.
    - task_options: their `size` and `seed`.
    - max_retries: tries after unusable text.
    - invalid_penalty: the `invalid` part of unusable text; 0 in a zero-sum game.
    - turn_limit: number of moves, or rounds, after which the episode is cut off; None for none.
    - Anything else is a parameter of the game.

    ## Version history
    - v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "ansi"], "is_parallelizable": False}

    def __init__(
        self,
        game_name: str,
        *,
        tasks: str | TaskSet | Sequence[Task] = DEALS,
        task_options: dict[str, Any] | None = None,
        max_retries: int = 1,
        invalid_penalty: float = 0.0,
        turn_limit: int | None = None,
        render_mode: RenderMode = None,
        **parameters: Any,
    ) -> None:
        self.rules: Rules = load(game_name, parameters)
        if self.rules.zero_sum and invalid_penalty:
            raise error.Error(f"`invalid_penalty` must be 0 in a zero-sum game, actual value: {invalid_penalty}.")
        self.turn_limit = None if turn_limit is None else check_integer("turn_limit", turn_limit, 1, 2**31)
        self.metadata = {
            **type(self).metadata,
            "name": f"{NAMESPACE}_{game_name}_v0",
            "is_parallelizable": self.rules.simultaneous,
            "zero_sum": self.rules.zero_sum,
        }
        players = [f"player_{index}" for index in range(self.rules.players)]
        self._seats = {agent: index for index, agent in enumerate(players)}
        question = _question(self.rules, parameters)
        deals = load_deals(
            tasks, f"{NAMESPACE}/{game_name}", question, deal, options=parameters, task_options=task_options
        )
        super().__init__(
            players,
            deals,
            examples=_examples(_first(self.rules, parameters), players),
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    # ---- beyond PettingZoo -----------------------------------------------------------------------------------------

    @property
    def public_moves(self) -> bool:
        """Whether every player sees every move, once it is made."""
        return self.rules.open

    def legal_actions(self, agent: str) -> list[str]:
        """The action texts that are legal for ``agent`` now, by number; none unless it is to move."""
        return [f"[{move}]" for move in self.match.legal(self._seats[agent])] if agent in self._round else []

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _start(self) -> str | tuple[str, ...]:
        self.match = Match(self.rules, int(drawn(self.task, "chance")))
        self._turns = 0
        self._history = ""
        self._own = dict.fromkeys(self._seats, "")
        self._chosen: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._earned = [0.0] * self.rules.players
        self._record(self.match.events)
        return self._movers()

    def _movers(self) -> tuple[str, ...]:
        return tuple(self.possible_agents[player] for player in self.match.movers())

    def _record(self, events: Sequence[Event]) -> None:
        """What is public, or what an agent did itself, joins the histories."""
        for player, name in events:
            if self.rules.open:
                who = "chance" if player is None else self.possible_agents[player]
                self._history += f"\n{who}: {name}"
            elif player is not None and not self.rules.kind.provides_information_state_string:
                agent = self.possible_agents[player]
                self._own[agent] += f"\n{agent}: {name}"

    def _context(self, agent: str) -> str:
        if self.rules.open:
            return f"{self.task.question}\n\nMoves so far:{self._history}"
        if self.rules.kind.provides_information_state_string:
            return self.task.question  # the information state remembers for the player what it may remember
        return f"{self.task.question}\n\nYour moves so far:{self._own[agent]}"

    def _instructions(self, agent: str) -> str:
        seat = self._seats[agent]
        lines = [f"You are {agent}. What you see now:", self.match.view(seat) or "(nothing)", ""]
        if not self._round:
            lines.append("The game is over.")
        elif agent not in self._round:
            lines.append("It is not your turn.")
        else:
            moves = self.match.names(seat)
            lines.append("It is your turn. Your legal moves, by number and name:")
            lines += [f"[{move}] {name}" for move, name in moves.items()]
            lines += ["", f"Answer with one legal move in square brackets, by number or by name: [{next(iter(moves))}]"]
        return "\n".join(lines)

    def most_turns(self, agents: Collection[str] | None = None) -> int | None:
        """See :meth:`llm_envs.core.TextEnv.most_turns`. In a game in turns the agents share the moves of a match."""
        apart = super().most_turns(agents)
        if apart is None or self.rules.simultaneous:
            return apart
        return min(apart, self._longest() * (1 + self.max_retries))

    def _most_moves(self, agent: str) -> int:
        again = 1 + self.rules.players * self.max_retries if self.rules.simultaneous else 1  # a round is played again
        return self._longest() * again

    def _longest(self) -> int:
        longest = int(self.rules.game.max_game_length())
        return longest if self.turn_limit is None else min(longest, self.turn_limit)

    def _play(self, agent: str, action: str) -> Outcome | None:
        self._chosen[agent] = self._read(agent, action)
        return self._advance() if len(self._round) == 1 else None

    def _read(self, agent: str, action: str) -> int:
        """The move that ``action`` makes: a legal number, or else the name of a legal move."""
        token = bracketed(action)[1:-1]
        names = self.match.names(self._seats[agent])
        if token.isdecimal():
            if int(token) in names:
                return int(token)
        else:
            found = [move for move, name in names.items() if name.casefold() == token]
            if len(found) > 1:  # names that differ by case only, as bxc3 and Bxc3 in chess
                spelt = {" ".join(written.split()) for written in _TOKEN.findall(action)}
                found = [move for move in found if spelt == {names[move]}]
            if len(found) == 1:
                return found[0]
        raise InvalidAction(f"[{token[:60]}] is not one of your {len(names)} legal moves.")

    def _end_round(self) -> Outcome:
        missing = [agent for agent in self._round if agent not in self._chosen]
        if not missing:
            return self._advance()
        for agent in missing:
            self._failed[agent] = self._failed.get(agent, 0) + 1
        self._chosen = {}
        forfeiting = [agent for agent in missing if self._failed[agent] > self.max_retries]
        return self._lost(forfeiting) if forfeiting else Outcome(next=self._round)

    def _advance(self) -> Outcome:
        moves = [self._chosen[agent] for agent in self._round]
        self._chosen, self._failed = {}, {}
        self.match.play(moves)
        self._turns += 1
        self._record(self.match.events)
        rewards = self._pay_up(self.match.returns())
        if self.match.over:
            winners = {self.possible_agents[player] for player in self.match.winners()}
            return Outcome(rewards=rewards, terminated=True, success=winners, info=self._final({}))
        if self._turns == self.turn_limit:
            return Outcome(rewards=rewards, truncated=True, info=self._final({}))
        return Outcome(next=self._movers(), rewards=rewards)

    def _forfeit(self, agent: str) -> Outcome | None:
        return self._lost([agent]) if len(self._round) == 1 else None

    def _lost(self, agents: Sequence[str]) -> Outcome:
        rewards = self._pay_up(self.match.forfeited([self._seats[agent] for agent in agents]))
        return Outcome(rewards=rewards, terminated=True, info=self._final({"forfeit": ", ".join(agents)}))

    def _pay_up(self, earned: Sequence[float]) -> dict[str, dict[str, float]]:
        """Reward parts that bring what every player was paid to ``earned``."""
        before, self._earned = self._earned, list(earned)
        return {
            agent: {TEAM: earned[seat] - before[seat]}
            for agent, seat in self._seats.items()
            if earned[seat] != before[seat]
        }

    def _final(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        constant = self.rules.constant_sum
        final = {}
        for agent, seat in self._seats.items():
            final[agent] = {"return": self._earned[seat], **info}
            if constant is not None:
                share = self._earned[seat] - constant / self.rules.players
                final[agent]["outcome"] = "draw" if abs(share) < 1e-9 else "win" if share > 0 else "loss"
        return final

    def _oracle(self, agent: str) -> str:
        move = best_move(self.match, self._seats[agent], stable_hash("oracle", self.match.seed, self._turns, agent))
        return "" if move is None else f"[{move}]"

    def _render_text(self) -> str:
        return f"{super()._render_text()}\n\n{self.match.board()}"


_KIND = {
    "ZERO_SUM": "What one player wins the others lose.",
    "CONSTANT_SUM": "What one player wins the others lose.",
    "GENERAL_SUM": "Each player earns its own utility.",
    "IDENTICAL": "All players earn the same: play together.",
}


def _question(rules: Rules, parameters: dict[str, Any]) -> str:
    game, kind = rules.game, rules.kind
    given = f" with {shown(parameters)}" if parameters else ""
    alone = rules.players == 1
    who = "one player" if alone else f"{rules.players} players"
    how = "who decide at the same time" if rules.simultaneous and not alone else "in turns"
    aim = "" if alone else f" {_KIND[kind.utility.name]}"
    text = f"You are playing {kind.long_name} (OpenSpiel's {rules.name}{given}): {who}, {how}.{aim}"
    lines = [f"{text} Utilities range from {game.min_utility():g} to {game.max_utility():g}."]
    if rules.one_shot and not rules.chance:
        lines += [line for line in str(game.new_initial_state()).strip().splitlines() if "Terminal?" not in line]
    return "\n".join(lines)


def _first(rules: Rules, parameters: dict[str, Any]) -> Match:
    """A match that has begun.

    Raises:
        gymnasium.error.Error: With these parameters nobody has a move, or OpenSpiel fails.
    """
    try:
        match = Match(rules, 0)
        playable = any(match.legal(player) for player in match.movers())
    except (LookupError, RuntimeError, ValueError) as failure:
        raise error.Error(f"OpenSpiel cannot start {rules.name} with {parameters}: {failure!r}.") from failure
    if not playable:
        raise error.Error(f"Nobody can move in OpenSpiel's {rules.name} with {parameters}.")
    return match


def _examples(match: Match, players: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Well-formed texts, most of them legal at first, and one that is not."""
    examples = {}
    for player, agent in enumerate(players):
        moves = match.legal(player) or match.legal(next(iter(match.movers())))
        examples[agent] = (*(f"[{move}]" for move in moves[:_EXAMPLES]), "I pass.")
    return examples
