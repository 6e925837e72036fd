"""What runs inside the sandbox to test a program: a process for each test, and one that only watches.

Sent into the sandbox as text, together with `plain_data`; never imported. The driver forks a child for each test before
any line of the program has run. The child gives up the driver's own output before it runs the program, so what the
program prints, patches or writes cannot become a report: it ends in the pipes of its own test, whose content the driver
passes on in base64. Expected outputs are not in here at all; they are compared on the other side of the wall.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
import types
from typing import Any

MOST_ERROR_BYTES = 4000
CHUNK = 1 << 16
PR_SET_DUMPABLE = 4


def read_all(descriptor: int) -> bytes:
    chunks = []
    while chunk := os.read(descriptor, CHUNK):
        chunks.append(chunk)
    return b"".join(chunks)


def write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class Watch:
    """Feeds one child and collects what it writes, until it ends or a limit is passed."""

    def __init__(self, pid: int, feed: int, outputs: dict[str, int], text: bytes, wall_s: float, most: int) -> None:
        self.pid = pid
        self.feed = feed
        self.left = memoryview(text)
        self.names = {descriptor: name for name, descriptor in outputs.items()}
        self.texts = {name: bytearray() for name in outputs}
        self.deadline = time.monotonic() + wall_s
        self.most = most
        self.poll = select.poll()
        for descriptor in self.names:
            os.set_blocking(descriptor, False)
            self.poll.register(descriptor, select.POLLIN)
        os.set_blocking(feed, False)
        self.poll.register(feed, select.POLLOUT)

    def finish(self) -> dict[str, Any]:
        ended = self.wait()
        if ended is not None:
            os.kill(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if ended is None and self.drain():
            ended = "output"
        for descriptor in (*self.names, *([self.feed] if self.feed >= 0 else [])):
            os.close(descriptor)
        report: dict[str, Any] = {name: base64.b64encode(text).decode() for name, text in self.texts.items()}
        report["ended"] = ended
        report["exit"] = os.waitstatus_to_exitcode(status)
        report["cpu_s"] = usage.ru_utime + usage.ru_stime
        return report

    def wait(self) -> str | None:
        """Returns why the child must be ended, or None once it has ended by itself."""
        handle = os.pidfd_open(self.pid)
        self.poll.register(handle, select.POLLIN)
        try:
            while True:
                left = self.deadline - time.monotonic()
                if left <= 0:
                    return "timeout"
                for descriptor, _ in self.poll.poll(left * 1000):
                    if descriptor == handle:
                        return None
                    if descriptor == self.feed:
                        self.write()
                    elif self.read(descriptor):
                        return "output"
        finally:
            self.poll.unregister(handle)
            os.close(handle)

    def write(self) -> None:
        try:
            while self.left:
                self.left = self.left[os.write(self.feed, self.left) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # It closed its input unread.
            pass
        self.poll.unregister(self.feed)
        os.close(self.feed)
        self.feed = -1

    def read(self, descriptor: int) -> bool:
        """Take what there is; True if that is more than the program may write."""
        name = self.names[descriptor]
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.poll.unregister(descriptor)
            os.close(descriptor)
            del self.names[descriptor]
            return False
        text = self.texts[name]
        text += data
        if name == "err":
            del text[:-MOST_ERROR_BYTES]
            return False
        over = len(text) > self.most
        del text[self.most :]
        return over

    def drain(self) -> bool:
        """Take what the child wrote last; what it left running may hold the pipes open."""
        over = False
        for descriptor in tuple(self.names):
            size = -1
            while descriptor in self.names and len(self.texts[self.names[descriptor]]) != size and not over:
                size = len(self.texts[self.names[descriptor]])
                over = self.read(descriptor)
        return over


def serve(request: dict[str, Any]) -> Any:
    """Run all tests. Returns the test to run in each child; never returns in the driver."""
    # The tests run as the same user: without this they could reach into the driver where no filter forbids it.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    cpu = int(request["cpu_s"]) + 1
    for number, test in enumerate(request["tests"]):
        feed_end, feed = os.pipe()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        result, result_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            # In this order: only the first of them can have a number below 4.
            for place, descriptor in enumerate((feed_end, out_end, err_end, result_end)):
                os.dup2(descriptor, place)
            os.closerange(4, 256)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
            os.mkdir(f"test_{number}")
            os.chdir(f"test_{number}")
            return test
        for descriptor in (feed_end, out_end, err_end, result_end):
            os.close(descriptor)
        text = test.encode("utf-8", "surrogatepass") if request["entry_point"] is None else b""
        outputs = {"out": out, "err": err, "result": result}
        report = Watch(pid, feed, outputs, text, request["wall_s"], request["output_bytes"]).finish()
        report["cpu_over"] = report["cpu_s"] > request["cpu_s"]
        write_all(1, json.dumps(report).encode() + b"\n")
        if report["ended"] == "timeout" or report["cpu_over"]:
            break  # One such test costs more than all the others: the rest counts as not passed.
    os._exit(0)


def run(request: dict[str, Any], test: Any) -> None:
    """Be the program, in a child. What it raises ends the process as it would end any program."""
    entry_point = request["entry_point"]
    module = types.ModuleType("__main__" if entry_point is None else "solution")
    module.__file__ = "solution.py"
    sys.modules[module.__name__] = module
    sys.argv = ["solution.py"]
    for source, name in ((request["prelude"], "prelude.py"), (request["program"], "solution.py")):
        if source:
            exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - a sandbox is for this
    if entry_point is None:
        return
    function = getattr(module, entry_point, None)
    if function is None and hasattr(module, "Solution"):  # The form of some judges: a method of class Solution.
        function = getattr(module.Solution(), entry_point, None)
    if function is None:
        raise NameError(f"the program defines no function {entry_point}")
    arguments, keywords = decode(test)  # type: ignore[name-defined] # noqa: F821 - of plain_data
    value = function(*arguments, **keywords)
    write_all(3, json.dumps(encode(value)).encode())  # type: ignore[name-defined] # noqa: F821


if __name__ == "__main__":
    REQUEST = json.loads(read_all(0))
    run(REQUEST, serve(REQUEST))
