"""The rollout: credit, seeds, parallel rounds, no barrier, failures, cancellation."""

from __future__ import annotations

import asyncio
import heapq
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from llm_envs.tasks import stable_hash
from trainers.policies.base import PolicyError, Request, Sampling
from trainers.rollout.episodes import Job, TooManyFailuresError, collect, make_jobs, pending, play, run_episode
from trainers.rollout.records import Episode
from trainers.team import Team, TeamError


def one(env: Any, policy: Any, job: Job | None = None) -> Episode:
    return asyncio.run(run_episode(env, Team.single(policy), job or Job(0, 0, 5)))


# ---- records ------------------------------------------------------------------------------------------------------


def test_turns_are_in_aec_order_with_their_credit(pair_env: Any, call_policy: Any) -> None:
    texts = {"left_0": "one two", "right_0": "three", "judge_0": "go"}
    episode = one(pair_env(rounds=2), call_policy(lambda request: texts[request.agent]), Job(3, 1, 5))
    assert episode.error is None
    assert [turn.agent for turn in episode.turns] == ["left_0", "right_0", "judge_0"] * 2
    assert [turn.index for turn in episode.turns] == list(range(6))
    assert [turn.agent_turn for turn in episode.turns] == [0, 0, 0, 1, 1, 1]
    # Words are paid when the round ends, the team when the episode does: on dead steps, credited to the last actions.
    assert [turn.reward_parts for turn in episode.turns] == [
        {"words": 0.2}, {"words": 0.1}, {},
        {"words": 0.2, "team": 1.0}, {"words": 0.1, "team": 1.0}, {"team": 1.0},
    ]  # fmt: skip
    assert episode.returns == pytest.approx({"left_0": 1.4, "right_0": 1.2, "judge_0": 1.0})
    assert episode.reward_parts["left_0"] == pytest.approx({"words": 0.4, "team": 1.0})
    assert episode.team_return == 1.0
    assert (episode.success, episode.terminated, episode.truncated) == (True, False, True)
    assert (episode.id, episode.env, episode.task, episode.task_index) == ("pair/3#1", "pair_v0", "pair/3", 3)
    assert [turn.info for turn in episode.agent_turns("judge_0")] == [{"verdict": "go on"}, {"verdict": "done"}]
    assert all(turn.prompt_tokens == 3 and turn.completion_tokens == 2 for turn in episode.turns)
    assert Episode.from_json(episode.to_json()) == episode


def test_observations_are_those_the_environment_showed(pair_env: Any, call_policy: Any) -> None:
    episode = one(pair_env(), call_policy(lambda request: request.agent))
    left, right, judge = episode.turns[:3]
    assert left.observation == "Question 0\n\nYou are left_0."
    assert "left_0: left_0" not in right.observation
    assert "left_0: left_0\nright_0: right_0" in judge.observation
    assert type(left.observation) is str


def test_invalid_actions_are_marked_and_paid_apart(pair_env: Any, call_policy: Any) -> None:
    bad = {("right_0", 0), ("judge_0", 0)}
    count: dict[str, int] = {}

    def reply(request: Request) -> str:
        turn = count[request.agent] = count.get(request.agent, -1) + 1
        return "bad" if (request.agent, turn) in bad else "go"

    episode = one(pair_env(), call_policy(reply))
    left, right, judge, retry = episode.turns[:4]
    assert (left.invalid, right.invalid, judge.invalid, retry.invalid) == (
        None, "the text was bad", "the text was bad", None,
    )  # fmt: skip
    assert right.reward_parts == {"invalid": -0.1}
    assert judge.reward_parts == {"invalid": -0.1}
    assert (retry.agent, retry.agent_turn) == ("judge_0", 1)
    assert episode.penalty_return("judge_0") == pytest.approx(-0.1)


def test_ending_is_not_success(pair_env: Any, call_policy: Any) -> None:
    episode = one(pair_env(), call_policy(lambda request: "stop"))
    assert (episode.success, episode.terminated, episode.truncated) == (False, True, False)


def test_rewards_before_the_first_action_go_to_the_totals_only(pair_env: Any, call_policy: Any) -> None:
    class Welcome(pair_env):
        def _end_round(self) -> Any:
            outcome = super()._end_round()
            outcome.rewards["judge_0"] = {"welcome": 0.5}
            return outcome

    episode = one(Welcome(rounds=1), call_policy(lambda request: "go"))
    assert episode.agent_turns("judge_0")[0].reward_parts == {"team": 1.0}
    assert episode.reward_parts["judge_0"] == {"welcome": 0.5, "team": 1.0}
    assert episode.returns["judge_0"] == 1.5


