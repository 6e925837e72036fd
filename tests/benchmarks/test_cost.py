"""Prices: how they are read and found, and what a run cost by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.cost import CostTally, Price, Prices, PricesError, read_prices
from benchmarks.figures import money
from benchmarks.results import ResultsFolder
from benchmarks.summary import summarize
from trainers.rollout.records import Episode, Turn

TABLE = """\
currency: EUR
per_million_tokens:
  openai:large@*: {input: 2.0, output: 10.0}
  "*-small": {input: 0.5, output: 1}
  "vllm:*": {input: 0, output: 0}
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(TABLE)
    return path


def test_the_first_pattern_that_matches_counts(prices: Path) -> None:
    table = read_prices(prices)
    assert table.currency == "EUR"
    assert table.find("openai:large@http://h/v1") == Price(2.0, 10.0)
    assert table.find("openai:large@http://h/v1 (timeout_s=5)") == Price(2.0, 10.0)
    assert table.find("vllm:org/chat-small") == Price(0.5, 1.0)  # by the model alone, before vllm:*
    assert table.find("openai:chat-small@http://h/v1") == Price(0.5, 1.0)
    assert table.find("vllm:org/big") == Price(0.0, 0.0)
    assert table.find("openai:other@http://h/v1") is None
    assert table.find("oracle") == Price(0.0, 0.0)
    assert Prices({"oracle": Price(1.0, 1.0)}).find("oracle") == Price(1.0, 1.0)


def test_json_needs_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"per_million_tokens": {"a": {"input": 1, "output": 2}}}))
    assert read_prices(path) == Prices({"a": Price(1.0, 2.0)}, "USD")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prices. It needs, for example"),
        ("- a", "holds no prices"),
        ("per_million_tokens: {a: {input: 1, output: 2}}\ncurency: EUR", "Did you mean 'currency'"),
        ("per_million_tokens: {}", "maps patterns to prices"),
        ("per_million_tokens: {a: 3}", "the price of 'a' is"),
        ("per_million_tokens: {a: {input: 1, outputs: 2}}", "no entry 'outputs' of 'a'.*Did you mean 'output'"),
        ("per_million_tokens: {a: {input: 1}}", "output of 'a' must be a number from 0 on, got None"),
        ("per_million_tokens: {a: {input: -1, output: 0}}", "got -1"),
        ("per_million_tokens: {a: {input: .nan, output: 0}}", "got nan"),
        ("per_million_tokens: {a: {input: true, output: 0}}", "got True"),
        ("per_million_tokens: {a: {input: 1, output: 2}}\ncurrency: 3", "currency is a word"),
        ("a: [", "is not YAML"),
    ],
)
def test_mistakes_in_prices_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(PricesError, match=f"(?s)prices.yaml.*{message}"):
        read_prices(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(PricesError, match="Cannot read the prices"):
        read_prices(tmp_path / "no.yaml")


def test_a_sum_that_leaves_somebody_out_is_no_cost() -> None:
    table = Prices({"a": Price(1.0, 2.0)})
    tally = CostTally()
    tally.add("a", 500_000, 250_000)
    tally.add("a", 500_000, 250_000)
    assert tally.total(table) == pytest.approx(1.0 + 1.0)
    tally.add("oracle", 0, 0)
    assert tally.total(table) == pytest.approx(2.0)
    tally.add("b", 1, 1)
    assert tally.total(table) is None
    assert tally.unknown(table) == ["b"]
    silent = CostTally()
    silent.add("a", 0, 0)  # a model that counts no tokens
    assert silent.total(table) is None
    assert silent.unknown(table) == ["a"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0.0, "0.00 USD"), (12.345, "12.35 USD"), (0.5, "0.500 USD"), (0.001234, "0.00123 USD"),
        (1234.5, "1,234.50 USD"),
    ],
)  # fmt: skip
def test_money(value: float | None, shown: str) -> None:
    assert money(value, "USD") == shown


