"""Policies without a model: the environment's own solver, random actions, a recorded run, and simulated latency."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.policies.base import Completion, Policy, PolicyError, PolicySpec, Request, candidate_seed

if TYPE_CHECKING:
    from llm_envs.core import TextEnv

EPISODES_FILE = "episodes.jsonl"
"""Name of the file in a run folder that holds one JSON object an episode."""


def scripted_env(policy: Policy, request: Request) -> TextEnv:
    """Return the environment of a request. Raises PolicyError if it has none."""
    if request.env is None:
        raise PolicyError(f"policy {policy.name!r} reads the environment: set Request.env to the unwrapped environment")
    return request.env


class OraclePolicy(Policy):
    """Plays what the environment's own `oracle(agent)` says."""

    def __init__(self, name: str = "oracle") -> None:
        """Name the policy."""
        super().__init__(name)

    @classmethod
    def from_spec(cls, spec: str, parsed: PolicySpec) -> OraclePolicy:
        """Make the policy that a spec names."""
        return cls(spec)

    async def generate(self, request: Request) -> list[Completion]:
        """Return `request.n` times the oracle's action."""
        text = str(scripted_env(self, request).oracle(request.agent))
        return [Completion(text, "stop")] * request.n


class RandomPolicy(Policy):
    """Plays at random, whatever the environment offers.

    In an environment that lists the legal moves (a game) each of them is equally likely. Elsewhere it is an example of
    the agent's action space, well-formed or not, or a random sample of a space without examples.

    The draw is seeded by the request alone and leaves the random state of the environment's space as it was.
    """

    def __init__(self, name: str = "random") -> None:
        """Name the policy."""
        super().__init__(name)

    @classmethod
    def from_spec(cls, spec: str, parsed: PolicySpec) -> RandomPolicy:
        """Make the policy that a spec names."""
        return cls(spec)

    async def generate(self, request: Request) -> list[Completion]:
        """Return `request.n` random actions."""
        env = scripted_env(self, request)
        space = env.action_space(request.agent)
        listed = getattr(env, "legal_actions", None)
        choices = () if listed is None else tuple(listed(request.agent))
        choices = choices or tuple(getattr(space, "examples", ()))
        completions = []
        for index in range(request.n):
            seed = candidate_seed(request.seed, index)
            if choices:
                text = random.Random(seed).choice(choices)
            else:
                own = copy.deepcopy(space)
                own.seed(seed % 2**32)
                text = own.sample()
            completions.append(Completion(str(text), "stop"))
        return completions


class ReplayPolicy(Policy):
    """Plays back the actions of a recorded run.

    A turn is found by task id, sample, turn index and agent. Token ids and log-probs come back with the text if the
    run has them.
    """

    def __init__(self, run: str | Path, name: str | None = None) -> None:
        """Read a run.

        Args:
            run: Run folder with an `episodes.jsonl`, or that file itself.
            name: The spec string; `replay:<run>` if not given.

        Raises:
            PolicyError: If there is no such file, or a line of it is not a recorded episode. A last line that was cut
                off by a crash (no newline at its end) is left out.
        """
        super().__init__(f"replay:{run}" if name is None else name)
        path = Path(run).expanduser()
        self.path = path / EPISODES_FILE if path.is_dir() else path
        if not self.path.is_file():
            raise PolicyError(f"policy {self.name!r}: no recorded run there: {self.path} is not a file")
        self._turns: dict[tuple[str, int, int, str], dict[str, Any]] = {}
        for number, line in enumerate(self.path.read_bytes().splitlines(keepends=True), start=1):
            if line.strip():
                self._read_line(line, number)

    @classmethod
    def from_spec(cls, spec: str, parsed: PolicySpec) -> ReplayPolicy:
        """Make the policy that a spec names."""
        return cls(parsed.target, spec)

    def _read_line(self, line: bytes, number: int) -> None:
        try:
            episode = json.loads(line)
        except ValueError as error:  # not JSON, or cut off inside of a character
            if not line.endswith(b"\n"):
                return
            raise PolicyError(f"{self.path}, line {number}: not JSON ({error})") from error
        try:
            task, mark, sample = str(episode["id"]).rpartition("#")
            if not mark:
                raise ValueError(f"id {episode['id']!r} is not '<task>#<sample>'")
            for turn in episode["turns"]:
                key = (task, int(sample), int(turn["index"]), str(turn["agent"]))
                self._turns[key] = {**turn, "action": str(turn["action"])}
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyError(f"{self.path}, line {number}: not a recorded episode ({error!r})") from error

    async def generate(self, request: Request) -> list[Completion]:
        """Return the recorded action as the one completion.

        Raises:
            PolicyError: If the run has no such turn, or more than one candidate is wanted.
        """
        task = scripted_env(self, request).task.id
        if request.n != 1:
            raise PolicyError(f"policy {self.name!r} has one action a turn; {request.n} candidates were asked for")
        if len(request.key) < 3:
            raise PolicyError(
                f"policy {self.name!r} needs Request.key = (task index, sample, turn index, agent), got {request.key!r}"
            )
        sample, index = int(request.key[1]), int(request.key[2])
        turn = self._turns.get((task, sample, index, request.agent))
        if turn is None:
            raise PolicyError(f"{self.path} has no turn {index} of {request.agent} in episode {task}#{sample}")
        ids = {name: _tuple(turn.get(name)) for name in ("prompt_ids", "completion_ids", "logprobs")}
        return [
            Completion(
                text=turn["action"],
                finish_reason="length" if turn.get("finish_reason") == "length" else "stop",
                prompt_ids=ids["prompt_ids"],
                token_ids=ids["completion_ids"],
                logprobs=ids["logprobs"],
                weight_version=int(turn.get("weight_version", 0)),
                prompt_tokens=turn.get("prompt_tokens"),
                completion_tokens=turn.get("completion_tokens"),
            )
        ]


def _tuple(values: Any) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


class LatencyPolicy(Policy):
    """Answers like another policy after a simulated, log-normally distributed wait.

    The wait depends on the request's seed alone, so a schedule of requests can be computed and compared with what ran.
    """

    def __init__(self, inner: Policy, *, median_s: float, sigma: float = 1.0) -> None:
        """Wrap a policy.

        Args:
            inner: The policy that answers.
            median_s: Median wait in seconds.
            sigma: Standard deviation of the wait's natural logarithm.

        Raises:
            ValueError: If a parameter is negative.
        """
        if median_s < 0.0 or sigma < 0.0:
            raise ValueError(f"median_s and sigma must be >= 0, got {median_s!r} and {sigma!r}")
        super().__init__(inner.name, f"{inner.label}+latency")
        self.inner = inner
        self.median_s = median_s
        self.sigma = sigma

    def latency_s(self, request: Request) -> float:
        """Return the wait of a request in seconds."""
        return self.median_s * math.exp(self.sigma * random.Random(candidate_seed(request.seed, -1)).gauss())

    async def generate(self, request: Request) -> list[Completion]:
        """Wait, then answer."""
        await asyncio.sleep(self.latency_s(request))
        return await self.inner.generate(request)

    def join(self) -> None:
        """Tell the wrapped policy that an episode starts."""
        self.inner.join()

    def leave(self) -> None:
        """Tell the wrapped policy that an episode has ended."""
        self.inner.leave()

    async def close(self) -> None:
        """Close the wrapped policy."""
        await self.inner.close()