def test_info_keeps_what_json_can_hold(pair_env: Any, call_policy: Any) -> None:
    class Chatty(pair_env):
        def _play(self, agent: str, action: str) -> Any:
            outcome = super()._play(agent, action)
            if outcome is not None:
                outcome.info["judge_0"] |= {"pair": (1, "x"), "thing": object(), "deep": {"a": [None, True]}}
            return outcome

    episode = one(Chatty(rounds=1), call_policy(lambda request: "go"))
    assert episode.turns[-1].info == {"verdict": "done", "pair": [1, "x"], "deep": {"a": [None, True]}}


def test_parts_that_do_not_add_up_fail_the_episode(pair_env: Any, call_policy: Any) -> None:
    class Wrong(pair_env):
        def last(self, observe: bool = True) -> Any:
            observation, reward, *rest = super().last(observe)
            return observation, reward + 0.5, *rest

    assert "do not add up" in (one(Wrong(), call_policy(lambda request: "go")).error or "")


# ---- requests -----------------------------------------------------------------------------------------------------


def test_seeds_and_keys_are_stable_and_distinct(pair_env: Any, call_policy: Any) -> None:
    policies = []
    for _ in range(2):
        policy = call_policy(lambda request: "go")
        policies.append(policy)
        asyncio.run(collect(pair_env, Team.single(policy), make_jobs(range(3), 2, seed=7), concurrency=4))
    first, second = ({request.key: request.seed for request in policy.requests} for policy in policies)
    assert first == second
    assert len(set(first.values())) == len(first) == 3 * 2 * 6
    job = make_jobs([2], 2, seed=7)[1]
    assert first[2, 1, 5, "judge_0"] == stable_hash(job.seed, "pair/2", 1, 5, "judge_0")


def test_samples_of_a_task_share_the_environment_seed() -> None:
    jobs = make_jobs([4, 9], 2, seed=1)
    assert [(job.task_index, job.sample) for job in jobs] == [(4, 0), (4, 1), (9, 0), (9, 1)]
    assert jobs[0].seed == jobs[1].seed != jobs[2].seed
    assert make_jobs([4], 1, seed=2)[0].seed != jobs[0].seed


def test_each_agent_asks_its_own_policy_with_its_sampling(pair_env: Any, call_policy: Any) -> None:
    speak, judge = call_policy(lambda request: "hello", "speak"), call_policy(lambda request: "go", "judge")
    cold = Sampling(temperature=0.0)
    team = Team({"s": speak, "j": judge}, {"*": "s", "judge": "j"}, {"j": cold})
    (episode,) = asyncio.run(collect(pair_env, team, [Job(0, 0, 1)]))
    assert {request.agent for request in judge.requests} == {"judge_0"}
    assert all(request.sampling is cold for request in judge.requests)
    assert [turn.policy for turn in episode.turns[:3]] == ["s", "s", "j"]


def test_agents_of_a_round_are_asked_together(pair_env: Any, call_policy: Any) -> None:
    both = asyncio.Event

    async def run() -> tuple[Any, Episode]:
        waiting: set[str] = set()
        met = both()

        async def reply(request: Request) -> str:
            if request.agent == "judge_0":
                met.clear()
                waiting.clear()
                return "go"
            waiting.add(request.agent)
            if len(waiting) == 2:
                met.set()
            await asyncio.wait_for(met.wait(), 5)  # answered only once the other one has been asked as well
            return request.agent

        policy = call_policy(reply)
        return policy, await run_episode(pair_env(), Team.single(policy), Job(0, 0, 1))

    policy, episode = asyncio.run(run())
    assert episode.error is None
    assert frozenset({(0, 0, 0, "left_0"), (0, 0, 1, "right_0")}) in policy.seen_together
    assert [turn.action for turn in episode.turns[:2]] == ["left_0", "right_0"]


def test_an_answer_to_an_observation_that_changed_is_asked_again(pair_env: Any, call_policy: Any) -> None:
    class Leaky(pair_env):  # not a true round: the second agent sees what the first one said
        def _context(self, agent: str) -> str:
            return super()._context(agent) + str(sorted(self.said.items()))

    policy = call_policy(lambda request: request.agent)
    episode = one(Leaky(rounds=1), policy)
    assert "left_0" in episode.turns[1].observation
    assert [request.agent for request in policy.requests] == ["left_0", "right_0", "right_0", "judge_0"]
    assert policy.requests[2].observation == episode.turns[1].observation


# ---- schedule -----------------------------------------------------------------------------------------------------


def test_a_slow_episode_delays_no_other(pair_env: Any, call_policy: Any, virtual: Callable[..., Any]) -> None:
    ended: list[tuple[int, float]] = []

    async def run() -> None:
        async def reply(request: Request) -> str:
            await asyncio.sleep(100.0 if request.key[0] == 0 else 1.0)
            return "go"

        loop = asyncio.get_running_loop()
        team = Team.single(call_policy(reply))
        await collect(
            pair_env, team, make_jobs(range(8), 1, 0), on_episode=lambda e: ended.append((e.task_index, loop.time()))
        )

    virtual(run())
    assert dict(ended[:-1]) == pytest.approx(
        dict.fromkeys(range(1, 8), 4.0)
    )  # two rounds: speakers at once, then judge
    assert ended[-1] == (0, pytest.approx(400.0))


