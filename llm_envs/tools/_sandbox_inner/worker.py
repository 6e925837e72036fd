"""The worker: waits for programs, starts each in a process and namespaces of its own, and reports how it ended.

It never runs or reads a program itself; source, input and output go through descriptors that only the program's own
process uses. It is the only one that measures, limits and ends programs, and it ends when the other side goes away.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import site
import socket
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from . import ROOT, kernel, wall
from .program import FAILED, STARTED, Confinement, Request, start

POLL_S = 0.02
_FRESH = (
    kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)
_STATUS = struct.Struct("i")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# What programs import most; loaded once, so that a program need not. None of them keeps state of a program.
_PRELOAD = (
    "bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "io", "itertools",
    "json", "math", "operator", "random", "re", "string", "time", "traceback", "typing",
)  # fmt: skip


class ParentGoneError(Exception):
    """The other end of the control socket is closed."""


@dataclass(slots=True)
class Usage:
    """What the processes of a program use together.

    Args:
        pids: Their process ids.
        cpu_s: CPU seconds.
        resident: Bytes, shared pages counted once for each process.
    """

    pids: list[int]
    cpu_s: float = 0.0
    resident: int = 0


def main(descriptor: int) -> None:
    """Serve programs until the other side closes the socket.

    Args:
        descriptor: The control socket.
    """
    control = socket.socket(fileno=descriptor)
    config = json.loads(control.recv(1 << 20))
    isolation = config["isolation"]
    for module in _PRELOAD:  # Before the wall: behind it the worker sees no library.
        __import__(module)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The process that holds a program's namespace ignores it only so.
    try:
        if isolation == "userns":
            wall.build(binds=config["binds"], links=config["links"], privileged=config["privileged"])
        elif isolation == "none":  # It must live to clean up, so it ends with the socket, not with its parent.
            kernel.become_subreaper()
    except OSError as error:
        control.send(json.dumps({"error": str(error)}).encode())
        return
    confinement = Confinement(
        root="" if isolation == "none" else ROOT,
        folder=config["folder"],
        privileged=config["privileged"],
        seccomp=bytes.fromhex(config["seccomp"]),
    )
    os.environ.pop("PWD", None)  # Of bubblewrap.
    site.setquit()  # `exit` and `quit`, which the start without `site` left out.
    gc.freeze()
    control.send(json.dumps({"ready": True}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 4)
        if not message:
            return
        if not descriptors:  # Not a program but a late wish to end one that has ended meanwhile.
            continue
        try:
            reply = _run(control, Request(**json.loads(message)), confinement, descriptors)
        except ParentGoneError:
            return
        control.send(json.dumps(reply).encode())


def _run(control: socket.socket, request: Request, confinement: Confinement, descriptors: list[int]) -> dict[str, Any]:
    isolated = bool(confinement.root)
    report, report_end = os.pipe()
    folder = "" if isolated else tempfile.mkdtemp(prefix="llm-envs-run-", dir=confinement.folder)
    worker = os.getpid()
    try:
        pid = kernel.clone(_FRESH if isolated else 0)
    except OSError as error:
        _close(report, report_end, *descriptors)
        return {"failure": str(error)}
    if pid == 0:
        os.close(report)
        control.close()
        _hold(request, confinement, descriptors, report_end, 0 if isolated else worker, folder)
    _close(report_end, *descriptors)
    reason, seen = _watch(control, request, pid, isolated)
    _, _, usage = os.wait4(pid, 0)
    if not isolated:
        _end_descendants()
        shutil.rmtree(folder, ignore_errors=True)
    text = os.read(report, 4096)
    os.close(report)
    if reason == "gone":
        raise ParentGoneError
    if text.startswith(FAILED):
        return {"failure": text[1:].decode(errors="replace")}
    if not text.startswith(STARTED) and reason is None:
        return {"failure": "the process ended before the program started"}
    status = text.removeprefix(STARTED)
    return {
        "reason": reason,
        "exit_code": os.waitstatus_to_exitcode(_STATUS.unpack(status)[0]) if len(status) == _STATUS.size else None,
        # What was killed with its namespace is not in the kernel's sums.
        "cpu_s": max(usage.ru_utime + usage.ru_stime, seen.cpu_s),
        "peak_bytes": max(usage.ru_maxrss * 1024, seen.resident),
    }


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _hold(
    request: Request, confinement: Confinement, descriptors: list[int], report: int, parent: int, folder: str
) -> NoReturn:
    """Be the first process of a program's namespaces: when it ends, so does all that the program started."""
    try:
        kernel.die_with_parent(parent)
        if confinement.root:
            flags = kernel.MS_NOSUID | kernel.MS_NODEV
            data = f"mode=1777,size={request.tmp_bytes},nr_inodes=4096"
            kernel.mount("tmpfs", confinement.root + "/tmp", "tmpfs", flags, data)
        else:
            kernel.become_subreaper()
            os.chdir(folder)
        program = os.fork()
    except OSError as error:
        os.write(report, FAILED + str(error).encode())
        os._exit(1)
    if program == 0:
        try:
            start(request, confinement, descriptors, report)
        finally:  # Nothing may ever make it a second worker.
            os._exit(1)
    _close(*descriptors)
    ended = status = 0
    while ended != program:
        ended, status = os.waitpid(-1, 0)
    os.write(report, _STATUS.pack(status))
    os._exit(0)


