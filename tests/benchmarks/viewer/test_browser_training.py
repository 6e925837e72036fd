"""A real training run in a real browser: its curves, and the trees that it was trained on."""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.viewer.source import Source
from tests.benchmarks.viewer.browser import Browser
from tests.benchmarks.viewer.synthetic import finish, math_episode, tree_episode, turn, write_training_run
from trainers import train
from trainers.models import build_tiny_model
from trainers.rollout.records import Episode

ANSWERS = [*(rf"\boxed{{{n}}}" for n in range(5)), "<verify>approve</verify>", "<verify>reject</verify>"]
CANDIDATES = 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run of AT-GRPO on a tiny model, and the same once more."""
    folder = tmp_path_factory.mktemp("training")
    model = build_tiny_model(folder / "tiny", vocab=ANSWERS, hidden_size=32, layers=1, init_std=0.1, seed=0)
    rows = [{"question": f"Say four ({i}).", "answer": "4"} for i in range(8)]
    (folder / "four.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    policy = {"model": str(model), "backend": "hf", "learning_rate": 0.01, "sampling": {"max_tokens": 2}}
    settings = {
        "env": {"id": "math-2agent", "tasks": str(folder / "four.jsonl"), "split": None},
        "algorithm": {"preset": "at_grpo"},
        "policies": {"solver": policy, "verifier": policy},
        "updates": 3,
        "tasks_per_update": 8,
        "samples_per_task": CANDIDATES,
        "record": {"every": 2, "episodes": 2},
    }
    run = train(settings, out=folder / "run-0").run_dir
    return [run, shutil.copytree(run, folder / "run-1")]


def records(run: Path) -> list[Episode]:
    return [Episode.from_json(line) for line in (run / "episodes.jsonl").read_text(encoding="ascii").splitlines()]


def signed(value: float, digits: int = 3) -> str:
    """A number as the page writes it."""
    text = f"{abs(value):.{digits}f}".rstrip("0").rstrip(".")
    return f"−{text}" if value < 0 and text != "0" else text


def test_curves_of_a_run_by_agent(browser: Browser, published: Any, runs: list[Path]) -> None:
    browser.open(published(*runs))  # a training run opens with its curves
    browser.wait("document.querySelectorAll('.plot svg[role=img]').length >= 7")
    titles = [text.split("\n")[0] for text in browser.texts(".plot figcaption")]
    wanted = [
        "Success of tree paths", "Return", "Gradient norm", "Inflation factor", "Entropy", "Invalid actions",
        "Answer length",
    ]  # fmt: skip
    assert titles == wanted
    assert "not how the policies play" in browser.text(".plot figcaption")
    legend = browser.texts(".plot:nth-child(5) .legend li bdi")
    assert legend == [f"run-{n}: {agent}" for n in (0, 1) for agent in ("solver_0", "verifier_0")]
    strokes = browser.js(
        "return [...document.querySelectorAll('.plot:nth-child(5) .legend path')]"
        ".map((one) => [one.getAttribute('class'), one.getAttribute('stroke-dasharray')])"
    )
    assert len({tuple(stroke) for stroke in strokes}) == 4  # an agent has a colour, a run its dashes
    assert strokes[0][0] == strokes[2][0]


def test_from_an_update_to_its_trees(browser: Browser, published: Any, runs: list[Path]) -> None:
    browser.open(published(*runs), "view=training")
    choices = browser.texts(".choice:nth-of-type(1) option")
    assert choices == ["choose an update", *(f"update {n}: 2 trees" for n in (1, 2, 3))]
    browser.fill(".choice select", "3")
    browser.wait("document.querySelector('.found')?.innerText === '2 of 6 episodes'")
    assert all("update 3" in row for row in browser.texts(".row"))
    assert browser.hash()["update"] == "3"
    browser.press("o")
    browser.wait("document.querySelector('.headline .note')")
    assert "recorded in 3 updates of a training run" in browser.text(".headline")
    assert "success" not in browser.texts(".tiles dt")


def test_a_tree_shows_texts_rewards_advantages_and_the_chosen_branch(
    browser: Browser, published: Any, runs: list[Path]
) -> None:
    trees = records(runs[0])
    number = next(n for n, tree in enumerate(trees) if any(turn.advantage for turn in tree.turns))
    tree = trees[number]
    browser.open(published(*runs), f"view=episodes&ep={number}")
    browser.wait("document.querySelector('[role=tree]')")
    turns = sorted(tree.turns, key=lambda turn: (turn.index, turn.candidate))
    assert browser.texts(".candidate .reward") == [signed(turn.reward) for turn in turns]
    assert browser.texts(".candidate .worth .small") == [f"A {signed(turn.advantage or 0.0, 2)}" for turn in turns]
    assert browser.texts(".candidate .begins") == [" ".join(turn.action.split()) or "(nothing)" for turn in turns]
    framed = "return [...document.querySelectorAll('.candidate')].map((one) => one.classList.contains('chosen'))"
    assert browser.js(framed) == [turn.chosen for turn in turns]
    last = len(turns) - 1
    browser.js("document.querySelectorAll('.candidate')[arguments[0]].click()", last)
    chips = browser.texts(".tree-view .chips[aria-label=Training] li")
    assert chips == [f"advantage {signed(turns[last].advantage or 0.0)}"]
    assert "in turn 1: 1 line" in browser.text(".tree-view .prompt")  # what the path has shown already is folded up
    assert f"update {tree.update}" in browser.text(".detail .title")
    assert "path" in browser.text(".detail .badge")  # not the success of a policy


def test_what_was_not_trained_on_is_said(browser: Browser, published: Any, tmp_path: Path) -> None:
    run = write_training_run(tmp_path / "train")
    (run / "stopped.json").write_text(json.dumps({"update": 40, "error": "NonFiniteGradient", "message": "<b>NaN</b>"}))
    lines = []
    for update in (1, 10):
        episode = math_episode(3, random.Random(update))
        episode.update = update
        episode.turns[0].advantage = 0.5
        lines.append(episode.to_json(tokens=False, timings=False) + "\n")
    (run / "episodes.jsonl").write_text("".join(lines), encoding="ascii")
    browser.open(published(run))
    browser.wait("document.querySelector('.refusal')")
    said = "The run stopped itself in update 40. NonFiniteGradient: <b>NaN</b>"
    assert browser.text(".refusal") == said
    browser.press("e")
    browser.press("j", "j", "Enter")
    browser.wait("document.querySelectorAll('.detail .turn').length === 4")
    assert "trained on in update 10: 1 of 4 answers" in browser.text(".facts")
    chips = browser.texts(".chips[aria-label=Training] li")
    assert chips == ["advantage 0.5", *["not trained on"] * 3]
    browser.press("b")  # the same task at another update
    browser.wait("document.querySelectorAll('.beside article').length === 2")
    assert [text.split("update ")[1].split("\n")[0].split(" ")[0] for text in browser.texts(".beside .title")] == [
        "1",
        "10",
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_narrow_and_wide(browser: Browser, written: Any, runs: list[Path], dark: bool) -> None:
    browser.open(written(*runs))
    for width, height in ((320, 640), (1280, 800), (2560, 1300)):
        browser.look(width, height, dark=dark)
        for view in ("view=training", "view=episodes&ep=0", "view=episodes", "view=overview", "view=compare"):
            browser.js("location.hash = arguments[0]", view)
            browser.wait("document.querySelector('[role=tree], .row, .plot svg[role=img], .refusal')")
            scrolls = browser.js("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
            assert scrolls[0] <= width, (view, width)
            if width >= 1000 and ("episodes" in view or "compare" in view):
                assert scrolls[1] <= height, (view, width)  # lists and episodes scroll by themselves
            assert browser.low_contrast() == [], (view, width)
            assert browser.nameless() == [], (view, width)
    browser.look(320, 640)
    browser.js("location.hash = 'view=training'")
    top = browser.js("return document.querySelector('.top').getBoundingClientRect().height")
    assert top < 120  # three rows: the views have one of their own


def test_records_are_read_while_the_run_goes_on(tmp_path: Path) -> None:
    run = write_training_run(tmp_path / "train")
    source = Source(run)
    assert source.index()["columns"]["id"] == []
    episode = math_episode(0, random.Random(0))
    episode.update = 1
    with (run / "episodes.jsonl").open("w", encoding="ascii") as file:
        file.write(episode.to_json(tokens=False, timings=False) + "\n")
        file.write('{"id": "torn')
    index = source.index()
    assert index["columns"]["update"] == [1]
    assert index["kind"] == "training"


HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>\n# heading\n**bold** [x](javascript:window.hacked=1)",
    "\x1b[31mred\x1b[0m \x00 \u202edcba \u05d0\u05d1\u05d2 \ud800",
    "x" * 100_000,
]


def test_candidates_that_attack_the_page(browser: Browser, published: Any, tmp_path: Path) -> None:
    run = write_training_run(tmp_path / "train")
    tree = tree_episode(candidates=4, turns=2)
    tree.update = 1
    for one in tree.turns:
        one.action, one.invalid = HOSTILE[one.candidate], HOSTILE[one.candidate]
    (run / "episodes.jsonl").write_text(tree.to_json(tokens=False, timings=False) + "\n", encoding="ascii")
    name = f"agent/{HOSTILE[0].replace('/', '_')}/return"
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"update": 40, name: 1.0, "train/success": 1.0}) + "\n")
    (run / "stopped.json").write_text(json.dumps({"update": 41, "error": HOSTILE[1], "message": HOSTILE[2]}))
    address = published(run)
    for width in (320, 1280):
        browser.look(width, 800)
        for view in ("view=training", "view=episodes&ep=0"):
            browser.open(address, view)
            browser.wait("document.querySelector('[role=tree], .plot svg[role=img]')")
            assert browser.js("return document.documentElement.scrollWidth") <= width, view
            assert browser.js("return window.hacked ?? null") is None
            assert browser.count("main :is(script, img, h1, strong > a)") == 0
            assert not set("\x00\x1b\u202e\ud800") & set(
                browser.js("return document.querySelector('main').textContent")
            )
    begins = browser.texts(".level:first-child .begins")
    assert begins[0] == HOSTILE[0]
    assert begins[2].startswith("␛[31mred␛[0m ␀ U+202Edcba")
    assert len(begins[3]) < 200
    browser.js("document.querySelectorAll('.candidate')[3].click()")
    assert "Show 94,000 more of 100,000 characters" in browser.text(".tree-view .answer")


def test_a_page_with_the_trees_of_a_long_run_is_usable(browser: Browser, written: Any, tmp_path: Path) -> None:
    """As many records as 1,000 updates leave by default, of 4 candidates in 4 turns."""
    run = write_training_run(tmp_path / "train", updates=1000)
    with (run / "episodes.jsonl").open("w", encoding="ascii") as file:
        for update in (1, *range(10, 1001, 10)):
            for number in range(8):
                tree = tree_episode(number, candidates=4, turns=4)
                tree.update = update
                for one in tree.turns:
                    one.observation = f"{one.observation}\n{update} " + one.observation * 4
                    one.advantage = 0.5
                file.write(tree.to_json(tokens=False, timings=False) + "\n")
    address = written(run)
    browser.open(address)  # starts the parts of the browser that a first page waits for
    start = time.perf_counter()
    browser.open(address, "view=episodes&update=990&ep=799")
    browser.wait("document.querySelector('[role=tree]')")
    assert time.perf_counter() - start < 3
    assert browser.text(".found").startswith("8 of 808 episodes")
    assert "update 990" in browser.text(".detail .title")
    browser.press("t")
    browser.wait("document.querySelectorAll('.plot svg[role=img]').length >= 5")


def test_a_game_that_was_trained_on_has_outcomes(browser: Browser, published: Any, tmp_path: Path) -> None:
    run = write_training_run(tmp_path / "train")
    (run / "config.json").write_text(json.dumps({"env": {"id": "tictactoe"}}), encoding="utf-8")
    rows = [{"update": 0, "eval/win": 0.25, "eval/draw": 0.5, "eval/loss": 0.25, "eval/forfeit": 0.0}]
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    key, paid = "tictactoe/all/0#0", {"win": 1.0, "loss": -1.0}
    turns = [
        turn(key, agent, i, "?", "[0]", reward_parts={"team": paid[ended]}, info={"outcome": ended})
        for i, (agent, ended) in enumerate([("player_0", "loss"), ("player_1", "win")])
    ]
    game = finish(0, key, turns, agents=["player_0", "player_1"], env="tictactoe-v0", update=1)
    (run / "episodes.jsonl").write_text(game.to_json(tokens=False, timings=False) + "\n", encoding="ascii")
    browser.open(published(run))
    assert "Against the opponent" in [text.split("\n")[0] for text in browser.texts(".plot figcaption")]
    browser.press("e")
    browser.wait("document.querySelector('.row')")
    assert browser.text(".row .badge").endswith("loss")
    assert "as player_0 sees them" in browser.text(".found")
