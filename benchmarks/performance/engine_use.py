"""How much of a vLLM engine a multi-agent rollout uses, beside the engine alone and beside a lock-step loop.

The rollout plays :mod:`benchmarks.performance.relay` with a small model of random weights and few words, whose answers
therefore end at random: lengths are close to exponential, as far apart as those of language models, and the bound on
them is far away. Every episode has four turns, each of whose prompts holds the answers before it, so a turn cannot be
asked for before the last is done.
The engine alone gets the same prompts *all at once*, as token ids, with the number of tokens that was generated for
each, and computes as many sequences at a time. That is its own continuous batching, without anything to wait for: a
bound. The rollout has half as many episodes again in flight, so that requests wait for the engine and not the engine
for them. What it then loses is the time in which its own work (tokenising prompts, reading answers, stepping
environments) takes a core or the interpreter from the engine, about a millisecond a turn, and the end, when fewer
episodes are left than the engine could compute. The lock-step loop asks for a turn of as many episodes as the engine
computes sequences, and waits for the last answer. What it loses depends on what a step of the engine costs: where the
cost is that of its batch, as for many sequences on few cores, little; where it is that of reading the weights, much.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.performance.measure import Measurement
from benchmarks.performance.relay import Relay, relay_texts
from benchmarks.performance.schedule import LockStep
from trainers.policies.base import Policy, Sampling
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Turn
from trainers.team import Team

if TYPE_CHECKING:
    from trainers.policies.vllm_engine import VLLMEngine

__all__ = ["measure_engine_use", "missing_vllm"]

AGENTS, ROUNDS = 2, 2
WORDS = 80  # that the model knows beside the necessary ones: about 100 tokens an answer
EPISODES = {16: 288}
"""Episodes of a try, by how many are played at a time: 18 times as many, since in the last of them slots run empty, and
those of a rollout, whose episodes take four answers each, run empty for longer than those of the engine alone."""
AHEAD = 1.5
"""Episodes of the rollout for each sequence that the engine computes: so some requests wait in the engine, and one
begins in the step in which another ends."""
USE_TARGET, LOCK_STEP_TARGET = 0.95, 1.5


def measure_engine_use(
    episodes: Mapping[int, int] = EPISODES,
    *,
    hidden: int = 256,
    layers: int = 6,
    max_tokens: int = 400,
    repeats: int = 2,
) -> list[Measurement]:
    """Measure tokens a second of the rollout, of the engine alone, and of the lock-step loop.

    Args:
        episodes: Episodes of a try, by the episodes, or sequences, at a time.
        hidden: Width of the model.
        layers: Its layers.
        max_tokens: Longest answer.
        repeats: Tries of each, in turn; the best counts.
    """
    if importlib.util.find_spec("vllm") is None:
        return []
    rows = []
    for slots, count in episodes.items():
        rows += asyncio.run(_measure(count, slots, hidden, layers, max_tokens, repeats))
    return rows


def missing_vllm() -> list[str]:
    """A line that says what is left out where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is not None:
        return []
    return ["vllm not installed: skipped how much of an engine a rollout uses (scripts/setup installs it)"]


async def _measure(
    episodes: int, slots: int, hidden: int, layers: int, max_tokens: int, repeats: int
) -> list[Measurement]:
    from trainers.models import build_tiny_model
    from trainers.policies.vllm import VLLMPolicy
    from trainers.policies.vllm_engine import VLLMEngine

    ahead = int(AHEAD * slots)
    length = 256 + 2 * AGENTS * ROUNDS * max_tokens
    with tempfile.TemporaryDirectory() as folder:
        model = build_tiny_model(
            folder, texts=relay_texts(AGENTS, WORDS), hidden_size=hidden, layers=layers, max_length=length
        )
        engine = VLLMEngine(str(model), max_num_seqs=slots)
        policy = VLLMPolicy(engine)
        best = {"rollout": 0.0, "engine": 0.0, "lock-step": 0.0}
        try:
            await _play(policy, slots, slots, max_tokens, repeats)  # not counted
            for number in range(repeats):
                turns, rate = await _play(policy, episodes, ahead, max_tokens, number)
                await engine.call(lambda llm: llm.reset_prefix_cache())
                rates = {"rollout": rate, "engine": await _feed(engine, turns, number)}
                _, rates["lock-step"] = await _play(LockStep(policy), 2 * slots, slots, max_tokens, number)
                await engine.call(lambda llm: llm.reset_prefix_cache())
                best = {name: max(best[name], found) for name, found in rates.items()}
        finally:
            await policy.close()
    what = f"{episodes} episodes of {AGENTS * ROUNDS} turns, {slots} at a time, hidden size {hidden}"
    return [
        Measurement(f"vLLM alone, completion tokens, {what}", best["engine"], "/s"),
        Measurement(f"rollout / vLLM alone, {what}", best["rollout"] / best["engine"], "x", USE_TARGET),
        Measurement(f"rollout / lock-step, {what}", best["rollout"] / best["lock-step"], "x", LOCK_STEP_TARGET),
    ]


async def _play(policy: Policy, episodes: int, slots: int, max_tokens: int, seed: int) -> tuple[list[Turn], float]:
    """Play episodes; returns their turns, and completion tokens a second."""
    env = Relay(agents=AGENTS, rounds=ROUNDS)
    sampling = {"player": Sampling(temperature=1.0, max_tokens=max_tokens)}
    team = Team({"player": policy}, {"*": "player"}, sampling)
    started = time.perf_counter()
    played = await collect(env.fork, team, make_jobs(range(episodes), 1, seed), concurrency=slots)
    seconds = time.perf_counter() - started
    turns = [turn for episode in played for turn in episode.turns]
    return turns, sum(turn.completion_tokens for turn in turns) / seconds


async def _feed(engine: VLLMEngine, turns: Sequence[Turn], seed: int) -> float:
    """Let vLLM's engine step until it has answered all prompts; returns completion tokens a second."""
    import torch
    from vllm import SamplingParams

    def feed(llm: Any) -> float:
        started = time.perf_counter()
        with torch.compiler.set_stance("force_eager"):
            for number, turn in enumerate(turns):
                params = SamplingParams(
                    max_tokens=turn.completion_tokens, ignore_eos=True, logprobs=0, seed=seed, detokenize=False
                )
                llm.add_request(f"alone-{number}", {"prompt_token_ids": list(turn.prompt_ids or ())}, params)
            while llm.has_unfinished_requests():
                llm.step()
        return time.perf_counter() - started

    seconds = await engine.call(feed)
    await engine.call(lambda llm: llm.reset_prefix_cache())
    return sum(turn.completion_tokens for turn in turns) / seconds
