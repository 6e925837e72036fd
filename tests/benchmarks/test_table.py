"""Leaderboards: what shares a column, what is marked as best, escaping in each format, and the files themselves."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cli import main
from benchmarks.cost import Price, Prices
from benchmarks.metrics import bootstrap_interval, wilson_interval
from benchmarks.results import ResultsFolder
from benchmarks.table import Cell, Leaderboard, make_leaderboard
from benchmarks.table_formats import escape_latex, escape_markdown, to_html, to_latex, to_markdown
from benchmarks.task_values import MetricError
from trainers.rollout.records import Episode, Turn


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(
    name: str, label: str, solved: Mapping[int, Sequence[bool]], planned: int | None = None, **changes: Any
) -> str:
    identity: dict[str, Any] = {
        "env": "e-v0", "env_kwargs": {}, "tasks": {"name": "t", "split": "test", "size": 99, "fingerprint": "f"},
        "n": planned or len(solved), "samples": max(map(len, solved.values())), "seed": 0, "policies": {"*": "oracle"},
        "options": {}, "sampling": {"temperature": 1.0}, "versions": {}, **changes,
    }  # fmt: skip
    with ResultsFolder(name, {"identity": identity, "context": {"label": label}}) as folder:
        for index, samples in solved.items():
            for sample, success in enumerate(samples):
                turn = Turn(
                    "e", "t", "a_0", label, 0, 0, "o", "a", prompt_tokens=100, completion_tokens=10 * (index + 1)
                )
                folder.add(
                    Episode(f"t/{index}#{sample}", "e-v0", f"t/{index}", index, f"h{index}", sample, 0, [turn],
                            {"a_0": float(success)}, {"a_0": {"team": float(success)}}, success)
                )  # fmt: skip
    return name


def once(count: int, of: int) -> dict[int, list[bool]]:
    return {index: [index < count] for index in range(of)}


def cells(table: Leaderboard) -> dict[str, list[Cell | None]]:
    return {label: list(row) for label, row in table.rows}


def test_the_best_and_what_cannot_be_told_from_it() -> None:
    runs = [write("a", "good", once(30, 40)), write("b", "near", once(28, 40)), write("c", "bad", once(5, 40))]
    table = make_leaderboard(runs)
    assert table.columns == ["e-v0, avg@1, %"]
    assert [label for label, _ in table.rows] == ["good", "near", "bad"]
    low, high = wilson_interval(30, 40)
    assert cells(table)["good"] == [Cell("75.0", f"[{100 * low:.1f}, {100 * high:.1f}]", True, False)]
    assert [row[0].best for row in cells(table).values() if row[0]] == [True, True, False]
    alone = make_leaderboard(["a"])
    assert not cells(alone)["good"][0].best  # type: ignore[union-attr]  # one alone is no best


def test_what_cannot_be_compared_has_a_column_of_its_own() -> None:
    runs = [
        write("a", "one", once(3, 4)),
        write("b", "two", once(3, 5)),
        write("c", "two", once(3, 4), env_kwargs={"max_rounds": 1}),
        write("d", "two", once(3, 4), tasks={"name": "u", "split": "test", "size": 9, "fingerprint": "g"}),
        write("e", "two", {i: [True, False] for i in range(4)}),
        write("f", "two", once(3, 4), env="f-v0"),
    ]
    table = make_leaderboard(runs)
    assert len(table.columns) == 6
    assert sorted(table.columns) == [
        "e-v0, avg@1, % (1)", "e-v0, avg@1, % (2)", "e-v0, avg@1, % (3)", "e-v0, avg@1, % (4)", "e-v0, avg@2, %",
        "f-v0, avg@1, %",
    ]  # fmt: skip
    assert any(note == "e-v0, avg@1, % (2): 4 tasks of t (test), max_rounds=1." for note in table.notes)
    assert not any(cell.best for row in cells(table).values() for cell in row if cell)


def test_incomplete_runs_are_not_in_the_running() -> None:
    runs = [write("a", "whole", once(2, 4)), write("b", "torn", once(3, 3), planned=4), write("c", "low", once(0, 4))]
    table = make_leaderboard(runs)
    torn = cells(table)["torn"][0]
    assert torn is not None
    assert (torn.value, torn.best, torn.incomplete) == ("100.0", False, True)
    assert cells(table)["whole"][0].best  # type: ignore[union-attr]
    assert "† torn in e-v0: 1 episodes are missing; not in the running." in table.notes
    assert "100.0† " in to_markdown(table)


def test_rows_are_told_apart_by_settings_then_by_folder() -> None:
    write("x", "p", once(1, 4), sampling={"temperature": 0.0})
    write("y", "p", once(2, 4))
    write("z", "p", once(2, 4), seed=3, env="f-v0")
    table = make_leaderboard(["x", "y", "z"])
    assert sorted(cells(table)) == [
        "p (temperature=0.0, seed=0)", "p (temperature=1.0, seed=0)", "p (temperature=1.0, seed=3)",
    ]  # fmt: skip
    Path("deep").mkdir()
    write("deep/y", "p", once(3, 4))
    assert sorted(cells(make_leaderboard(["y", "deep/y"]))) == ["p (y) (deep/y)", "p (y) (y)"]
    assert list(cells(make_leaderboard(["y", "y"]))) == ["p"]


def test_rows_are_sorted_by_mean_rank_and_a_missing_cell_ranks_last() -> None:
    runs = [
        write("a", "a", once(4, 5)), write("b", "b", once(3, 5)), write("c", "c", once(5, 5)),
        write("d", "a", once(1, 5), env="f-v0"), write("e", "b", once(2, 5), env="f-v0"),
    ]  # fmt: skip
    # a: ranks 2 and 2; b: 3 and 1; c: 1 and missing, which is 3.
    assert [label for label, _ in make_leaderboard(runs).rows] == ["a", "b", "c"]


def test_other_metrics_by_hand() -> None:
    runs = [
        write("a", "p", {0: [True, False], 1: [False, False]}),
        write("b", "q", {0: [True, True], 1: [True, False]}),
    ]
    prices = Prices({"*": Price(1000.0, 10_000.0)}, "EUR")
    names = ["pass@2", "tokens-out", "cost", "cost-success", "return", "seconds"]
    table = make_leaderboard(runs, names, prices)
    assert table.columns == [
        "e-v0, pass@2, %", "e-v0, tokens out", "e-v0, cost", "e-v0, cost/success", "e-v0, return", "e-v0, seconds",
    ]  # fmt: skip
    low, high = bootstrap_interval([1.0, 0.0])
    found = cells(table)["p"]
    assert found[0] == Cell("50.0", f"[{100 * low:.1f}, {100 * high:.1f}]", True, False)
    # Task 0 writes 10 tokens an episode, task 1 writes 20: 0.1 + 0.1 and 0.1 + 0.2 EUR.
    assert [cell.value for cell in found if cell] == ["50.0", "15", "0.250 EUR", "1.00 EUR", "0.250", "0.000"]
    assert cells(table)["q"][3] == Cell("0.333 EUR", "", True, False)
    assert not found[3].best  # type: ignore[union-attr]  # lower is better, and no test says that it ties


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["sucess"], "no metric 'sucess'"),
        (["elo"], "a has none of the metrics elo; it has avg"),
        (["cost"], "The metric cost needs --prices"),
        (["cost-success"], "The metric cost-success needs --prices"),
        (["pass@3"], "a has no pass@3"),
    ],
)
def test_metrics_that_are_not_there(metrics: list[str], message: str) -> None:
    write("a", "p", once(1, 2))
    with pytest.raises(MetricError, match=message):
        make_leaderboard(["a"], metrics)


NASTY = "a|b_c*d\\e <script>&amp;[x](y)\x1b[31m\n\\end{x} 50 % $1 #2 ~^ \u202e`'\" †"
GOLDEN = Leaderboard(
    ["e-v0, avg@1, %", "f-v0, Elo"],
    [(NASTY, [Cell("75.0", "[59.8, 85.8]", True, False), None]), ("p", [None, Cell("-12", "[-40, +16]", False, True)])],
    ["e-v0: 40 tasks & more."],
)


def test_markdown_is_golden() -> None:
    assert to_markdown(GOLDEN) == (
        "| policy | e-v0, avg@1, % | f-v0, Elo |\n"
        "| :--- | ---: | ---: |\n"
        "| a\\|b\\_c\\*d\\\\e \\<script\\>\\&amp;\\[x\\]\\(y\\)\\\\x1b\\[31m \\\\end\\{x\\} 50 % \\$1 \\#2 \\~^ "
        "\\\\u202e\\`'\" † | **75.0** \\[59.8, 85.8\\] | – |\n"
        "| p | – | -12† \\[-40, +16\\] |\n"
        "\n"
        "* e-v0: 40 tasks \\& more.\n"
    )


def test_latex_is_golden() -> None:
    assert to_latex(GOLDEN) == (
        "% Needs \\usepackage{booktabs} and \\usepackage{textcomp}.\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "policy & e{-}v0, avg@1, \\% & f{-}v0, Elo \\\\\n"
        "\\midrule\n"
        "a\\textbar{}b\\_c*d\\textbackslash{}e \\textless{}script\\textgreater{}\\&amp;{[}x{]}(y)"
        "\\textbackslash{}x1b{[}31m "
        "\\textbackslash{}end\\{x\\} 50 \\% \\$1 \\#2 \\textasciitilde{}\\textasciicircum{} \\textbackslash{}u202e"
        "\\textasciigrave{}\\textquotesingle{}\\textquotedbl{} \\textdagger{} & "
        "\\textbf{75.0} {[}59.8, 85.8{]} & -- \\\\\n"
        "p & -- & $-$12\\textdagger{} {[}$-$40, +16{]} \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "% e-v0: 40 tasks & more.\n"
    )


def test_html_is_golden() -> None:
    page = to_html(GOLDEN)
    assert page.startswith('<!doctype html>\n<html lang="en">')
    table = page[page.index("<thead>") : page.index("</table>")]
    assert table == (
        '<thead><tr><th scope="col">policy</th><th scope="col">e-v0, avg@1, %</th><th scope="col">f-v0, Elo</th></tr>'
        "</thead>\n<tbody>\n"
        '<tr><th scope="row">a|b_c*d\\e &lt;script&gt;&amp;amp;[x](y)\\x1b[31m \\end{x} 50 % $1 #2 ~^ '
        "\\u202e`&#x27;&quot; †</th><td><strong>75.0</strong> "
        '<span class="interval">[59.8, 85.8]</span></td><td>–</td></tr>\n'
        '<tr><th scope="row">p</th><td>–</td><td>-12† <span class="interval">[-40, +16]</span></td></tr>\n'
        "</tbody>\n"
    )
    assert "<li>e-v0: 40 tasks &amp; more.</li>" in page
    assert "script>" not in page.replace("&lt;script&gt;", "")


class Text(html.parser.HTMLParser):
    """Collects what a browser would show in the row headings."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.seen.append(data)


