"""The page itself: what it may do, what it holds, how it is written, and the command that writes it."""

from __future__ import annotations

import base64
import configparser
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import main
from benchmarks.results import ResultsError
from benchmarks.viewer import page
from benchmarks.viewer.page import MODULES, policy, script, server_page, write_page
from benchmarks.viewer.source import Source
from tests.benchmarks.viewer.synthetic import write_math_run, write_training_run

ASSETS = Path(page.__file__).parent / "assets"


def unpacked(text: str, key: str) -> str:
    data = re.search(rf'<script type="application/octet-stream" id="{key}">([A-Za-z0-9+/=]*)</script>', text)
    assert data is not None
    return zlib.decompress(base64.b64decode(data[1])).decode("ascii")


@pytest.fixture
def standing_alone(tmp_path: Path) -> str:
    write_page([Source(write_math_run(tmp_path / "run", 200))], tmp_path / "out.html")
    return (tmp_path / "out.html").read_text(encoding="utf-8")


def test_the_page_holds_every_episode(standing_alone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "CHUNK", 10_000)
    source = Source(tmp_path / "run")
    write_page([source], tmp_path / "chunks.html")
    text = (tmp_path / "chunks.html").read_text(encoding="utf-8")
    (run,) = json.loads(unpacked(text, "index"))["runs"]
    assert len(run["chunks"]) > 10
    number = 0
    for key, first, size in run["chunks"]:
        lines = unpacked(text, f"chunk-{key}").split("\n")
        assert (first, len(lines)) == (number, size)
        for line in lines:
            assert json.loads(line) == source.episode(number, source.generation)
            number += 1
    assert number == len(run["columns"]["id"]) == 200
    assert run["summary"]["episodes"] == 200


def test_nothing_comes_from_elsewhere(standing_alone: str) -> None:
    outside = re.sub(r'<script type="application/octet-stream".*?</script>', "", standing_alone, flags=re.DOTALL)
    assert set(re.findall(r"https?://[^\s\"'`]*", outside)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"<(?:script|img|iframe|object|embed)[^>]*\bsrc=", outside)
    assert re.findall(r'<link[^>]*href="([^"]*)"', outside) == ["data:,"]
    assert "@import" not in outside
    assert not re.search(r"url\(", outside)


def test_the_policy_names_the_script_and_style_that_are_there(standing_alone: str) -> None:
    stated = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', standing_alone)
    assert stated is not None
    rules = dict(rule.split(" ", 1) for rule in stated[1].replace("&#x27;", "'").split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    for name, tag in (("script-src", r'<script type="module">(.*?)</script>'), ("style-src", r"<style>(.*?)</style>")):
        (inside,) = re.findall(tag, standing_alone, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert "connect-src 'self'" in policy(server=True)


def test_no_module_makes_markup_or_code_from_strings() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTML|srcdoc|\beval\(|new Function|"
        r"createContextualFragment|javascript:|import\("
    )
    for name in MODULES:
        assert not forbidden.findall((ASSETS / f"{name}.js").read_text(encoding="utf-8")), name


def test_modules_are_joined_after_those_they_import() -> None:
    assert {f"{name}.js" for name in MODULES} == {file.name for file in ASSETS.glob("*.js")}
    for place, name in enumerate(MODULES):
        source = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
        for names, other in re.findall(r"^import \{([^}]*)\} from \"\./(\w+)\.js\";$", source, flags=re.MULTILINE):
            assert other in MODULES[:place], f"{name} imports {other}"
            exported = (ASSETS / f"{other}.js").read_text(encoding="utf-8")
            for one in names.split(","):
                assert re.search(
                    rf"^export (async )?(function|class|const|let) {one.strip()}\b", exported, re.MULTILINE
                )
    assert not re.search(r"^(import|export)\b", script(), flags=re.MULTILINE)
    assert "</script" not in script()


def test_the_page_of_the_server_holds_no_run() -> None:
    assert "octet-stream" not in server_page()


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    run = write_math_run(tmp_path / "run", 2)
    old = tmp_path / "out.html"
    old.write_text("old", encoding="utf-8")
    (run / "episodes.jsonl").write_text("[]\n", encoding="utf-8")
    with pytest.raises(ResultsError):
        write_page([Source(run)], old)
    assert old.read_text(encoding="utf-8") == "old"
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(ResultsError, match="no-such-folder"):
        write_page([Source(write_training_run(tmp_path / "train"))], tmp_path / "no-such-folder" / "out.html")


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = write_math_run(tmp_path / "run", 3), tmp_path / "out.html"
    assert main(["view", str(run), "--html", str(out)]) == 0
    assert str(out) in capsys.readouterr().out.replace("\n", "")
    assert out.stat().st_size > 10_000


@pytest.mark.parametrize("arguments", [["view", "missing"], ["view", ".", "--port", "70000"]])
def test_the_command_says_what_is_wrong(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_math_run(tmp_path / "run", 1)
    monkeypatch.chdir(tmp_path / "run")
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("llm-bench: ")


def test_the_assets_are_installed_with_the_package(repository: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(repository / "setup.cfg", encoding="utf-8")
    assert setup["options.package_data"]["benchmarks.viewer"] == "assets/*"


def test_texts_of_runs_stand_in_the_page_packed_only(tmp_path: Path) -> None:
    run = write_math_run(tmp_path / "run", 1)
    lines = (run / "episodes.jsonl").read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(lines)
    record["turns"][0]["action"] = "</script><script>alert(1)</script>"
    (run / "episodes.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    write_page([Source(run)], tmp_path / "out.html")
    assert "alert(1)" not in (tmp_path / "out.html").read_text(encoding="utf-8")
