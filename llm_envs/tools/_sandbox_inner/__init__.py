"""The part of the sandbox that runs on the other side of the wall.

A worker process is started once inside the wall (see `worker`). For every request it makes a process in namespaces of
its own, which runs one program and is never used again (see `program`). The package imports nothing but the standard
library, nothing of the rest of the project, and is started without `site`.
"""

from __future__ import annotations

ROOT = "/r"
"""Where, as the worker sees it, the root directory of the programs is.

It is not the root of the mount namespace: the kernel then refuses programs any further user namespace.
"""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
HOST_NAME = "sandbox"

NOBODY = 65534
"""User and group of the programs, inside; outside too if the caller is root."""

MEMORY_SIGNAL = 63
"""The signal (SIGRTMAX - 1) a program dies of that a MemoryError ended. No exit code: they are all the program's."""
