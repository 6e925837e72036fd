"""The few Linux calls the sandbox needs that Python 3.11 has no function for, through the C library."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x0001
MS_NOSUID = 0x0002
MS_NODEV = 0x0004
MS_NOEXEC = 0x0008
MS_REMOUNT = 0x0020
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

# Numbers of (clone, pivot_root): neither has a usable wrapper in the C library.
_SYSCALLS = {
    "x86_64": (56, 155),
    "aarch64": (220, 41),
    "riscv64": (220, 41),
    "ppc64le": (120, 203),
}

_libc = ctypes.CDLL(None, use_errno=True)
# Holds the interpreter lock during the call: a process must not be cloned while the lock is free.
_locked_libc = ctypes.PyDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _syscall_numbers() -> tuple[int, int]:
    machine = platform.machine()
    if machine not in _SYSCALLS:
        raise OSError(f"the sandbox knows no system call numbers for {machine}; it knows {', '.join(_SYSCALLS)}")
    return _SYSCALLS[machine]


def clone(flags: int) -> int:
    """Fork into new namespaces (`fork` with `CLONE_NEW*` flags).

    Args:
        flags: The `CLONE_NEW*` flags; 0 is a plain fork.

    Returns:
        0 in the child, the child's process id in the parent.

    Raises:
        OSError: The kernel refused.
    """
    if not flags:
        return os.fork()
    number = _syscall_numbers()[0]
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = _locked_libc.syscall(ctypes.c_long(number), ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _check(pid, f"clone({flags:#x})")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system (for the arguments see the manual page)."""
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
        ),
        f"mount({source} on {target})",
    )


def unmount(target: str) -> None:
    """Detach the mount at `target`."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"umount({target})")


def pivot_root(new_root: str, old_root: str) -> None:
    """Make `new_root` the root of this mount namespace and put the old one at `old_root`."""
    number = _syscall_numbers()[1]
    _check(_libc.syscall(ctypes.c_long(number), new_root.encode(), old_root.encode()), f"pivot_root({new_root})")


def _prctl(option: int, second: object = 0, third: object = 0) -> int:
    return _libc.prctl(ctypes.c_int(option), _word(second), _word(third), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _word(value: object) -> object:
    return ctypes.c_ulong(value) if isinstance(value, int) else value


def die_with_parent(parent: int) -> None:
    """Get SIGKILL when the thread that made this process ends.

    Args:
        parent: Process id of the parent as this process sees it; 0 if it lives in an outer pid namespace.
    """
    _check(_prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL)), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # It died before the call.
        os._exit(1)


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that a process that daemonises stays in our tree."""
    _check(_prctl(_PR_SET_CHILD_SUBREAPER, 1), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_dumpable() -> None:
    """Own this process' files in /proc again after a change of user."""
    _check(_prctl(_PR_SET_DUMPABLE, 1), "prctl(PR_SET_DUMPABLE)")


def set_no_new_privileges() -> None:
    """Make set-user-id bits and file capabilities void for this process and all it starts."""
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl(PR_SET_NO_NEW_PRIVS)")


def drop_capabilities() -> None:
    """Empty all capability sets, the bounding set first."""
    for capability in range(_LAST_CAPABILITY + 1):
        if _prctl(_PR_CAPBSET_DROP, capability) < 0:
            if capability and ctypes.get_errno() == errno.EINVAL:
                break  # The kernel knows no further capability.
            _check(-1, f"prctl(PR_CAPBSET_DROP, {capability})")
    _check(_prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL), "prctl(PR_CAP_AMBIENT)")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def load_seccomp(program: bytes) -> None:
    """Install a seccomp filter.

    Args:
        program: Classic BPF instructions, 8 bytes each.
    """
    pointer = ctypes.byref(_Program(len(program) // 8, program))
    _check(_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer), "prctl(PR_SET_SECCOMP)")


def map_ids(*, uid: int, gid: int, outer_uid: int, outer_gid: int) -> None:
    """Give this process, alone in a new user namespace, one user and one group.

    Args:
        uid: User id seen inside.
        gid: Group id seen inside.
        outer_uid: The same user as the parent namespace knows it.
        outer_gid: The same group as the parent namespace knows it.
    """
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
