"""The worker processes behind the grader: killed on time, replaced, shared by threads, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llm_envs.math import _workers
from llm_envs.math.grading import Grader, Verdict, grade

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts processes in /proc")

# An honest comparison that takes far longer than the limits used here: thousands of digits are needed to tell zero.
ROOTS = "+".join(rf"\sqrt[{degree}]{{{radicand}}}" for degree, radicand in ((3, 2), (5, 3), (7, 5), (9, 7)))
HARD_GOLD, HARD_ANSWER = f"({ROOTS})^2", f"({ROOTS})({ROOTS})"


def workers_of(grader: Grader) -> list[int]:
    return grader._pool.pids()


def exists(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


class Stopped:
    """A worker that is stopped, so that it cannot answer."""

    def __init__(self, grader: Grader) -> None:
        assert grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is Verdict.CORRECT
        (self.pid,) = workers_of(grader)
        os.kill(self.pid, signal.SIGSTOP)


def test_no_process_is_started_for_what_needs_none():
    with Grader() as grader:
        assert grader.grade(gold=r"\frac{1}{2}", answer="0.5") is Verdict.CORRECT
        assert grader.grade(gold=r"(1, \frac12)", answer="(1, 0.5)") is Verdict.CORRECT
        assert workers_of(grader) == []


def test_a_worker_over_time_is_killed_and_replaced():
    with Grader(timeout_s=0.5) as grader:
        stopped = Stopped(grader)
        start = time.monotonic()
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}") is Verdict.UNDECIDED
        assert 0.4 < time.monotonic() - start < 10
        assert not exists(stopped.pid)
        # the start of the replacement does not count against this request's half second
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}") is Verdict.CORRECT
        assert workers_of(grader) != [stopped.pid]


def test_the_limit_can_be_given_by_the_request():
    with Grader(timeout_s=60) as grader:
        Stopped(grader)
        start = time.monotonic()
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}", timeout_s=0.3) is Verdict.UNDECIDED
        assert time.monotonic() - start < 10


def test_a_worker_killed_during_a_request_gives_undecided_and_is_replaced():
    with Grader(timeout_s=30) as grader:
        stopped = Stopped(grader)
        with ThreadPoolExecutor(1) as threads:
            pending = threads.submit(grader.grade, gold=r"\sqrt{12}", answer=r"2\sqrt{3}")
            time.sleep(0.2)
            assert not pending.done()
            os.kill(stopped.pid, signal.SIGKILL)
            assert pending.result(timeout=10) is Verdict.UNDECIDED
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}") is Verdict.CORRECT
        assert not exists(stopped.pid)


def test_a_worker_killed_between_requests_costs_nothing():
    with Grader() as grader:
        assert grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is Verdict.CORRECT
        (pid,) = workers_of(grader)
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not exists(pid))
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}") is Verdict.CORRECT


def test_hard_but_bounded_computation_ends_on_time():
    with Grader(timeout_s=1.0) as grader:
        start = time.monotonic()
        verdict = grader.grade(gold=HARD_GOLD, answer=HARD_ANSWER)
        assert verdict in (Verdict.UNDECIDED, Verdict.CORRECT)
        assert time.monotonic() - start < 15
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}") is Verdict.CORRECT


def test_close_ends_the_processes_and_later_requests_raise():
    grader = Grader(workers=1)
    assert grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is Verdict.CORRECT
    (pid,) = workers_of(grader)
    grader.close()
    grader.close()
    assert not exists(pid)
    with pytest.raises(RuntimeError, match="closed"):
        grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}")
    with pytest.raises(RuntimeError, match="closed"):
        grader.grade(gold="5", answer="5")


def test_close_during_a_request_ends_it_undecided():
    grader = Grader(timeout_s=60)
    stopped = Stopped(grader)
    with ThreadPoolExecutor(1) as threads:
        pending = threads.submit(grader.grade, gold=r"\sqrt{12}", answer=r"2\sqrt{3}")
        time.sleep(0.2)
        grader.close()
        assert pending.result(timeout=10) is Verdict.UNDECIDED
    assert wait_until(lambda: not exists(stopped.pid))


def test_an_unclosed_grader_leaves_no_process():
    grader = Grader()
    assert grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is Verdict.CORRECT
    (pid,) = workers_of(grader)
    del grader
    assert wait_until(lambda: not exists(pid))


def test_many_threads_at_once():
    pairs = [
        (rf"\sqrt{{{4 * n}}}", rf"{k}\sqrt{{{n}}}", k == 2)
        for n in range(2, 42)
        if n not in (4, 9, 16, 25, 36)
        for k in (2, 3)
    ]
    pairs += [(str(n), str(m), n == m) for n in range(20) for m in range(20)]
    with Grader(workers=2) as grader, ThreadPoolExecutor(32) as threads:
        verdicts = list(threads.map(lambda pair: grader.grade(gold=pair[0], answer=pair[1]), pairs))
        assert len(workers_of(grader)) <= 2
    assert [verdict is Verdict.CORRECT for verdict in verdicts] == [expected for *_, expected in pairs]
    assert Verdict.UNDECIDED not in verdicts


def test_a_worker_outlives_the_thread_that_asked_first():
    with Grader() as grader:
        thread = threading.Thread(target=grader.grade, kwargs={"gold": r"\sqrt{8}", "answer": r"2\sqrt{2}"})
        thread.start()
        thread.join()
        pids = workers_of(grader)
        time.sleep(0.2)
        assert len(pids) == 1
        assert workers_of(grader) == pids
        assert grader.grade(gold=r"\sqrt{12}", answer=r"2\sqrt{3}") is Verdict.CORRECT
        assert workers_of(grader) == pids


def test_workers_are_clean_processes_in_their_own_group_with_bounded_memory():
    with Grader() as grader:
        grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}")
        (pid,) = workers_of(grader)
        assert os.getpgid(pid) == pid
        assert b"llm_envs.math._grading_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        limits = Path(f"/proc/{pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
        assert line.split()[3:5] == [str(2 << 30), str(2 << 30)]


def run_parent(code: str) -> subprocess.Popen[str]:
    prelude = """
        import os, signal, sys, time
        from llm_envs.math.grading import Grader, Verdict, grade
        def ready(pids):
            sys.stdout.write(" ".join(map(str, pids)) + "\\n"); sys.stdout.flush()
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_workers_die_with_a_killed_parent_even_in_mid_request():
    parent = run_parent("""
        grader = Grader(timeout_s=600)
        grader.grade(gold=r"\\sqrt{8}", answer=r"2\\sqrt{2}")
        pids = grader._pool.pids()
        os.kill(pids[0], signal.SIGSTOP)
        ready(pids)
        grader.grade(gold=r"\\sqrt{12}", answer=r"2\\sqrt{3}")
    """)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    assert exists(pid)
    parent.kill()
    parent.communicate()
    assert wait_until(lambda: not exists(pid))


