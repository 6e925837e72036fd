"""Ten thousand episodes in a real browser: open, scroll, filter, search, without freezing."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from benchmarks.viewer.source import Source
from tests.benchmarks.viewer.browser import Browser
from tests.benchmarks.viewer.conftest import EPISODES

OPEN_S = 3.0
LONGEST_PAUSE_MS = 500

# Starts to note the longest time between two frames of the page.
_WATCH_FRAMES = """
window.longest = 0;
let last = performance.now();
const frame = (now) => {
  window.longest = Math.max(window.longest, now - last);
  last = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


def found(browser: Browser) -> int:
    match = re.match(r"([\d,]+) of ", browser.text(".found"))
    assert match, browser.text(".found")
    return int(match[1].replace(",", ""))


def test_it_opens_within_three_seconds(browser: Browser, big: str) -> None:
    times = []
    for _ in range(3):  # the best of three: the machine may be busy with something else
        browser.driver.get("about:blank")
        start = time.perf_counter()
        browser.driver.get(f"{big}#view=episodes")
        browser.wait("document.querySelectorAll('.row').length > 5")
        times.append(time.perf_counter() - start)
        if times[-1] < OPEN_S:
            break
    assert min(times) < OPEN_S, times
    assert found(browser) == EPISODES


def test_only_what_is_in_sight_exists_and_the_end_is_one_key_away(browser: Browser, big: str) -> None:
    browser.open(big, "view=episodes")
    assert 5 < browser.count(".row") < 60
    browser.press("End")
    browser.wait("document.querySelector('.row.active')?.textContent.includes('arithmetic/test/9999')")
    assert browser.count(".row") < 60
    browser.press("PageDown", "Up", "Enter")
    browser.wait("document.querySelector('.detail .title')?.textContent.includes('arithmetic/test/9998')")


def test_filters_are_instant_and_right(browser: Browser, big: str, big_run: Path) -> None:
    columns = Source(big_run).index()
    verifier = columns["agents"]["verifier_0"]["columns"]
    browser.open(big, "view=episodes")
    taken = browser.js(
        "const start = performance.now(); const field = document.querySelector('.fields select');"
        "field.value = 'failure'; field.dispatchEvent(new Event('change')); return performance.now() - start"
    )
    assert taken < LONGEST_PAUSE_MS
    assert found(browser) == sum(status == 0 for status in columns["columns"]["status"])
    browser.open(big, "view=episodes&agent=verifier_0&invalid=1&min=0.5")
    expected = [
        n
        for n in range(EPISODES)
        if verifier["invalid"][n] and verifier["return"][n] is not None and verifier["return"][n] >= 0.5
    ]
    assert found(browser) == len(expected) > 100
    browser.open(big, "view=episodes&sort=tokens")
    most = max(range(EPISODES), key=lambda n: (columns["columns"]["tokens_out"][n], -n))
    assert columns["columns"]["task"][most] in browser.text(".row")


@pytest.mark.parametrize(("query", "expected"), [("arithmetic/test/4242#", 1), ("A WORD ON cedar", 1000)])
def test_a_search_finds_all_and_the_page_stays_alive(browser: Browser, big: str, query: str, expected: int) -> None:
    pauses = []
    for _ in range(3):  # the best of three, as above
        browser.open(big, "view=episodes")
        browser.press("/")
        browser.js(_WATCH_FRAMES)
        browser.press(query)
        browser.until(lambda: browser.hash().get("q") == query, "the search begins")
        browser.until(lambda: "searching" not in browser.text(".found") and found(browser) == expected, "its end")
        pauses.append(browser.js("return window.longest"))
        if pauses[-1] < LONGEST_PAUSE_MS:
            break
    assert min(pauses) < LONGEST_PAUSE_MS, pauses
    browser.press("Enter")
    assert browser.focused() == "div.virtual"
    browser.press("Enter")
    browser.wait("document.querySelector('.detail .turn')")
