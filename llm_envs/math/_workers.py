"""A pool of killable worker processes that answer JSON requests (`llm_envs.math._grading_worker`)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any

START_LIMIT_S = 120.0


class _Worker:
    """One process, with the pipes to it. Used by one thread at a time."""

    def __init__(self) -> None:
        self.process = _spawner.start()
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a grading worker was started without pipes")
        self.requests = self.process.stdin
        self.replies = self.process.stdout

    def await_ready(self) -> None:
        """Wait until the process has imported what it needs.

        Raises:
            RuntimeError: If it ends or does not get ready in `START_LIMIT_S`.
        """
        if self._read_line(START_LIMIT_S) is None:
            self.kill()
            raise RuntimeError(
                f"a grading worker did not start (exit status {self.process.returncode}); "
                f"run `{sys.executable} -m llm_envs.math._grading_worker {os.getpid()}` to see why"
            )

    def ask(self, request: dict[str, str], timeout_s: float) -> dict[str, Any] | None:
        """Send a request and wait for its reply; None if there is none in time or the process is dead."""
        try:
            self.requests.write(json.dumps(request).encode() + b"\n")
            self.requests.flush()
        except OSError:
            return None
        line = self._read_line(timeout_s)
        if line is None:
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _read_line(self, timeout_s: float) -> bytes | None:
        descriptor = self.replies.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        received = b""
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return None
            received += chunk
        return received

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill the process group, reap the process, close the pipes."""
        _signal(self)
        self.process.wait()
        for pipe in (self.requests, self.replies):
            with contextlib.suppress(OSError):  # unsent bytes for a process that is gone
                pipe.close()


class _Spawner:
    """Starts processes from one thread that lives as long as this process.

    The kernel's parent-death signal is sent when the *thread* that started a process ends; a request's own thread may
    be short-lived.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Future[subprocess.Popen[bytes]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="llm-envs-grading-spawner", daemon=True)
                self._thread.start()
        job: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put(job)
        return job.result()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.set_result(_start_process())
            except OSError as error:
                job.set_exception(error)


_spawner = _Spawner()


def _renew_spawner() -> None:
    """Threads do not survive a fork."""
    global _spawner
    _spawner = _Spawner()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_spawner)


def _start_process() -> subprocess.Popen[bytes]:
    package_root = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": package_root + (os.pathsep + path if path else ""),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        # -P: a file of the working directory must not shadow a library
        [sys.executable, "-P", "-m", "llm_envs.math._grading_worker", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
        bufsize=-1,
    )


class _State:
    """What a pool owns, apart from the pool so that a finalizer can hold it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.idle: list[_Worker] = []
        self.all: set[_Worker] = set()
        self.starting = 0
        self.closed = False
        self.owner = os.getpid()


def _shut(state: _State) -> None:
    if state.owner != os.getpid():
        return  # a forked copy: the workers are the parent's
    with state.changed:
        state.closed = True
        workers = list(state.all)
        idle = list(state.idle)
        state.all.clear()
        state.idle.clear()
        state.changed.notify_all()
    for worker in workers:
        if worker in idle:
            worker.kill()
        else:  # its own thread reaps it
            _signal(worker)


def _signal(worker: _Worker) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)


class WorkerPool:
    """At most ``size`` workers, started when needed, each serving one request at a time; killed at exit.

    Args:
        size: The most processes at a time.
    """

    def __init__(self, size: int) -> None:
        self._state = _State(size)
        self._finalizer = weakref.finalize(self, _shut, self._state)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state.closed

    def pids(self) -> list[int]:
        """Process ids of the workers that are alive."""
        with self._state.changed:
            return sorted(worker.process.pid for worker in self._state.all if worker.alive())

    def request(self, request: dict[str, str], timeout_s: float) -> dict[str, Any] | None:
        """Let a free worker answer.

        Returns:
            Its reply; None if there is none within ``timeout_s`` or it died. Then it is gone and will be replaced.

        Raises:
            RuntimeError: If the pool is closed, belongs to another process, or a worker cannot be started.
        """
        worker = self._acquire()
        reply = None
        try:
            reply = worker.ask(request, timeout_s)
        finally:
            self._release(worker, healthy=reply is not None)
        return reply

    def close(self) -> None:
        """Kill all workers. Idempotent."""
        _shut(self._state)

    def _acquire(self) -> _Worker:
        state = self._state
        if state.owner != os.getpid():
            raise RuntimeError(
                "this pool of grading workers belongs to the process that made it; make a Grader in this process"
            )
        while True:
            with state.changed:
                while not state.closed and not state.idle and len(state.all) + state.starting >= state.size:
                    state.changed.wait()
                if state.closed:
                    raise RuntimeError("this pool of grading workers is closed")
                worker = state.idle.pop() if state.idle else None
                if worker is None:
                    state.starting += 1
            if worker is None:
                return self._start()
            if worker.alive():
                return worker
            self._release(worker, healthy=False)

    def _start(self) -> _Worker:
        state = self._state
        worker: _Worker | None = None
        try:
            worker = _Worker()
            with state.changed:
                state.all.add(worker)
            worker.await_ready()
        except BaseException:
            if worker is not None:
                worker.kill()
            with state.changed:
                state.starting -= 1
                if worker is not None:
                    state.all.discard(worker)
                state.changed.notify()
            raise
        with state.changed:
            state.starting -= 1
            if not state.closed:
                return worker
        worker.kill()
        raise RuntimeError("this pool of grading workers is closed")

    def _release(self, worker: _Worker, *, healthy: bool) -> None:
        state = self._state
        with state.changed:
            keep = healthy and not state.closed
            if keep:
                state.idle.append(worker)
        if not keep:
            worker.kill()
        with state.changed:
            if not keep:
                state.all.discard(worker)
            state.changed.notify()
