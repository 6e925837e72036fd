"""Comparing runs: what is refused and why, figures by hand, what a role contributes, and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.compare import CompareError, compare, compare_ablations
from benchmarks.metrics import wilson_interval
from benchmarks.paired import paired_difference, sign_test
from benchmarks.results import ResultsFolder
from benchmarks.task_values import MetricError, find_metric, read_task_run
from trainers.rollout.records import Episode, Turn

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(
    name: str, solved: Mapping[int, Sequence[bool]], hashes: Mapping[int, str] | None = None, **changes: Any
) -> Path:
    """Write a run: whether each sample of each task was solved. ``changes`` are of the identity."""
    identity: dict[str, Any] = {
        "env": "e-v0", "env_kwargs": {}, "tasks": {"name": "t", "split": "test", "size": 99, "fingerprint": "f"},
        "n": len(solved), "samples": max(map(len, solved.values()), default=1), "seed": 0, "policies": {"*": "oracle"},
        "options": {}, "sampling": {"temperature": 1.0}, "versions": {"numpy": "2"}, **changes,
    }  # fmt: skip
    context = {"label": f"policy of {name}", **({"zero_sum": True} if "zero_sum" in changes else {})}
    identity.pop("zero_sum", None)
    with ResultsFolder(name, {"identity": identity, "context": context}) as folder:
        for index, samples in solved.items():
            for sample, success in enumerate(samples):
                turns = [
                    Turn("e", "t", agent, "p", 0, 0, "o", "a", prompt_tokens=10, completion_tokens=5 + success)
                    for agent in ("solver_0", "verifier_0")
                ]
                parts = {agent: {"team": float(success)} for agent in ("solver_0", "verifier_0")}
                returns = {agent: float(success) for agent in parts}
                content = (hashes or {}).get(index, f"h{index}")
                folder.add(
                    Episode(f"t/{index}#{sample}", "e-v0", f"t/{index}", index, content, sample, 0, turns, returns,
                            parts, success)
                )  # fmt: skip
    return Path(name)


ONE = {0: [True, True], 1: [True, False], 2: [False, False], 3: [True, True]}
TWO = {0: [True, False], 1: [True, False], 2: [False, False], 3: [False, False]}


def test_figures_by_hand() -> None:
    found = compare(write("a", ONE), write("b", TWO, sampling={"temperature": 0.0}, seed=3))
    assert (found["tasks"], found["episodes"], found["left_out"]) == (4, 8, [0, 0])
    average = found["metrics"]["avg"]
    assert average["values"] == [(1 + 0.5 + 0 + 1) / 4, (0.5 + 0.5 + 0 + 0) / 4]
    expected = paired_difference([1, 0.5, 0, 1], [0.5, 0.5, 0, 0])
    assert average["difference"] == {
        "value": 0.375, "interval": [expected.low, expected.high], "p": expected.p,
    }  # fmt: skip
    assert average["signs"] == {"better": 2, "worse": 0, "p": 0.5}
    assert found["metrics"]["pass@2"]["values"] == [0.75, 0.5]
    assert found["metrics"]["tokens-out"]["values"] == pytest.approx([2 * (5 + 5 / 8), 2 * (5 + 2 / 8)])
    assert "cost" not in found["metrics"]
    assert found["agents"]["solver_0"][0]["return"] == 5 / 8
    assert found["differing"] == {"sampling.temperature": [1.0, 0.0], "seed": [0, 3]}
    assert json.loads(json.dumps(found)) == found


def test_one_sample_a_task_is_mcnemars_test() -> None:
    one = {i: [i < 9] for i in range(12)}
    two = {i: [i in (0, 1, 2, 10)] for i in range(12)}
    found = compare(write("a", one), write("b", two))
    assert found["metrics"]["avg"]["signs"] == {"better": 6, "worse": 1, "p": pytest.approx(2 * 8 / 128)}


def test_order_of_lines_and_of_tasks_does_not_matter() -> None:
    shuffled = {index: ONE[index] for index in (2, 0, 3, 1)}
    moved = {10 + index: ONE[index] for index in ONE}  # the same contents at other places of another set
    hashes = {10 + index: f"h{index}" for index in ONE}
    base = compare(write("a", ONE), write("b", TWO))["metrics"]["avg"]
    assert compare(write("c", shuffled), "b")["metrics"]["avg"] == base
    assert compare(write("d", moved, hashes), "b")["metrics"]["avg"]["values"] == base["values"]
    assert compare("a", "a")["metrics"]["avg"]["difference"]["p"] == 1.0


def test_tasks_of_equal_contents_are_kept_apart() -> None:
    one = compare(
        write("a", {0: [True], 1: [False]}, {0: "x", 1: "x"}), write("b", {0: [True], 1: [True]}, {0: "x", 1: "x"})
    )
    assert one["tasks"] == 2
    assert one["metrics"]["avg"]["signs"]["worse"] == 1


@pytest.mark.parametrize(
    ("other", "changes", "message"),
    [
        (TWO, {"env": "f-v0"}, r"env: e-v0 and f-v0"),
        (TWO, {"env_kwargs": {"max_rounds": 3}}, r"env argument max_rounds: None and 3"),
        ({0: [True], 1: [True], 2: [True], 3: [True]}, {}, r"samples: 2 and 1 a task\nAdd --common to compare the 4"),
        ({**TWO, 4: [True, True]}, {}, r"only b has t/4\nAdd --common to compare the 4 tasks"),
        ({0: [True, True], 1: [True, True]}, {}, r"only a has t/2, t/3\nAdd --common to compare the 2 tasks"),
        ({i: [True, True] for i in range(9)}, {}, r"only b has t/4, t/5, t/6 and 2 more"),
        ({**TWO, 3: [True]}, {}, r"some are missing of 1 tasks, such as t/3; llm-bench run --resume plays them"),
        ({7: [True, True]}, {}, r"They have no task in common"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(other: Any, changes: dict[str, Any], message: str) -> None:
    write("a", ONE)
    write("b", other, **changes)
    with pytest.raises(CompareError, match=f"(?s)^a and b cannot be compared:.*{message}"):
        compare("a", "b")


def test_a_task_that_changed_is_another_task() -> None:
    write("a", ONE)
    write("b", TWO, {3: "changed"})
    with pytest.raises(CompareError, match="only a has t/3\n  tasks: only b has t/3"):
        compare("a", "b")
    assert compare("a", "b", common=True)["tasks"] == 3


def test_defaults_that_are_spelt_out_are_no_difference(play_run: Any, tmp_path: Path) -> None:
    play_run(out=tmp_path / "a")
    play_run(out=tmp_path / "b", env_kwargs={"max_rounds": 2})
    play_run(out=tmp_path / "c", env_kwargs={"max_rounds": 3})
    assert compare("a", "b")["metrics"]["avg"]["difference"]["value"] == 0
    with pytest.raises(CompareError, match="env argument max_rounds: 2 and 3"):
        compare("a", "c", common=True)


def test_common_tasks_and_samples() -> None:
    write("a", ONE)
    write("b", {1: [True], 2: [True, True, False], 3: [False, True], 9: [True]})
    found = compare("a", "b", common=True)
    assert (found["tasks"], found["episodes"], found["left_out"]) == (3, 5, [3, 2])
    assert found["metrics"]["avg"]["values"] == pytest.approx([(1 + 0 + 1) / 3, (1 + 1 + 0.5) / 3])
    assert "pass@2" not in found["metrics"]  # task 1 has one sample
    assert found["agents"]["solver_0"][1]["return"] == pytest.approx((1 + 1 + 1 + 0 + 1) / 5)
    write("c", {7: [True]})
    with pytest.raises(CompareError, match="no task in common"):
        compare("a", "c", common=True)


def test_empty_runs() -> None:
    write("a", {})
    write("b", {})
    with pytest.raises(CompareError, match="no episode was played yet"):
        compare("a", "b")


def test_ablations_by_hand() -> None:
    write("team", ONE)
    write("less", TWO, policies={"solver": "random", "verifier": "oracle"})
    write("same", ONE, policies={"solver": "oracle", "verifier_0": "random"})
    found = compare_ablations("team", {"solver": "less", "verifier": "same"})
    solver, verifier = found["roles"]["solver"], found["roles"]["verifier"]
    expected = paired_difference([1, 0.5, 0, 1], [0.5, 0.5, 0, 0])
    assert (solver["replaced"], solver["by"]) == ("oracle", "random")
    assert solver["contribution"] == {
        "value": 0.375, "interval": [expected.low, expected.high], "p": expected.p,
        "p_holm": min(1, 2 * expected.p),
    }  # fmt: skip
    assert verifier["contribution"]["value"] == 0
    assert verifier["contribution"]["interval"][1] == pytest.approx(1 - wilson_interval(4, 4)[0])
    assert verifier["signs"]["p"] == sign_test([1], [1]).p


@pytest.mark.parametrize(
    ("role", "changes", "message"),
    [
        ("critic", {}, "no agent has the role 'critic'; the roles are solver, verifier"),
        ("solver", {}, "solver_0 is played by oracle there too"),
        ("solver", {"policies": {"*": "random"}}, "verifier_0 differs too .oracle and random"),
        (
            "solver",
            {"policies": {"solver": "random", "verifier": "oracle"}, "sampling": {"temperature": 0.5}},
            "temperature differs too .1.0 and 0.5",
        ),
    ],
)
def test_an_ablation_takes_away_one_role_and_nothing_else(role: str, changes: dict[str, Any], message: str) -> None:
    write("team", ONE)
    write("less", TWO, **changes)
    with pytest.raises(CompareError, match=f"--ablation {role}=less: {message}"):
        compare_ablations("team", {role: "less"})


def test_options_tell_players_apart() -> None:
    hf = {"policies": {"*": "hf:m"}}
    write("team", ONE, **hf, options={"*": {"dtype": "auto"}})
    write("less", TWO, **hf, options={"*": {"dtype": "auto"}, "solver": {"system_prompt": "No."}})
    found = compare_ablations("team", {"solver": "less"})["roles"]["solver"]
    assert found["by"] == "hf:m (dtype='auto', system_prompt='No.')"


def test_metrics_that_are_not_there() -> None:
    run = read_task_run(write("a", ONE))
    with pytest.raises(MetricError, match="no metric 'sucess'; the metrics are avg"):
        find_metric("sucess")
    with pytest.raises(MetricError, match="a has no pass@3: 4 of its 4 tasks have none"):
        find_metric("pass@3").values(run)
    with pytest.raises(MetricError, match="a has no cost"):
        find_metric("cost").values(run)


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name, *policies in (
        ("team", "oracle"), ("solverless", "solver=random", "verifier=oracle"),
        ("verifierless", "solver=oracle", "verifier=random"),
    ):  # fmt: skip
        given = [text for policy in policies for text in ("--policy", policy)]
        assert main(["run", "math-2agent", *given, "-n", "12", "--out", name, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["compare", "team", "solverless"]) == 0
    shown = capsys.readouterr().out
    assert "12 episodes of 12 tasks, paired by task" in shown
    row = next(line for line in shown.splitlines() if line.startswith(" avg@k")).split()
    assert row[:5] == ["avg@k", "100.0", "%", "0.0", "%"]
    assert "< 0.001" in shown
    assert "McNemar" in shown
    assert main(["compare", "team", "solverless", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["avg"]["signs"]["better"] == 12
    assert main(["compare", "team", "--ablation", "solver=solverless", "verifier=verifierless"]) == 0
    shown = capsys.readouterr().out
    assert "solver played by random instead of oracle: solverless, 12 tasks" in shown
    assert "p, Holm" in shown
    assert main(["compare", "team", "--ablation", "solver=solverless", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["roles"]["solver"]["contribution"]["value"] == 1.0
    for arguments, message in (
        (["team"], "Give a second run to compare with, or --ablation"),
        (["team", "solverless", "--ablation", "solver=solverless"], "one of the two"),
        (["team", "--ablation", "solver"], "--ablation takes role=RUN, got 'solver'"),
        (["team", "--ablation", "solver=x", "solver=y"], "given twice for the role 'solver'"),
        (["team", "--ablation", "solver=x", "--prices", "y"], "--prices has no effect"),
        (["team", "nothing"], "nothing is no results folder"),
    ):
        assert main(["compare", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_games_are_compared_by_points(capsys: pytest.CaptureFixture[str]) -> None:
    for name, player in (("strong", "oracle"), ("weak", "random")):
        given = ["--policy", f"player_0={player}", "--policy", "player_1=random"]
        assert main(["run", "tictactoe", *given, "-n", "15", "--out", name, "--quiet"]) == 0
    capsys.readouterr()
    found = compare("strong", "weak")
    score = found["metrics"]["score of player_0"]
    assert score["values"][0] > 0.9
    assert score["difference"]["value"] > 0
    assert found["metrics"]["score of player_1"]["difference"]["value"] == pytest.approx(-score["difference"]["value"])
    assert "avg" not in found["metrics"]
    with pytest.raises(CompareError, match="zero-sum"):
        compare_ablations("strong", {"player_0": "weak"})
    given = ["--policy", "random", "--policy", "oracle"]
    assert main(["tournament", "tictactoe", *given, "-n", "1", "--out", "t", "--quiet"]) == 0
    assert main(["compare", "strong", "t"]) == 2
    assert "t holds a tournament, whose players are rated together" in capsys.readouterr().err
