"""Folders of several runs: played, resumed, refused and read; protocols of several runs, swap tests and ablations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.paired import paired_difference
from benchmarks.protocols.ablation import plan_ablation
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.group import Group, expand, open_group, read_group
from benchmarks.protocols.shared import SharedPolicies
from benchmarks.protocols.swap import assignments, compare_swaps, plan_swap
from benchmarks.results import ResultsError, read_config
from benchmarks.runner import RunSettings
from benchmarks.viewer.source import Source
from trainers.policies.base import PolicySpecError
from trainers.policies.scripted import OraclePolicy
from trainers.team import Player, TeamError


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def report(capsys: pytest.CaptureFixture[str], path: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["report", path, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    return dict(found)


# ---- groups ----------------------------------------------------------------------------------------------------------


def test_a_protocol_of_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("run math-2agent --policy oracle -n 3 --protocol at-grpo --out both".split()) == 0
    shown = capsys.readouterr()
    assert "greedy (1 of 2)" in shown.err
    assert "at-grpo, greedy" in shown.out
    assert "at-grpo, sampled" in shown.out
    configs = {name: read_config(f"both/{name}") for name in ("greedy", "sampled")}
    assert [(c["identity"]["samples"], c["identity"]["sampling"]["temperature"]) for c in configs.values()] == [
        (1, 0.0), (4, 1.0),
    ]  # fmt: skip
    assert configs["sampled"]["context"]["protocol"] == {"name": "at-grpo", "run": "sampled"}
    found = report(capsys, "both")
    assert (found["kind"], list(found["runs"])) == ("protocol", ["greedy", "sampled"])
    assert found["runs"]["sampled"]["episodes"] == 12
    assert main("table both --format md".split()) == 0
    assert "avg@4" in capsys.readouterr().out
    assert main("view both --html page.html".split()) == 0
    assert [Source(path).index()["protocol"]["run"] for path in expand(["both"])] == ["greedy", "sampled"]
    assert main("export both --format csv --out tables".split()) == 0
    assert len(Path("tables/runs.csv").read_text().splitlines()) == 3


def test_a_group_and_its_runs_are_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("run math-2agent --policy random -n 3 --protocol at-grpo --out both --quiet".split()) == 0
    files = [Path("both", name, "episodes.jsonl") for name in ("greedy", "sampled")]
    whole = [file.read_bytes() for file in files]
    files[0].write_bytes(whole[0][:500])
    shutil.rmtree("both/sampled")
    assert main("run --resume --out both --quiet".split()) == 0
    assert [file.read_bytes() for file in files] == whole
    files[1].write_bytes(whole[1][:700])
    assert main("run --resume --out both/sampled --quiet".split()) == 0
    assert files[1].read_bytes() == whole[1]
    capsys.readouterr()
    assert main("run math-2agent --policy random -n 3 --protocol at-grpo --out both".split()) == 2
    assert "both already holds runs. Add --resume" in capsys.readouterr().err
    assert main("swap --resume --out both".split()) == 2
    assert "both holds a run. Go on with: llm-bench run --resume --out both" in capsys.readouterr().err
    command = "run math-2agent --policy random -n 4 --protocol at-grpo --out both --resume --quiet"
    assert main(command.split()) == 2
    assert "n: 3 in the folder, 4 now" in capsys.readouterr().err


def test_folders_that_are_no_group(tmp_path: Path) -> None:
    group = Group("swap", ("a", "b"), {"x": 1})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    with pytest.raises(ResultsError, match="not empty and holds no group"):
        open_group(tmp_path / "full", group, resume=True)
    open_group(tmp_path / "g", group, resume=False)
    assert read_group(tmp_path / "g") == group
    with pytest.raises(ResultsError, match=r"about.x: 1 in the folder, 2 now"):
        open_group(tmp_path / "g", Group("swap", ("a", "b"), {"x": 2}), resume=True)
    with pytest.raises(ResultsError, match="holds no run yet: a, b are still to be played"):
        expand([tmp_path / "g"])
    assert expand(["elsewhere"]) == [Path("elsewhere")]
    (tmp_path / "g" / "group.json").write_text('{"group_version": 99}')
    with pytest.raises(ResultsError, match="version 99, and this version of llm-envs reads up to 1"):
        read_group(tmp_path / "g")
    (tmp_path / "g" / "group.json").write_text("[]")
    with pytest.raises(ResultsError, match="describes no group"):
        read_group(tmp_path / "g")


async def test_policies_are_made_once_and_closed_at_the_end() -> None:
    closed: list[str] = []

    class Watched(OraclePolicy):
        async def close(self) -> None:
            closed.append(self.name)

    made: list[tuple[str, dict[str, Any]]] = []

    def make(spec: str, **options: Any) -> Watched:
        made.append((spec, options))
        return Watched(spec)

    async with SharedPolicies(make) as policies:
        for options in ({}, {"a": 1}, {}):
            await policies.make("oracle", **options).close()
        assert closed == []
    assert made == [("oracle", {}), ("oracle", {"a": 1})]
    assert closed == ["oracle", "oracle"]


# ---- the swap test ---------------------------------------------------------------------------------------------------


def test_assignments() -> None:
    one, two, three = Player("oracle"), Player("random"), Player("replay:x")
    pair = {"a": one, "b": two}
    assert list(assignments(pair, every=True)) == ["a.b", "a.a", "b.a", "b.b"]
    assert list(assignments(pair, every=False)) == ["a.b", "b.a"]
    triple = {**pair, "c": three}
    assert len(assignments(triple, every=False)) == 6
    assert len(assignments(triple, every=True)) == 27
    assert assignments(triple, every=False)["c.a.b"] == ("c", "a", "b")
    same = {"a": one, "b": two, "c": two}  # who of the two plays which makes no difference
    assert list(assignments(same, every=False)) == ["a.b.c", "b.a.c", "b.c.a"]
    assert list(assignments({"a": one, "b": one}, every=True)) == ["a.b"]


def test_options_move_with_their_policy() -> None:
    settings = RunSettings(
        "math-2agent",
        ["solver=mcts", "verifier=hf:x"],
        options={"solver": {"sims": 5}, "*": {"dtype": "float32"}},
        n=2,
    )
    runs, about = plan_swap(settings)
    assert about["roles"] == ["solver", "verifier"]
    swapped = runs["verifier.solver"]
    assert swapped.policies == ["solver=hf:x", "verifier=mcts"]
    assert swapped.options == {"solver": {"dtype": "float32"}, "verifier": {"sims": 5}}
    assert list(runs) == ["solver.verifier", "solver.solver", "verifier.solver", "verifier.verifier"]


def test_policies_that_differ_in_options_alone_are_told_apart() -> None:
    command = "swap math-2agent --policy solver=replay:a --policy verifier=replay:a --option solver.x=1 --out s"
    assert main(command.split()) == 2  # replay takes no options, and that is said before anything is played
    assert not Path("s").exists()
    players = {
        "solver": Player("hf:a", {"system_prompt": "Solve."}),
        "verifier": Player("hf:a", {"system_prompt": "?"}),
    }
    assert list(assignments(players, every=True)) == [
        "solver.verifier", "solver.solver", "verifier.solver", "verifier.verifier",
    ]  # fmt: skip


def test_a_policy_without_a_role_stays() -> None:
    runs, _ = plan_swap(RunSettings("math-4agent", ["random", "solver=oracle", "refiner=replay:x"], n=2), every=False)
    assert dict(policy.split("=") for policy in runs["refiner.solver"].policies) == {
        "solver": "replay:x", "critic": "random", "refiner": "oracle", "verifier": "random",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("env", "policies", "error", "message"),
    [
        ("math-2agent", ["oracle"], ProtocolError, "at least two roles, got 0"),
        ("math-2agent", ["solver=oracle", "random"], ProtocolError, "at least two roles, got 1"),
        (
            "math-2agent",
            ["solver=oracle", "verifier=oracle"],
            ProtocolError,
            "solver and verifier have the same policy",
        ),
        ("math-2agent", ["solver=oracle", "critic=random"], TeamError, "No agent has the role 'critic'"),
        ("math-2agent", ["solver=oracle", "verifier=orakel"], PolicySpecError, "'orakel' is no kind of policy"),
        ("tictactoe", ["player_0=oracle", "player_1=random"], ProtocolError, "zero-sum game.*llm-bench tournament"),
    ],
)
def test_swap_tests_that_make_no_sense(env: str, policies: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        plan_swap(RunSettings(env, policies, n=2))


def test_swap_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever solves decides, so an oracle as solver succeeds always and a random one never, whoever verifies."""
    assert main("swap math-2agent --policy solver=oracle --policy verifier=random -n 6 --out swap".split()) == 0
    shown = capsys.readouterr().out
    assert "solver's policy: oracle" in shown
    group = read_group("swap")
    assert group is not None
    found = compare_swaps("swap", group)
    values = {label: each["values"] for label, each in found["assignments"].items()}
    assert found["value"] == 1.0
    assert values == {"solver.solver": [1, 1], "verifier.solver": [1, 0], "verifier.verifier": [1, 0]}
    swapped = found["assignments"]["verifier.solver"]
    expected = paired_difference([1] * 6, [0] * 6)
    assert swapped["difference"]["value"] == 1.0
    assert swapped["difference"]["interval"] == [expected.low, expected.high]
    assert swapped["signs"] == {"better": 6, "worse": 0, "p": 2 / 2**6}
    assert swapped["difference"]["p_holm"] == pytest.approx(min(1.0, 3 * swapped["difference"]["p"]))
    assert swapped["sources"] == {"solver": "verifier", "verifier": "solver"}
    assert report(capsys, "swap")["swap"] == json.loads(json.dumps(found))


