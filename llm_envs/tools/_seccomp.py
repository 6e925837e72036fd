"""The seccomp filter of the sandbox, made with the system's libseccomp where there is one.

The walls hold without it. It takes system calls away that programs do not need and in which kernels had faults, and
three ways to hold memory that no limit counts (`memfd_create`, System V segments, huge socket buffers of odd families).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import logging
import os
import socket

_LIBRARY = "libseccomp.so.2"
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NOT_EQUAL = 1
_MASKED_EQUAL = 7
_NAMESPACE_FLAGS = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)

_REFUSED = (
    # Mounts, roots and namespaces.
    "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "fsopen", "fsconfig", "fsmount", "fspick",
    "move_mount", "open_tree", "mount_setattr", "name_to_handle_at", "open_by_handle_at", "fanotify_init",
    # Other processes.
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    # The kernel itself and its larger interfaces.
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "bpf", "perf_event_open",
    "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "iopl", "ioperm", "syslog", "acct",
    "add_key", "request_key", "keyctl", "quotactl", "swapon", "swapoff", "reboot", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "vhangup", "personality",
    # Memory that outlives every mapping of it.
    "memfd_create", "memfd_secret", "shmget", "msgget", "mq_open",
)  # fmt: skip

_log = logging.getLogger(__name__)


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


@functools.cache
def program() -> bytes:
    """The filter as classic BPF for this machine.

    Returns:
        The instructions, 8 bytes each; empty if libseccomp is not installed.

    Raises:
        OSError: libseccomp is there but failed.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        _log.warning("%s is not installed: programs in the sandbox run without a seccomp filter", _LIBRARY)
        return b""
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))
    descriptor = os.memfd_create("seccomp")
    try:
        for name in _REFUSED:
            _refuse(library, context, name, errno.EPERM)
        _refuse(library, context, "socket", errno.EPERM, _Comparison(0, _NOT_EQUAL, socket.AF_UNIX, 0))
        for flag in _NAMESPACE_FLAGS:
            _refuse(library, context, "clone", errno.EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag))
        # Its flags lie in memory, where no filter sees them; the C library falls back to clone.
        _refuse(library, context, "clone3", errno.ENOSYS)
        _check(library.seccomp_export_bpf(context, descriptor), "seccomp_export_bpf")
        size = os.lseek(descriptor, 0, os.SEEK_END)
        return os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)
        library.seccomp_release(context)


def _refuse(library: ctypes.CDLL, context: ctypes.c_void_p, name: str, error: int, *when: _Comparison) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number < 0:  # This machine or this libseccomp has no such call.
        return
    comparisons = (_Comparison * len(when))(*when)
    action = ctypes.c_uint32(_ERRNO | error)
    _check(library.seccomp_rule_add_array(context, action, number, len(when), comparisons), f"seccomp rule for {name}")


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
