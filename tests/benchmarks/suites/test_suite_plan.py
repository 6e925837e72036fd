"""The plan of a suite: who plays, how much it is at most, what is missing; nothing is played or loaded."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runner import RunSettings, SettingsError
from benchmarks.suites import missing
from benchmarks.suites.config import load_suite
from benchmarks.suites.plan import PlannedRun, SuiteRequest, plan_run, plan_suite
from benchmarks.suites.suite_report import missing_in
from benchmarks.suites.tokens import CHARACTERS_A_TOKEN, TokenBound
from trainers.policies.base import PolicySpecError, Sampling
from trainers.team import TeamError

MODEL = "vllm:smollm2-135m"


def plan(entries: list[dict[str, Any]], request: SuiteRequest | None = None, **suite: Any) -> list[PlannedRun]:
    values = {"description": "d", "entries": [{"name": f"e{i}", **entry} for i, entry in enumerate(entries)], **suite}
    return plan_suite(load_suite(values), request or SuiteRequest(policies=["oracle"]))


def one(entry: dict[str, Any], request: SuiteRequest | None = None, **suite: Any) -> PlannedRun:
    (found,) = plan([entry], request, **suite)
    return found


# ---- who plays -------------------------------------------------------------------------------------------------------


def test_the_policy_under_test_plays_where_the_suite_leaves_a_place() -> None:
    game = {"env": "tictactoe", "policies": {"player_0": "$policy", "player_1": "random"}}
    team = {"env": "math-2agent"}
    fixed = {"env": "math-2agent", "policies": {"solver": "$policy", "verifier": "oracle"}}
    found = plan([game, team, fixed], SuiteRequest(policies=["mcts", "solver=random"]))
    assert [run.settings.policies for run in found] == [
        ["player_0=mcts", "player_1=random"],
        ["mcts", "solver=random"],
        ["solver=random", "verifier=oracle"],
    ]


def test_the_suites_own_policy_has_options_that_the_command_line_replaces() -> None:
    suite = {"policy": MODEL, "policy_options": {"max_model_len": 512}}
    own = one({"env": "math-2agent"}, SuiteRequest(), **suite)
    assert own.settings.policies == [MODEL]
    assert own.settings.options == {"*": {"max_model_len": 512}}
    other = one({"env": "math-2agent"}, SuiteRequest(policies=["hf:smollm2-135m"]), **suite)
    assert other.settings.options == {}


def test_options_reach_models_and_nobody_else() -> None:
    entry = {
        "env": "math-2agent",
        "policies": {"solver": "$policy", "verifier": "oracle"},
        "options": {"solver": {"system_prompt": "a"}, "verifier": {"system_prompt": "b"}},
    }
    assert one(entry, SuiteRequest(policies=[MODEL])).settings.options == {"solver": {"system_prompt": "a"}}
    assert one(entry).settings.options == {}


def test_options_of_the_command_line_come_on_top() -> None:
    request = SuiteRequest(policies=[MODEL], options={"*": {"max_model_len": 64, "system_prompt": "mine"}})
    entry = {"env": "math-2agent", "options": {"*": {"system_prompt": "theirs"}}}
    assert one(entry, request).settings.options == {"*": {"max_model_len": 64, "system_prompt": "mine"}}


def test_several_policies_enter_a_tournament() -> None:
    entry = {"env": "tictactoe", "players": ["$policy", "random", "minimax"]}
    run = one(entry, SuiteRequest(policies=["a=oracle", "b=mcts"]))
    assert run.settings.policies == ["a=oracle", "b=mcts", "random", "minimax"]
    assert (run.tournament, run.tasks, run.samples, run.episodes) == (True, 50, 12, 600)
    same = one(entry, SuiteRequest(policies=["random"]))
    assert same.settings.policies == ["random", "minimax"]
    alone = one({"env": "tictactoe", "players": ["$policy", "random"]}, SuiteRequest(policies=["random"]))
    assert alone.settings.policies == ["random", "policy=random"]


@pytest.mark.parametrize(
    ("entry", "request_", "message"),
    [
        ({"env": "math-2agent"}, SuiteRequest(), "leaves its policy to you"),
        ({"env": "math-2agent"}, SuiteRequest(policies=["solver=oracle"]), "Entry 'e0'.*No policy plays 'verifier_0'"),
        (
            {"env": "math-2agent"},
            SuiteRequest(policies=["oracle", "solvr=oracle"]),
            "role 'solvr'.*Did you mean 'solver'",
        ),
        (
            {"env": "math-2agent", "policies": {"judge": "oracle", "*": "$policy"}},
            SuiteRequest(policies=["oracle"]),
            "Entry 'e0'.*No agent has the role 'judge'",
        ),
        (
            {"env": "math-2agent"},
            SuiteRequest(policies=["oracle"], options={"*": {"system_prompt": "x"}}),
            "system_prompt has no effect in any entry",
        ),
        (
            {"env": "math-2agent"},
            SuiteRequest(policies=[MODEL], options={"player_0": {"system_prompt": "x"}}),
            "'player_0' has no effect in any entry",
        ),
    ],
)
def test_casts_that_do_not_fit(entry: dict[str, Any], request_: SuiteRequest, message: str) -> None:
    with pytest.raises(TeamError, match=message):
        plan([entry], request_)


def test_a_malformed_spec_is_refused_before_anything_is_played() -> None:
    with pytest.raises(PolicySpecError, match="vllm"):
        plan([{"env": "math-2agent"}], SuiteRequest(policies=["vlm:x"]))


# ---- how much --------------------------------------------------------------------------------------------------------


def test_tasks_are_bounded_by_the_entry_its_budget_and_the_command_line() -> None:
    entry = {"env": "math-2agent", "n": 20, "samples": 3}
    assert one(entry).episodes == 60
    assert one({**entry, "budget": {"tasks": 8}}).episodes == 24
    assert one({**entry, "budget": {"episodes": 10}}).tasks == 3
    assert one(entry, SuiteRequest(policies=["oracle"], n=5)).tasks == 5
    assert one({"env": "math-2agent"}).tasks == 1000
    with pytest.raises(SettingsError, match="budget of 2 episodes does not hold the 3 of one task"):
        one({**entry, "budget": {"episodes": 2}})
    with pytest.raises(SettingsError, match="Entry 'e0': 2000 tasks were asked for, but the set has 1000"):
        one({"env": "math-2agent", "n": 2000})


def test_a_protocol_makes_a_run_for_each_of_its_runs() -> None:
    found = plan([{"env": "math-2agent", "n": 4, "protocol": "at-grpo", "sampling": {"max_tokens": 16}}])
    assert [run.name for run in found] == ["e0/greedy", "e0/sampled"]
    assert [str(run.settings.out) for run in found] == ["e0/greedy", "e0/sampled"]
    assert [(run.samples, run.settings.sampling) for run in found] == [
        (1, Sampling(temperature=0.0, max_tokens=16)),
        (4, Sampling(max_tokens=16)),
    ]
    assert [run.settings.protocol for run in found] == [("at-grpo", "greedy"), ("at-grpo", "sampled")]


def test_tokens_count_what_models_write_at_most() -> None:
    entry = {"env": "math-2agent", "n": 10, "samples": 2, "kwargs": {"max_rounds": 3}, "sampling": {"max_tokens": 50}}
    assert one(entry).tokens == TokenBound(0, 0)
    assert one(entry, SuiteRequest(policies=[MODEL])).tokens.answers == 10 * 2 * 5 * 50
    alone = one(entry, SuiteRequest(policies=["oracle", f"verifier={MODEL}"]))
    assert alone.tokens.answers == 10 * 2 * 2 * 50


def test_prompts_are_the_first_ones_and_what_was_written_since() -> None:
    run = one(
        {"env": "math-1agent", "n": 1, "kwargs": {"max_rounds": 2}, "sampling": {"max_tokens": 50}},
        SuiteRequest(policies=[MODEL]),
    )
    import llm_envs

    env = llm_envs.make("math-1agent", split="test", max_rounds=2).unwrapped
    env.reset(options={"task_index": 0})
    first = -(-len(env.observe("solver_0")) // CHARACTERS_A_TOKEN)
    assert run.tokens == TokenBound(100, 2 * first + 50)


def test_tokens_of_a_tournament_are_those_of_seats_with_a_model() -> None:
    entry = {"env": "tictactoe", "kwargs": {"max_retries": 0}, "n": 5, "sampling": {"max_tokens": 10}}
    run = one({**entry, "players": ["$policy", "random"]}, SuiteRequest(policies=[MODEL]))
    assert run.tokens.answers == 5 * (5 + 4) * 10
    three = one({**entry, "players": ["$policy", "random", "minimax"]}, SuiteRequest(policies=[MODEL]))
    assert three.tokens.answers == 2 * run.tokens.answers


def test_a_game_without_an_end_has_no_bound() -> None:
    run = one({"env": "pettingzoo/chess_v6", "n": 2}, SuiteRequest(policies=[MODEL]))
    assert run.tokens == TokenBound(None, None)


def test_a_run_of_its_own() -> None:
    run = plan_run(RunSettings("math-2agent", [MODEL], n=3, samples=2, sampling=Sampling(max_tokens=7)))
    assert (run.name, run.episodes, run.tokens.answers) == ("math-2agent", 6, 6 * 3 * 7)
    games = plan_run(RunSettings("tictactoe", ["random", "oracle"], n=3), tournament=True)
    assert games.episodes == 6
    with pytest.raises(SettingsError, match="no game for a tournament"):
        plan_run(RunSettings("math-2agent", ["random", "oracle"], n=3), tournament=True)


# ---- arguments of the command line -----------------------------------------------------------------------------------


def test_env_arguments_go_where_they_are_taken() -> None:
    found = plan([{"env": "math-2agent", "kwargs": {"max_rounds": 4}}, {"env": "tictactoe"}], SuiteRequest(
        policies=["oracle"], env_kwargs={"max_rounds": 3}
    ))  # fmt: skip
    assert [run.settings.env_kwargs for run in found] == [{"max_rounds": 3}, {}]
    with pytest.raises(SettingsError, match=r"max_round.*Did you mean 'max_rounds'"):
        plan([{"env": "math-2agent"}], SuiteRequest(policies=["oracle"], env_kwargs={"max_round": 3}))


def test_only_some_entries() -> None:
    entries = [{"env": "math-2agent"}, {"env": "tictactoe"}]
    assert [run.name for run in plan(entries, SuiteRequest(policies=["oracle"], only=["e1"]))] == ["e1"]
    with pytest.raises(SettingsError, match=r"no entry 'e1x'.*Did you mean 'e1'"):
        plan(entries, SuiteRequest(policies=["oracle"], only=["e1x"]))


# ---- what is missing -------------------------------------------------------------------------------------------------


def lacks(run: PlannedRun) -> list[str]:
    return [found.what for found in missing_in([run])]


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub and no local copies."""
    monkeypatch.delenv("LLM_ENVS_DATA", raising=False)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_published_set_is_missing_until_a_copy_is_there(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"env": "math-2agent", "tasks": "aime24", "n": 2}
    run = one(entry)
    assert lacks(run) == ["task set aime24 (test)"]
    assert "LLM_ENVS_DATA" in run.missing[0].fix
    assert "HuggingFaceH4/aime_2024" in run.missing[0].fix
    assert run.episodes == 2  # from the suite: the set itself is not there to count
    assert one({**entry, "n": None}).episodes is None
    rows = [{"problem": f"What is {i} plus 1?", "answer": str(i + 1)} for i in range(3)]
    (no_data / "aime24.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("LLM_ENVS_DATA", str(no_data))
    assert one({**entry, "n": None}).episodes == 3
    assert lacks(one(entry)) == []


def test_a_copy_in_the_cache_of_the_hub_counts(no_data: Path) -> None:
    (no_data / "cache" / "HuggingFaceH4___aime_2024" / "default").mkdir(parents=True)
    settings = RunSettings("math-2agent", ["oracle"], tasks="aime24")
    assert list(missing.missing_data(settings)) == []


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"env": "math-2agent", "tasks": "nowhere.jsonl"}, "task file nowhere.jsonl"),
        ({"env": "math-2agent", "tasks": "hub:owner/name"}, "task set hub:owner/name"),
        ({"env": "search-3agent", "kwargs": {"retriever": "no-index"}}, "index no-index"),
        ({"env": "search-3agent", "kwargs": {"corpus": "no.jsonl"}}, "corpus no.jsonl"),
    ],
)
def test_files_that_are_not_there(no_data: Path, entry: dict[str, Any], expected: str) -> None:
    assert lacks(one(entry)) == [expected]


