"""What a run returns, how its limits are told apart, and that nothing is left of it."""

from __future__ import annotations

import ast
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llm_envs.tools import _sandbox_host
from llm_envs.tools.sandbox import (
    Limits,
    RunResult,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    available_isolation,
    default_sandbox,
)

AVAILABLE = available_isolation()
LIMITS = Limits(cpu_s=1.0, wall_s=20.0, memory_bytes=256 << 20, output_bytes=10_000)
SHORT = dataclasses.replace(LIMITS, wall_s=1.0)


@pytest.fixture(scope="module", params=["bwrap", "userns", "none"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param not in (*AVAILABLE, "none"):
        pytest.skip(f"{request.param} does not work on this machine")
    with Sandbox(request.param, LIMITS, workers=2) as sandbox:
        yield sandbox


@pytest.fixture(params=["bwrap", "userns"])
def isolation(request: pytest.FixtureRequest) -> str:
    if request.param not in AVAILABLE:
        pytest.skip(f"{request.param} does not work on this machine")
    return request.param


@pytest.mark.parametrize(
    ("code", "stdin", "status", "exit_code", "stdout"),
    [
        ("print('hi')", "", "ok", 0, "hi\n"),
        ("", "", "ok", 0, ""),
        ("print(int(input()) + int(input()))", "2\n40", "ok", 0, "42\n"),
        ("print(open(0).read())", "äß\n", "ok", 0, "äß\n\n"),
        ("print('ok', end=''); raise SystemExit", "", "ok", 0, "ok"),
        ("exit()", "", "ok", 0, ""),
        ("quit(7)", "", "error", 7, ""),
        ("import sys; sys.exit(256)", "", "ok", 0, ""),
        ("import sys; sys.exit(-1)", "", "error", 255, ""),
        ("import os; os._exit(137)", "", "error", 137, ""),
        ("import os; print('lost'); os._exit(0)", "", "ok", 0, ""),
        ("1 / 0", "", "error", 1, ""),
        ("def f(:", "", "error", 1, ""),
        ("print(1)\n\0", "", "error", 1, ""),
        ("print('\ud800')", "", "error", 1, ""),
        ("print(input())", "", "error", 1, ""),
        ("import no_such_module", "", "error", 1, ""),
        ("import numpy", "", "error", 1, ""),
        ("raise MemoryError", "", "memory", -63, ""),
        ("import os; os.abort()", "", "killed", -signal.SIGABRT, ""),
        ("import os; os.kill(os.getpid(), 11)", "", "killed", -signal.SIGSEGV, ""),
        ("raise KeyboardInterrupt", "", "error", 1, ""),
        ("import sys; sys.stdout.buffer.write(b'a\\xff\\0b')", "", "ok", 0, "a\ufffd\0b"),
        ("import atexit; atexit.register(print, 'bye'); print('on')", "", "ok", 0, "on\nbye\n"),
        ("import threading; threading.Thread(target=print, args=('t',)).start()", "", "ok", 0, "t\n"),
        ("print(__name__, __file__.rpartition('/')[2])", "", "ok", 0, "__main__ main.py\n"),
        ("import sys; print(sys.argv, __builtins__ is sys.modules['builtins'])", "", "ok", 0, "['main.py'] True\n"),
        ("import sys; print([m for m in sys.modules if 'sandbox' in m or 'llm' in m])", "", "ok", 0, "[]\n"),
        ("import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, 2]))", "", "ok", 0, "[1, 2]\n"),
        (
            "import asyncio\nasync def f(): print(await asyncio.to_thread(len, 'abc'))\nasyncio.run(f())",
            "",
            "ok",
            0,
            "3\n",
        ),
        (
            "import subprocess as s, sys; print(s.run([sys.executable, '-c', 'print(6)'], capture_output=True).stdout)",
            "",
            "ok",
            0,
            "b'6\\n'\n",
        ),
        ("import decimal, sqlite3, zlib, json, statistics, dataclasses, unittest; print('std')", "", "ok", 0, "std\n"),
    ],
)
def test_program_ends(sandbox: Sandbox, code: str, stdin: str, status: str, exit_code: int, stdout: str) -> None:
    result = sandbox.run(code, stdin)
    assert (result.status, result.exit_code, result.stdout) == (status, exit_code, stdout), result
    assert result.isolation == sandbox.isolation
    assert 0 < result.cpu_s < 1.5
    assert 1 << 20 < result.peak_bytes < 256 << 20


def test_traceback_shows_the_program_and_nothing_of_ours(sandbox: Sandbox) -> None:
    result = sandbox.run("def half(x):\n    return x / 0\n\nhalf(1)\n")
    assert result.stderr.count("File ") == 2
    assert "return x / 0" in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: pass", "timeout"),
        ("import time; time.sleep(60)", "timeout"),
        ("x = bytearray(1 << 30)", "memory"),
        ("print('x' * 20_000)", "output"),
        ("while True: print('y')", "output"),
        ("import os\nwhile True: os.write(2, b'e' * 4096)", "output"),
    ],
)
def test_limit_names_the_status(sandbox: Sandbox, code: str, status: str) -> None:
    result = sandbox.run(code, limits=SHORT if "sleep" in code else LIMITS)
    assert result.status == status
    assert len(result.stdout) + len(result.stderr) <= LIMITS.output_bytes


