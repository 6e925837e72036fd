"""``check_env``: the contract of a text environment, as a function that anyone can call on their own.

PettingZoo's ``api_test``, ``seed_test``, ``render_test`` and ``parallel_api_test`` check the upstream API; these go
beyond it. Each check is numbered as in ``docs/environments/contract.md`` and raises :class:`ContractError`, which says
what was broken and where.

>>> from llm_envs.testing import check_env
>>> check_env("math-2agent", episodes=2)
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gymnasium import error

from llm_envs.core import AGENT_NAME, TextEnv
from llm_envs.registration import make
from llm_envs.tasks import stable_hash

MALFORMED = (
    "",
    " ",
    "\x00",
    "\ud800",
    "<",
    "}{",
    "yes",
    "\\boxed{",
    "<verify>",
    "```python\n",
    "0" * 10_000,
    "\u202e\u2066é漢",
)
"""Texts that no environment may choke on."""

MakeEnv = Callable[..., TextEnv]


class ContractError(AssertionError):
    """An environment breaks its contract; the message says which point and how."""

    def __init__(self, point: int, message: str) -> None:
        super().__init__(f"contract point {point}: {message}")
        self.point = point


def check_env(env: str | MakeEnv, *, episodes: int = 4, **kwargs: Any) -> None:
    """Check every point of the contract on a few episodes.

    Args:
        env: A registered id, or a function that makes a fresh environment (a class will do); where it takes ``split``,
            point 9 is checked.
        episodes: How many seeds each check plays.
        **kwargs: Arguments of the environment, where ``env`` is an id.

    Raises:
        ContractError: A point is broken.
    """
    make_env = env_maker(env, **kwargs)
    for check in CHECKS:
        check(make_env, episodes)


def env_maker(env: str | MakeEnv, **kwargs: Any) -> MakeEnv:
    """A function that makes fresh, unwrapped environments."""
    if isinstance(env, str):
        env_id = env
        return lambda **more: make(env_id, order_enforcing=False, **{**kwargs, **more})
    maker = env
    return lambda **more: maker(**more).unwrapped


def check_names(make_env: MakeEnv, episodes: int) -> None:
    """Point 1: agents are called ``role_0``; ``metadata["name"]`` is ``name_v0`` and agrees with the id."""
    env = make_env()
    for agent in env.possible_agents:
        _require(1, AGENT_NAME.fullmatch(agent) is not None, f"agent {agent!r} is not named like `solver_0`")
    name = env.metadata.get("name", "")
    _require(
        1, re.fullmatch(r"\w+_v\d+", name) is not None, f"metadata['name'] is {name!r}, expected e.g. 'math_2agent_v0'"
    )
    if env.spec is not None:
        expected = re.sub(r"[-/]", "_", env.spec.id)
        _require(1, name == expected, f"metadata['name'] is {name!r}, the id {env.spec.id!r} asks for {expected!r}")


def check_observe(make_env: MakeEnv, episodes: int) -> None:
    """Point 2: ``observe`` is pure and always legal; history only grows at its end; rounds are closed."""
    for seed, strategy in itertools.product(range(episodes), (_mixed, _oracle)):
        env, contexts, closed = make_env(), dict[str, str](), dict[str, str]()
        for actor in _play(env, seed, strategy):
            before = _snapshot(env)
            for agent in env.possible_agents:
                first = env.observe(agent)
                _require(2, env.observe(agent) == first, f"observing {agent} twice gives two texts")
                context = env._context(agent)
                _require(2, first.startswith(context), f"the observation of {agent} does not start with its history")
                _require(
                    2,
                    context.startswith(contexts.get(agent, "")),
                    f"the history of {agent} was rewritten: it may only grow at its end",
                )
                contexts[agent] = context
            _require(2, _snapshot(env) == before, "observing changed the environment")
            for agent in env.round_agents:
                if agent in closed:
                    _require(2, env.observe(agent) == closed[agent], f"{agent} sees what {actor} did in the same round")
            whole = len(env.round_agents) > 1 and env.round_agents == env._round
            if whole or not env.round_agents[1:]:
                closed = {agent: str(env.observe(agent)) for agent in env.round_agents} if whole else {}
        for agent in env.possible_agents:
            env.observe(agent)


def check_any_text(make_env: MakeEnv, episodes: int) -> None:
    """Point 3: any string is legal, with a reason if unusable; retries are bounded; silence is no success."""
    for text in MALFORMED:
        env, turns = make_env(), 0
        for agent in _play(env, 0, _always(text)):
            turns += 1
            _require(3, turns < 10_000, f"an agent that always says {text[:20]!r} never ends the episode")
            info = env.infos[agent]
            reason = info.get("invalid_action")
            if reason is None:
                continue
            _require(3, isinstance(reason, str) and bool(reason), "`invalid_action` must be the reason as text")
            if not (env.terminations[agent] or env.truncations[agent]):
                _require(3, reason in env.observe(agent), f"{agent} is not told why its text was unusable: {reason!r}")
        _require(3, not env.success, f"saying {text[:20]!r} over and over counts as success")


def check_rewards(make_env: MakeEnv, episodes: int) -> None:
    """Point 4: rewards are finite, named, add up, and infos are deterministic.

    Where ``metadata["zero_sum"]`` says so, the rewards of every step add up to 0 over the agents.
    """
    for seed in range(episodes):
        for strategy in (_mixed, _oracle, _nonsense):
            env, twin = make_env(), make_env()
            for agent, again in zip(_play(env, seed, strategy), _play(twin, seed, strategy), strict=True):
                if _zero_sum(env):
                    _require(
                        4,
                        math.isclose(sum(env.rewards.values()), 0.0, abs_tol=1e-9),
                        f"the rewards of a zero-sum game add up to {sum(env.rewards.values())}: {env.rewards}",
                    )
                for name in env.agents:
                    info, total = env.infos[name], env._cumulative_rewards[name]
                    parts = info.get("reward_parts")
                    if not isinstance(parts, Mapping):
                        raise ContractError(4, f"infos[{name!r}]['reward_parts'] is missing")
                    _require(
                        4,
                        all(math.isfinite(v) for v in parts.values()),
                        f"reward parts of {name} are not finite: {parts}",
                    )
                    _require(
                        4,
                        math.isclose(sum(parts.values()), total, abs_tol=1e-9),
                        f"the reward parts of {name} add up to {sum(parts.values())}, its reward is {total}: {parts}",
                    )
                    invalid = agent == name and "invalid_action" in info and env.invalid_penalty != 0
                    in_round = len(env.round_agents) > 0 and name not in env.round_agents
                    if invalid and not in_round:
                        _require(
                            4, parts.get("invalid", 0.0) < 0, f"unusable text of {name} has no `invalid` part: {parts}"
                        )
                _require(
                    4, agent == again and env.infos == twin.infos, f"infos differ between two equal episodes at {agent}"
                )


def check_end(make_env: MakeEnv, episodes: int) -> None:
    """Point 5: terminated, truncated and success are told apart and told to everybody, success to whom it belongs."""
    for seed in range(episodes):
        for strategy in (_mixed, _oracle, _nonsense):
            env = make_env()
            for _ in _play(env, seed, strategy):
                over = {env.terminations[a] or env.truncations[a] for a in env.agents}
                _require(5, isinstance(env.success, bool), f"success must be a bool, got {env.success!r}")
                _require(
                    5,
                    env.success == bool(env.succeeded),
                    f"success is {env.success}, the agents that succeeded are {sorted(env.succeeded)}",
                )
                for agent in env.agents:
                    flags = (env.terminations[agent], env.truncations[agent], env.infos[agent].get("success"))
                    _require(5, all(isinstance(f, bool) for f in flags), f"flags of {agent} must be bools: {flags}")
                    _require(5, flags[0] + flags[1] < 2, f"{agent} is both terminated and truncated")
                    if env.terminations[agent] or env.truncations[agent]:
                        _require(
                            5,
                            flags[2] == (agent in env.succeeded),
                            f"infos[{agent!r}]['success'] is {flags[2]}, success is {env.success} and belongs to "
                            f"{sorted(env.succeeded)}",
                        )
                    else:
                        _require(5, flags[2] is False, f"{agent} is told of success while the episode runs")
                _require(5, over != {True, False} or len(env.agents) > 1, "the end reaches nobody")


def check_reset(make_env: MakeEnv, episodes: int) -> None:
    """Point 6: the seed decides the episode, options name the task, nothing survives a reset."""
    for seed in range(episodes):
        used, fresh = make_env(), make_env()
        _record(used, seed + 1, _mixed)
        used.reset(seed=seed + 1)
        used.step(used.oracle(used.agent_selection))  # abandoned half-way
        first, second = _record(used, seed, _mixed), _record(fresh, seed, _mixed)
        _require(
            6, first == second, f"seed {seed} gives another episode after an earlier one than in a fresh environment"
        )
    env = make_env()
    for index in {0, len(env.tasks) - 1}:
        env.reset(seed=3, options={"task_index": index, "no such option": 1})
        _require(6, env.task == env.tasks[index], f"task_index {index} does not choose task {index}")
    for bad in (-1, len(env.tasks), "0", True):
        try:
            env.reset(options={"task_index": bad})
        except error.Error:
            continue
        raise ContractError(6, f"task_index {bad!r} is out of range and was accepted")


def check_fork(make_env: MakeEnv, episodes: int) -> None:
    """Point 7: a fork is independent of its original, in both directions, generators included."""
    for seed in range(episodes):
        env = make_env()
        for _ in _play(env, seed, _mixed):
            if not env.agents:
                break
            before = _snapshot(env)
            fork, twin = env.fork(), env.fork()
            _require(7, _snapshot(fork) == before, "a fork differs from its original")
            mine, same = _finish(fork, _oracle), _finish(twin, _oracle)
            _require(7, mine == same, "two forks of one state play differently")
            _require(7, _snapshot(env) == before, "playing a fork changed its original")
            _require(7, fork.np_random is not env.np_random, "a fork shares its generator with its original")


def check_oracle(make_env: MakeEnv, episodes: int) -> None:
    """Point 8: the oracle solves the task with the best reward; evasive texts do not solve it.

    In a zero-sum game it takes two to solve, and chance may deal the oracle a losing hand: there, the oracle against
    itself ends by the rules without unusable text, it beats an opponent that only talks nonsense, and an evader loses.
    """
    for seed in range(episodes):
        env = make_env()
        if _zero_sum(env):
            _check_opponents(make_env, seed)
            continue
        best = _returns(env, seed, _oracle)
        _require(8, env.success, f"playing the oracle does not solve the task {env.task.id}")
        for name, strategy in EVASIONS.items():
            other = make_env()
            got = _returns(other, seed, strategy)
            _require(8, not other.success, f"{name} counts as success on the task {other.task.id}")
            for agent, value in got.items():
                _require(8, value < best[agent] + 1e-9, f"{name} earns {agent} {value}, the oracle {best[agent]}")


def _check_opponents(make_env: MakeEnv, seed: int) -> None:
    env = make_env()
    for agent in _play(env, seed, _oracle):
        reason = env.infos[agent].get("invalid_action")
        _require(8, reason is None, f"the oracle's text of {agent} cannot be used: {reason}")
        for name in env.agents:
            ended = not env.round_agents
            _require(8, not ended or env.terminations[name], f"the oracle against itself does not end for {name}")
            forfeit = env.infos[name].get("forfeit")
            _require(8, forfeit is None, f"the oracle against itself ends with a forfeit of {forfeit}")
    for name, strategy in {"talking nonsense": _nonsense, **EVASIONS}.items():
        alike = make_env()
        _returns(alike, seed, strategy)
        _require(8, not alike.success, f"{name} on every side counts as success on the task {alike.task.id}")
        for seat in alike.possible_agents:
            game = make_env()
            got = _returns(game, seed, _seated(seat, strategy))
            _require(8, seat not in game.succeeded, f"{name} counts as success of {seat} on the task {game.task.id}")
            _require(8, got[seat] < 0, f"{name} earns {seat} {got[seat]}: it must lose")
            if name == "talking nonsense":
                for other in got.keys() - {seat}:
                    _require(8, got[other] > 0, f"the oracle of {other} earns {got[other]} against {name} of {seat}")


def check_splits(make_env: MakeEnv, episodes: int) -> None:
    """Point 9: no statement stands in both splits (2,000 tasks of each; environments without ``split`` pass)."""
    try:
        train, test = make_env(split="train").tasks, make_env(split="test").tasks
    except TypeError as raised:
        if "split" not in str(raised):
            raise
        return
    _require(
        9, (train.split, test.split) == ("train", "test"), f"the splits are called {train.split!r} and {test.split!r}"
    )
    statements = {train[i].question for i in range(min(len(train), 2000))}
    for i in range(min(len(test), 2000)):
        _require(
            9, test[i].question not in statements, f"{test[i].id} stands in the train split too: {test[i].question!r}"
        )


def check_dead_steps(make_env: MakeEnv, episodes: int) -> None:
    """Point 10: what an agent earns after its last turn reaches it on its dead step."""
    for seed in range(episodes):
        for strategy in (_mixed, _oracle):
            env = make_env()
            env.reset(seed=seed)
            earned = dict.fromkeys(env.possible_agents, 0.0)
            seen = dict.fromkeys(env.possible_agents, 0.0)
            dead = set[str]()
            for agent in env.agent_iter(100_000):
                _, reward, termination, truncation, _ = env.last()
                seen[agent] += reward
                over = termination or truncation
                if over:
                    dead.add(agent)
                env.step(None if over else strategy(env, agent))
                if not over:
                    for name, value in env.rewards.items():
                        earned[name] += value
            _require(10, dead == set(env.possible_agents), f"no dead step for {set(env.possible_agents) - dead}")
            for agent in env.possible_agents:
                _require(
                    10,
                    math.isclose(earned[agent], seen[agent], abs_tol=1e-9),
                    f"{agent} earned {earned[agent]} and was told of {seen[agent]}",
                )


CHECKS = (
    check_names,
    check_observe,
    check_any_text,
    check_rewards,
    check_end,
    check_reset,
    check_fork,
    check_oracle,
    check_splits,
    check_dead_steps,
)


# ---- strategies ----------------------------------------------------------------------------------------------------

Strategy = Callable[[TextEnv, str], str]


def _oracle(env: TextEnv, agent: str) -> str:
    return env.oracle(agent)


def _always(text: str) -> Strategy:
    return lambda env, agent: text


def _nonsense(env: TextEnv, agent: str) -> str:
    return "no idea"


def _seated(seat: str, strategy: Strategy) -> Strategy:
    """``strategy`` in one seat, the oracle in the others."""
    return lambda env, agent: strategy(env, agent) if agent == seat else env.oracle(agent)


def _mixed(env: TextEnv, agent: str) -> str:
    """Two examples of the action space to one malformed text, chosen by task and position only."""
    draw = stable_hash("mixed", env.task.id, len(env.transcript), agent)
    examples = env.action_space(agent).examples
    texts = examples if examples and draw % 3 else MALFORMED
    return texts[draw // 3 % len(texts)]


def _echo(env: TextEnv, agent: str) -> str:
    return str(env.observe(agent))


def _truncated(env: TextEnv, agent: str) -> str:
    oracle = env.oracle(agent)
    return oracle[: len(oracle) // 3]


def _shuffled(env: TextEnv, agent: str) -> str:
    return env.oracle(agent)[::-1]


EVASIONS: dict[str, Strategy] = {
    "empty text": lambda env, agent: "",
    "echoing the prompt": _echo,
    "a truncated answer": _truncated,
    "a shuffled answer": _shuffled,
}
"""Ways of answering that never count as solving a task."""


def _play(env: TextEnv, seed: int, strategy: Strategy) -> Iterator[str]:
    """Play one episode; after every live step yield who acted. Dead steps are taken at the end."""
    env.reset(seed=seed)
    while env.round_agents:
        agent = env.agent_selection
        text = strategy(env, agent)
        try:
            env.step(text)
        except Exception as raised:
            raise ContractError(3, f"{text[:40]!r} from {agent} raises {type(raised).__name__}: {raised}") from raised
        yield agent
    while env.agents:
        env.step(None)


def _snapshot(env: TextEnv) -> Any:
    return (
        env.agent_selection,
        list(env.agents),
        dict(env.rewards),
        dict(env._cumulative_rewards),
        {agent: dict(info) for agent, info in env.infos.items()},
        dict(env.terminations),
        dict(env.truncations),
        [str(env.observe(agent)) for agent in env.possible_agents],
    )


def _record(env: TextEnv, seed: int, strategy: Strategy) -> list[Any]:
    return [(agent, _snapshot(env)) for agent in _play(env, seed, strategy)]


def _finish(env: TextEnv, strategy: Strategy) -> list[Any]:
    seen = []
    while env.round_agents:
        env.step(strategy(env, env.agent_selection))
        seen.append(_snapshot(env))
    return [*seen, env.success]


def _returns(env: TextEnv, seed: int, strategy: Strategy) -> dict[str, float]:
    env.reset(seed=seed)
    total = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter(100_000):
        _, reward, termination, truncation, _ = env.last(observe=False)
        total[agent] += reward
        env.step(None if termination or truncation else strategy(env, agent))
    return total


def _zero_sum(env: TextEnv) -> bool:
    return bool(env.metadata.get("zero_sum", False))


def _require(point: int, holds: bool, message: str) -> None:
    if not holds:
        raise ContractError(point, message)