@given(st.text(max_size=40))
def test_no_text_breaks_out(text: str) -> None:
    table = Leaderboard(["h"], [(text, [Cell("1", "", False, False)])], [text])
    # Markdown: as many cells as columns, whatever the text holds; every special character is escaped.
    row = to_markdown(table).splitlines()[2]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 3
    assert "\n" not in escape_markdown(text)
    # LaTeX: braces balance, no comment begins, no cell or row ends.
    latex = escape_latex(text)
    bare = re.sub(r"\\(?:text[a-z]+|ldots|[{}%$#_&])", "", latex.replace("$\\geq$", ""))
    assert bare.count("{") == bare.count("}")
    assert not set(bare) & set("%&#$~^_\\\n")
    # HTML: the same elements as without the text, and the text is what is shown.
    parser, plain = Text(), Text()
    parser.feed(to_html(table))
    plain.feed(to_html(Leaderboard(["h"], [("", [Cell("1", "", False, False)])], [""])))
    assert parser.tags == plain.tags


def test_games_and_tournaments(capsys: pytest.CaptureFixture[str]) -> None:
    for name, player in (("strong", "oracle"), ("weak", "mcts:sims=2")):
        given = ["--policy", f"player_0={player}", "--policy", "player_1=random"]
        assert main(["run", "tictactoe", *given, "-n", "10", "--out", name, "--quiet"]) == 0
    given = ["--policy", "random", "--policy", "oracle"]
    assert main(["tournament", "tictactoe", *given, "-n", "4", "--out", "t", "--quiet"]) == 0
    capsys.readouterr()
    table = make_leaderboard(["strong", "weak", "t"])
    seat = table.columns.index("tictactoe-v0, score as player_0 against random, %")
    elo = table.columns.index("tictactoe-v0, Elo")
    assert cells(table)["oracle"][seat].best  # type: ignore[union-attr]
    assert cells(table)["mcts:sims=2"][seat] is not None
    best, other = cells(table)["oracle"][elo], cells(table)["random"][elo]
    assert best is not None
    assert other is not None
    assert (best.value[0], other.value[0]) == ("+", "-")
    assert (best.best, other.best) == (True, False)
    wins = make_leaderboard(["strong"], ["wins", "turns"])
    assert "tictactoe-v0, wins as player_0 against random, %" in wins.columns
    assert "tictactoe-v0, turns" in wins.columns
    assert make_leaderboard(["t"], ["score"]).columns == ["tictactoe-v0, score, %"]
    with pytest.raises(MetricError, match="strong has none of the metrics avg"):
        make_leaderboard(["strong"], ["avg"])


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for policy in ("oracle", "random"):
        assert main(["run", "math-2agent", "--policy", policy, "-n", "10", "--out", policy, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["table", "random", "oracle"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| policy | math-2agent-v0, avg@1, % |"
    assert lines[2] == r"| oracle | **100.0** \[72.2, 100.0\] |"
    assert lines[3] == r"| random | 0.0 \[0.0, 27.8\] |"
    assert main(["table", "random", "oracle", "--format", "html", "--out", "new/board.html"]) == 0
    assert capsys.readouterr().out == "table: new/board.html\n"
    assert "<strong>100.0</strong>" in Path("new/board.html").read_text()
    assert main(["table", "random", "oracle", "--format", "latex", "--metric", "turns", "--metric", "invalid"]) == 0
    assert r"math{-}2agent{-}v0, invalid, \%" in capsys.readouterr().out
    for arguments, message in (
        (["nothing"], "nothing is no results folder"),
        (["oracle", "--metric", "avgg"], "There is no metric 'avgg'"),
        (["oracle", "--out", "oracle/config.json/x"], "Cannot write oracle/config.json/x"),
    ):
        assert main(["table", *arguments]) == 2
        assert message in capsys.readouterr().err