def test_workers_of_the_default_pool_end_at_exit():
    parent = run_parent("""
        from llm_envs.math import grading
        assert grade(gold=r"\\sqrt{8}", answer=r"2\\sqrt{2}") is Verdict.CORRECT
        ready(grading._default_grader()._pool.pids())
    """)
    out, err = parent.communicate(timeout=60)
    assert parent.returncode == 0, err
    assert wait_until(lambda: not exists(int(out)))


def test_a_forked_child_has_its_own_pool():
    parent = run_parent("""
        assert grade(gold=r"\\sqrt{8}", answer=r"2\\sqrt{2}") is Verdict.CORRECT
        child = os.fork()
        right = grade(gold=r"\\sqrt{12}", answer=r"2\\sqrt{3}") is Verdict.CORRECT
        if child == 0:
            os._exit(0 if right else 1)
        assert right and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert grade(gold=r"\\sqrt{18}", answer=r"3\\sqrt{2}") is Verdict.CORRECT
    """)
    _, err = parent.communicate(timeout=60)
    assert parent.returncode == 0, err


def test_a_worker_that_cannot_start_is_an_error_that_says_how_to_look(monkeypatch):
    monkeypatch.setattr(_workers.sys, "executable", "/bin/false")
    with (
        Grader() as grader,
        pytest.raises(RuntimeError, match=r"did not start \(exit status 1\); run `.*_grading_worker"),
    ):
        grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}")


def test_the_working_directory_cannot_shadow_what_a_worker_imports(tmp_path, monkeypatch):
    (tmp_path / "sympy.py").write_text("raise RuntimeError('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    with Grader() as grader:
        assert grader.grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is Verdict.CORRECT


def test_the_shared_pool_serves_the_module_function():
    assert grade(gold=r"\sqrt{8}", answer=r"2\sqrt{2}") is Verdict.CORRECT
    assert grade(gold=r"\sqrt{8}", answer=r"3\sqrt{2}") is Verdict.INCORRECT
