"""The viewer in a real browser: episodes, trees, pairs, curves, keys, sizes and colours."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.viewer.browser import Browser
from tests.benchmarks.viewer.synthetic import (
    finish,
    math_episode,
    tree_episode,
    turn,
    write_math_run,
    write_run,
    write_training_run,
)

SIZES = [(320, 640), (1280, 800), (2560, 1300)]
VIEWS = [
    "view=overview", "view=episodes", "view=episodes&ep=2", "view=compare&pair=1", "view=training",
    "view=episodes&run=2&ep=0",
]  # fmt: skip


def write_trees(path: Path, n: int = 2) -> Path:
    path.write_text("".join(tree_episode(i).to_json() + "\n" for i in range(n)), encoding="utf-8")
    return path


@pytest.fixture
def everything(tmp_path: Path) -> list[Path]:
    """Two runs, trees and a training run: something for every view."""
    return [
        write_math_run(tmp_path / "one", 12, samples=2),
        write_math_run(tmp_path / "two", 12, samples=2, seed=9),
        write_trees(tmp_path / "trees.jsonl"),
        write_training_run(tmp_path / "train"),
    ]


def test_the_overview_shows_the_run_and_leads_to_its_episodes(browser: Browser, published: Any, tmp_path: Path) -> None:
    solved = [math_episode(n, random.Random(n), solved=n < 3) for n in range(4)]
    browser.open(published(write_run(tmp_path / "run", solved)))
    browser.wait("[...document.querySelectorAll('svg[role=img]')].some((one) => one.ariaLabel.startsWith('Success'))")
    told = browser.js("return [...document.querySelectorAll('svg[role=img]')].map((one) => one.ariaLabel)")
    assert any(text.startswith("Success. avg@1: 75.0 % [30.1, 95.4]") for text in told)  # Wilson, by hand
    assert any(text.startswith("Reward parts by agent. solver_0: 0.75") for text in told)
    for name in ("Returns", "Turns", "Invalid actions", "Tokens written by agent", "Seconds an answer took"):
        assert any(name in text for text in told), name
    browser.click(".tiles button", "75.0 %")
    browser.wait("document.querySelector('.found')?.innerText === '3 of 4 episodes'")
    assert browser.hash()["status"] == "success"


def test_an_episode_is_a_conversation_that_shows_what_is_new(browser: Browser, published: Any, tmp_path: Path) -> None:
    key = "search/0#0"
    task = "Question:\nWho wrote it? " + "Think of all that you know about books. " * 4
    ask, passages = (
        "<search>the book</search>",
        "[passages for: the book]\n(1) First\nIt is old.\n(2) Second\nIt is new.",
    )
    code = "Let me compute.\n```python\nprint(6 * 7)\n```\nDone."
    said = f"{task}\n\n[solver_0]\n{ask}\n\n{passages}"
    rules = (
        "You are solver_0. Answer, or ask for passages, and do so in the one form that was agreed upon before: a tag."
    )
    turns = [
        turn(key, "solver_0", 0, f"{task}\n\n{rules}", ask),
        turn(key, "verifier_0", 1, f"{said}\n\nYou are verifier_0. Check.", code,
             reward_parts={"team": 1.0, "style": -0.5}, info={"verdict": "correct"}),
        turn(key, "solver_0", 2, f"{said}\n\n[verifier_0]\n{code}\n\n[output of the program]\n42\n\n{rules}", "",
             invalid="No tag was found."),
    ]  # fmt: skip
    browser.open(published(write_run(tmp_path / "run", [finish(0, key, turns, success=True)])), "view=episodes&ep=0")
    browser.wait("document.querySelectorAll('.turn').length === 3")
    first, second, third = browser.texts(".turn")
    assert "Who wrote it?" in first
    assert ask in first
    assert "Who wrote it?" not in second  # folded up, and not even made
    assert "As before: 3 lines" in second
    assert "solver_0 in turn 1: 1 line" in second
    assert browser.texts(".passages li strong") == ["First", "Second"]
    assert "It is new." in second
    assert browser.texts(".turn:nth-child(2) .answer .code .text") == ["print(6 * 7)"]
    assert "style −0.5" in browser.text(".turn:nth-child(2) .chips .minus")
    assert "verdict correct" in second
    assert browser.texts(".turn:nth-child(3) .output .text") == ["42"]
    assert "Refused: No tag was found." in third
    assert "Instructions as before: 1 line" in third
    assert "You are solver_0" not in third
    browser.press("x")
    browser.until(lambda: "You are solver_0" in browser.texts(".turn")[2])
    assert browser.texts(".turn")[2].count("Who wrote it?") == 1
    assert "solver_0" in browser.text(".rewards")


def test_a_tree_shows_candidates_rewards_and_the_chosen_branch(
    browser: Browser, published: Any, tmp_path: Path
) -> None:
    browser.open(published(write_trees(tmp_path / "trees.jsonl")), "view=episodes&ep=0")
    browser.wait("document.querySelector('[role=tree]')")
    assert browser.count("[role=treeitem]") == 12
    rewards = browser.texts(".level:first-child .reward")
    assert rewards == ["0", "1", "0.5", "0.75"]
    chosen = browser.js("return [...document.querySelectorAll('.chosen')].map((one) => one.ariaLabel)")
    assert chosen == [
        "Turn 1, solver_0, candidate 2 of 4, reward 1, chosen",
        "Turn 2, verifier_0, candidate 3 of 4, reward 1, chosen",
        "Turn 3, solver_0, candidate 4 of 4, reward 1, chosen",
    ]
    assert "candidate 1 of turn 0" in browser.text(".tree-view .turn .answer")
    browser.js("document.querySelector('.candidate.chosen').focus()")
    browser.press("Left")
    assert "candidate 0 of turn 0" in browser.text(".tree-view .turn .answer")
    browser.press("Down", "Down", "Right", "Left", "Left")
    assert "candidate 1 of turn 2" in browser.text(".tree-view .turn .answer")
    assert browser.js("return document.activeElement.ariaLabel") == "Turn 3, solver_0, candidate 2 of 4, reward 0.25"
    browser.click(".tabs button", "Chosen path")
    assert browser.count(".detail .turn") == 3
    assert "candidate 3 of turn 2" in browser.texts(".detail .turn")[2]


def test_two_runs_side_by_side(browser: Browser, published: Any, tmp_path: Path) -> None:
    one = [math_episode(n, random.Random(n), solved=n < 4) for n in range(6)]
    two = [math_episode(n, random.Random(n), solved=n in (0, 5)) for n in range(1, 7)]
    two[0].task_hash = "another"
    browser.open(published(write_run(tmp_path / "a", one), write_run(tmp_path / "b", two)), "view=compare")
    browser.wait("document.querySelectorAll('.row').length === 5")
    # Pairs are 1 … 5: the first solved 1, 2, 3, the second 5.
    assert browser.texts(".cross td")[1:] == ["0", "3", "1", "1"]
    assert "1 task of the same name differ" in browser.text(".side")
    browser.fill(".compare .fields label:nth-child(3) select", "second")
    browser.wait("document.querySelectorAll('.row').length === 1")
    browser.press("j", "Enter")
    browser.wait("document.querySelectorAll('.beside article').length === 2")
    badges = browser.texts(".beside .title .badge")
    assert [badge.split()[-1] for badge in badges] == ["failure", "success"]
    assert browser.texts(".beside .title")[0].startswith("arithmetic/test/5 #0")
    left, right = browser.js("return [...document.querySelectorAll('.beside > section')].map((one) => one.offsetLeft)")
    assert left < right
    browser.look(320, 640)
    left, right = browser.js("return [...document.querySelectorAll('.beside > section')].map((one) => one.offsetLeft)")
    assert left == right


def test_b_opens_the_same_task_of_another_run(browser: Browser, published: Any, everything: list[Path]) -> None:
    browser.open(published(*everything), "view=episodes&ep=3")
    browser.wait("document.querySelector('.detail .turn')")
    browser.press("b")
    browser.wait("document.querySelectorAll('.beside article').length === 2")
    assert browser.texts(".beside .title")[0].split(" ")[0] == browser.texts(".beside .title")[1].split(" ")[0]
    assert "arithmetic/test/1 #1" in browser.texts(".beside .title")[1]


def test_curves_are_read_with_the_arrow_keys(browser: Browser, published: Any, tmp_path: Path) -> None:
    path = write_training_run(tmp_path / "train")
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    browser.open(published(path))
    browser.wait("document.querySelectorAll('.plot svg[role=img]').length >= 5")
    titles = [text.split("\n")[0] for text in browser.texts(".plot figcaption")]
    assert titles == ["Success", "Return", "Gradient norm", "Inflation factor", "Invalid actions"]
    browser.js("document.querySelectorAll('.canvas')[1].focus()")
    browser.press("Right", "Right", "Right")
    assert browser.texts(".readout")[1] == "update 2"
    told = browser.text(".plot:nth-child(2) .legend")
    assert f"solver_0 {rows[2]['agent/solver_0/return']:.4f}".rstrip("0") in told
    assert "inflation" not in told
    browser.js("document.querySelectorAll('.canvas')[3].focus()")
    browser.press("Right", "Right", "Right", "Right")
    assert "solver_0 –" in browser.text(".plot:nth-child(4) .legend")  # not known at update 3, so a gap
    browser.fill(".choice select", "agent/solver_0/invalid")
    browser.wait("document.querySelectorAll('.plot').length === 6")


def test_a_game_shows_who_won(browser: Browser, published: Any, tmp_path: Path) -> None:
    games = []
    for number, (first, second) in enumerate([("win", "loss"), ("draw", "draw"), ("loss", "win"), ("loss", "win")]):
        key, paid = f"game/{number}#0", {"win": 1.0, "draw": 0.0, "loss": -1.0}
        gave_up = {"forfeit": "player_0"} if number == 3 else {}
        turns = [
            turn(key, agent, i, "?", "[0]", reward_parts={"team": paid[ended]}, info={"outcome": ended, **gave_up})
            for i, (agent, ended) in enumerate([("player_0", first), ("player_1", second)])
        ]
        games.append(finish(number, key, turns, agents=["player_0", "player_1"]))
    browser.open(published(write_run(tmp_path / "run", games, zero_sum=True)))
    browser.wait("document.querySelectorAll('.headline .plot svg[role=img]').length === 4")
    told = browser.js("return [...document.querySelectorAll('.headline svg[role=img]')].map((one) => one.ariaLabel)")
    assert told[0].startswith("Wins. player_0 (model): 25.0 %")
    assert told[2].startswith("Losses. player_0 (model): 50.0 %")
    assert "player_0 (model): 25.0 %" in told[3]  # forfeits
    browser.press("e")
    browser.wait("document.querySelectorAll('.row').length === 4")
    assert [row.split("\n")[0].split()[-1] for row in browser.texts(".row .badge")] == ["win", "draw", "loss", "loss"]
    assert "as player_0 sees them" in browser.text(".found")
    browser.open(browser.js("return location.href.split('#')[0]"), "view=episodes&agent=player_1&status=win")
    assert browser.text(".found").startswith("2 of 4 episodes")
    browser.open(browser.js("return location.href.split('#')[0]"), "view=episodes&status=forfeit&ep=3")
    browser.wait("document.querySelector('.rewards')")
    assert "loss (forfeit)" in browser.text(".rewards")
    assert browser.text(".found").startswith("1 of 4 episodes")


def test_everything_can_be_done_with_keys(browser: Browser, published: Any, everything: list[Path]) -> None:
    browser.open(published(*everything))
    browser.press("e")
    browser.wait("document.querySelectorAll('.row').length > 5")
    assert browser.focused() == "div.virtual"
    browser.press("j", "j", "k", "Down", "Enter")
    browser.wait("document.querySelector('.detail .turn')")
    assert browser.hash()["ep"] == "2"
    assert browser.focused() == "h2.title"
    browser.press("j", "j")
    assert browser.js("return document.activeElement.dataset.turn") == "1"
    browser.press("k")
    assert browser.js("return document.activeElement.dataset.turn") == "0"
    browser.press("n")
    browser.wait("document.querySelector('.detail .title').innerText.startsWith('arithmetic/test/1 #1')")
    browser.press("p", "p")
    browser.wait("document.querySelector('.detail .title').innerText.startsWith('arithmetic/test/0 #1')")
    browser.press("Escape")
    browser.wait("document.activeElement.className === 'virtual'")
    assert "ep" not in browser.hash()
    browser.press("/", "test/11#", "Enter")
    browser.wait("document.querySelector('.found').innerText === '2 of 24 episodes'")
    browser.press("f")
    assert browser.focused() == "select."
    browser.press("Escape", "?")
    browser.wait("document.querySelector('dialog').open")
    browser.press("e", "Escape")  # a dialog keeps keys to itself
    browser.wait("!document.querySelector('dialog').open && document.activeElement.className === 'virtual'")
    for key, view in (("o", "overview"), ("c", "compare"), ("t", "training"), ("e", "episodes")):
        browser.press(key)
        browser.until(lambda view=view: browser.hash().get("view") == view)  # type: ignore[misc]
    browser.driver.back()
    browser.until(lambda: browser.hash().get("view") == "training")
    browser.press("d")
    assert browser.js("return document.documentElement.dataset.theme") == "light"
    browser.press("d")
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 22)"
    browser.press("d", "?")
    browser.click("dialog input")
    browser.press("Escape", "e")
    assert browser.hash()["view"] == "training"  # single letters are switched off


def test_every_stop_of_the_tab_key_can_be_seen(browser: Browser, written: Any, everything: list[Path]) -> None:
    browser.open(written(*everything), "view=episodes&ep=2")
    browser.wait("document.querySelector('.detail .turn')")
    browser.js("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(40):
        browser.press("Tab")
        outline, what = browser.js(
            "const one = document.activeElement;"
            "return [parseFloat(getComputedStyle(one).outlineWidth) || 0, one.outerHTML.slice(0, 80)]"
        )
        if what.startswith("<body"):
            break
        seen.append(what)
        assert outline >= 2, what
    assert len(seen) > 12


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_narrow_and_wide_in_both_colours(browser: Browser, written: Any, everything: list[Path], dark: bool) -> None:
    address = written(*everything)
    browser.open(address)
    for width, height in SIZES:
        browser.look(width, height, dark=dark)
        for view in VIEWS:
            browser.js("location.hash = arguments[0]", view)
            if "ep=" in view or "pair=" in view:
                browser.wait("document.querySelector('.detail .turn')")
            else:
                browser.wait("document.querySelector('.row, .plot svg[role=img]')")
            assert browser.js("return document.documentElement.scrollWidth") <= width, (view, width)
            assert browser.low_contrast() == [], (view, width)
            cut = browser.js(
                "return [...document.querySelectorAll('button, input, select, nav a')]"
                ".filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)"
                ".map((one) => one.outerHTML.slice(0, 80))"
            )
            assert cut == [], (view, width)


def test_whatever_can_be_operated_has_a_name(browser: Browser, written: Any, everything: list[Path]) -> None:
    browser.open(written(*everything))
    for view in VIEWS:
        browser.js("location.hash = arguments[0]", view)
        browser.wait("document.querySelector('.detail .turn, .row, .plot svg[role=img]')")
        assert browser.nameless() == [], view
        assert browser.count("h1") == 1


def test_a_page_from_the_disk_asks_for_nothing(browser: Browser, written: Any, everything: list[Path]) -> None:
    browser.open(written(*everything), "view=episodes&ep=1")
    browser.wait("document.querySelector('.detail .turn')")
    assert browser.js("return location.protocol") == "file:"
    assert browser.js("return performance.getEntriesByType('resource').map((one) => one.name)") == []


def test_a_run_that_goes_on_is_read_again(browser: Browser, served: Any, tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    lines = [math_episode(n, random.Random(n)).to_json() + "\n" for n in range(3)]
    path.write_text("".join(lines[:2]), encoding="utf-8")
    browser.open(served(path), "view=episodes")
    browser.wait("document.querySelector('.found').innerText === '2 of 2 episodes'")
    path.write_text("".join(lines), encoding="utf-8")
    browser.press("r")
    browser.wait("document.querySelector('.found').innerText === '3 of 3 episodes'")
    browser.press("End", "Enter")
    browser.wait("document.querySelector('.detail .title')?.innerText.startsWith('arithmetic/test/2')")


def test_what_cannot_be_shown_is_said(browser: Browser, served: Any, tmp_path: Path) -> None:
    run = write_math_run(tmp_path / "run", 2)
    browser.open(served(run), "view=episodes&ep=77")
    assert "no episode 77" in browser.text(".detail")
    (run / "episodes.jsonl").write_text("{}\n", encoding="utf-8")
    browser.js("location.hash = 'view=episodes&ep=1'")
    browser.wait("document.querySelector('.detail').innerText.includes('have changed')")
    assert any("409" in message for message in browser.messages())
