"""Playing a suite: what fails does not stop the rest, what is complete is not played again, budgets hold."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.live import LiveView
from benchmarks.results import ResultsError, read_lines
from benchmarks.suites.budget import Meter
from benchmarks.suites.config import SuiteBudgetConfig, load_suite
from benchmarks.suites.manifest import RunRecord, SuiteFolder, read_manifest
from benchmarks.suites.plan import SuiteRequest, plan_suite
from benchmarks.suites.running import play_suite
from trainers.policies.base import Completion, Policy, PolicyError, Request, make_policy
from trainers.rollout.records import Episode

REPOSITORY = Path(__file__).resolve().parents[3]
ENTRIES = [
    {"name": "math", "env": "math-2agent", "tasks": "one-digit", "n": 4, "samples": 2},
    {"name": "game", "env": "tictactoe", "n": 3, "policies": {"player_0": "$policy", "player_1": "random"}},
    {"name": "duel", "env": "kuhn-poker", "n": 2, "players": ["$policy", "random"]},
]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Chatty(Policy):
    """Answers everything with one text, for so many tokens of prompt and answer."""

    def __init__(self, tokens: int = 10) -> None:
        super().__init__("hf:chatty")
        self.tokens = tokens
        self.closed = 0

    async def generate(self, request: Request) -> list[Completion]:
        return [Completion(r"\boxed{1}", "stop", prompt_tokens=self.tokens, completion_tokens=self.tokens)]

    async def close(self) -> None:
        self.closed += 1


def suite_of(entries: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"description": "d", "entries": entries, **more}


def play(
    values: dict[str, Any],
    out: str = "s",
    *,
    make: Callable[..., Policy] = make_policy,
    resume: bool = False,
    policy: str = "oracle",
) -> dict[str, RunRecord]:
    """Play a suite as the command line does, with policies of the test's own."""
    suite = load_suite(values)
    request = SuiteRequest(policies=[policy])
    planned = plan_suite(suite, request)
    content = {"name": "test", "description": "d", "suite": suite.model_dump(), "request": asdict(request)}
    runs = [RunRecord(each.name, each.settings.env, each.tournament) for each in planned]
    from rich.console import Console

    with SuiteFolder(Path(out), content, runs, resume=resume) as folder:
        view = lambda number, each: LiveView(Console(stderr=True), quiet=True)  # noqa: E731
        return {run.name: run for run in asyncio.run(play_suite(planned, folder, suite.budget, view, make=make))}


def stored(folder: str) -> list[dict[str, Any]]:
    return list(read_lines(folder, "episodes.jsonl"))


# ---- what is played --------------------------------------------------------------------------------------------------


def test_runs_and_tournaments_are_played_in_order() -> None:
    records = play(suite_of(ENTRIES))
    assert [(run.name, run.status, run.stored, run.planned) for run in records.values()] == [
        ("math", "complete", 8, 8),
        ("game", "complete", 3, 3),
        ("duel", "complete", 4, 4),
    ]
    manifest = read_manifest("s")
    assert [run["name"] for run in manifest["runs"]] == ["math", "game", "duel"]
    assert manifest["suite"]["entries"][0]["samples"] == 2
    assert "cores" in manifest["context"]["machine"]


def test_a_failing_run_does_not_lose_the_others() -> None:
    def make(spec: str, **options: Any) -> Policy:
        if spec == "random":
            raise PolicyError("no dice")
        return make_policy(spec, **options)

    records = play(suite_of(ENTRIES), make=make)
    assert [run.status for run in records.values()] == ["complete", "failed", "failed"]
    assert records["game"].reason == "no dice"
    assert play(suite_of(ENTRIES), resume=True)["game"].status == "complete"


def test_a_bug_in_one_run_does_not_lose_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def make(spec: str, **options: Any) -> Policy:
        if spec == "random":
            raise ZeroDivisionError("oops")
        return make_policy(spec, **options)

    records = play(suite_of(ENTRIES), make=make)
    assert [run.status for run in records.values()] == ["complete", "failed", "failed"]
    assert records["game"].reason == "ZeroDivisionError: oops"
    assert "Traceback" in caplog.text


def test_episodes_that_fail_make_a_run_incomplete() -> None:
    class Dead(Chatty):
        async def generate(self, request: Request) -> list[Completion]:
            raise PolicyError("down")

    records = play(suite_of(ENTRIES[:1]), make=lambda spec, **options: Dead(), policy="hf:dead")
    assert (records["math"].status, records["math"].stored, records["math"].failed) == ("incomplete", 0, 8)
    assert "8 episodes failed" in str(records["math"].reason)
    assert (
        play(suite_of(ENTRIES[:1]), make=lambda spec, **options: Chatty(), policy="hf:dead", resume=True)["math"].stored
        == 8
    )


