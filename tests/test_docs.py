"""Runs what the documentation shows: every Python and console block, every doctest, and follows every relative link.

The convention, also stated in CONTRIBUTING.md:

* A ``python`` block runs as a program of its own, in a fresh interpreter and an empty folder.
* The lines of a ``console`` block that start with ``$ `` run as one shell script, in an empty folder. The other lines
  show output. A line that ends with a backslash goes on in the next.
* An HTML comment on the line above the fence says what is special: ``<!-- no-run: reason -->`` for what cannot run in a
  test, ``<!-- marks: slow vllm -->`` for what runs under these pytest marks. Of blocks that cannot run, the commands of
  ``llm-bench`` are still planned (``--dry-run``), or at least read.
* Anything else (``text``, ``yaml``, ``json``) is not run. ``bash``, ``sh`` and ``shell`` are refused: they would hide
  commands from the tests.
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.arguments import make_parser
from benchmarks.cli import main

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
LANGUAGES = {"python", "console", "text", "yaml", "json", "ini"}
TIMEOUT_S = 900


@dataclass(frozen=True)
class Snippet:
    """A fenced block: where it stands, what it holds, and what the comment above it says."""

    document: str
    line: int
    language: str
    code: str
    no_run: str | None = None
    marks: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.document}:{self.line}"


def read_snippets(document: str, text: str) -> list[Snippet]:
    """Return the fenced blocks of a Markdown text."""
    snippets: list[Snippet] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = re.fullmatch(r"(`{3,})(\S*)", lines[at])
        if fence is None:
            at += 1
            continue
        end = lines.index(fence[1], at + 1)
        above = lines[at - 1] if at else ""
        no_run = re.fullmatch(r"<!-- no-run: *(.*?) *-->", above)
        marks = re.fullmatch(r"<!-- marks: *(.*?) *-->", above)
        snippets.append(
            Snippet(
                document,
                line=at + 1,
                language=fence[2],
                code="\n".join(lines[at + 1 : end]) + "\n",
                no_run=no_run[1] if no_run else None,
                marks=tuple(marks[1].split()) if marks else (),
            )
        )
        at = end + 1
    return snippets


def shell_script(console: str) -> str:
    """Return the commands of a console block as a script."""
    script: list[str] = []
    goes_on = False
    for line in console.splitlines():
        if goes_on or line.startswith("$ "):
            script.append(line if goes_on else line[2:])
            goes_on = line.endswith("\\")
    return "\n".join(script) + "\n"


def run(snippet: Snippet, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a python or console block in `folder`, with this interpreter's environment first on the path."""
    if snippet.language == "python":
        program = folder / "snippet.py"
        program.write_text(snippet.code, encoding="utf-8")
        command = [sys.executable, str(program)]
    else:
        command = ["bash", "-euo", "pipefail", "-c", shell_script(snippet.code)]
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), environment.get("PYTHONPATH", "")]))
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


SNIPPETS = [
    snippet
    for document in DOCUMENTS
    for snippet in read_snippets(str(document.relative_to(REPOSITORY)), document.read_text(encoding="utf-8"))
]
RUNNABLE = [snippet for snippet in SNIPPETS if snippet.language in {"python", "console"} and snippet.no_run is None]


@pytest.mark.parametrize(
    "snippet",
    [pytest.param(each, id=each.id, marks=[getattr(pytest.mark, mark) for mark in each.marks]) for each in RUNNABLE],
)
def test_snippet_runs(snippet: Snippet, tmp_path: Path) -> None:
    result = run(snippet, tmp_path)
    assert result.returncode == 0, f"{snippet.id} ended with {result.returncode}\n\n{snippet.code}\n{result.stdout}"


UNRUN = [snippet for snippet in SNIPPETS if snippet.language == "console" and snippet.no_run is not None]
PLANNED = ("run", "tournament", "swap", "ablate")


def bench_commands(snippet: Snippet) -> list[list[str]]:
    """Return the arguments of the commands of `llm-bench` in a console block."""
    lines = shell_script(snippet.code).replace("\\\n", " ").splitlines()
    return [words[1:] for line in lines if (words := shlex.split(line, comments=True)) and words[0] == "llm-bench"]


@pytest.mark.parametrize("snippet", [pytest.param(each, id=each.id) for each in UNRUN if bench_commands(each)])
def test_commands_that_cannot_run_can_be_planned(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in bench_commands(snippet):
        parsed = make_parser().parse_args(arguments)  # exits if the command line is wrong
        if parsed.action in PLANNED:
            status = main([*arguments, "--dry-run"])
            assert status in (0, 1), f"{snippet.id}: {arguments}\n{capsys.readouterr().err}"  # 1: something is missing


def test_blocks_follow_the_convention() -> None:
    assert RUNNABLE
    wrong = [f"{each.id}: language {each.language!r}" for each in SNIPPETS if each.language not in LANGUAGES]
    wrong += [f"{each.id}: no-run gives no reason" for each in SNIPPETS if each.no_run == ""]
    wrong += [
        f"{each.id}: a console block without a command"
        for each in SNIPPETS
        if each.language == "console" and not shell_script(each.code).strip()
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose) if "://" not in target]
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing, f"{document.name} links to what is not there: {missing}"


def modules_with_doctests() -> list[str]:
    """Return the dotted names of the modules of the three packages that show `>>>` examples."""
    return [
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        for package in ("llm_envs", "trainers", "benchmarks")
        for path in sorted((REPOSITORY / package).rglob("*.py"))
        if re.search(r"^\s*>>> ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ]


@pytest.mark.parametrize("module", modules_with_doctests())
def test_doctests(module: str) -> None:
    result = doctest.testmod(
        importlib.import_module(module), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert result.attempted > 0
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples of {module} fail: see the output"


EXAMPLE = """\
Text.

```python
value = 1
```

<!-- no-run: needs a GPU -->
```console
$ first \\
    --option
output
$ second
```

<!-- marks: slow vllm -->
```python
raise SystemExit(3)
```
"""


def test_reading_snippets() -> None:
    first, second, third = read_snippets("x.md", EXAMPLE)
    assert (first.language, first.code, first.line, first.no_run, first.marks) == ("python", "value = 1\n", 3, None, ())
    assert second.no_run == "needs a GPU"
    assert shell_script(second.code) == "first \\\n    --option\nsecond\n"
    assert third.marks == ("slow", "vllm")
    commands = Snippet(
        "x.md", 1, "console", "$ llm-bench run a \\\n    --policy 'b c'  # why\n$ ls\n$ llm-bench view d\n"
    )
    assert bench_commands(commands) == [["run", "a", "--policy", "b c"], ["view", "d"]]


@pytest.mark.parametrize(
    ("language", "code", "status"),
    [
        ("python", "raise SystemExit(3)\n", 3),
        ("python", "import llm_envs\n", 0),
        ("console", "$ exit 4\n", 4),
        ("console", "$ false\n$ true\n", 1),
        ("console", "$ python -c 'import llm_envs'\nexit 5\n", 0),
    ],
)
def test_a_failing_snippet_is_noticed(language: str, code: str, status: int, tmp_path: Path) -> None:
    assert run(Snippet("x.md", 1, language, code), tmp_path).returncode == status
