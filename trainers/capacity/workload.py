"""What an update consists of, policy by policy: turns, tokens, sequences in flight.

Without a recorded run nothing is known of lengths, so bounds stand in for them: every answer as long as it may be,
every prompt as long as the engine takes, every turn that the environment allows. Times are then upper bounds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainers.capacity.shapes import ModelShape, shape_of
from trainers.config import TrainConfig
from trainers.policy_config import LEARNING, PolicyConfig
from trainers.recipe_files import ConfigError
from trainers.rollout.records import Episode
from trainers.team import EVERYONE, role_of

__all__ = ["Lengths", "PolicyWork", "read_episodes", "recorded_lengths", "workload"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Means of the turns of an agent: how many an episode has, and tokens of their prompts and completions."""

    turns: float
    prompt: float
    completion: float


@dataclass(frozen=True, slots=True)
class PolicyWork:
    """What a policy does in an update.

    Attributes:
        name: Its name.
        policy: Its settings.
        shape: Its model.
        shape_source: Where the shape was read.
        agents: The agents it plays.
        turns: Turns that it plays in an update.
        prompt: Mean tokens of a prompt.
        completion: Mean tokens of a completion.
        prompts_computed: Prompts that a learner computes: of candidates of one turn, or of samples of one task at their
            first turn, only one.
        sequences: Sequences in flight, at most.
        longest: Tokens of the longest sequence.
        bounded: Whether lengths are bounds and not means.
    """

    name: str
    policy: PolicyConfig
    shape: ModelShape
    shape_source: str
    agents: tuple[str, ...]
    turns: float
    prompt: float
    completion: float
    prompts_computed: float
    sequences: float
    longest: int
    bounded: bool

    @property
    def update_tokens(self) -> float:
        """Tokens that a pass of the learner computes."""
        return self.prompts_computed * self.prompt + self.turns * self.completion


def read_episodes(folder: Path) -> Iterator[Episode]:
    """Yield the episodes that were played without an error in ``episodes.jsonl`` of a folder of ``llm-bench run``.

    Raises:
        ConfigError: There is no such file, or a line is not an episode.
    """
    path = folder / "episodes.jsonl" if folder.is_dir() else folder
    if not path.is_file():
        raise ConfigError(f"{folder} has no episodes.jsonl: give the folder of an `llm-bench run`")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            episode = Episode.from_dict(json.loads(line))
        except (ValueError, TypeError) as problem:
            raise ConfigError(f"{path}, line {number} is not an episode: {problem}") from problem
        if episode.error is None and episode.turns:
            yield episode


def recorded_lengths(folder: Path) -> dict[str, Lengths]:
    """Means by agent of the turns in a folder of recorded episodes.

    Raises:
        ConfigError: There is no episode, or no turn of one has token counts.
    """
    turns: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    episodes = 0
    for episode in read_episodes(folder):
        episodes += 1
        for turn in episode.turns:
            turns[turn.agent].append((turn.prompt_tokens, turn.completion_tokens))
    if not any(completion for pairs in turns.values() for _, completion in pairs):
        raise ConfigError(f"{folder}: no turn has token counts; play a model (hf:, vllm:) and not a scripted policy")
    return {
        agent: Lengths(
            turns=len(pairs) / episodes,
            prompt=sum(prompt for prompt, _ in pairs) / len(pairs),
            completion=sum(completion for _, completion in pairs) / len(pairs),
        )
        for agent, pairs in turns.items()
    }


def workload(
    config: TrainConfig,
    *,
    recorded: Mapping[str, Lengths] | None = None,
    turns: float | None = None,
    prompt: float | None = None,
    completion: float | None = None,
) -> list[PolicyWork]:
    """Return what each policy with a model of ours does in an update.

    Args:
        config: The run.
        recorded: Means by agent, from :func:`recorded_lengths`.
        turns: Turns of each agent in an episode, in the place of what is recorded or bounded.
        prompt: Tokens of a prompt, likewise.
        completion: Tokens of a completion, likewise.

    Raises:
        ConfigError: A model's shape is not known, or nothing bounds the turns and none were given.
    """
    most, at_once = _most_turns(config)
    tree = config.algorithm.build().sampling == "tree"
    group = config.samples_per_task
    episodes = config.tasks_per_update * (1 if tree else group)
    roles = config.role_map()
    work = []
    for name, policy in config.policies.items():
        if policy.backend not in LEARNING:
            continue
        agents = tuple(agent for agent in most if _policy_of(agent, roles) == name)
        shape, source = shape_of(str(policy.model))
        limit = policy.sampling.max_tokens
        longest = int(policy.engine.get("max_model_len") or shape.max_length)
        if longest <= limit:
            raise ConfigError(
                f"policies.{name}: sampling.max_tokens is {limit}, which leaves no room for a prompt in {longest} "
                "tokens: lower it, or raise engine.max_model_len"
            )
        found = [_lengths(agent, most, recorded, longest - limit, limit, turns) for agent in agents]
        total = sum(item.turns for item in found)
        share = [item.turns / total if total else 0.0 for item in found]
        played = episodes * total * (group if tree else 1)
        first = 0.0 if tree else episodes * sum(min(1.0, item.turns) for item in found)
        work.append(
            PolicyWork(
                name=name,
                policy=policy,
                shape=shape,
                shape_source=source,
                agents=agents,
                turns=played,
                prompt=prompt or sum(p * item.prompt for p, item in zip(share, found, strict=True)),
                completion=completion or sum(p * item.completion for p, item in zip(share, found, strict=True)),
                prompts_computed=_prompts(policy, played, first, group, tree),
                sequences=min(
                    played,
                    min(config.concurrency, episodes) * (group if tree else 1) * (len(agents) if at_once else 1),
                ),
                longest=longest,
                bounded=(recorded is None and not (turns and prompt and completion)),
            )
        )
    return work


def _prompts(policy: PolicyConfig, turns: float, first: float, group: int, tree: bool) -> float:
    if policy.packing != "shared":
        return turns
    return turns / group if tree else turns - first + first / group


def _lengths(
    agent: str,
    most: Mapping[str, int | None],
    recorded: Mapping[str, Lengths] | None,
    prompt: int,
    completion: int,
    turns: float | None,
) -> Lengths:
    if recorded is not None:
        if agent not in recorded:
            raise ConfigError(f"the recorded episodes have no turn of {agent}: they are of another environment")
        found = recorded[agent]
        return found if turns is None else Lengths(turns, found.prompt, found.completion)
    bound = most[agent] if turns is None else turns
    if bound is None:
        raise ConfigError(f"nothing bounds the turns of {agent}: give --turns, or --episodes with a recorded run")
    return Lengths(bound, prompt, completion)


def _policy_of(agent: str, roles: Mapping[str, str]) -> str | None:
    return next((roles[role] for role in (agent, role_of(agent), EVERYONE) if role in roles), None)


def _most_turns(config: TrainConfig) -> tuple[dict[str, int | None], bool]:
    """The most turns of every agent, and whether all act at once.

    The environment is made with its default tasks: those of the run may not be at hand.
    """
    from gymnasium import error

    import llm_envs

    try:
        env = llm_envs.make(config.env.id, order_enforcing=False, **config.env.kwargs).unwrapped
    except error.Error as problem:
        raise ConfigError(f"env: {problem}") from problem
    return {agent: env.most_turns([agent]) for agent in env.possible_agents}, bool(
        env.metadata.get("is_parallelizable")
    )
