"""The compute-matched single agent: what a budget is, how it is spent, and how it is compared, all by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.compare import CompareError
from benchmarks.paired import paired_difference, sign_test
from benchmarks.protocols.budget import Budget, TeamRun, cost_of, planned_episodes, read_budget, read_team
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.matched import BudgetJobs, matched_settings, play_matched
from benchmarks.protocols.matched_compare import compare_matched
from benchmarks.protocols.votes import majority, same_answer_in
from benchmarks.results import ResultsError, ResultsFolder, read_config, read_lines
from benchmarks.runner import RunResult, RunSettings, run
from benchmarks.summary import summarize
from trainers.policies.base import Completion, Policy, PolicyError, Request, Sampling
from trainers.rollout.records import Episode, Turn

Sample = tuple[bool, str | None, int]
"""Whether it solved the task, its answer, its tokens."""


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Counting(Policy):
    """A turn of task i costs 10 + i tokens, 3 of them written. Alone it is right in every other sample."""

    def __init__(self, name: str = "hf:counting") -> None:
        super().__init__(name)
        self.asked: list[tuple[int, int]] = []
        self.broken: set[tuple[int, int]] = set()

    async def generate(self, request: Request) -> list[Completion]:
        assert request.env is not None
        key = request.key[:2]
        self.asked.append(key)
        if key in self.broken:
            raise PolicyError("the server hung up")
        await asyncio.sleep(0)
        right = request.key[1] % 2 == 1 or len(request.env.possible_agents) > 1
        text = request.env.oracle(request.agent) if right else r"\boxed{17}"
        return [Completion(text, "stop", prompt_tokens=7 + request.key[0], completion_tokens=3)]


class Silent:
    """An observer that only notes what was planned."""

    def __init__(self) -> None:
        self.planned: list[int] = []

    def loading(self, specs: Sequence[str]) -> None: ...

    def start(self, path: Path, label: str, planned: int) -> None:
        self.planned.append(planned)

    def stored(self, task_index: int, success: bool) -> None: ...

    def began(self, task_index: int, sample: int) -> None: ...

    def played(self, episode: Episode) -> None: ...


def team_run(**changes: Any) -> Path:
    """Play a team of math-2agent, whose episodes are two turns long."""
    settings = RunSettings("math-2agent", ["hf:counting"], n=3, samples=2, out=Path("team"), sampling=Sampling(0.7))
    asyncio.run(run(replace(settings, **changes), Silent(), make=lambda spec: Counting()))
    return Path("team")


def single_run(policy: Counting, team: TeamRun, out: str = "single", **changes: Any) -> tuple[RunResult, list[int]]:
    settings = matched_settings(team, RunSettings("math-1agent", [], out=Path(out), **changes), {})
    observer = Silent()
    result = asyncio.run(
        play_matched(settings, team, observer, grown=observer.planned.append, make=lambda spec: policy)
    )
    return result, observer.planned


# ---- budgets ---------------------------------------------------------------------------------------------------------


def test_the_budget_of_a_team_by_hand() -> None:
    path = team_run()
    # Task i: 2 samples × 2 turns × (7 + i prompt + 3 written) tokens.
    assert read_team(path, "tokens").budget.by_task == {0: 40, 1: 44, 2: 48}
    assert read_team(path, "written-tokens").budget.by_task == {0: 12, 1: 12, 2: 12}
    characters = [
        sum(len(turn["observation"]) + len(turn["action"]) for turn in record["turns"])
        for record in read_lines(path, "episodes.jsonl")
    ]
    assert list(read_team(path, "characters").budget.by_task.values()) == [
        characters[0] + characters[1], characters[2] + characters[3], characters[4] + characters[5],
    ]  # fmt: skip


def test_samples_are_played_until_the_budget_is_spent() -> None:
    jobs = BudgetJobs(Budget("tokens", {4: 10, 7: 1}, {}), 0, {})
    first = list(jobs)
    assert [(job.task_index, job.sample) for job in first] == [(4, 0), (7, 0)]
    assert jobs.unfinished == 2
    assert jobs.played(first[0], 6)  # 4 of 10 are left
    assert not jobs.played(first[1], 5)  # more than its budget, but its first sample
    assert [(job.task_index, job.sample, job.seed) for job in jobs] == [(4, 1, first[0].seed)]
    assert jobs.unfinished == 1
    assert not jobs.played(replace(first[0], sample=1), 4)  # exactly spent
    assert (list(jobs), jobs.unfinished) == ([], 0)


def test_going_on_with_a_budget() -> None:
    budget = Budget("tokens", {0: 10, 1: 10, 2: 10}, {})
    jobs = BudgetJobs(budget, 0, {0: [4, 5], 1: [10]})
    assert [(job.task_index, job.sample) for job in jobs] == [(0, 2), (2, 0)]
    assert budget.unfinished({0: 9, 1: 10}) == [0, 2]
    assert read_budget({"budget": json.loads(json.dumps(budget.to_json()))}) == budget
    assert read_budget({"samples": 3}) is None


# ---- playing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 2, 64])
def test_the_single_agent_by_hand(concurrency: int) -> None:
    team = read_team(team_run(), "tokens")
    policy = Counting()
    result, planned = single_run(policy, team, concurrency=concurrency)
    # A sample of task i costs 10 + i, so its budget of 40 + 4i lasts for exactly four.
    assert (result.complete, result.stored, result.planned) == (True, 12, 12)
    assert planned == [3, *range(4, 13)]
    assert sorted(policy.asked) == [(task, sample) for task in range(3) for sample in range(4)]
    records = list(read_lines("single", "episodes.jsonl"))
    assert [(r["task_index"], r["sample"]) for r in records] == sorted(policy.asked)
    identity = read_config("single")["identity"]
    assert identity["samples"] is None
    assert identity["budget"] == {
        "unit": "tokens", "team": {"env": "math-2agent-v0", "label": "hf:counting", "samples": 2},
        "by_task": {"0": 40, "1": 44, "2": 48},
    }  # fmt: skip
    assert identity["sampling"]["temperature"] == 0.7  # the team's
    summary = summarize("single")
    assert (summary["complete"], summary["planned"], summary["episodes"]) == (True, 12, 12)
    assert summary["avg_at_k"]["value"] == 0.5
    assert list(summary["pass_at_k"]) == ["1", "2", "4"]


def test_the_last_sample_may_cost_more_but_never_less() -> None:
    team = read_team(team_run(n=2, samples=1), "tokens")  # 20 and 22: two samples of 10 and of 11
    odd = replace(team.budget, by_task={0: 21, 1: 1})
    result, _ = single_run(Counting(), team._replace(budget=odd))
    counts = [0, 0]
    spent = [0, 0]
    for record in read_lines("single", "episodes.jsonl"):
        counts[record["task_index"]] += 1
        spent[record["task_index"]] += cost_of(record, "tokens")
    assert (counts, spent, result.stored) == ([3, 1], [30, 11], 4)


def test_resumed_after_failures_and_a_cut() -> None:
    team = read_team(team_run(), "tokens")
    whole = Counting()
    single_run(whole, team, "whole")
    flaky = Counting()
    flaky.broken = {(1, 2), (2, 0)}
    result, _ = single_run(flaky, team)
    assert (result.complete, result.failed, result.stored) == (False, 2, 4 + 2 + 0)
    assert planned_episodes("single", read_config("single")["identity"]) == 6 + 2
    assert not summarize("single")["complete"]
    flaky.broken = set()
    data = Path("single/episodes.jsonl").read_bytes()
    Path("single/episodes.jsonl").write_bytes(data[:-10])
    result, _ = single_run(flaky, team, resume=True)
    assert result.complete
    assert Path("single/episodes.jsonl").read_bytes() == Path("whole/episodes.jsonl").read_bytes()


def test_what_is_stored_must_fit() -> None:
    team = read_team(team_run(), "tokens")
    single_run(Counting(), team)
    lines = Path("single/episodes.jsonl").read_bytes().splitlines(keepends=True)
    Path("single/episodes.jsonl").write_bytes(b"".join(lines[1:]))
    with pytest.raises(ResultsError, match="lacks samples of task 'arithmetic/test/0' before others"):
        single_run(Counting(), team, resume=True)
    changed = replace(team.budget, by_task={**team.budget.by_task, 0: 41})
    with pytest.raises(ResultsError, match=r"budget\.by_task\.0: 40 in the folder, 41 now"):
        single_run(Counting(), team._replace(budget=changed), resume=True)


def test_a_policy_that_counts_nothing_ends_the_run() -> None:
    class Mute(Counting):
        async def generate(self, request: Request) -> list[Completion]:
            return [
                replace(each, prompt_tokens=None, completion_tokens=None) for each in await super().generate(request)
            ]

    with pytest.raises(ProtocolError, match=r"hf:counting counts no tokens.*--budget characters"):
        single_run(Mute(), read_team(team_run(), "tokens"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of which most have no budget to give."""
    root = tmp_path_factory.mktemp("folders")
    with contextlib.chdir(root):
        team_run()
        two = "--policy solver=oracle --policy verifier=random -n 2 --quiet --out"
        for path in ("scripted", "cut"):
            assert main(["run", "math-2agent", *two.split(), path]) == 0
        assert main("run tictactoe --policy random -n 1 --quiet --out games".split()) == 0
        single = "matched scripted math-1agent --policy oracle --budget characters --quiet --out single"
        assert main(single.split()) == 0
        lines = Path("cut/episodes.jsonl").read_bytes().splitlines(keepends=True)
        Path("cut/episodes.jsonl").write_bytes(lines[0])
    return root