def test_output_of_exactly_the_limit_is_ok(sandbox: Sandbox) -> None:
    result = sandbox.run("import sys; sys.stdout.write('x' * 9_000); sys.stderr.write('y' * 1_000)")
    assert (result.status, len(result.stdout), len(result.stderr)) == ("ok", 9_000, 1_000)
    result = sandbox.run("import sys; sys.stdout.write('x' * 9_000); sys.stderr.write('y' * 1_001)")
    assert (result.status, len(result.stdout) + len(result.stderr)) == ("output", 10_000)


def test_program_that_ends_while_it_is_told_to(sandbox: Sandbox) -> None:
    code = "import os; os.write(1, b'x' * 10_001); os._exit(0)"
    assert {sandbox.run(code).status for _ in range(40)} == {"output"}
    assert sandbox.run("print(1)").stdout == "1\n"


def test_output_before_a_timeout_is_kept(sandbox: Sandbox) -> None:
    result = sandbox.run("print('early', flush=True)\nwhile True: pass")
    assert (result.status, result.stdout, result.exit_code) == ("timeout", "early\n", None)


def test_cpu_time_and_memory_are_measured(sandbox: Sandbox) -> None:
    result = sandbox.run("import time\nx = bytearray(100 << 20)\nwhile time.process_time() < 0.4: pass")
    assert result.status == "ok"
    assert 0.4 <= result.cpu_s < 0.9
    assert 100 << 20 <= result.peak_bytes < 160 << 20
    spun = sandbox.run("while True: pass")
    assert 0.9 < spun.cpu_s < 1.5
    idle = sandbox.run("import time; time.sleep(0.5)")
    assert idle.cpu_s < 0.2


def test_cpu_limit_counts_all_processes(sandbox: Sandbox) -> None:
    """Two processes of 0.7 s each pass a limit of 1 s together."""
    spin = "import os, time\nchild = os.fork()\nwhile time.process_time() < 0.7: pass\nif child: os.wait()"
    assert sandbox.run(spin, limits=Limits(cpu_s=1.0, wall_s=30.0)).status == "timeout"
    assert sandbox.run(spin, limits=Limits(cpu_s=3.0, wall_s=30.0)).status == "ok"


def test_limits_of_one_run(sandbox: Sandbox) -> None:
    assert sandbox.run("print('x' * 20_000)", limits=Limits(output_bytes=30_000)).status == "ok"
    assert (
        sandbox.run("with open('f', 'wb') as f: f.write(b'1' * 2000)", limits=Limits(file_bytes=1000)).status == "error"
    )


def test_large_input_and_input_that_is_not_read(sandbox: Sandbox) -> None:
    text = "line\n" * 1_000_000
    assert sandbox.run("import sys; print(len(sys.stdin.read()))", text).stdout == "5000000\n"
    assert sandbox.run("print(1)", text).stdout == "1\n"
    assert sandbox.run("import sys; sys.stdin.close(); print(2)", text).stdout == "2\n"
    assert sandbox.run("import time; time.sleep(60)", text, limits=SHORT).status == "timeout"