def test_a_model_is_loaded_once_and_let_go_after_its_last_run() -> None:
    made: list[Chatty] = []

    def make(spec: str, **options: Any) -> Policy:
        if not spec.startswith("hf:"):
            assert made[0].closed == (spec == "random")
            return make_policy(spec, **options)
        made.append(Chatty())
        return made[-1]

    two = [{**ENTRIES[0], "name": "one"}, {**ENTRIES[0], "name": "two"}]
    last = {"name": "last", "env": "math-2agent", "n": 1, "policies": {"*": "random"}}
    play(suite_of([*two, last]), make=make, policy="hf:chatty")
    assert [policy.closed for policy in made] == [1]


# ---- going on --------------------------------------------------------------------------------------------------------


def test_what_is_complete_is_not_played_again() -> None:
    play(suite_of(ENTRIES))

    def never(spec: str, **options: Any) -> Policy:
        raise AssertionError(f"{spec} was made")

    before = Path("s/math/episodes.jsonl").read_bytes()
    records = play(suite_of(ENTRIES), make=never, resume=True)
    assert all(run.status == "complete" for run in records.values())
    assert Path("s/math/episodes.jsonl").read_bytes() == before


def test_a_suite_that_was_cut_goes_on_to_the_same_bytes() -> None:
    play(suite_of(ENTRIES), "whole", policy="random")
    play(suite_of(ENTRIES), "cut", policy="random")
    for name in ("math", "duel"):
        file = Path("cut", name, "episodes.jsonl")
        file.write_bytes(file.read_bytes()[:1500])
    play(suite_of(ENTRIES), "cut", policy="random", resume=True)
    for name in ("math", "game", "duel"):
        assert Path("cut", name, "episodes.jsonl").read_bytes() == Path("whole", name, "episodes.jsonl").read_bytes()


def test_other_settings_are_refused_and_named() -> None:
    play(suite_of(ENTRIES[:1]))
    with pytest.raises(ResultsError, match=r"already holds a suite. Add --resume"):
        play(suite_of(ENTRIES[:1]))
    with pytest.raises(ResultsError, match=r"suite\.entries\.math\.samples: 2 in the folder, 3 now"):
        play(suite_of([{**ENTRIES[0], "samples": 3}]), resume=True)
    with pytest.raises(ResultsError, match=r"request\.policies"):
        play(suite_of(ENTRIES[:1]), resume=True, policy="random")
    play(suite_of(ENTRIES[:1], description="other", concurrency=3, budget={"tokens": 9}), resume=True)


def test_folders_that_hold_something_else() -> None:
    Path("s").mkdir()
    Path("s/notes.txt").write_text("mine")
    with pytest.raises(ResultsError, match="is not empty and holds no suite"):
        play(suite_of(ENTRIES[:1]), resume=True)
    Path("file").write_text("")
    with pytest.raises(ResultsError, match="is a file"):
        play(suite_of(ENTRIES[:1]), "file")
    assert Path("s/notes.txt").read_text() == "mine"


def test_two_runners_cannot_have_one_folder() -> None:
    content = {"name": "x", "description": "", "suite": load_suite(suite_of(ENTRIES)).model_dump(), "request": {}}
    with (
        SuiteFolder(Path("s"), content, []),
        pytest.raises(ResultsError, match="Another runner"),
    ):
        SuiteFolder(Path("s"), content, [], resume=True)
    SuiteFolder(Path("s"), content, [], resume=True).__exit__()


def test_a_newer_manifest_is_refused() -> None:
    play(suite_of(ENTRIES[:1]))
    file = Path("s/suite.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema_version": 99}))
    with pytest.raises(ResultsError, match="version 99"):
        play(suite_of(ENTRIES[:1]), resume=True)


# ---- budgets ---------------------------------------------------------------------------------------------------------


def chatty(spec: str, **options: Any) -> Policy:
    return Chatty()


ONE = {"name": "one", "env": "math-1agent", "tasks": "one-digit", "n": 10}  # a turn an episode: 20 tokens


def test_a_budget_of_tokens_stops_a_run_and_holds_over_sessions() -> None:
    values = suite_of([{**ONE, "budget": {"tokens": 60}}, {**ONE, "name": "two"}], concurrency=1)
    records = play(values, make=chatty, policy="hf:chatty")
    assert (records["one"].status, records["one"].stored) == ("stopped", 3)
    assert records["one"].reason == "the budget of 60 tokens is spent"
    assert records["two"].status == "complete"
    again = play(values, make=chatty, policy="hf:chatty", resume=True)
    assert (again["one"].status, again["one"].stored) == ("stopped", 3)
    more = suite_of([{**ONE, "budget": {"tokens": 1000}}, {**ONE, "name": "two"}], concurrency=1)
    assert play(more, make=chatty, policy="hf:chatty", resume=True)["one"].stored == 10


