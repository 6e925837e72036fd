"""Runs: what is chosen, resumed, refused and reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium.error
import pytest

from benchmarks.results import ResultsError, read_config, read_lines
from benchmarks.runner import RunSettings, SettingsError, choose_tasks, default_folder, make_env
from trainers.policies.base import Completion, Policy, PolicyError, Request, Sampling, make_policy
from trainers.policies.scripted import RandomPolicy
from trainers.team import TeamError

PlayRun = Callable[..., Any]


class Flaky(RandomPolicy):
    """Random, but one episode's second turn fails while `broken`."""

    broken = True

    async def generate(self, request: Request) -> list[Completion]:
        if self.broken and request.key[:3] == (2, 1, 1):
            raise PolicyError("the server hung up")
        return await super().generate(request)


def test_every_task_is_played_k_times_in_order(play_run: PlayRun, tmp_path: Path) -> None:
    result, observer = play_run()
    assert result.complete
    assert (result.planned, result.stored, result.failed) == (12, 12, 0)
    assert observer.started == (tmp_path / "run", "random", 12)
    records = list(read_lines(tmp_path / "run", "episodes.jsonl"))
    assert [(r["task_index"], r["sample"]) for r in records] == [(i, s) for i in range(6) for s in range(2)]
    assert all(record["id"].startswith("arithmetic/test/") for record in records)
    identity = read_config(tmp_path / "run")["identity"]
    assert identity["tasks"]["split"] == "test"
    assert identity["env"] == "math-2agent-v0"
    assert "torch" not in identity["versions"]


def test_runs_of_one_seed_are_equal_and_of_two_are_not(play_run: PlayRun, tmp_path: Path) -> None:
    for name, seed, concurrency in (("a", 0, 64), ("b", 0, 1), ("c", 1, 64)):
        play_run(out=tmp_path / name, seed=seed, concurrency=concurrency, n=20)
    a, b, c = ((tmp_path / name / "episodes.jsonl").read_bytes() for name in "abc")
    assert a == b != c


def test_oracle_solves_and_random_does_not(play_run: PlayRun, tmp_path: Path) -> None:
    _, observer = play_run(policies=["oracle"], out=tmp_path / "oracle")
    assert all(episode.success for episode in observer.episodes)
    _, observer = play_run()
    assert not any(episode.success for episode in observer.episodes)


def test_a_policy_per_role(play_run: PlayRun, tmp_path: Path) -> None:
    made: list[str] = []

    def make(spec: str) -> Policy:
        made.append(spec)
        return make_policy(spec)

    _, observer = play_run(make, policies=["solver=oracle", "verifier=random"])
    assert made == ["oracle", "random"]
    assert {(t.agent, t.policy) for e in observer.episodes for t in e.turns} == {
        ("solver_0", "oracle"),
        ("verifier_0", "random"),
    }
    assert observer.started[1] == "solver=oracle verifier=random"


def test_a_complete_run_is_not_played_again(play_run: PlayRun, tmp_path: Path) -> None:
    play_run()
    before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    result, observer = play_run(resume=True)
    assert result.complete
    assert observer.episodes == []
    assert len(observer.found) == 12
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == before


def test_failed_episodes_are_reported_and_played_again(play_run: PlayRun, tmp_path: Path) -> None:
    play_run(out=tmp_path / "whole")
    flaky = Flaky()
    result, observer = play_run(lambda spec: flaky)
    assert (result.complete, result.stored, result.failed, result.gave_up) == (False, 11, 1, None)
    (error,) = read_lines(tmp_path / "run", "errors.jsonl")
    assert (error["task_index"], error["sample"], error["error"]) == (2, 1, "PolicyError: the server hung up")
    assert len(error["turns"]) == 1
    flaky.broken = False
    result, observer = play_run(lambda spec: flaky, resume=True)
    assert result.complete
    assert [(episode.task_index, episode.sample) for episode in observer.episodes] == [(2, 1)]
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == (tmp_path / "whole" / "episodes.jsonl").read_bytes()


def test_a_dead_server_ends_the_run(play_run: PlayRun) -> None:
    class Dead(RandomPolicy):
        async def generate(self, request: Request) -> list[Completion]:
            raise PolicyError("connection refused")

    result, observer = play_run(lambda spec: Dead(), n=100, concurrency=2)
    assert len(observer.episodes) == result.failed
    assert 16 <= result.failed <= 17  # the other episode in flight may end as well
    assert "16 episodes failed one after the other" in (result.gave_up or "")
    assert "connection refused" in (result.gave_up or "")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed: 0 in the folder, 1 now"),
        ({"samples": 3}, "samples: 2 in the folder, 3 now"),
        ({"sampling": Sampling(temperature=0.5)}, "sampling.temperature: 1.0 in the folder, 0.5 now"),
        ({"env_kwargs": {"max_rounds": 3}}, "env_kwargs.max_rounds: None in the folder, 3 now"),
        ({"policies": ["oracle"]}, "policies"),
        ({"split": "train"}, "tasks.split: 'test' in the folder, 'train' now"),
        ({"env": "math-1agent"}, "env: 'math-2agent-v0' in the folder, 'math-1agent-v0' now"),
        ({"save_tokens": True}, "save_tokens"),
    ],
)
def test_resuming_with_other_settings_is_refused(play_run: PlayRun, changes: dict[str, Any], message: str) -> None:
    play_run()
    with pytest.raises(ResultsError, match="cannot be resumed") as error:
        play_run(resume=True, **changes)
    assert message in str(error.value)


def test_concurrency_may_change_on_resume(play_run: PlayRun) -> None:
    play_run()
    result, _ = play_run(resume=True, concurrency=3)
    assert result.complete


