"""Several runs at once in a real Chromium: the table that opens first, and the way from it to a run."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.runner import RunSettings, run
from benchmarks.tournament import run_tournament
from benchmarks.viewer.page import write_page
from benchmarks.viewer.source import Source
from tests.benchmarks.conftest import Remember
from tests.benchmarks.viewer.browser import Browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of a run, a game, a tournament, and a run whose episodes are not all there."""
    folder = tmp_path_factory.mktemp("runs")
    settings = [
        RunSettings("math-2agent", ["oracle"], n=4, samples=2, out=folder / "math"),
        RunSettings("tictactoe", ["player_0=oracle", "player_1=random"], n=4, out=folder / "game"),
        RunSettings("math-1agent", ["random"], n=6, out=folder / "<b>part"),
    ]
    for each in settings:
        asyncio.run(run(each, Remember()))
    games = RunSettings("kuhn-poker", ["oracle", "random"], n=4, out=folder / "duel")
    asyncio.run(run_tournament(games, Remember()))
    part = folder / "<b>part" / "episodes.jsonl"
    part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:2]))
    names = ("math", "game", "<b>part", "duel")
    write_page([Source(folder / name) for name in names], folder / "all.html")
    write_page([Source(folder / name) for name in names[:2]], folder / "two.html")
    return (folder / "all.html").as_uri()


ROWS = """
const table = document.querySelector("main table");
return [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText));
"""


def rows(browser: Browser) -> list[list[str]]:
    browser.wait("document.querySelectorAll('main tbody tr').length > 1")
    return list(browser.js(ROWS))


def test_the_table_says_how_each_run_went(browser: Browser, page: str) -> None:
    browser.open(page)
    math, game, part, duel = rows(browser)
    assert math[:5] == ["math", "100.0 % [51.0, 100.0]", "8 of 8", "math-2agent-v0", "oracle"]
    assert game[1].startswith("player_0 ")
    assert part[:3] == ["<b>part", part[1], "2 of 6"]
    assert duel[1].split()[0] in ("oracle", "random")
    assert [text.split("\n")[0] for text in browser.texts("main figcaption")] == ["Success", "Wins"]
    assert browser.js("return document.title").startswith("All runs")


def test_a_row_leads_to_its_run_and_back(browser: Browser, page: str) -> None:
    browser.open(page)
    rows(browser)
    browser.click("main table button", "game")
    browser.until(lambda: browser.hash() == {"view": "overview", "run": "1"})
    browser.press("a")
    browser.until(lambda: browser.hash().get("view") == "runs")
    browser.fill("nav select", "2")
    browser.until(lambda: browser.hash() == {"view": "overview", "run": "2"})
    browser.driver.back()
    browser.until(lambda: browser.hash().get("view") == "runs")
    assert len(rows(browser)) == 4


def test_two_runs_open_with_the_first(browser: Browser, page: str) -> None:
    browser.open(page.replace("all.html", "two.html"))
    assert browser.text("main h2").endswith("math")
    browser.press("a")
    assert len(rows(browser)) == 2


@pytest.mark.parametrize("width", [320, 1200, 2560])
@pytest.mark.parametrize("dark", [False, True])
def test_narrow_wide_light_and_dark(browser: Browser, page: str, width: int, dark: bool) -> None:
    browser.look(width, 900, dark=dark)
    browser.open(page)
    rows(browser)
    assert browser.js("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.low_contrast() == []
    assert browser.nameless() == []
