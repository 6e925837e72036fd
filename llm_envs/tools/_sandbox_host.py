"""Our side of a sandbox worker: how it is started behind its wall, and one program's input and output."""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_envs.tools import _seccomp
from llm_envs.tools._sandbox_inner import DEVICES, HOST_NAME, NOBODY, ROOT

START_S = 30.0
"""How long a worker may take to start, in seconds."""
GRACE_S = 10.0
"""How long after a program's own wall limit we still believe in its worker, in seconds."""

_INNER = Path(__file__).with_name("_sandbox_inner")
_INNER_PARENT = "/worker"
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from _sandbox_inner import worker; sys.path.pop(); "
    "worker.main(int(sys.argv[2]))"
)
# All a program sees of an environment. The fixed hash seed makes the same program print the same twice.
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "USER": "nobody",
    "LOGNAME": "nobody",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "MALLOC_ARENA_MAX": "2",  # More arenas only use up the address space that threads may have.
}
_CAPABILITIES = (6, 7, 8, 18, 21)  # CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_SYS_CHROOT, CAP_SYS_ADMIN
_CHUNK = 1 << 16


class _Starter:
    """A thread that lives as long as the process and starts all workers.

    The kernel ends a worker with the *thread* that started it, so it must be neither the caller's thread nor one of an
    executor, which ends with the main thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[tuple[Future[subprocess.Popen[bytes]], list[str], dict[str, Any]]] | None = None

    def popen(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """`subprocess.Popen` in that thread."""
        with self._lock:
            if self._orders is None:
                self._orders = queue.SimpleQueue()
                threading.Thread(target=self._serve, args=(self._orders,), name="sandbox-starter", daemon=True).start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._orders.put((future, command, options))
        return future.result()

    @staticmethod
    def _serve(orders: queue.SimpleQueue[tuple[Future[subprocess.Popen[bytes]], list[str], dict[str, Any]]]) -> None:
        while True:
            future, command, options = orders.get()
            try:
                future.set_result(subprocess.Popen(command, **options))
            except (OSError, subprocess.SubprocessError) as error:
                future.set_exception(error)
            del future


_starter = _Starter()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_starter.__init__)  # type: ignore[misc]


class StartError(Exception):
    """A worker could not be started; the text says why."""


class WorkerError(Exception):
    """A worker failed, which no program can make it do; the text says how."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended.

    Args:
        reason: Why it was ended: timeout, memory, output or killed; None if it ended by itself.
        exit_code: Its exit code, or the negative number of the signal it died of; None if it was ended.
        cpu_s: CPU seconds of all its processes.
        peak_bytes: Largest resident size of one of its processes, or of all together where that passed the limit.
        stdout: What it wrote, up to the limit.
        stderr: The same of standard error.
    """

    reason: str | None
    exit_code: int | None
    cpu_s: float
    peak_bytes: int
    stdout: bytes
    stderr: bytes


class Worker:
    """A started worker. Not for two threads at once.

    Args:
        isolation: "bwrap", "userns" or "none".
        python: The interpreter; the one that runs us (outside any virtual environment) by default.

    Raises:
        StartError: It did not start.
    """

    def __init__(self, isolation: str, python: str | None = None) -> None:
        interpreter = os.path.realpath(python or _base_interpreter())
        privileged = isolation != "none" and _is_root()
        self._owner = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        try:
            command = _command(isolation, interpreter, theirs.fileno(), privileged)
            self._process = _starter.popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise StartError(str(error)) from error
        finally:
            theirs.close()
        try:
            self._greet(isolation, interpreter, privileged)
        except BaseException:
            self.close()
            raise

    def _greet(self, isolation: str, interpreter: str, privileged: bool) -> None:
        binds, links = _system(interpreter)
        config = {
            "isolation": isolation,
            "privileged": privileged,
            "binds": binds,
            "links": links,
            "folder": tempfile.gettempdir(),
            "seccomp": "" if isolation == "none" else _seccomp.program().hex(),
        }
        self._control.settimeout(START_S)
        try:
            self._control.send(json.dumps(config).encode())
            answer = self._control.recv(_CHUNK)
        except TimeoutError as error:
            raise StartError(f"the worker did not answer within {START_S:g} s") from error
        except OSError as error:  # It ended before it read its configuration.
            raise StartError(self._last_words() or str(error)) from error
        if not answer:
            raise StartError(self._last_words())
        if "error" in (reply := json.loads(answer)):
            raise StartError(reply["error"])
        self._control.settimeout(None)

    def _last_words(self) -> str:
        """Standard error of a worker that has ended or is made to."""
        self._process.kill()
        return self._process.communicate()[1].decode(errors="replace").strip()

    def run(self, code: bytes, stdin: bytes, limits: dict[str, Any]) -> Outcome:
        """Run one program.

        Args:
            code: Python source in UTF-8.
            stdin: Its standard input.
            limits: The fields of a request.

        Raises:
            WorkerError: The worker failed; it is of no more use.
        """
        source = os.memfd_create("program")
        feed_end, feed = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        theirs = [source, feed_end, out_end, err_end]
        exchange = _Exchange(self._control, feed, out, err, stdin, limits["output_bytes"])
        try:
            with open(source, "wb", closefd=False) as file:
                file.write(code)
            os.lseek(source, 0, os.SEEK_SET)
            socket.send_fds(self._control, [json.dumps(limits).encode()], theirs)
            while theirs:
                os.close(theirs.pop())
            reply = exchange.finish(limits["wall_s"] + GRACE_S)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerError(f"the sandbox worker has ended: {self._last_words() or error}") from error
        finally:
            exchange.close()
            for descriptor in theirs:
                os.close(descriptor)
        if "failure" in reply:
            raise WorkerError(f"the sandbox could not start a program: {reply['failure']}")
        return Outcome(**reply, stdout=bytes(exchange.texts[out]), stderr=bytes(exchange.texts[err]))

    def close(self) -> None:
        """End the worker and all it runs. In a forked copy of our process only the copied ends are closed."""
        self._control.close()
        if os.getpid() == self._owner:
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()


class _Exchange:
    """Feeds a program and collects its output until the worker says that it ended."""

    def __init__(self, control: socket.socket, feed: int, out: int, err: int, stdin: bytes, most: int) -> None:
        self._control = control
        self._feed = feed
        self._left = memoryview(stdin)
        self._most = most
        self._over = False
        self._open = {feed, out, err}
        self.texts = {out: bytearray(), err: bytearray()}
        self._poll = select.poll()
        os.set_blocking(feed, False)
        self._poll.register(out, select.POLLIN)
        self._poll.register(err, select.POLLIN)
        self._poll.register(control, select.POLLIN)
        self._poll.register(feed, select.POLLOUT)
        self._write()

    def finish(self, patience_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + patience_s
        reply: dict[str, Any] | None = None
        killed = False
        while reply is None or not self._open.isdisjoint(self.texts):
            left = deadline - time.monotonic()
            if left <= 0:
                if reply is not None:  # Without isolation a process may escape and keep our pipes open.
                    return reply
                raise WorkerError(f"the sandbox worker did not answer within {patience_s:g} s")
            for descriptor, _ in self._poll.poll(left * 1000):
                if descriptor == self._feed:
                    self._write()
                elif descriptor in self.texts:
                    if self._read(descriptor) and not killed and reply is None:
                        self._control.send(json.dumps({"kill": "output"}).encode())
                        killed = True
                else:
                    message = self._control.recv(_CHUNK)
                    if not message:
                        raise BrokenPipeError("end of file")
                    reply = json.loads(message)
                    self._poll.unregister(self._control)
                    deadline = min(deadline, time.monotonic() + 1.0)
        if self._over and "failure" not in reply:  # Also where the program was faster than the kill.
            reply["reason"] = "output"
        return reply

    def _read(self, descriptor: int) -> bool:
        """Take what there is; True if that is more than the program may write."""
        data = os.read(descriptor, _CHUNK)
        if not data:
            self._shut(descriptor)
            return self._over
        room = self._most - sum(map(len, self.texts.values()))
        self.texts[descriptor] += data[:room]
        self._over = self._over or len(data) > room
        return self._over

    def _write(self) -> None:
        try:
            while self._left:
                self._left = self._left[os.write(self._feed, self._left) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # It closed its input unread.
            self._left = self._left[:0]
        self._shut(self._feed)

    def _shut(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._open.discard(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        for descriptor in tuple(self._open):
            self._shut(descriptor)


def _base_interpreter() -> str:
    """The interpreter we run on, not that of a virtual environment around it."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def _is_root() -> bool:
    """Whether we are a root that can mount and become `NOBODY` (not, say, one in a container without the rights)."""
    if os.geteuid() != 0:
        return False
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    effective = int(status["CapEff"], 16)
    mapped = (tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return all(effective >> capability & 1 for capability in _CAPABILITIES) and any(
        first <= NOBODY < first + count for first, _, count in mapped
    )


def _system(interpreter: str) -> tuple[list[str], dict[str, str]]:
    """What a program needs of this system to run Python.

    Returns:
        Files and directories to show read-only, and symbolic links to make (path to target).
    """
    binds = ["/usr"]
    links = {"/dev/shm": "/tmp"}  # For semaphores and shared memory of `multiprocessing`.
    for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(path):
            links[path] = os.readlink(path)
        elif os.path.isdir(path):
            binds.append(path)
    if os.path.exists("/etc/ld.so.cache"):
        binds.append("/etc/ld.so.cache")
    prefix = Path(interpreter).parent.parent
    if not prefix.is_relative_to("/usr"):  # Not all of it: it may be somebody's home.
        parts = (Path(interpreter), prefix / "lib", prefix / "lib64")
        binds += [str(path) for path in parts if path.exists() and not path.is_symlink() and str(path) not in binds]
    return binds, links


def _command(isolation: str, interpreter: str, control: int, privileged: bool) -> list[str]:
    # -I would also ignore PYTHONHASHSEED; the environment holds nothing else that it is meant to ignore.
    python = [interpreter, "-s", "-P", "-S", "-B", "-X", "utf8", "-c", _BOOT]
    if isolation != "bwrap":
        return [*python, str(_INNER.parent), str(control)]
    program = shutil.which("bwrap")
    if program is None:
        raise FileNotFoundError("there is no program bwrap on the PATH")
    binds, links = _system(interpreter)
    command = [program, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if not privileged:
        command += ["--unshare-user", "--uid", "0", "--gid", "0"]
    command += ["--cap-add", "ALL", "--die-with-parent", "--hostname", HOST_NAME]
    # A directory that a bind makes on its way would be closed to others.
    targets = [ROOT + path for path in (*binds, *links, *DEVICES, "/tmp/any")]
    for folder in sorted({str(parent) for target in targets for parent in Path(target).parents} - {"/"}):
        command += ["--dir", folder]
    for root in ("", ROOT):  # For the worker and for the programs.
        for path in binds:
            command += ["--ro-bind", path, root + path]
        for path, target in links.items():
            command += ["--symlink", target, root + path]
    for device in DEVICES:
        command += ["--dev-bind", device, ROOT + device]
    command += ["--ro-bind", str(_INNER), f"{_INNER_PARENT}/{_INNER.name}"]
    command += ["--proc", "/proc", "--remount-ro", "/", "--chdir", "/"]
    return [*command, "--", *python, _INNER_PARENT, str(control)]