def test_a_budget_of_the_suite_is_for_all_runs() -> None:
    values = suite_of([ONE, {**ONE, "name": "two"}, {**ONE, "name": "three"}], concurrency=1, budget={"tokens": 260})
    records = play(values, make=chatty, policy="hf:chatty")
    assert [(run.status, run.stored) for run in records.values()] == [("complete", 10), ("stopped", 3), ("stopped", 0)]
    again = play(values, make=chatty, policy="hf:chatty", resume=True)
    assert [run.stored for run in again.values()] == [10, 3, 0]


def test_episodes_in_flight_are_finished() -> None:
    values = suite_of([{**ONE, "budget": {"tokens": 20}}], concurrency=4)
    assert play(values, make=chatty, policy="hf:chatty")["one"].stored == 4


def test_seconds_count_while_something_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("benchmarks.suites.budget.time.monotonic", lambda: now[0])
    meter = Meter(SuiteBudgetConfig(seconds=10.0), seconds=4.0)
    now[0] += 50
    assert meter.spent() is None
    meter.start()
    now[0] += 5
    assert meter.spent() is None
    meter.stop()
    now[0] += 50
    assert meter.spent() is None
    meter.start()
    now[0] += 1
    assert meter.spent() == "the budget of 10 seconds is spent"


def test_a_meter_counts_prompts_and_answers_of_failed_episodes_too() -> None:
    play(suite_of([ONE]), make=chatty, policy="hf:chatty")
    meter = Meter(SuiteBudgetConfig(tokens=21))
    episode = Episode.from_dict(stored("s/one")[0])
    meter.count(episode)
    assert meter.spent() is None
    meter.count(episode)
    assert meter.spent() == "the budget of 21 tokens is spent"


# ---- the command line ------------------------------------------------------------------------------------------------


def write(values: dict[str, Any], name: str = "mine.yaml") -> str:
    Path(name).write_text(json.dumps(values))  # JSON is YAML
    return name


def test_the_command_leaves_a_folder_a_page_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(suite_of(ENTRIES)), "--policy", "oracle", "--out", "r"]) == 0
    shown = capsys.readouterr()
    assert "avg@2 100.0 % [51.0, 100.0]" in shown.out
    assert "player_0 3/0/0" in shown.out
    assert "oracle: Elo +" in shown.out
    assert shown.out.rstrip().endswith("page: r/suite.html")
    assert "game (2 of 3): tictactoe" in shown.err
    page = Path("r/suite.html").read_text(encoding="utf-8")
    assert page.count('<script type="application/octet-stream" id="chunk-') == 3
    assert json.loads(Path("r/suite.json").read_text())["page"] == "suite.html"
    assert json.loads(Path("r/math/config.json").read_text())["context"]["command"][:2] == ["llm-bench", "run"]
    for command in (["report", "r"], ["table", "r"], ["view", "r", "--html", "p.html"], ["export", "r", "--out", "x"]):
        assert main(command) == 0


def test_the_default_folder_has_the_names_of_suite_and_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(suite_of(ENTRIES[:1])), "--policy", "oracle", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("suite-mine-oracle-")


def test_a_failed_run_makes_the_exit_status_1_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"name": "bad", "env": "search-3agent", "n": 2, "kwargs": {"retriever": "nowhere"}}
    assert main(["run", write(suite_of([bad, ENTRIES[0]])), "--policy", "oracle", "--out", "r"]) == 1
    shown = capsys.readouterr()
    assert "missing: index nowhere (for bad)" in shown.err
    assert "1 of 2 runs are not complete: bad. Go on with: llm-bench run --resume --out r" in shown.err
    assert "bad: " in shown.out
    assert "`llm-envs index` makes one" in shown.out
    assert json.loads(Path("r/suite.json").read_text())["runs"][1]["status"] == "complete"