def _watch(control: socket.socket, request: Request, pid: int, isolated: bool) -> tuple[str | None, Usage]:
    """Wait for the end of a program and hasten it where a limit is passed.

    Returns:
        Why it was ended (None if it ended by itself), and the most CPU time and the largest memory seen on the way.
    """
    deadline = time.monotonic() + request.wall_s
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(control, select.POLLIN)
    reason: str | None = None
    seen = Usage([])
    try:
        while True:
            left = deadline - time.monotonic()
            ready = dict(poll.poll(max(0.0, min(POLL_S, left)) * 1000))
            if handle in ready:
                return reason, seen
            usage = _measure(isolated)
            seen.cpu_s = max(seen.cpu_s, usage.cpu_s)
            if control.fileno() in ready:
                message = control.recv(1 << 16)
                reason = json.loads(message)["kill"] if message else "gone"
            elif left <= 0 or usage.cpu_s > request.cpu_s:
                reason = "timeout"
            elif usage.resident > request.memory_bytes:
                seen.resident = max(seen.resident, sum(map(_proportional, usage.pids)))
                reason = "memory" if seen.resident > request.memory_bytes else None
            elif len(usage.pids) > request.processes + 1:
                reason = "killed"
            if reason is not None:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                poll.unregister(control)
                poll.poll()
                return reason, seen
    finally:
        os.close(handle)


def _measure(isolated: bool) -> Usage:
    """What all processes of the running program use: in a namespace all but the first and the worker, else its tree."""
    stats: dict[int, list[str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(name)
            if fields:
                stats[int(name)] = fields
    own = os.getpid()
    pids = [pid for pid in stats if pid not in (1, own)] if isolated else _descendants(stats, own)
    usage = Usage(pids)
    for pid in pids:
        fields = stats[pid]
        usage.cpu_s += sum(map(int, fields[11:15])) / _TICKS
        usage.resident += int(fields[21]) * _PAGE
    return usage


def _stat(name: str) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; none if the process is gone."""
    try:
        text = Path("/proc", name, "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(b")")[2].decode().split()


def _descendants(stats: dict[int, list[str]], root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _proportional(pid: int) -> int:
    """Resident bytes of a process with shared pages divided among those that share them; 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0


def _end_descendants() -> None:
    """Without namespaces: kill and collect all that a program left behind, until nothing is left."""
    while True:
        for pid in _measure(isolated=False).pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)
