"""The live view: in a real terminal (a pseudo-terminal that is read back), in a dumb one, and where there is none."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.cli import main

BENCH = [sys.executable, "-m", "benchmarks.cli"]
WIDTH, HEIGHT = 80, 24
_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """As much of a terminal as the view needs: lines, the cursor, and what is erased."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.cursor_shown = True
        self.unknown: list[str] = []
        self.widest = 0

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            control = _CONTROL.match(text, place)
            if control is not None:
                self._control(*control.groups())
                place = control.end()
                continue
            character = text[place]
            place += 1
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self.row += 1
                while self.row >= len(self.lines):
                    self.lines.append("")
            elif character == "\x1b":
                self.unknown.append(text[place - 1 : place + 5])
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1
                self.widest = max(self.widest, self.column)

    def _control(self, arguments: str, kind: str) -> None:
        if kind == "A":
            self.row = max(0, self.row - int(arguments or 1))
        elif kind == "K":
            self.lines[self.row] = ""
        elif kind in "hl" and arguments == "?25":
            self.cursor_shown = kind == "h"
        elif kind != "m":
            self.unknown.append(f"{arguments}{kind}")


class Terminal:
    """A command with its own terminal. Text and screen are what came out of it."""

    def __init__(self, command: list[str], repository: Path, **variables: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, cwd=repository, start_new_session=True,
            env={**environment, "TERM": "xterm-256color", **variables},
        )  # fmt: skip
        os.close(theirs)
        self._fd = ours
        self.text = ""
        self.screen = Screen()
        self.frames: list[list[str]] = []

    def read(self, until: Callable[[Terminal], bool] | None = None) -> Terminal:
        """Read until a condition holds or the command has ended."""
        deadline = time.monotonic() + 30
        pending = b""
        while until is None or not until(self):
            assert time.monotonic() < deadline, "\n".join(self.screen.lines)
            if not select.select([self._fd], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            pending += data
            try:
                text, pending = pending.decode("utf-8"), b""
            except UnicodeDecodeError:
                continue  # cut inside of a character
            self.text += text
            self.screen.feed(text)
            self.frames.append([line for line in self.screen.lines if line.strip()])
        return self

    def end(self) -> int:
        """Read to the end; return the exit status."""
        self.read()
        os.close(self._fd)
        return self.process.wait(timeout=60)


def shown(terminal: Terminal) -> str:
    return "\n".join(line.rstrip() for line in terminal.screen.lines)


def test_a_terminal_shows_how_it_goes(tmp_path: Path, repository: Path) -> None:
    run = [
        "run",
        "math-tool-2agent",
        "--policy",
        "oracle",
        "-n",
        "120",
        "--concurrency",
        "4",
        "--out",
        str(tmp_path / "r"),
    ]
    terminal = Terminal([*BENCH, *run], repository)
    assert terminal.end() == 0
    text = shown(terminal)
    assert re.search(r"episodes +━+ 120/120 0:00:\d\d", text), text
    assert re.search(r"^success 100\.0 % \[96\.9, 100\.0\], [\d.]+ episodes/s, 0 errors$", text, re.MULTILINE), text
    assert re.search(r"^slowest: \d+\.\d s \([a-z]+/test/\d+#0\), \d+\.\d s", text, re.MULTILINE), text
    assert "last error" not in text
    assert terminal.screen.widest <= WIDTH
    assert terminal.screen.unknown == []
    assert terminal.screen.cursor_shown
    assert "\x1b[?25l" in terminal.text  # it was hidden while the bar was drawn
    assert len([line for line in terminal.screen.lines if "episodes" in line and "━" in line]) == 1, text
    counts = [int(found[1]) for frame in terminal.frames for line in frame if (found := re.search(r"(\d+)/120", line))]
    assert counts == sorted(counts)
    assert any(0 < count < 120 for count in counts), "nothing was shown while it was going on"


def test_a_terminal_shows_errors_and_what_goes_on(tmp_path: Path, repository: Path) -> None:
    script = """
import sys
from unittest import mock
from benchmarks import cli, runner
from trainers.policies.base import PolicyError
from trainers.policies.scripted import RandomPolicy
import asyncio

class Slow(RandomPolicy):
    async def generate(self, request):
        if request.key[0] == 2:
            raise PolicyError("the server hung up: \\x1b[2J [bold]\\nand that was it")
        if request.key[0] == 1:
            await asyncio.sleep(60)
        await asyncio.sleep(0.02 * request.key[0])
        return await super().generate(request)

with mock.patch.object(runner, "load_policy", lambda make, spec, options: Slow()):
    sys.exit(cli.main(["run", "math-2agent", "--policy", "random", "-n", "6", "--out", sys.argv[1]]))
"""
    terminal = Terminal([sys.executable, "-c", script, str(tmp_path / "r")], repository)
    for expected in (
        r"5/6 ",
        r"^success 0\.0 % \[0\.0, 49\.0\], \d\.\d episodes/s, 1 errors$",
        r"^slowest: \d+\.\d s \(task 1 sample 0, going on\), \d\.\d s \(arithmetic/test/5#0\)",
        r"^last error: arithmetic/test/2#0: PolicyError: the server hung up: \\x1b\[2J",
        r"WARNING +Episode arithmetic/test/2#0 failed: PolicyError:",
    ):
        terminal.read(until=lambda it, line=expected: re.search(line, shown(it), re.MULTILINE) is not None)
    assert terminal.screen.widest <= WIDTH
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.screen.cursor_shown
    assert terminal.screen.unknown == [], "the text of an error reached the terminal as a command"


def test_ctrl_c_leaves_the_terminal_in_order(tmp_path: Path, repository: Path) -> None:
    run = ["run", "math-tool-2agent", "--policy", "oracle", "--concurrency", "2", "--out", str(tmp_path / "r")]
    terminal = Terminal([*BENCH, *run], repository)
    terminal.read(until=lambda it: re.search(r"[1-9]\d*/1000", shown(it)) is not None)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.screen.cursor_shown
    words = " ".join(shown(terminal).split())
    assert "interrupted; what was played is in" in words
    assert "Traceback" not in words


def test_a_resumed_run_counts_what_is_there_and_does_not_time_it(tmp_path: Path, repository: Path) -> None:
    run = ["run", "math-2agent", "--policy", "random", "-n", "50", "--quiet", "--out", str(tmp_path / "r")]
    assert main(run) == 0
    file = tmp_path / "r" / "episodes.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:48]))
    terminal = Terminal([*BENCH, "run", "--resume", "--out", str(tmp_path / "r")], repository)
    assert terminal.end() == 0
    text = shown(terminal)
    assert "50/50" in text
    rate = re.search(r"([\d.]+) episodes/s", text)
    slowest = re.search(r"^slowest: (.*)$", text, re.MULTILINE)
    assert rate is not None
    assert slowest is not None
    assert slowest[1].count("arithmetic/test/") == 2, text  # of this session


@pytest.mark.parametrize("where", ["a dumb terminal", "a pipe"])
def test_plain_lines_elsewhere(tmp_path: Path, repository: Path, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["run", "math-2agent", "--policy", "random", "-n", "30", "--out", str(tmp_path / "r")]
    if where == "a pipe":
        assert main(command) == 0
        text = capfd.readouterr().err
    else:
        terminal = Terminal([*BENCH, *command], repository, TERM="dumb")
        assert terminal.end() == 0
        text = terminal.text
    assert "\x1b" not in text
    lines = text.splitlines()
    assert len(lines) == 2, lines  # one at the start, one at the end, and none in between in ten seconds
    assert lines[0] == f"random: 30 episodes -> {tmp_path / 'r'}"
    assert re.fullmatch(
        r"30/30 episodes, success 0\.0 % \[0\.0, 11\.4\], [\d.]+ episodes/s, slowest \d+\.\d s \(\S+\), 0 errors",
        lines[1],
    ), lines