def test_resuming_takes_all_from_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    path = write(suite_of(ENTRIES))
    assert main(["run", path, "--policy", "random", "--seed", "3", "--out", "r", "--quiet"]) == 0
    whole = Path("r/math/episodes.jsonl").read_bytes()
    Path("r/math/episodes.jsonl").write_bytes(whole[:2000])
    Path(path).unlink()
    assert main(["run", "--resume", "--out", "r", "--quiet"]) == 0
    assert Path("r/math/episodes.jsonl").read_bytes() == whole
    capsys.readouterr()
    assert main(["run", "--resume", "--out", "r", "--policy", "oracle"]) == 2
    assert "takes all settings from r; leave out: --policy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mine.yaml", "--policy", "oracle", "-k", "2"], "leave out: -k"),
        (["run", "mine.yaml", "--policy", "oracle", "--temperature", "1.0"], "leave out: --temperature"),
        (["run", "mine.yaml", "--policy", "oracle", "--protocol", "greedy"], "leave out: --protocol"),
        (["run", "mine.yaml"], "leaves its policy to you"),
        (["run", "other.yaml", "--policy", "oracle"], "There is no file 'other.yaml'"),
        (["run", "bad.yaml", "--policy", "oracle"], "Did you mean `entries`"),
        (["run", "math-2agent", "--policy", "oracle", "--entry", "x"], "--entry x names an entry of a suite"),
        (["run", "quik", "--policy", "oracle"], "Did you mean the suite `quick`?"),
        (["suites", "quik"], "Did you mean 'quick'?"),
    ],
)
def test_wrong_commands(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(suite_of(ENTRIES))
    write({"description": "d", "entris": []}, "bad.yaml")
    assert main(arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_says_what_is_missing_and_plays_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {"name": "bad", "env": "math-2agent", "n": 2, "tasks": "nowhere.jsonl"}
    path = write(suite_of([bad, ENTRIES[0]]))
    assert main(["run", path, "--policy", "oracle", "--dry-run"]) == 1
    shown = capsys.readouterr().out
    assert "missing: task file nowhere.jsonl (for bad)" in shown
    assert main(["run", path, "--policy", "oracle", "--dry-run", "--entry", "math"]) == 0
    assert "Nothing is missing." in capsys.readouterr().out
    assert not Path("runs").exists()


def test_a_dry_run_of_a_run_and_of_a_tournament(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "math-2agent", "--policy", "oracle", "-n", "3", "--protocol", "at-grpo", "--dry-run"]) == 0
    assert "3 × 4" in capsys.readouterr().out
    assert main(["tournament", "tictactoe", "--policy", "oracle", "--policy", "random", "--dry-run"]) == 0
    assert "50 × 2" in capsys.readouterr().out
    assert not Path("runs").exists()


def test_the_list_of_suites_and_the_file_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suites"]) == 0
    assert "dr-mas-search" in capsys.readouterr().out
    assert main(["suites", "quick"]) == 0
    Path("copy.yaml").write_text(capsys.readouterr().out)
    assert load_suite("copy.yaml") == load_suite("quick")


def test_quick_is_solved_by_the_oracle() -> None:
    assert main(["run", "quick", "--policy", "oracle", "--out", "q", "--quiet"]) == 0
    for name in ("sums", "sums-team", "plan-path", "search-atlas"):
        assert all(episode["success"] for episode in stored(f"q/{name}"))


def test_ctrl_c_says_how_to_go_on_and_going_on_ends_with_the_same_bytes() -> None:
    many = {"name": "many", "env": "math-debate", "n": 600, "policies": {"*": "random"}}
    path = write(suite_of([ENTRIES[0], many, ENTRIES[1]]))
    command = [sys.executable, "-m", "benchmarks.cli", "run", path, "--policy", "random", "--out", "cut"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        until = time.monotonic() + 60
        while not (Path("cut/many/episodes.jsonl").exists() and Path("cut/many/episodes.jsonl").stat().st_size):
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what was played is in cut. Go on with: llm-bench run --resume --out cut" in shown
    statuses = [run["status"] for run in json.loads(Path("cut/suite.json").read_text())["runs"]]
    assert statuses == ["complete", "pending", "pending"]
    assert main(["run", "--resume", "--out", "cut", "--quiet"]) == 0
    assert main(["run", path, "--policy", "random", "--out", "whole", "--quiet"]) == 0
    for name in ("math", "many", "game"):
        assert Path("cut", name, "episodes.jsonl").read_bytes() == Path("whole", name, "episodes.jsonl").read_bytes()


def test_without_the_packages_that_read_suites_a_run_works_and_a_suite_says_what_to_install() -> None:
    program = "import sys; sys.modules['pydantic'] = sys.modules['yaml'] = None\n"
    program += "from benchmarks.cli import main\n"
    program += "assert main(['run', 'math-2agent', '--policy', 'oracle', '-n', '1', '--out', 'r', '--quiet']) == 0\n"
    program += "sys.exit(main(['run', 'quick', '--policy', 'oracle']))\n"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2, done.stderr
    assert "install llm-envs[train]" in done.stderr
