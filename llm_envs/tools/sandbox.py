"""The one way model-written code runs anywhere in the project: in namespaces of its own, with limits, then gone.

    >>> from llm_envs.tools.sandbox import Sandbox
    >>> with Sandbox() as sandbox:
    ...     result = sandbox.run("print(int(input()) + 1)", stdin="41")
    >>> result.status, result.stdout
    ('ok', '42\\n')

What is promised and what is not stands in docs/sandbox.md.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Literal, get_args

from llm_envs.tools._sandbox_host import Outcome, StartError, Worker, WorkerError
from llm_envs.tools._sandbox_inner import MEMORY_SIGNAL

Isolation = Literal["auto", "bwrap", "userns", "none"]
Status = Literal["ok", "error", "timeout", "memory", "output", "killed"]

_ISOLATING = ("bwrap", "userns")
_MIB = 1 << 20
_LEAST_MEMORY = 64 * _MIB


class SandboxUnavailable(RuntimeError):
    """This machine cannot isolate programs as asked; the text says why and what to install."""


class SandboxError(RuntimeError):
    """The sandbox itself failed, which is no statement about the program."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    Args:
        cpu_s: CPU seconds of all its processes together.
        wall_s: Seconds from start to end.
        memory_bytes: Address space of each process, and resident memory of all together.
        processes: Processes and threads at a time.
        file_bytes: Size of each file.
        tmp_bytes: Size of /tmp, the only place to write to.
        open_files: File descriptors of each process.
        output_bytes: Standard output and error together.

    Raises:
        ValueError: A limit is not above 0, or less memory than an interpreter needs.
        TypeError: A limit other than a time is not an integer.
    """

    cpu_s: float = 5.0
    wall_s: float = 10.0
    memory_bytes: int = 512 * _MIB
    processes: int = 32
    file_bytes: int = 16 * _MIB
    tmp_bytes: int = 64 * _MIB
    open_files: int = 64
    output_bytes: int = 1 * _MIB

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not 0 < value < float("inf"):
                raise ValueError(f"limit {field.name} must be a finite number above 0, got {value!r}")
            if not field.name.endswith("_s") and not isinstance(value, int):
                raise TypeError(f"limit {field.name} must be an integer, got {value!r}")
        if self.memory_bytes < _LEAST_MEMORY:
            raise ValueError(f"limit memory_bytes must be at least {_LEAST_MEMORY} (64 MiB), got {self.memory_bytes}")


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Args:
        status: "ok": exit code 0; "error": another exit code; "timeout": over the CPU or wall limit; "memory": over the
            memory limit, or ended by a MemoryError; "output": it wrote more than it may; "killed": it died of a signal.
        stdout: Standard output, undecodable bytes replaced.
        stderr: Standard error, likewise.
        cpu_s: CPU seconds of all its processes.
        peak_bytes: Largest resident size of one of its processes (of all together if the status is "memory" for that).
        isolation: "bwrap" or "userns"; "none" says that the program ran with the rights of the caller.
        exit_code: Exit code, or the negative number of the signal it died of; None if the sandbox ended it.
    """

    status: Status
    stdout: str
    stderr: str
    cpu_s: float
    peak_bytes: int
    isolation: str
    exit_code: int | None = None