@pytest.mark.parametrize("concurrency", [1, 5, 64])
def test_log_normal_latencies_take_the_ideal_time(
    pair_env: Any, call_policy: Any, virtual: Callable[..., Any], concurrency: int
) -> None:
    def latency(request: Request) -> float:
        return random.Random(request.seed).lognormvariate(0.0, 1.0)

    async def reply(request: Request) -> str:
        await asyncio.sleep(latency(request))
        return "go"

    policy = call_policy(reply)
    jobs = make_jobs(range(8), 8, 3)
    episodes, seconds = virtual(collect(pair_env, Team.single(policy), jobs, concurrency=concurrency))
    waits = {request.key: latency(request) for request in policy.requests}
    lengths = [
        sum(
            max(waits[e.task_index, e.sample, i, "left_0"], waits[e.task_index, e.sample, i + 1, "right_0"])
            + waits[e.task_index, e.sample, i + 2, "judge_0"]
            for i in (0, 3)
        )
        for e in episodes
    ]
    free = [0.0] * concurrency  # list scheduling: each episode starts in the slot that is free first
    for length in lengths:
        heapq.heappush(free, heapq.heappop(free) + length)
    assert seconds == pytest.approx(max(free))
    assert policy.most_joined == min(concurrency, 64)
    assert policy.joined == 0


def test_environments_are_reused(pair_env: Any, call_policy: Any) -> None:
    made = []

    def make_env() -> Any:
        made.append(pair_env())
        return made[-1]

    episodes = asyncio.run(
        collect(make_env, Team.single(call_policy(lambda request: "go")), make_jobs(range(8), 4, 0), concurrency=3)
    )
    assert len(made) == 3
    assert [(e.task_index, e.sample) for e in episodes] == [(i, s) for i in range(8) for s in range(4)]


def test_concurrency_changes_no_result(pair_env: Any, call_policy: Any) -> None:
    def run(concurrency: int) -> list[str]:
        policy = call_policy(lambda request: "go " * (request.seed % 5) + str(request.seed % 97))
        episodes = asyncio.run(
            collect(pair_env, Team.single(policy), make_jobs(range(8), 2, 1), concurrency=concurrency)
        )
        return [episode.to_json(timings=False) for episode in episodes]

    assert run(1) == run(7)


