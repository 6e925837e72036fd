"""The outer wall without bubblewrap: namespaces and a root file system of our own making.

It leaves the worker where bubblewrap would: alone in its namespaces, with a small read-only system at `ROOT` for the
programs, a /proc that only the worker sees, and nothing of the host's files.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from . import DEVICES, HOST_NAME, ROOT, kernel

_MOUNT = kernel.MS_NOSUID | kernel.MS_NODEV
# Any directory that surely exists and of which nothing is needed any more.
_BASE = "/tmp"


def build(*, binds: list[str], links: dict[str, str], privileged: bool) -> None:
    """Move this process behind the wall; returns in a child that is process 1 there.

    Args:
        binds: Files and directories of the host to show read-only, at the same paths.
        links: Symbolic links to make, path to target.
        privileged: The caller is a real root, which needs no user namespace of its own to mount.

    Raises:
        OSError: The kernel refused a step.
    """
    flags = (
        kernel.CLONE_NEWNS
        | kernel.CLONE_NEWPID
        | kernel.CLONE_NEWNET
        | kernel.CLONE_NEWIPC
        | kernel.CLONE_NEWUTS
        | kernel.CLONE_NEWCGROUP
    )
    uid, gid, parent = os.getuid(), os.getgid(), os.getppid()
    if privileged:
        kernel.unshare(flags)
    else:
        kernel.unshare(flags | kernel.CLONE_NEWUSER)
        kernel.map_ids(uid=0, gid=0, outer_uid=uid, outer_gid=gid)
    kernel.die_with_parent(parent)
    child = os.fork()
    if child:
        os.closerange(0, 1024)
        os.waitpid(child, 0)
        os._exit(0)
    kernel.die_with_parent(0)
    socket.sethostname(HOST_NAME)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", _BASE, "tmpfs", _MOUNT, "mode=755,size=1m")
    root = Path(_BASE + ROOT)
    for path in binds:
        _bind(path, root)
    _make_read_only(str(root))
    for device in DEVICES:
        _bind(device, root)
    for path, target in links.items():
        _inside(root, path).symlink_to(target)
    (root / "tmp").mkdir(mode=0o1777)
    proc = Path(_BASE, "proc")
    proc.mkdir()
    kernel.mount("proc", str(proc), "proc", _MOUNT | kernel.MS_NOEXEC)
    os.chdir(_BASE)
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    os.chdir("/")
    kernel.mount("none", "/", flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | _MOUNT)


def _inside(root: Path, path: str) -> Path:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _bind(path: str, root: Path) -> None:
    target = _inside(root, path)
    if os.path.isdir(path):
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    kernel.mount(path, str(target), flags=kernel.MS_BIND | kernel.MS_REC)


def _make_read_only(root: str) -> None:
    """Take the right to write from every mount below `root`, also from those that came along with a bind."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        target = fields[4].encode().decode("unicode_escape").encode("latin-1").decode()
        if not target.startswith(root + "/"):
            continue
        # A user namespace may not take noexec off what it inherits.
        keep = kernel.MS_NOEXEC if "noexec" in fields[5].split(",") else 0
        kernel.mount("none", target, flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | _MOUNT | keep)