def test_questions_without_a_corpus_need_an_index(no_data: Path) -> None:
    assert lacks(one({"env": "search-2agent", "tasks": "bamboogle"})) == [
        "task set bamboogle (test)",
        "an index for bamboogle",
    ]


def test_a_server_is_knocked_at(no_data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        entry = {"env": "search-1agent", "kwargs": {"retriever": f"http://127.0.0.1:{port}"}}
        assert lacks(one(entry)) == []
        assert lacks(one({"env": "math-1agent"}, SuiteRequest(policies=[f"openai:m@http://127.0.0.1:{port}/v1"]))) == []
    (found,) = lacks(one(entry))
    assert found.startswith(f"server http://127.0.0.1:{port} (")


def test_models_that_are_not_there(no_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(no_data))
    entry = {"env": "math-1agent"}
    assert lacks(one(entry, SuiteRequest(policies=["hf:no-such/model-of-ours"]))) == ["model no-such/model-of-ours"]
    (run,) = plan([entry], SuiteRequest(policies=["hf:./no-folder"]))
    assert lacks(run) == ["model ./no-folder"]
    assert lacks(one(entry, SuiteRequest(policies=["replay:no-run"]))) == ["run no-run"]


def test_packages_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = missing.importlib.util.find_spec
    monkeypatch.setattr(
        missing.importlib.util, "find_spec", lambda name: None if name in ("vllm", "pyspiel") else real(name)
    )
    run = one({"env": "tictactoe"}, SuiteRequest(policies=["player_0=mcts", f"player_1={MODEL}"]))
    assert lacks(run) == ["package pyspiel", "package vllm"]
    assert "llm-envs[games]" in run.missing[0].fix


def test_programs_need_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    from llm_envs.tools import sandbox

    monkeypatch.setattr(sandbox, "available_isolation", lambda: [])
    with_programs = ["code-1agent", "math-tool-2agent", "plan-path-2agent", "sudoku-2agent"]
    without = ["math-2agent", "plan-path-1agent", "blocksworld-2agent", "tictactoe"]
    for env in with_programs:
        assert "a sandbox for programs" in lacks(one({"env": env, "n": 1}))
    for env in without:
        assert lacks(one({"env": env, "n": 1})) == []


def test_what_several_runs_lack_is_said_once(no_data: Path) -> None:
    entry = {"env": "math-2agent", "tasks": "aime24"}
    found = missing_in(plan([entry, entry]))
    assert list(found.values()) == [["e0", "e1"]]
