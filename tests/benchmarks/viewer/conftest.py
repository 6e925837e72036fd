"""A real Chromium for the viewer's tests, driven through WebDriver, and runs for it to look at."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmarks.viewer.page import write_page
from benchmarks.viewer.server import ViewServer
from benchmarks.viewer.source import Source
from tests.benchmarks.viewer.browser import Browser
from tests.benchmarks.viewer.synthetic import write_math_run

EPISODES = 10_000


def _missing(reason: str) -> NoReturn:
    """Skip, or fail if the environment says that a browser must be there."""
    reason += "; install chromium and its driver (Debian: apt-get install chromium chromium-driver)"
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One headless Chromium for all tests."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        _missing(f"there is no {'chromium' if program is None else 'chromedriver'} on the path")
    try:
        from selenium.common.exceptions import WebDriverException
    except ImportError:
        _missing("the Python package selenium is not installed")
    try:
        browser = Browser(program, driver)
    except WebDriverException as error:
        _missing(f"Chromium does not start: {error.msg}")
    yield browser
    browser.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser at 1280 × 800 in light colours; a message on its console or a refused request fails the test."""
    chromium.reset()
    yield chromium
    assert chromium.messages() == []


@contextmanager
def serving(paths: Sequence[Path]) -> Iterator[str]:
    """Serve runs; yields the address."""
    with ViewServer([Source(path) for path in paths], 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Any]:
    """A function from the folders of runs to the address where they are served."""
    with ExitStack() as stack:
        yield lambda *paths: stack.enter_context(serving(paths))


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """A function from the folders of runs to the address of a page that holds them."""

    def write(*paths: Path) -> str:
        write_page([Source(path) for path in paths], tmp_path / "page.html")
        return (tmp_path / "page.html").as_uri()

    return write


@pytest.fixture(params=["server", "page"])
def published(request: pytest.FixtureRequest) -> Any:
    """`served` and `written` in turn."""
    return request.getfixturevalue("served" if request.param == "server" else "written")


@pytest.fixture(scope="session")
def big_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 10,000 episodes."""
    return write_math_run(tmp_path_factory.mktemp("big") / "run", EPISODES, turns=2)


@pytest.fixture(scope="session", params=["server", "page"])
def big(request: pytest.FixtureRequest, big_run: Path) -> Iterator[str]:
    """The address of the 10,000 episodes, served and as a page."""
    if request.param == "page":
        page = big_run.with_name("page.html")
        write_page([Source(big_run)], page)
        yield page.as_uri()
        return
    with serving([big_run]) as address:
        yield address
