"""What models write, shown in a real browser: text that attacks the page or the reader, and boards as pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llm_envs
from tests.benchmarks.viewer.browser import Browser
from tests.benchmarks.viewer.synthetic import AGENTS, finish, turn, write_run
from trainers.rollout.records import Episode

MARKUP = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<svg onload='window.hacked = 1'><animate onbegin='window.hacked = 1' attributeName=x></svg>",
    "<iframe srcdoc='<script>parent.hacked = 1</script>'></iframe>",
    "</pre></li><h1>Everything is solved</h1><style>body { display: none }</style>",
    "<a href='javascript:window.hacked = 1'>click</a> [click](javascript:window.hacked=1) ![x](http://127.0.0.1:9/x.png)",
    "# heading\n**bold** `code` | a | table |\n- [ ] list\n> quote\n--- <!-- comment",
    "&lt;b&gt; &#60;script&#62; \\u003cscript\\u003e",
]
ODD = {
    "nul\x00nul": "nul␀nul",
    "\x1b[31mred\x1b[0m\x07": "␛[31mred␛[0m␇",
    "abc\u202edcba": "abcU+202Edcba",
    "a\u2066b\u2069\u200f\u061c": "aU+2066bU+2069U+200FU+061C",
    "zero\u200bwidth\ufeff\u2060": "zeroU+200BwidthU+FEFFU+2060",
    "tag\U000e0041\U000e0042s": "tagU+E0041U+E0042s",
    "lone\ud800surrogate": "loneU+D800surrogate",
    "c1\x9b31m\x85": "c1U+009B31mU+0085",
    "back\x08space\x7f": "back␈space␡",
    "line\u2028sep\u2029": "lineU+2028sepU+2029",
    "carriage\rreturn": "carriage␍return",
    "windows\r\nline": "windows\nline",
    "family 👨\u200d👩\u200d👧 نامه\u200cها": "family 👨\u200d👩\u200d👧 نامه\u200cها",
    "עברית ואנגלית mixed": "עברית ואנגלית mixed",
}


def shown_everywhere(text: str, number: int) -> Episode:
    """An episode that has a text wherever a model, a task or a server could have put one."""
    key = f"{text}/{number}#0"
    turns = [
        turn(key, AGENTS[0], 0, f"Prompt {text}", text, policy=text, invalid=text, reward_parts={text: 1.0}),
        turn(key, AGENTS[1], 1, f"[{AGENTS[0]}]\n{text}\n\n[passages for: {text}]\n(1) {text}\n{text}",
             f"```python\n{text}\n```\n{text}", info={text: text, "list": [text]}),
    ]  # fmt: skip
    return finish(number, key, turns, env=text)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    texts = [*MARKUP, *ODD, "\u0301" * 3000]
    made = [shown_everywhere(text, number) for number, text in enumerate(texts)]
    made[0].error = texts[0]
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(episode.to_json() + "\n" for episode in made), encoding="ascii")
    return path


def test_no_text_becomes_markup_or_code(browser: Browser, published: Any, hostile: Path) -> None:
    browser.open(published(hostile))
    browser.wait("document.querySelectorAll('.plot').length > 3")
    tags = (
        "script:not([type='application/octet-stream']):not([type=module]), img, iframe, style, a[href^=javascript], h1"
    )
    usual = browser.count(tags)
    assert usual == 2  # the page's own heading and style
    for number, text in enumerate(MARKUP):
        browser.js("location.hash = arguments[0]", f"view=episodes&ep={number}")
        browser.until(lambda text=text: text.strip() in browser.js(  # type: ignore[misc]
            "return document.querySelector('.detail .turn .answer')?.textContent ?? ''"))  # fmt: skip
        assert text in browser.js("return document.querySelector('.detail .turn .answer').textContent")
        assert browser.count(tags) == usual
    browser.press("/", "<script>", "Enter")
    browser.wait("document.querySelector('.found').innerText.startsWith('3 of')")
    browser.press("c")
    assert browser.js("return window.hacked ?? null") is None
    assert browser.count(tags) == usual


def test_what_cannot_be_seen_is_made_visible(browser: Browser, published: Any, hostile: Path) -> None:
    browser.open(published(hostile), "view=episodes")
    for number, (text, expected) in enumerate(ODD.items(), start=len(MARKUP)):
        browser.js("location.hash = arguments[0]", f"view=episodes&ep={number}")
        browser.until(lambda number=number: f"/{number} #0" in browser.text(".detail .title"))  # type: ignore[misc]
        answer = browser.js("return document.querySelector('.detail .answer .text').textContent")
        assert answer.replace("\r", "") == expected, repr(text)
        marks = browser.js(
            "return [...document.querySelectorAll('.detail .answer .text .mark')].map((one) => one.textContent)"
        )
        assert "".join(marks) == "".join(part for part in marks if part in expected)
        everything = browser.js("return document.querySelector('main').textContent")
        assert not set("\x00\x1b\u202e\u2066\u200b\ud800\x9b") & set(everything)
    # The browser is told to keep directions to themselves.
    style = "return getComputedStyle(document.querySelector('.detail .answer .text')).unicodeBidi"
    assert browser.js(style) == "plaintext"


def test_long_lines_are_folded_and_can_be_seen_whole(browser: Browser, published: Any, tmp_path: Path) -> None:
    key, line = "long/0#0", "x" * 99_999 + "!"
    turns = [turn(key, AGENTS[0], 0, "y" * 300_000, line), turn(key, AGENTS[1], 1, "\n" * 5000, "z\n" * 20_000)]
    browser.look(320, 640)
    browser.open(published(write_run(tmp_path / "run", [finish(0, key, turns)])), "view=episodes&ep=0")
    browser.wait("document.querySelectorAll('.turn').length === 2")
    assert browser.js("return document.documentElement.scrollWidth") <= 320
    assert browser.js("return document.querySelector('.answer .text').textContent.length") < 10_000
    assert "of 100,000 characters" in browser.text(".answer .more")
    browser.click(".answer .more")
    assert browser.js("return document.querySelector('.answer .text').textContent") == line
    assert browser.count(".turn:first-child .answer .more") == 0
    assert browser.js("return document.documentElement.scrollWidth") <= 320
    assert browser.js("return document.querySelectorAll('.turn')[1].offsetHeight") < 8000


def test_names_of_files_and_settings_are_texts_too(browser: Browser, published: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "<img src=x onerror=hacked=1>", [shown_everywhere("x", 0)])
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["context"]["label"] = config["context"]["command"][0] = "</script><script>hacked=1</script>\x1b\u202e"
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    browser.open(published(run))
    browser.wait("document.querySelectorAll('.plot').length > 3")
    browser.click(".settings summary")
    assert "</script><script>hacked=1</script>␛U+202E" in browser.text(".settings")
    assert "<img src=x onerror=hacked=1>" in browser.text(".title")
    assert browser.js("return window.hacked ?? null") is None
    assert browser.count("img") == 0


def opening(env_id: str) -> str:
    env = llm_envs.make(env_id)
    env.reset(seed=3)
    return str(env.observe(env.agent_selection))


BOARDS = {
    "plan-path-1agent": "Map board of 10 rows and 10 columns.",
    "sokoban-1agent": "Sokoban board of 6 rows and 6 columns. Row 1: # # # # # #",
    "sudoku-1agent": "Sudoku board of 4 rows and 4 columns.",
    "tictactoe": "Tic-tac-toe board of 3 rows and 3 columns. Row 1: 0 1 2. Row 2: 3 4 5. Row 3: 6 7 8",
    "connect-four": "Connect four board of 6 rows and 7 columns. Row 1: . . . . . . .",
    "blocksworld-1agent": "Blocks, from the table upwards: ",
}


def test_boards_of_environments_are_pictures(browser: Browser, written: Any, tmp_path: Path) -> None:
    made = []
    for number, env_id in enumerate(BOARDS):
        key = f"{env_id}/0#0"
        made.append(finish(number, key, [turn(key, "solver_0", 0, opening(env_id), "[U]")], agents=["solver_0"]))
    browser.open(written(write_run(tmp_path / "run", made)), "view=episodes")
    for number, (env_id, label) in enumerate(BOARDS.items()):
        browser.js("location.hash = arguments[0]", f"view=episodes&ep={number}")
        browser.until(lambda env_id=env_id: browser.text(".detail .title").startswith(env_id))  # type: ignore[misc]
        told = browser.js("return [...document.querySelectorAll('.detail .board svg')].map((one) => one.ariaLabel)")
        assert len(told) == 1, env_id
        assert told[0].startswith(label), (env_id, told)
        browser.js("document.querySelector('.board details').open = true")
        assert browser.text(".board pre").strip() in opening(env_id)


def test_letters_on_a_board_are_where_the_text_has_them(browser: Browser, written: Any, tmp_path: Path) -> None:
    """A map of 2 rows and 3 columns: the agent at row 1, column 2, a wall at row 0, column 1."""
    text = "Map:\n\n  0 1 2\n0 . # G\n1 . . A\nYou are at r1c2."
    key = "map/0#0"
    browser.open(
        written(write_run(tmp_path / "run", [finish(0, key, [turn(key, AGENTS[0], 0, text, "[U]")])])),
        "view=episodes&ep=0",
    )
    browser.wait("document.querySelector('.board svg')")
    places = browser.js(
        "const box = document.querySelector('.board svg').getBoundingClientRect();"
        "const centre = (one) => { const r = one.getBoundingClientRect();"
        " return [r.x + r.width / 2 - box.x, r.y + r.height / 2 - box.y].map((at) => Math.floor(at / 24) - 1); };"
        "return [centre(document.querySelector('.board .on')), centre(document.querySelector('.board .wall'))]"
    )
    assert places == [[2, 1], [1, 0]]
    assert "You are at r1c2." in browser.text(".prompt")


@pytest.mark.parametrize("text", ["0 1 2 3", "# # #\n# # #", "1 2 3 4\n5 6 7 8", ". . . .", " X | O", "State: none"])
def test_what_is_no_board_stays_text(browser: Browser, written: Any, tmp_path: Path, text: str) -> None:
    key = "text/0#0"
    run = write_run(tmp_path / "run", [finish(0, key, [turn(key, AGENTS[0], 0, f"See:\n{text}\nEnd.", "x")])])
    browser.open(written(run), "view=episodes&ep=0")
    browser.wait("document.querySelector('.turn')")
    assert browser.count(".board") == 0
    assert text in browser.text(".prompt")