def test_same_program_prints_the_same(sandbox: Sandbox) -> None:
    code = "print({str(i) for i in range(100)}, hash('a'))"
    outputs = {sandbox.run(code).stdout for _ in range(5)}
    with Sandbox(sandbox.isolation) as other:
        outputs.add(other.run(code).stdout)
    assert len(outputs) == 1


def test_random_numbers_are_not_shared_between_runs(sandbox: Sandbox) -> None:
    assert len({sandbox.run("import random; print(random.random())").stdout for _ in range(5)}) == 5


def test_runs_do_not_see_each_other(sandbox: Sandbox) -> None:
    first = (
        "import builtins as b, json, math, os\nb.len = math.pi = 3\njson.x = 1\nopen('k', 'w')\nos.environ['A'] = '1'"
    )
    assert sandbox.run(first).status == "ok"
    second = (
        "import json, math, os\nprint(len('ab'), math.pi > 3.1, hasattr(json, 'x'), os.listdir(), 'A' in os.environ)"
    )
    assert sandbox.run(second).stdout == "2 True False ['main.py'] False\n"


def test_threads_share_a_sandbox(sandbox: Sandbox) -> None:
    def run(number: int) -> RunResult:
        return sandbox.run(f"print(int(input()) * {number})", str(number))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(64)))
    assert [result.stdout for result in results] == [f"{number * number}\n" for number in range(64)]


def test_workers_run_at_the_same_time(isolation: str) -> None:
    with Sandbox(isolation, workers=4) as sandbox, ThreadPoolExecutor(4) as pool:
        list(pool.map(sandbox.run, ["pass"] * 8))  # Starts them.
        started = time.monotonic()
        list(pool.map(sandbox.run, ["import time; time.sleep(0.5)"] * 4))
        assert time.monotonic() - started < 1.9  # 2.0 one after the other.