def test_a_policy_that_runs_as_something_else_is_refused_on_resume(play_run: PlayRun) -> None:
    play_run()

    def fallback(spec: str) -> Policy:
        policy = RandomPolicy()
        policy.label = "transformers"
        return policy

    with pytest.raises(ResultsError, match=r"labels\.random: 'random' in the folder, 'transformers' now"):
        play_run(fallback, resume=True)


def test_a_task_that_changed_is_refused(play_run: PlayRun, tmp_path: Path) -> None:
    play_run()
    path = tmp_path / "run" / "episodes.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[3]["task_hash"] = "0123456789abcdef"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ResultsError, match=r"'arithmetic/test/1', which has changed"):
        play_run(resume=True)


def test_another_file_under_the_same_name_is_refused(play_run: PlayRun, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(f'{{"question": "{i} + 1?", "answer": "{i + 1}"}}\n' for i in range(6)))
    result, _ = play_run(tasks=str(tasks), policies=["oracle"])
    assert result.complete
    assert read_config(tmp_path / "run")["identity"]["tasks"]["split"] == "all"
    tasks.write_text(tasks.read_text().replace("5 + 1", "5 + 1 + 0"))
    with pytest.raises(ResultsError, match=r"tasks\.fingerprint"):
        play_run(tasks=str(tasks), policies=["oracle"], resume=True)


def test_nothing_is_loaded_or_written_for_a_run_that_cannot_be(play_run: PlayRun, tmp_path: Path) -> None:
    loaded: list[str] = []

    def make(spec: str) -> Policy:
        loaded.append(spec)
        return make_policy(spec)

    for changes, kind, message in [
        ({"env": "math-2agnet"}, gymnasium.error.NameNotFound, "math-2agent"),
        ({"tasks": "nothing.jsonl"}, gymnasium.error.Error, "nothing.jsonl"),
        ({"env_kwargs": {"max_round": 1}}, gymnasium.error.Error, "max_rounds"),
        ({"policies": ["solver=random", "critic=random"]}, TeamError, "'critic'"),
        ({"policies": ["solver=random"]}, TeamError, "'verifier_0'"),
        ({"policies": []}, TeamError, "No policy"),
        ({"policies": ["rnadom"]}, ValueError, "rnadom"),
        ({"n": 10**6}, SettingsError, "the set has 1000"),
        ({"n": 0}, SettingsError, "n must be at least 1"),
        ({"samples": 0}, SettingsError, "samples must be at least 1"),
        ({"concurrency": 0}, SettingsError, "concurrency must be at least 1"),
    ]:
        with pytest.raises(kind, match=message):
            play_run(make, **changes)
    assert loaded == []
    assert not (tmp_path / "run").exists()


def test_policies_are_closed(play_run: PlayRun) -> None:
    closed = []

    class Closing(RandomPolicy):
        async def close(self) -> None:
            closed.append(self.name)

    play_run(lambda spec: Closing())
    assert closed == ["random"]


def test_tasks_are_loaded_once(play_run: PlayRun, monkeypatch: pytest.MonkeyPatch) -> None:
    import llm_envs.math.base as base

    calls = []
    load = base.load_math_tasks
    monkeypatch.setattr(base, "load_math_tasks", lambda *args, **kwargs: calls.append(args) or load(*args, **kwargs))
    play_run(n=40, samples=1, concurrency=20)
    assert len(calls) == 1


def test_choose_tasks() -> None:
    assert choose_tasks(5, None) == [0, 1, 2, 3, 4]
    assert choose_tasks(5, 2) == [0, 1]
    some = choose_tasks(1000, 50, shuffle_seed=0)
    assert some == choose_tasks(1000, 50, shuffle_seed=0) == sorted(set(some))
    assert some != choose_tasks(1000, 50, shuffle_seed=1)
    assert set(some) <= set(choose_tasks(1000, 60, shuffle_seed=0))
    assert choose_tasks(5, 5, shuffle_seed=3) == [0, 1, 2, 3, 4]
    with pytest.raises(SettingsError, match="6 tasks were asked for, but the set has 5"):
        choose_tasks(5, 6)


def test_shuffle_plays_other_tasks(play_run: PlayRun, tmp_path: Path) -> None:
    _, observer = play_run(shuffle=True)
    indices = sorted({episode.task_index for episode in observer.episodes})
    assert len(indices) == 6
    assert indices == choose_tasks(1000, 6, shuffle_seed=0) != list(range(6))


def test_default_split() -> None:
    assert make_env(RunSettings("math-2agent", ["oracle"])).unwrapped.tasks.split == "test"
    assert make_env(RunSettings("math-2agent", ["oracle"], split="train")).unwrapped.tasks.split == "train"


def test_default_folder_is_fresh_and_tame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = default_folder("math-2agent", ["openai:a/b@http://host:1/v1", "oracle"])
    assert first.parent == Path("runs")
    assert first.name.startswith("math-2agent-openai_a_b_http_host_1_v1-oracle-")
    first.mkdir(parents=True)
    assert default_folder("math-2agent", ["openai:a/b@http://host:1/v1", "oracle"]) != first


def test_a_recorded_run_can_be_replayed(play_run: PlayRun, tmp_path: Path) -> None:
    play_run()
    play_run(policies=[f"replay:{tmp_path / 'run'}"], out=tmp_path / "again", seed=5)
    actions = [[t["action"] for t in r["turns"]] for r in read_lines(tmp_path / "run", "episodes.jsonl")]
    again = [[t["action"] for t in r["turns"]] for r in read_lines(tmp_path / "again", "episodes.jsonl")]
    assert actions == again