def test_an_unfinished_swap_test_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    command = "swap math-2agent --policy solver=oracle --policy verifier=random -n 4 --out swap --quiet"
    assert main(command.split()) == 0
    file = Path("swap/verifier.solver/episodes.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:3000])
    found = report(capsys, "swap")
    assert "swap" not in found
    assert "cannot be compared" in found["incomplete"]
    assert main("report swap".split()) == 0
    assert "swap: nothing to compare yet" in capsys.readouterr().out
    assert main("swap --resume --out swap --quiet".split()) == 0
    assert file.read_bytes() == whole
    assert main("run --resume --out swap/verifier.solver --quiet".split()) == 0


def test_a_swap_test_by_a_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    command = "swap math-2agent --policy solver=oracle --policy verifier=random -n 2 --quiet --out s --protocol"
    assert main([*command.split(), "at-grpo"]) == 2
    assert "give one of at-grpo/greedy, at-grpo/sampled" in capsys.readouterr().err
    assert main([*command.split(), "at-grpo/sampled"]) == 0
    config = read_config("s/verifier.solver")
    assert (config["context"]["protocol"]["run"], config["identity"]["samples"]) == ("sampled", 4)


# ---- ablation --------------------------------------------------------------------------------------------------------


def plan(replacements: Sequence[str], roles: Sequence[str] = (), **changes: Any) -> dict[str, list[str]]:
    settings = RunSettings(**{"env": "math-2agent", "policies": ["oracle"], "n": 2, **changes})
    runs, _ = plan_ablation(settings, replacements, roles)
    return {label: list(run.policies) for label, run in runs.items()}


def test_which_runs_make_an_ablation() -> None:
    assert plan(["random"]) == {
        "whole": ["solver=oracle", "verifier=oracle"],
        "solver-random": ["solver=random", "verifier=oracle"],
        "verifier-random": ["solver=oracle", "verifier=random"],
    }
    assert list(plan(["random"], ["solver"])) == ["whole", "solver-random"]
    assert list(plan(["verifier=random", "solver=replay:x/y"])) == ["whole", "verifier-random", "solver-replay_x_y"]
    assert list(plan(["solver=replay:a/b", "solver=replay:a:b"])) == [
        "whole",
        "solver-replay_a_b",
        "solver-replay_a_b-2",
    ]
    debate = plan(["random"], ["debater_1"], env="math-debate")
    assert debate["debater_1-random"] == ["debater=oracle", "debater_1=random"]


def test_who_steps_in_gets_only_the_options_of_all() -> None:
    settings = RunSettings(
        "math-2agent", ["hf:a"], options={"*": {"dtype": "float32"}, "solver": {"system_prompt": "Solve."}}, n=2
    )
    runs, _ = plan_ablation(settings, ["solver=hf:b", "verifier=random"])
    assert runs["whole"].options == {
        "verifier": {"dtype": "float32"},
        "solver": {"dtype": "float32", "system_prompt": "Solve."},
    }
    assert runs["solver-hf_b"].options["solver"] == {"dtype": "float32"}
    assert "verifier" not in runs["verifier-random"].options


@pytest.mark.parametrize(
    ("replacements", "changes", "error", "message"),
    [
        ([], {}, ProtocolError, "Say who steps in"),
        (["oracle"], {}, ProtocolError, "solver is played by oracle already"),
        (["random", "solver=random"], {}, ProtocolError, "solver is replaced by random twice"),
        (["critic=random"], {}, TeamError, "No agent has the role 'critic'"),
        (["randm"], {}, PolicySpecError, "no kind of policy"),
        (["random"], {"roles": ["solvr"]}, TeamError, "Did you mean 'solver'"),
        (["random"], {"env": "tictactoe"}, ProtocolError, "zero-sum"),
    ],
)
def test_ablations_that_make_no_sense(
    replacements: list[str], changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plan(replacements, **changes)


def test_ablation_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """Of an oracle and a verifier that answers anything, the solver makes all the success and the verifier none."""
    command = "ablate math-2agent --policy oracle --replace random --replace verifier=replay:whole -n 6"
    assert main("run math-2agent --policy oracle -n 6 --out whole --quiet".split()) == 0
    assert main([*command.split(), "--out", "abl"]) == 0
    assert "Contribution of each role" in capsys.readouterr().out
    random, replay = report(capsys, "abl")["ablation"]
    assert (random["by"], list(random["roles"])) == ("random", ["solver", "verifier"])
    assert random["roles"]["solver"]["values"] == [1, 0]
    assert random["roles"]["solver"]["contribution"]["value"] == 1.0
    assert random["roles"]["solver"]["signs"] == {"better": 6, "worse": 0, "p": 2 / 2**6}
    assert random["roles"]["verifier"]["contribution"]["value"] == 0.0
    assert random["roles"]["verifier"]["contribution"]["p_holm"] == 1.0
    assert (replay["by"], list(replay["roles"])) == ("replay:whole", ["verifier"])
    whole = Path("abl/solver-random/episodes.jsonl").read_bytes()
    shutil.rmtree("abl/solver-random")
    assert main("ablate --resume --out abl --quiet".split()) == 0
    assert Path("abl/solver-random/episodes.jsonl").read_bytes() == whole


def test_an_oracle_shows_what_is_left_to_gain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("ablate math-2agent --policy random --replace oracle -n 4 --out gain --quiet".split()) == 0
    (found,) = report(capsys, "gain")["ablation"]
    assert found["roles"]["solver"]["contribution"]["value"] == -1.0