def test_thread_that_started_a_worker_may_end(sandbox: Sandbox) -> None:
    """The kernel would end a worker with the thread it was started from."""
    made: list[Sandbox] = []
    thread = threading.Thread(target=lambda: made.append(Sandbox(sandbox.isolation)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    with made[0]:
        assert made[0].run("print(1)").stdout == "1\n"


def _descendants() -> set[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found: set[int] = set()
    waiting = {os.getpid()}
    while waiting:
        parent = waiting.pop()
        below = {pid for pid, above in parents.items() if above == parent}
        found |= below
        waiting |= below
    return found


def test_nothing_is_left_after_200_runs(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Sandbox(sandbox.isolation, workers=1) as own:
        own.run("pass")
        before = _descendants(), os.listdir("/proc/self/fd")
        for number in range(200):
            code = ("pass", "import os\nos.fork()", "1 / 0", "open('f', 'w').write('x')")[number % 4]
            own.run(code)
        assert (_descendants(), os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


def test_memory_of_the_worker_stays_flat(isolation: str) -> None:
    with Sandbox(isolation, workers=1) as sandbox:

        def resident() -> int:
            sandbox.run("pass")
            pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _descendants()]
            return sum(pages) * os.sysconf("SC_PAGE_SIZE")

        for _ in range(20):
            sandbox.run("x = [0] * 10 ** 6")
        before = resident()
        for _ in range(150):
            sandbox.run("x = [0] * 10 ** 6")
        assert resident() - before < 1 << 20


def test_close_ends_the_workers(sandbox: Sandbox) -> None:
    before = _descendants()
    other = Sandbox(sandbox.isolation)
    other.run("pass")
    assert _descendants() != before
    other.close()
    other.close()
    assert _descendants() == before
    with pytest.raises(SandboxError, match="closed"):
        other.run("pass")


def test_worker_that_died_is_reported_and_replaced(sandbox: Sandbox) -> None:
    before = _descendants()
    with Sandbox(sandbox.isolation, workers=1) as other:
        for pid in _descendants() - before:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        with pytest.raises(SandboxError, match="worker"):
            other.run("pass")
        assert other.run("print(1)").stdout == "1\n"


PARENT = """
import sys, threading
from llm_envs.tools.sandbox import Limits, Sandbox
sandbox = Sandbox(sys.argv[1], Limits(wall_s=600, cpu_s=600))
code = '''
import os, signal, subprocess, sys, time
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execv("/bin/sleep", ["@MARK@", "1000"])
        os._exit(0)
print("up")
time.sleep(1000)
'''.replace("@MARK@", sys.argv[2])
threading.Thread(target=sandbox.run, args=(code,)).start()
print("started", flush=True)
"""


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _wait_until(condition: object, patience_s: float = 10.0) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_kill_of_the_parent_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    mark = f"mark{os.getpid()}{time.monotonic_ns()}"
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    parent = subprocess.Popen([sys.executable, script, sandbox.isolation, mark], env=env, stdout=subprocess.PIPE)
    try:
        assert _wait_until(lambda: len(_marked(mark)) == 4)  # It and three daemons.
        below = _descendants()
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert _wait_until(lambda: not _marked(mark))
    assert _wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below - _descendants()))


def test_fork_of_the_parent_needs_a_new_sandbox(sandbox: Sandbox) -> None:
    script = f"""
        import os
        from llm_envs.tools.sandbox import Sandbox, SandboxError
        sandbox = Sandbox({sandbox.isolation!r})
        child = os.fork()
        if child == 0:
            try:
                sandbox.run("pass")
            except SandboxError as error:
                print(error, flush=True)
            with Sandbox({sandbox.isolation!r}) as own:
                print(own.run("print(7)").stdout, end="", flush=True)
            sandbox.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(sandbox.run("print(8)").stdout, end="")
        sandbox.close()
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert run.stdout == "this sandbox was made before a fork; make a new one in the child\n7\n8\n", run.stderr


def test_none_is_explicit_and_labelled() -> None:
    with Sandbox("none") as sandbox:
        assert sandbox.run("pass").isolation == "none"
    assert "none" not in AVAILABLE


def test_auto_takes_the_first_that_works() -> None:
    if not AVAILABLE:
        pytest.skip("no isolation works on this machine")
    with Sandbox() as sandbox:
        assert sandbox.isolation == AVAILABLE[0]
    assert default_sandbox() is default_sandbox()
    assert default_sandbox().run("print(1)").stdout == "1\n"


def test_refuses_where_nothing_isolates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = _sandbox_host._command

    def denied(isolation: str, *arguments: object) -> list[str]:
        if isolation == "userns":
            raise PermissionError("user namespaces are denied")
        return command(isolation, *arguments)

    monkeypatch.setattr(_sandbox_host, "_command", denied)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="bubblewrap") as caught:
        Sandbox()
    assert "no program bwrap" in str(caught.value)
    assert "user namespaces are denied" in str(caught.value)
    assert available_isolation() == []
    with pytest.raises(SandboxUnavailable, match="bubblewrap"):
        Sandbox("bwrap")
    with Sandbox("none") as sandbox:
        assert sandbox.run("print(1)").stdout == "1\n"


def test_bwrap_that_fails_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SandboxUnavailable, match="No permissions to create new namespace"):
        Sandbox("bwrap")


@pytest.mark.parametrize(
    "limits", [{"cpu_s": 0}, {"wall_s": -1.0}, {"memory_bytes": 0}, {"memory_bytes": 1 << 20}, {"wall_s": float("inf")}]
)
def test_limits_are_checked(limits: dict[str, float]) -> None:
    (name,) = limits
    with pytest.raises(ValueError, match=f"limit {name} must be"):
        Limits(**limits)


def test_limits_other_than_times_are_integers() -> None:
    with pytest.raises(TypeError, match=r"limit processes must be an integer, got 1\.5"):
        Limits(processes=1.5)  # type: ignore[arg-type]


def test_least_limits_still_run_a_program(sandbox: Sandbox) -> None:
    least = Limits(memory_bytes=64 << 20, processes=1, file_bytes=1, tmp_bytes=4096, open_files=8, output_bytes=2)
    assert sandbox.run("print(1)", limits=least).stdout == "1\n"


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="isolation must be one of auto, bwrap, userns, none, got 'docker'"):
        Sandbox("docker")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="workers must be at least 1"):
        Sandbox("none", workers=0)


def test_inner_package_imports_only_the_standard_library() -> None:
    folder = Path(_sandbox_host.__file__).with_name("_sandbox_inner")
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            assert all(module.partition(".")[0] in sys.stdlib_module_names for module in modules), (path.name, modules)