def test_blocking_steps_run_in_threads_and_do_not_hold_the_loop(pair_env: Any, call_policy: Any) -> None:
    threads: set[str] = set()
    together = 0
    most = 0
    lock = threading.Lock()

    class Blocking(pair_env):
        blocking = True

        def step(self, action: str | None) -> None:
            nonlocal together, most
            if action is None:  # a dead step does nothing that could block
                super().step(action)
                return
            with lock:
                together += 1
                most = max(most, together)
                threads.add(threading.current_thread().name)
            time.sleep(0.01)
            super().step(action)
            with lock:
                together -= 1

    async def run() -> tuple[list[Episode], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        ticker = asyncio.create_task(tick())
        team = Team.single(call_policy(lambda request: "go"))
        episodes = await collect(Blocking, team, make_jobs(range(8), 1, 0), concurrency=8, step_threads=3)
        ticker.cancel()
        return episodes, ticks

    episodes, ticks = asyncio.run(run())
    assert all(episode.success for episode in episodes)
    assert 2 <= most <= 3
    assert all(name.startswith("env-step") for name in threads)
    assert ticks > 5


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_failed_request_fails_its_episode_only(pair_env: Any, call_policy: Any) -> None:
    def reply(request: Request) -> str:
        if request.key[:3] == (2, 0, 4):
            raise PolicyError("the server hung up")
        return "go"

    policy = call_policy(reply)
    episodes = asyncio.run(collect(pair_env, Team.single(policy), make_jobs(range(8), 1, 0), concurrency=2))
    assert [episode.task_index for episode in episodes if episode.error] == [2]
    failed = episodes[2]
    assert failed.error == "PolicyError: the server hung up"
    assert [turn.agent for turn in failed.turns] == ["left_0", "right_0", "judge_0"]
    assert all(turn.masked for turn in failed.turns)
    assert (failed.success, failed.terminated, failed.truncated) == (False, False, False)
    assert all(
        episode.success and not any(turn.masked for turn in episode.turns) for episode in episodes if not episode.error
    )
    assert policy.joined == 0


def test_an_environment_that_fails_is_replaced(pair_env: Any, call_policy: Any) -> None:
    made = []

    class Fragile(pair_env):
        def _play(self, agent: str, action: str) -> Any:
            if self.task_index == 1:
                raise OSError("retriever is down")
            return super()._play(agent, action)

    def make_env() -> Any:
        made.append(Fragile())
        return made[-1]

    team = Team.single(call_policy(lambda request: "go"))
    episodes = asyncio.run(collect(make_env, team, make_jobs(range(4), 1, 0), concurrency=1))
    assert [episode.error for episode in episodes] == [None, "OSError: retriever is down", None, None]
    assert len(made) == 2


def test_a_policy_must_give_one_completion(pair_env: Any, call_policy: Any) -> None:
    class Silent(call_policy):
        async def generate(self, request: Request) -> list[Any]:
            return []

    episode = one(pair_env(), Silent(lambda request: ""))
    assert episode.error == "PolicyError: Policy 'call' gave 0 completions; 1 asked for"


def test_gives_up_after_failures_in_a_row(pair_env: Any, call_policy: Any) -> None:
    def reply(request: Request) -> str:
        if request.key[0] >= 2:
            raise PolicyError("no server")
        return "go"

    seen: list[Episode] = []
    team = Team.single(call_policy(reply))
    with pytest.raises(TooManyFailuresError, match=r"3 episodes failed .* no server"):
        asyncio.run(
            play(pair_env, team, make_jobs(range(8), 1, 0), seen.append, concurrency=1, max_failures_in_a_row=3)
        )
    assert [(e.task_index, e.error is None) for e in seen] == [(0, True), (1, True), (2, False), (3, False), (4, False)]


def test_a_team_that_does_not_fit_is_refused_before_anything_is_asked(pair_env: Any, call_policy: Any) -> None:
    policy = call_policy(lambda request: "go")
    with pytest.raises(TeamError, match="'right_0'"):
        asyncio.run(collect(pair_env, Team({"p": policy}, {"left": "p"}), [Job(0, 0, 0)]))
    assert policy.requests == []


def test_an_error_in_on_episode_ends_the_rollout_cleanly(pair_env: Any, call_policy: Any) -> None:
    async def reply(request: Request) -> str:
        await asyncio.sleep(0.001 if request.key[0] == 0 else 60)
        return "go"

    policy = call_policy(reply)

    def full(episode: Episode) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        asyncio.run(collect(pair_env, Team.single(policy), make_jobs(range(4), 1, 0), on_episode=full))
    assert policy.joined == 0
    assert policy.in_flight == set()


def test_cancelling_leaves_nothing_behind_and_keeps_what_is_done(pair_env: Any, call_policy: Any) -> None:
    closed = []

    class Closing(pair_env):
        def close(self) -> None:
            closed.append(self)

    done: list[int] = []

    async def reply(request: Request) -> str:
        await asyncio.sleep(0 if request.key[0] < 3 else 60)
        return "go"

    policy = call_policy(reply)

    async def run() -> int:
        job = asyncio.create_task(
            collect(
                Closing, Team.single(policy), make_jobs(range(8), 1, 0), concurrency=4,
                on_episode=lambda e: done.append(e.task_index),
            )
        )  # fmt: skip
        await asyncio.sleep(0.2)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
    assert sorted(done) == [0, 1, 2]
    assert policy.joined == 0
    assert policy.in_flight == set()
    assert len(closed) == 4


def test_no_jobs_and_bad_arguments(pair_env: Any, call_policy: Any) -> None:
    team = Team.single(call_policy(lambda request: "go"))
    assert asyncio.run(collect(pair_env, team, [])) == []
    with pytest.raises(ValueError, match="concurrency must be at least 1, got 0"):
        asyncio.run(collect(pair_env, team, [Job(0, 0, 0)], concurrency=0))
    with pytest.raises(ValueError, match="same task index and sample"):
        asyncio.run(collect(pair_env, team, [Job(0, 0, 0), Job(0, 0, 1)]))


def test_pending_leaves_out_what_is_done() -> None:
    jobs = make_jobs(range(2), 2, 0)
    assert [(job.task_index, job.sample) for job in pending(jobs, [(0, 1), (1, 0)])] == [(0, 0), (1, 1)]


def test_an_episode_that_fails_after_its_end_is_no_success(pair_env: Any, call_policy: Any) -> None:
    class WrongAtTheEnd(pair_env):
        def last(self, observe: bool = True) -> Any:
            observation, reward, *rest = super().last(observe)
            wrong = self.truncations[self.agent_selection] and self.agent_selection == "judge_0"
            return observation, reward + 0.5 * wrong, *rest

    episode = one(WrongAtTheEnd(), call_policy(lambda request: "go"))
    assert "'judge_0' do not add up" in (episode.error or "")
    assert (episode.success, episode.terminated, episode.truncated) == (False, False, False)
    assert len(episode.turns) == 6
    assert all(turn.masked for turn in episode.turns)