class Sandbox:
    """Runs programs in isolation. Safe to use from several threads; runs are parallel up to the number of workers.

    Args:
        isolation: "bwrap" (bubblewrap), "userns" (unprivileged user namespaces), "auto" (the first of these that works
            here), or "none": no isolation at all, for people who accept that, and its results say so.
        limits: What each run may use.
        workers: How many programs run at a time; as many as there are CPUs by default.

    Raises:
        SandboxUnavailable: The isolation asked for is not possible here.
        ValueError: An argument is out of range.
    """

    def __init__(
        self, isolation: Isolation = "auto", limits: Limits | None = None, *, workers: int | None = None
    ) -> None:
        if isolation not in get_args(Isolation):
            raise ValueError(f"isolation must be one of {', '.join(get_args(Isolation))}, got {isolation!r}")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.limits = limits or Limits()
        self._most = workers or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0])
        self._changed = threading.Condition()
        self._owner = os.getpid()
        self.isolation, first = _start(isolation)
        self._idle = [first]
        self._busy: set[Worker] = set()
        self._starting = 0
        self._closed = False

    def run(self, code: str, stdin: str = "", *, limits: Limits | None = None) -> RunResult:
        """Run a Python program to its end.

        Args:
            code: Its source; only the standard library can be imported.
            stdin: Its standard input.
            limits: Other limits than the sandbox's own.

        Raises:
            SandboxError: The sandbox failed or is closed.
        """
        limits = limits or self.limits
        worker = self._take()
        usable = False
        try:
            outcome = worker.run(
                code.encode("utf-8", "surrogatepass"),
                stdin.encode("utf-8", "surrogatepass"),
                dataclasses.asdict(limits),
            )
            usable = True
        except WorkerError as error:
            raise SandboxError(str(error)) from error
        finally:
            self._give_back(worker, usable)
        return RunResult(
            status=_status(outcome, limits),
            stdout=outcome.stdout.decode(errors="replace"),
            stderr=outcome.stderr.decode(errors="replace"),
            cpu_s=outcome.cpu_s,
            peak_bytes=outcome.peak_bytes,
            isolation=self.isolation,
            exit_code=outcome.exit_code,
        )

    def close(self) -> None:
        """Wait for the runs in progress and end all workers. A closed sandbox runs nothing."""
        if os.getpid() != self._owner:  # A forked copy, whose lock another thread may have held at the fork.
            for worker in (*self._idle, *self._busy):
                worker.close()
            return
        with self._changed:
            self._closed = True
            while self._busy or self._starting:
                self._changed.wait()
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Worker:
        if os.getpid() != self._owner:
            raise SandboxError("this sandbox was made before a fork; make a new one in the child")
        with self._changed:
            while not self._closed and not self._idle and len(self._busy) + self._starting >= self._most:
                self._changed.wait()
            if self._closed:
                raise SandboxError("the sandbox is closed")
            if self._idle:
                worker = self._idle.pop()
                self._busy.add(worker)
                return worker
            self._starting += 1
        started: Worker | None = None
        try:
            started = Worker(self.isolation)
        except StartError as error:
            raise SandboxError(f"could not start another worker: {error}") from error
        finally:
            with self._changed:
                self._starting -= 1
                if started:
                    self._busy.add(started)
                self._changed.notify_all()
        return started

    def _give_back(self, worker: Worker, usable: bool) -> None:
        if not usable:
            worker.close()
        with self._changed:
            self._busy.discard(worker)
            if usable:
                self._idle.append(worker)
            self._changed.notify_all()


def _start(isolation: str) -> tuple[str, Worker]:
    """Start a worker with the first isolation that works."""
    reasons = {}
    for candidate in _ISOLATING if isolation == "auto" else (isolation,):
        if sys.platform != "linux" and candidate != "none":
            reasons[candidate] = f"it needs Linux, this is {sys.platform}"
            continue
        try:
            return candidate, Worker(candidate)
        except StartError as error:
            reasons[candidate] = str(error)
    tried = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise SandboxUnavailable(
        f"cannot isolate programs on this machine ({tried}). Install the package bubblewrap (for example `apt-get "
        'install bubblewrap`), or accept the risk of running model-written code unprotected with isolation="none"'
    )


def _status(outcome: Outcome, limits: Limits) -> Status:
    if outcome.reason is not None:
        return outcome.reason  # type: ignore[return-value]
    if outcome.exit_code is None:
        return "killed"
    if outcome.exit_code == 0:
        return "ok"
    if outcome.exit_code > 0:
        return "error"
    if outcome.exit_code == -MEMORY_SIGNAL:
        return "memory"
    if outcome.exit_code == -signal.SIGXCPU or (outcome.exit_code == -signal.SIGKILL and outcome.cpu_s >= limits.cpu_s):
        return "timeout"
    return "killed"


def available_isolation() -> list[str]:
    """The isolations that work on this machine, best first; found out by starting each."""
    working = []
    for isolation in _ISOLATING:
        try:
            _start(isolation)[1].close()
        except SandboxUnavailable:
            continue
        working.append(isolation)
    return working


_default: Sandbox | None = None
_default_lock = threading.Lock()


def default_sandbox() -> Sandbox:
    """The sandbox that all of this process shares, started at the first call.

    Raises:
        SandboxUnavailable: No isolation is possible here.
    """
    global _default
    with _default_lock:
        if _default is None:
            _default = Sandbox()
            atexit.register(_default.close)
        return _default


def _forget_default() -> None:
    global _default, _default_lock
    if _default is not None:
        _default.close()
    _default = None
    _default_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_default)