def priced_run(path: Path) -> Path:
    """Two episodes, one solved: 1 000 tokens in and 100 out by the solver, 500 and 50 by the verifier, in each."""
    identity: dict[str, Any] = {
        "env": "e-v0", "tasks": {"name": "t", "split": "test", "size": 2, "fingerprint": "f"},
        "n": 2, "samples": 1, "seed": 0,
    }  # fmt: skip
    with ResultsFolder(path, {"identity": identity, "context": {"label": "l"}}) as folder:
        for index in range(2):
            turns = [
                Turn("e", "t", agent, policy, 0, 0, "o", "a", prompt_tokens=1000 // size, completion_tokens=100 // size,
                     latency_s=0.5)
                for agent, policy, size in (("solver_0", "openai:large@h", 1), ("verifier_0", "vllm:v-small", 2))
            ]  # fmt: skip
            parts: dict[str, dict[str, float]] = {"solver_0": {"team": 0.0}, "verifier_0": {"team": 0.0}}
            returns = {"solver_0": 0.0, "verifier_0": 0.0}
            folder.add(
                Episode(f"t{index}#0", "e-v0", f"t{index}", index, f"h{index}", 0, 0, turns, returns, parts, index == 0,
                        wall_s=1.0)
            )  # fmt: skip
    return path


def test_cost_of_a_run_by_hand(tmp_path: Path, prices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = priced_run(tmp_path / "run")
    assert summarize(run)["cost"] is None
    summary = summarize(run, read_prices(prices))
    solver, verifier = (1000 * 2 + 100 * 10) / 1e6, (500 * 0.5 + 50 * 1) / 1e6
    cost = summary["cost"]
    assert cost["episode"] == pytest.approx(solver + verifier)
    assert cost["total"] == cost["success"] == pytest.approx(2 * (solver + verifier))  # one of the two was solved
    assert cost["agents"] == pytest.approx({"solver_0": solver, "verifier_0": verifier})
    assert (cost["currency"], cost["unknown"]) == ("EUR", [])
    assert main(["report", str(run), "--prices", str(prices)]) == 0
    text = capsys.readouterr().out
    assert "0.00330 EUR" in text
    assert "0.00660 EUR" in text
    assert "0.00300 EUR" in text  # the solver's
    assert main(["report", str(run), "--prices", str(prices), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cost"]["total"] == pytest.approx(0.0066)
    prices.write_text("per_million_tokens: {'openai:*': {input: 1, output: 1}}")
    assert main(["report", str(run), "--prices", str(prices)]) == 0
    assert "have no price or count no tokens: vllm:v-small" in capsys.readouterr().out
    assert main(["report", str(run), "--prices", "no.yaml"]) == 2
    assert "Cannot read the prices" in capsys.readouterr().err


def test_speed_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.5])  # the episodes end then; each took a second, so something was played for 1.5 s
    monkeypatch.setattr("benchmarks.results.time.time", lambda: next(clock))
    summary = summarize(priced_run(tmp_path / "run"))
    assert summary["seconds"] == 1.0
    assert summary["elapsed_s"] == pytest.approx(1.5)
    assert summary["tokens_per_s"] == pytest.approx((100 + 50) * 2 / 1.5)
    assert summary["agents"]["solver_0"]["tokens_per_s"] == pytest.approx(200)
    assert summary["agents"]["verifier_0"]["share_of_turns"] == 0.5


def test_a_pause_between_sessions_is_no_playing_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 5000.0])
    monkeypatch.setattr("benchmarks.results.time.time", lambda: next(clock))
    assert summarize(priced_run(tmp_path / "run"))["elapsed_s"] == pytest.approx(2.0)


def test_a_tournament_has_costs_by_player(tmp_path: Path, prices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "t")
    players = ["--policy", "random", "--policy", "oracle"]
    assert main(["tournament", "tictactoe", *players, "-n", "1", "--out", out, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["report", out, "--prices", str(prices)]) == 0
    assert "0.00 EUR" in capsys.readouterr().out
    assert main(["report", out, "--prices", str(prices), "--json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out)
    assert summary["players"]["random"]["cost"] == {"currency": "EUR", "game": 0.0}