OTHER_TASKS = 'team math-1agent --policy random --budget characters --env task_options={"seed":3}'


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("team math-1agent --policy random", "random counts no tokens.*--budget characters"),
        (OTHER_TASKS, "has other tasks here"),
        ("team search-1agent --policy random --budget characters", "has other tasks here than team.*arithmetic/test/0"),
        ("team math-debate --policy random --budget characters", "has the agents debater_0, debater_1, debater_2"),
        ("scripted math-1agent --policy random", "scripted: episode arithmetic/test/0#0 has no tokens"),
        ("scripted math-1agent --budget characters", "was played by solver=oracle verifier=random; say with --policy"),
        ("games math-1agent --policy random", "games holds games of a zero-sum environment"),
        ("elsewhere math-1agent --policy random", "elsewhere is no results folder"),
        ("single math-1agent --policy random", "was itself played with the budget of a team"),
        ("cut math-1agent --policy random --budget characters", "1 of 2 episodes are missing.*--resume --out cut"),
        ("team", "Name the run of a team and an environment of one agent"),
        ("--resume --out scripted", "holds a run. Go on with: llm-bench run --resume --out scripted"),
    ],
)
def test_what_is_refused(
    command: str, message: str, folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folders)
    assert main(["matched", *command.split(), *([] if "--out" in command else ["--out", "x"])]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(message, said), said
    assert not Path("x").exists()


# ---- the comparison --------------------------------------------------------------------------------------------------


def write(name: str, env: str, played: Mapping[int, Sequence[Sample]], **identity: Any) -> str:
    """Write a run: each sample of each task. An answer of "-" stands for a record that does not say it."""
    known: dict[str, Any] = {
        "env": env, "env_kwargs": {}, "tasks": {"name": "t", "split": "test", "size": 9, "fingerprint": "f"},
        "n": len(played), "shuffle": False, "samples": max(map(len, played.values())), "seed": 0,
        "policies": {"*": "hf:x"}, "options": {}, "sampling": {}, "versions": {}, **identity,
    }  # fmt: skip
    with ResultsFolder(name, {"identity": known, "context": {"label": name}}) as folder:
        for index, of_task in played.items():
            for sample, (success, answer, tokens) in enumerate(of_task):
                info = {} if answer == "-" else {"answer": answer}
                turn = Turn("e", "t", "solver_0", "p", 0, 0, "o", "a", prompt_tokens=tokens, info=info)
                folder.add(
                    Episode(f"t/{index}#{sample}", env, f"t/{index}", index, f"h{index}", sample, 0, [turn],
                            {"solver_0": float(success)}, {"solver_0": {"team": float(success)}}, success)
                )  # fmt: skip
    return name


TEAM: dict[int, list[Sample]] = {
    0: [(True, "1", 30)],
    1: [(False, "9", 20)],
    2: [(True, "3", 25)],
    3: [(False, None, 40)],
}
SINGLE: dict[int, list[Sample]] = {
    0: [(False, "7", 10), (True, "1", 10), (True, "1.0", 10)],  # avg 2/3, any, the majority (1 = 1.0) is right
    1: [(False, "5", 10), (True, "2", 11)],  # avg 1/2, any, a tie: half
    2: [(False, "4", 9), (False, "4", 9), (True, "3", 9)],  # avg 1/3, any, the majority is wrong
    3: [(False, None, 20), (False, None, 20)],  # nobody votes
}
BUDGET = {"unit": "tokens", "team": {"env": "math-2agent-v0", "label": "team", "samples": 1}, "by_task": {
    "0": 30, "1": 20, "2": 25, "3": 40}}  # fmt: skip


def test_a_comparison_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    team = write("team", "math-2agent-v0", TEAM)
    single = write("single", "math-1agent-v0", SINGLE, samples=None, budget=BUDGET)
    found = compare_matched(team, single)
    expected = {
        "avg": ([1, 0, 1, 0], [2 / 3, 1 / 2, 1 / 3, 0]),
        "pass": ([1, 0, 1, 0], [1, 1, 1, 0]),
        "majority": ([1, 0, 1, 0], [1, 1 / 2, 0, 0]),
    }
    for name, (one, two) in expected.items():
        figure = found["figures"][name]
        assert figure["values"] == pytest.approx([sum(one) / 4, sum(two) / 4])
        difference, signs = paired_difference(one, two), sign_test(one, two)
        assert figure["difference"] == {
            "value": difference.value, "interval": [difference.low, difference.high], "p": difference.p,
        }  # fmt: skip
        assert figure["signs"] == {"better": signs.better, "worse": signs.worse, "p": signs.p}
    assert found["figures"]["majority"]["signs"] == {"better": 1, "worse": 1, "p": 1.0}
    assert (found["budget"], found["spent"]) == ((30 + 20 + 25 + 40) / 4, (30 + 21 + 27 + 40) / 4)
    assert found["samples"] == {"team": 1, "single": {"least": 2, "mean": 10 / 4, "greatest": 3}}
    assert main(["compare", team, single, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main(["compare", team, single]) == 0
    shown = capsys.readouterr().out
    assert "tokens a task: 29 and 30; tries a task: 1 and 2.50 (2 to 3)" in shown
    assert "majority" in shown


def test_without_answers_there_is_no_majority(capsys: pytest.CaptureFixture[str]) -> None:
    untold = {index: [(success, "-", tokens) for success, _, tokens in each] for index, each in SINGLE.items()}
    team = write("team", "math-2agent-v0", TEAM)
    found = compare_matched(team, write("single", "math-1agent-v0", untold, samples=None, budget=BUDGET))
    assert found["figures"]["majority"] is None
    assert found["no_majority"] == "some episodes do not say what their answer was"
    plans = write("plans", "plan-path-2agent-v0", TEAM)
    other = write("plan", "plan-path-1agent-v0", SINGLE, samples=None, budget=BUDGET)
    assert main(["compare", plans, other]) == 0
    assert "no majority: answers of plan-path-1agent-v0 cannot be compared" in capsys.readouterr().out


def test_comparisons_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    team = write("team", "math-2agent-v0", TEAM)
    richer = write("richer", "math-2agent-v0", {**TEAM, 3: [(False, None, 41)]})
    single = write("single", "math-1agent-v0", SINGLE, samples=None, budget=BUDGET)
    with pytest.raises(CompareError, match="played with the budget of another run than richer: that of team"):
        compare_matched(richer, single)
    with pytest.raises(CompareError, match="was not played with the budget of a team: llm-bench matched team"):
        compare_matched(team, richer)
    short = write("short", "math-1agent-v0", {**SINGLE, 3: SINGLE[3][:1]}, samples=None, budget=BUDGET)
    with pytest.raises(
        CompareError, match=r"the budget of 1 of 4 tasks is not spent yet.*matched --resume --out short"
    ):
        compare_matched(team, short)
    assert main(["compare", team, single, "--common"]) == 2
    assert "have no effect on a team and a single agent" in capsys.readouterr().err
    assert main(["compare", single, single]) == 2
    assert "samples: as many as a budget lasts and as many as a budget lasts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "successes", "expected"),
    [
        (["7", "7", "8"], [False, False, True], 0.0),
        (["8", "7", "8"], [True, False, True], 1.0),
        (["1", "2", "3"], [True, False, False], 1 / 3),
        (["1", "2", "2", "1", "9"], [True, False, False, True, False], 0.5),
        ([None, None, "4"], [False, False, True], 1.0),
        ([None], [False], 0.0),
        ([], [], 0.0),
    ],
)
def test_majority(answers: list[str | None], successes: list[bool], expected: float) -> None:
    assert majority(answers, successes, str.__eq__) == pytest.approx(expected)


def test_which_answers_are_the_same() -> None:
    mathematics, words = same_answer_in("math-1agent"), same_answer_in("search-2agent")
    assert mathematics is not None
    assert words is not None
    assert mathematics(r"\frac{1}{2}", "0.5")
    assert not mathematics("3+4", "7")
    assert words("The  Eiffel tower.", "eiffel Tower")
    assert not words("Eiffel", "Eiffel tower")
    assert same_answer_in("code-1agent") is None


def test_a_real_vote(capsys: pytest.CaptureFixture[str]) -> None:
    """The records of both environments say what was answered."""
    team = read_team(team_run(), "tokens")
    single_run(Counting(), team)
    found = compare_matched("team", "single")
    # Two of four samples say 17, which is wrong, and two are right: a tie on every task. The team is always right.
    assert found["figures"]["majority"]["values"] == [1.0, 0.5]
    assert found["figures"]["avg"]["values"] == [1.0, 0.5]
    assert found["figures"]["pass"]["values"] == [1.0, 1.0]
    assert main("table single".split()) == 0
    assert "as many samples each as the tokens last of hf:counting" in capsys.readouterr().out.replace("\\", "")
    assert main("export single --format csv --out tables".split()) == 0
    assert ",12,12," in Path("tables/runs.csv").read_text()


def test_resumed_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("run math-2agent --policy random -n 4 --out t --quiet".split()) == 0
    assert main("matched t math-1agent --budget characters --temperature 0.5 --out s".split()) == 0
    said = capsys.readouterr().err.splitlines()
    played = len(Path("s/episodes.jsonl").read_bytes().splitlines())
    assert [line.partition(" ")[0] for line in said if "/" in line.partition(" ")[0]] == [f"{played}/{played}"]
    assert read_config("s")["identity"]["sampling"]["temperature"] == 0.5
    whole = Path("s/episodes.jsonl").read_bytes()
    Path("s/episodes.jsonl").write_bytes(whole[: len(whole) // 2])
    assert main("matched --resume --out s --quiet".split()) == 0
    assert Path("s/episodes.jsonl").read_bytes() == whole
    assert main("run --resume --out s".split()) == 2
    assert "s holds a matched run. Go on with: llm-bench matched --resume --out s" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["matched t math-1agent --policy random --budget characters", "swap"])
def test_killed_and_resumed(command: str) -> None:
    """What SIGKILL leaves of a matched run, or of a group, goes on to the bytes of one that was never stopped."""
    if command == "swap":
        command = "swap math-2agent --policy solver=random --policy verifier=oracle -n 200"
        watched = "killed/solver.solver/episodes.jsonl"  # the second of four
    else:
        assert main("run math-2agent --policy random -n 100 --out t --quiet".split()) == 0
        watched = "killed/episodes.jsonl"
    bench = [sys.executable, "-m", "benchmarks.cli", *command.split(), "--quiet", "--concurrency", "1", "--out"]
    with subprocess.Popen([*bench, "killed"], stdout=subprocess.DEVNULL, env=os.environ) as process:
        until = time.monotonic() + 60
        while not (Path(watched).exists() and Path(watched).stat().st_size > 20_000):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert main([*command.split()[:1], "--resume", "--out", "killed", "--quiet"]) == 0
    assert main([*command.split(), "--out", "whole", "--quiet"]) == 0
    files = sorted(path.relative_to("whole") for path in Path("whole").rglob("episodes.jsonl"))
    assert len(files) == (4 if command.startswith("swap") else 1)
    for file in files:
        assert Path("killed", file).read_bytes() == Path("whole", file).read_bytes()
