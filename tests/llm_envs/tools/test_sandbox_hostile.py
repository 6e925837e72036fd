"""No program reads, writes, reaches or outlives what it should not: as the user who runs the tests, and as nobody."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import llm_envs.tools
from llm_envs.tools.sandbox import Limits, Sandbox, available_isolation


def _programs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sandbox_programs", Path(__file__).with_name("sandbox_programs.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # For its dataclass.
    spec.loader.exec_module(module)
    return module


PROGRAMS = _programs().PROGRAMS
# A busy machine may keep a program waiting; only those that are to run into the wall limit get a near one.
LIMITS = Limits(cpu_s=0.6, wall_s=20.0, memory_bytes=256 << 20)
SHORT_WALL_S = 1.2
AVAILABLE = available_isolation()
HARMLESS = {
    "reads-shadow", "reads-secret-file", "lists-root", "reads-proc", "reads-sys", "climbs-with-dots", "follows-symlink",
    "connects-abstract-socket", "connects-file-socket",
}  # fmt: skip


def _limits(program) -> Limits:
    return dataclasses.replace(LIMITS, wall_s=SHORT_WALL_S) if "timeout" in program.statuses else LIMITS


class Host(NamedTuple):
    """Things of the host that a program must not find."""

    mark: str
    secret: Path
    socket: Path

    def arm(self, code: str) -> str:
        return (
            code.replace("@SECRET_FILE@", str(self.secret))
            .replace("@SOCKET@", str(self.socket))
            .replace("@HOST_PID@", str(os.getpid()))
            .replace("@MARK@", self.mark)
        )


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    host = Host("mark" + secrets.token_hex(8), folder / "secret", folder / "socket")
    host.secret.write_text(host.mark)
    os.environ["LLM_ENVS_TEST_MARK"] = host.mark
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as file:
        abstract.bind("\0" + host.mark)
        abstract.listen()
        file.bind(str(host.socket))
        file.listen()
        yield host
    del os.environ["LLM_ENVS_TEST_MARK"]


@pytest.fixture(scope="module", params=["bwrap", "userns"])
def sandbox(request: pytest.FixtureRequest, host: Host) -> Iterator[Sandbox]:
    if request.param not in AVAILABLE:
        pytest.skip(f"{request.param} does not work on this machine")
    with Sandbox(request.param, LIMITS, workers=1) as sandbox:
        yield sandbox


def _processes(mark: str) -> set[int]:
    """Our descendants, and whatever else carries the mark."""
    parents, marked = {}, set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if mark.encode() in (entry / "cmdline").read_bytes():
                marked.add(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, waiting = set(), {os.getpid()}
    while waiting:
        parent = waiting.pop()
        below = {pid for pid, above in parents.items() if above == parent}
        found |= below
        waiting |= below
    return found | marked


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_stays_inside(sandbox: Sandbox, host: Host, program) -> None:
    before = _processes(host.mark)
    result = sandbox.run(host.arm(program.code), limits=_limits(program))
    assert "BREACH" not in result.stdout
    assert host.mark not in result.stdout
    assert result.status in program.statuses, result
    if program.code.endswith("finish()\n"):
        assert result.stdout.endswith("end\n"), result
    assert _processes(host.mark) == before
    assert not list(Path("/tmp").glob(f"*{host.mark}*"))
    assert not Path("/", host.mark).exists()
    assert not Path("/dev/shm", host.mark).exists()
    assert len(result.stdout.encode()) + len(result.stderr.encode()) <= LIMITS.output_bytes
    # Whatever it did, the next program finds nothing of it.
    after = sandbox.run("import os; print(sorted(os.listdir('/tmp')), len(os.environ.get('HOME')))")
    assert (after.status, after.stdout) == ("ok", "['main.py'] 4\n")


def test_suite_is_large_enough() -> None:
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS) >= 60


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_program_reaches_its_aim_without_isolation(host: Host, name: str) -> None:
    """The programs are not held back by faults of their own: those that only look do reach the host."""
    (program,) = (program for program in PROGRAMS if program.name == name)
    with Sandbox("none", LIMITS, workers=1) as sandbox:
        result = sandbox.run(host.arm(program.code))
    assert "BREACH" in result.stdout, result


def test_next_program_finds_nothing_of_the_last_in_memory(sandbox: Sandbox) -> None:
    token = secrets.token_hex(8)
    sandbox.run(f"kept = '{token}'", stdin=token)
    search = """
import gc
head, tail = input(), input()
print([thing for thing in gc.get_objects() if head + tail in str(thing)])
"""
    result = sandbox.run(search, stdin=f"{token[:8]}\n{token[8:]}\n")
    assert result.stdout == "[]\n", result


DRIVER = """
import json, sys
from llm_envs.tools.sandbox import Limits, Sandbox
with Sandbox(sys.argv[1], workers=1) as sandbox:
    for code, limits in json.load(sys.stdin):
        result = sandbox.run(code, limits=Limits(**limits))
        print(json.dumps([result.status, result.stdout[-2000:], result.stderr[-2000:]]))
"""


def _python_of_nobody() -> str:
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    for python in (getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"):
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        try:
            if subprocess.run([python, "-c", check], user=65534, group=65534, extra_groups=[]).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip("there is no Python of at least 3.11 that the user nobody may run")


@pytest.mark.parametrize("isolation", ["bwrap", "userns"])
def test_programs_stay_inside_as_ordinary_user(isolation: str, host: Host, tmp_path: Path) -> None:
    if isolation not in AVAILABLE:
        pytest.skip(f"{isolation} does not work on this machine")
    python = _python_of_nobody()
    before = _processes(host.mark)
    package = Path("/var/tmp" if os.access("/var/tmp", os.W_OK) else tmp_path, f"llm-envs-{host.mark[4:]}")
    try:
        shutil.copytree(
            Path(llm_envs.tools.__file__).parent,
            package / "llm_envs/tools",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (package / "llm_envs/__init__.py").touch()
        for path in (package, *package.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        run = subprocess.run(
            [python, "-c", DRIVER, isolation],
            input=json.dumps([[host.arm(program.code), dataclasses.asdict(_limits(program))] for program in PROGRAMS]),
            capture_output=True,
            text=True,
            user=65534,
            group=65534,
            extra_groups=[],
            cwd=package,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(package), "LLM_ENVS_TEST_MARK": host.mark},
        )
    finally:
        shutil.rmtree(package, ignore_errors=True)
    assert run.returncode == 0, run.stderr
    results = [json.loads(line) for line in run.stdout.splitlines()]
    failed = {
        program.name: (status, stdout, stderr)
        for program, (status, stdout, stderr) in zip(PROGRAMS, results, strict=True)
        if status not in program.statuses
        or "BREACH" in stdout
        or host.mark in stdout
        or (program.code.endswith("finish()\n") and not stdout.endswith("end\n"))
    }
    assert failed == {}
    assert _processes(host.mark) == before
