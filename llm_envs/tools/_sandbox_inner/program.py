"""What happens in the process that runs one program: confinement, then the program."""

from __future__ import annotations

import atexit
import math
import os
import resource
import signal
import sys
import threading
import types
from dataclasses import dataclass
from typing import NoReturn

from . import MEMORY_SIGNAL, NOBODY, kernel

STARTED = b"S"
FAILED = b"F"


@dataclass(frozen=True, slots=True)
class Request:
    """One program to run, as the worker gets it.

    Args:
        cpu_s: CPU seconds.
        wall_s: Seconds.
        memory_bytes: Address space of each process, resident size of all.
        processes: Processes and threads at a time.
        file_bytes: Size of a file.
        tmp_bytes: Size of /tmp.
        open_files: File descriptors of a process.
        output_bytes: What the other side reads of each stream; not used here.
    """

    cpu_s: float
    wall_s: float
    memory_bytes: int
    processes: int
    file_bytes: int
    tmp_bytes: int
    open_files: int
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Confinement:
    """How programs are confined by this worker.

    Args:
        root: Their root directory; empty without isolation.
        folder: Without isolation, where to make the directory a program runs in.
        privileged: The worker is a real root and must change to an ordinary user first.
        seccomp: BPF program, or empty.
    """

    root: str
    folder: str
    privileged: bool
    seccomp: bytes


def start(request: Request, confinement: Confinement, descriptors: list[int], report: int) -> NoReturn:
    """Become the program.

    Args:
        request: The limits.
        confinement: The walls.
        descriptors: Source, standard input, output and error.
        report: Pipe to the worker, for `STARTED` or `FAILED` with a text.
    """
    try:
        if not confinement.root:
            kernel.die_with_parent(os.getppid())
        source = _read_all(descriptors[0])
        os.setsid()
        for number, descriptor in enumerate(descriptors[1:]):
            os.dup2(descriptor, number)
        if confinement.root:
            _enter(confinement)
        with open("main.py", "wb") as file:  # For tracebacks, `inspect` and `multiprocessing`.
            file.write(source)
        _limit(request, isolated=bool(confinement.root))
        if confinement.root:
            kernel.drop_capabilities()
        kernel.set_no_new_privileges()
        if confinement.seccomp:
            kernel.load_seccomp(confinement.seccomp)
        os.write(report, STARTED)
        os.closerange(3, _most_descriptors(descriptors, report) + 1)
    except OSError as error:
        os.write(report, FAILED + str(error).encode())
        os._exit(1)
    execute(source)


def _read_all(descriptor: int) -> bytes:
    chunks = []
    while chunk := os.read(descriptor, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def _most_descriptors(descriptors: list[int], report: int) -> int:
    # The worker opens few files and never closes low numbers to keep high ones: all it holds lie well below this.
    return max(1024, *descriptors, report)


def _enter(confinement: Confinement) -> None:
    uid, gid = os.geteuid(), os.getegid()
    if confinement.privileged:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.set_dumpable()
        uid = gid = NOBODY
    kernel.unshare(kernel.CLONE_NEWUSER)
    kernel.map_ids(uid=NOBODY, gid=NOBODY, outer_uid=uid, outer_gid=gid)
    os.chroot(confinement.root)
    os.chdir("/tmp")


def _limit(request: Request, *, isolated: bool) -> None:
    cpu = math.ceil(request.cpu_s) + 1  # Behind the worker, which counts all processes together and more finely.
    limits = {
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_AS: (request.memory_bytes, request.memory_bytes),
        resource.RLIMIT_FSIZE: (request.file_bytes, request.file_bytes),
        resource.RLIMIT_NOFILE: (request.open_files, request.open_files),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
    }
    if isolated:  # Elsewhere it counts all processes of the user, the caller's own among them.
        limits[resource.RLIMIT_NPROC] = (request.processes, request.processes)
    for kind, (soft, hard) in limits.items():
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))


def execute(source: bytes) -> NoReturn:
    """Run a program as `python main.py` would, and leave the process with its exit code.

    Args:
        source: Python source in UTF-8.
    """
    path = os.path.join(os.getcwd(), "main.py")
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=sys.modules["builtins"])
    for name in [name for name in sys.modules if name.partition(".")[0] == __name__.partition(".")[0]]:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.argv = ["main.py"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out_of_memory = False
    code = 0
    try:
        text = source.decode("utf-8", "surrogatepass")
        exec(compile(text, path, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - what a sandbox is for
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:  # noqa: BLE001 - as the interpreter does at its top level
        out_of_memory = isinstance(error, MemoryError)
        code = 1
        _show(error)
    code = _finish(code)
    if out_of_memory:
        os.kill(os.getpid(), MEMORY_SIGNAL)
    os._exit(code)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    _write_error(f"{error.code}\n")
    return 1


def _show(error: BaseException) -> None:
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException:  # noqa: BLE001 - the hook is the program's
        _write_error(f"{type(error).__name__}\n")


def _write_error(text: str) -> None:
    try:
        sys.stderr.write(text)
    except BaseException:  # noqa: BLE001 - the stream is the program's
        return


def _finish(code: int) -> int:
    """Do what the interpreter does at its end: wait for threads, call exit handlers, flush."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - the handlers are the program's
        code = code or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: BLE001 - the stream is the program's
            code = code or 120
    return code
