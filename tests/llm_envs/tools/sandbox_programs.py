"""Programs that try to get out of the sandbox, for the tests of it.

Each prints BREACH with what it reached, and `end` when it got through all it meant to try. `@SECRET_FILE@`, `@SOCKET@`,
`@HOST_PID@` and `@MARK@` stand for things of the host that the test makes.
"""

from __future__ import annotations

from dataclasses import dataclass

PRELUDE = """
import ctypes, errno, os, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def breach(*what):
    print("BREACH", *what, flush=True)
def must_fail(what, action, *args, **options):
    try:
        value = action(*args, **options)
    except (OSError, ValueError, subprocess.SubprocessError):
        return
    breach(what, value)
def call_must_fail(name, *args):
    if getattr(libc, name)(*args) >= 0:
        breach(name, args)
def finish():
    print("end", flush=True)
"""


@dataclass(frozen=True)
class Program:
    name: str
    code: str
    statuses: tuple[str, ...] = ("ok",)
    """What may become of it. Where only "ok" is listed, it must also have reached its end."""


def _tries(name: str, code: str) -> Program:
    return Program(name, PRELUDE + code + "\nfinish()\n")


def _hogs(name: str, code: str, *statuses: str) -> Program:
    return Program(name, PRELUDE + code, statuses)


READING = [
    _tries(
        "reads-shadow", "for p in ('/etc/shadow', '/etc/passwd', '/etc/hostname', '/etc/ssl'): must_fail(p, os.stat, p)"
    ),
    _tries("reads-secret-file", "must_fail('secret', open, '@SECRET_FILE@')"),
    _tries(
        "reads-home",
        """
for folder in ('/root', '/home'):
    for path, folders, files in os.walk(folder):
        if not sys.base_prefix.startswith(path) and not path.startswith(sys.base_prefix):
            breach(path)
        if files and not path.startswith(sys.base_prefix):
            breach(path, files)
""",
    ),
    _tries(
        "lists-root",
        """
allowed = {'bin', 'dev', 'etc', 'lib', 'lib32', 'lib64', 'libx32', 'sbin', 'tmp', 'usr', sys.base_prefix.split('/')[1]}
if set(os.listdir('/')) - allowed:
    breach(os.listdir('/'))
if set(os.listdir('/etc')) - {'ld.so.cache'}:
    breach(os.listdir('/etc'))
""",
    ),
    _tries("reads-environment", "if any('@MARK@' in v for v in os.environ.values()): breach('environ')"),
    _tries(
        "reads-c-environment",
        """
names = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, 'environ')
i = 0
while names[i]:
    if b'@MARK@' in names[i]: breach(names[i])
    i += 1
""",
    ),
    _tries(
        "reads-proc",
        """
for p in ('/proc/1/environ', '/proc/1/root', '/proc/self/root', '/proc/@HOST_PID@', '/proc/self/mem', '/proc/kcore',
          '/proc/self/fd', '/proc/sys/kernel', '/proc/mounts', '/proc/self/mountinfo'):
    must_fail(p, os.stat, p)
""",
    ),
    _tries(
        "mounts-own-proc",
        "os.mkdir('p'); call_must_fail('mount', b'proc', b'p', b'proc', 0, None)\nif os.listdir('p'): breach('p')",
    ),
    _tries(
        "reads-sys",
        """
for p in ('/sys', '/sys/fs/cgroup', '/run', '/var', '/boot', '/srv', '/mnt', '/opt'):
    must_fail(p, os.listdir, p)
""",
    ),
    _tries(
        "reads-control-sockets",
        "for p in ('/var/run/docker.sock', '/run/dbus/system_bus_socket', '/run/systemd'): must_fail(p, os.stat, p)",
    ),
    _tries(
        "reads-devices",
        """
if set(os.listdir('/dev')) - {'null', 'zero', 'full', 'random', 'urandom', 'shm'}:
    breach(os.listdir('/dev'))
""",
    ),
    _tries(
        "makes-device",
        """
for kind in (0o060000, 0o020000):
    for major, minor in ((254, 0), (8, 0), (1, 1), (259, 0)):
        must_fail('mknod', os.mknod, 'd', kind | 0o600, os.makedev(major, minor))
""",
    ),
    _tries(
        "reads-other-memory",
        """
class Part(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
for pid in (1, os.getppid(), @HOST_PID@):
    ours, theirs = Part(ctypes.addressof(buffer), 8), Part(id(1), 8)
    call_must_fail('process_vm_readv', pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    call_must_fail('process_vm_writev', pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
""",
    ),
    _tries(
        "opens-by-handle",
        """
call_must_fail('open_by_handle_at', -100, ctypes.create_string_buffer(b'\\x08\\0\\0\\0\\x01\\0\\0\\0\\x02', 32), 0)
""",
    ),
    _tries(
        "climbs-with-dots",
        """
must_fail('dots', open, '../' * 40 + '@SECRET_FILE@'.lstrip('/'))
os.chdir('/')
must_fail('dots', open, '..' + '@SECRET_FILE@')
""",
    ),
    _tries(
        "follows-symlink",
        """
os.symlink('@SECRET_FILE@', 'l')
must_fail('link', open, 'l')
os.symlink('/proc/1/root', 'r')
must_fail('link', os.listdir, 'r')
""",
    ),
    _tries(
        "finds-open-files", "found = [fd for fd in range(3, 4096) if libc.fcntl(fd, 1) >= 0]\nif found: breach(found)"
    ),
    _tries(
        "finds-worker-objects",
        """
import gc
for thing in gc.get_objects():
    if isinstance(thing, socket.socket) and thing.fileno() >= 0:
        breach(thing)
frame = sys._getframe()
while frame := frame.f_back:
    for value in frame.f_locals.values():
        if isinstance(value, socket.socket) and value.fileno() >= 0:
            breach(value)
""",
    ),
]

NETWORK = [
    _tries(
        "opens-sockets",
        """
for family in range(2, 47):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            s = socket.socket(family, kind, 0)
        except OSError:
            continue
        if family in (socket.AF_INET, socket.AF_INET6):  # Without seccomp it may exist, but there is nobody to talk to.
            host = '127.0.0.1' if family == socket.AF_INET else '::1'
            must_fail('connect', s.connect, (host, 22))
""",
    ),
    _tries("resolves-names", "must_fail('dns', socket.getaddrinfo, 'example.org', 80)"),
    _tries("connects-outside", "must_fail('tcp', socket.create_connection, ('1.1.1.1', 53), 0.2)"),
    _tries(
        "connects-abstract-socket", "s = socket.socket(socket.AF_UNIX)\nmust_fail('abstract', s.connect, '\\0@MARK@')"
    ),
    _tries("connects-file-socket", "s = socket.socket(socket.AF_UNIX)\nmust_fail('file', s.connect, '@SOCKET@')"),
]

WRITING = [
    _tries(
        "writes-outside-tmp",
        """
for folder in ('/', '/usr', '/usr/lib', '/etc', '/dev', '/bin', '/lib', '/root', '/home', sys.base_prefix,
               os.path.dirname(os.__file__)):
    must_fail(folder, open, folder + '/@MARK@', 'w')
    must_fail(folder, os.mkdir, folder + '/@MARK@')
    must_fail(folder, os.symlink, '/tmp', folder + '/@MARK@')
""",
    ),
    _tries(
        "writes-through-symlink",
        """
os.symlink('/usr', 'u')
must_fail('u', open, 'u/@MARK@', 'w')
os.symlink(os.__file__, 'o')
must_fail('o', open, 'o', 'a')
""",
    ),
    _tries("links-system-file", "must_fail('link', os.link, os.__file__, 'hard')"),
    _tries(
        "changes-system-file",
        """
for path in (sys.executable, os.__file__, '/usr', '/'):
    must_fail('chmod', os.chmod, path, 0o777)
    must_fail('utime', os.utime, path)
    must_fail('chown', os.chown, path, os.getuid(), os.getgid())
    must_fail('rename', os.rename, path, path + '@MARK@')
must_fail('truncate', os.truncate, os.__file__, 0)
must_fail('unlink', os.unlink, os.__file__)
""",
    ),
    _tries(
        "remounts", "for p in (b'/', b'/usr', b'/tmp'): call_must_fail('mount', b'none', p, None, 0x20 | 0x1000, None)"
    ),
    _tries(
        "writes-shared-memory",
        "open('/dev/shm/@MARK@', 'w').write('x')\nif not os.path.exists('/tmp/@MARK@'): breach('elsewhere')",
    ),
    _tries(
        "writes-device", "must_fail('chmod', os.chmod, '/dev/null', 0)\nmust_fail('unlink', os.unlink, '/dev/null')"
    ),
]

PRIVILEGES = [
    _tries(
        "mounts",
        """
os.mkdir('m')
call_must_fail('mount', b'tmpfs', b'm', b'tmpfs', 0, None)
call_must_fail('mount', b'/usr', b'm', None, 0x1000, None)
call_must_fail('umount2', b'/tmp', 2)
""",
    ),
    _tries(
        "unshares",
        """
for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x10020000):
    call_must_fail('unshare', flag)
""",
    ),
    _tries(
        "clones-namespace",
        """
for flag in (0x10000000, 0x20000000, 0x10000000 | 0x20000):
    pid = libc.syscall(56, flag | 17, None, None, None, None) if os.uname().machine == 'x86_64' else -1
    if pid == 0: os._exit(0)
    if pid > 0: breach('clone', hex(flag))
""",
    ),
    _tries(
        "enters-namespace",
        """
for fd in range(64):
    call_must_fail('setns', fd, 0)
call_must_fail('setns', os.pidfd_open(1), 0x20000)
must_fail('pidfd', os.pidfd_open, @HOST_PID@)
""",
    ),
    _tries("chroots", "os.mkdir('c')\nmust_fail('chroot', os.chroot, 'c')\ncall_must_fail('syscall', 155, b'.', b'.')"),
    _tries(
        "becomes-root",
        """
for change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setreuid(0, 0), lambda: os.setresuid(0, 0, 0),
               lambda: os.setgroups([0]), lambda: os.setuid(1000)):
    must_fail('setuid', change)
if os.getuid() == 0 or os.geteuid() == 0 or 0 in os.getgroups(): breach(os.getuid())
""",
    ),
    _tries(
        "runs-setuid-program",
        """
import shutil
for name in ('su', 'passwd', 'mount', 'newgrp', 'chsh'):
    path = shutil.which(name)
    if path:
        r = subprocess.run([path, '--version'], stdin=subprocess.DEVNULL, capture_output=True, timeout=2)
shutil.copy('/usr/bin/id', 'id')
os.chmod('id', 0o6755)
out = subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout.strip()
if out == '0': breach('setuid')
""",
    ),
    _tries(
        "raises-capabilities",
        """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
full = (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)
call_must_fail('capset', header, full)
data = (ctypes.c_uint32 * 6)()
libc.capget(header, data)
if any(data):
    breach(list(data))
""",
    ),
    _tries(
        "lacks-no-new-privileges",
        """
if libc.prctl(39, 0, 0, 0, 0) != 1:
    breach('no_new_privs')
if any(libc.prctl(23, c, 0, 0, 0) == 1 for c in range(64)):
    breach('bounding set')
""",
    ),
    _tries(
        "traces",
        """
libc.ptrace.restype = ctypes.c_long
for pid in (1, os.getppid(), @HOST_PID@):
    call_must_fail('ptrace', 16, pid, None, None)
    call_must_fail('ptrace', 0x4206, pid, None, None)
""",
    ),
    _tries(
        "calls-kernel-interfaces",
        """
if os.uname().machine == 'x86_64':
    attributes = ctypes.create_string_buffer(128)
    # bpf, perf_event_open, init_module, acct, swapon
    for number, *args in ((321, 0, attributes, 128), (246, 0, 0, None, 0), (175, None, 0, b''),
                          (163, b'/tmp/a'), (167, b'/tmp/a', 0)):
        if libc.syscall(number, *args) >= 0: breach('syscall', number)
""",
    ),
    _tries(
        "sets-host-name", "must_fail('name', socket.sethostname, '@MARK@')\ncall_must_fail('setdomainname', b'x', 1)"
    ),
    _tries("sets-clock", "must_fail('clock', time.clock_settime, time.CLOCK_REALTIME, 0)"),
    _tries(
        "raises-priority",
        """
must_fail('nice', os.setpriority, os.PRIO_PROCESS, 0, -20)
must_fail('fifo', os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(99))
""",
    ),
    _tries(
        "raises-limits",
        """
import resource
for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NPROC,
             resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
    soft, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY: breach('no limit', kind)
    must_fail('limit', resource.setrlimit, kind, (hard + 1, hard + 1))
""",
    ),
]

SIGNALS = [
    _tries(
        "kills-others",
        """
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    for pid in (1, -1, os.getppid(), @HOST_PID@):
        try:
            os.kill(pid, number)
        except OSError:
            pass
""",
    ),
    _hogs(
        "limits-its-keeper",
        """
import resource
try:
    resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))
except OSError:
    pass
while True:
    os.getppid()
""",
        "timeout",
        "killed",
    ),
    _hogs("kills-itself", "os.kill(os.getpid(), signal.SIGKILL)", "killed"),
    _hogs("stops-itself", "os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
    _hogs(
        "ignores-signals",
        """
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
        "timeout",
    ),
]

HOGS = [
    _hogs("loops", "while True: pass", "timeout"),
    _hogs("sleeps", "time.sleep(1000)", "timeout"),
    _hogs("fork-bomb", "while True:\n    try: os.fork()\n    except OSError: pass", "timeout", "memory"),
    _hogs(
        "exec-bomb",
        """
while True:
    try: subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])
    except OSError: time.sleep(.01)
""",
        "timeout",
        "memory",
    ),
    _hogs(
        "thread-bomb",
        "while True: threading.Thread(target=time.sleep, args=(1000,)).start()",
        "error",
        "timeout",
        "memory",
    ),
    _hogs("allocates-10-gb", "x = bytearray(10 << 30)", "memory"),
    _hogs("allocates-slowly", "x = []\nwhile True: x.append(bytearray(1 << 20))", "memory"),
    _hogs(
        "allocates-in-many",
        """
for i in range(20):
    if os.fork() == 0:
        x = bytearray(60 << 20)
        time.sleep(1000)
time.sleep(1000)
""",
        "memory",
        "timeout",
    ),
    _hogs(
        "maps-shared-memory",
        "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20); m.write(b'1' * (8 << 20)); x.append(m)",
        "error",
        "memory",
    ),
    _hogs("writes-10-gb", "block = 'x' * (1 << 20)\nfor i in range(10 << 10): print(block)", "output"),
    _hogs("writes-10-gb-of-errors", "block = b'x' * (1 << 20)\nwhile True: os.write(2, block)", "output"),
    _hogs("writes-without-newline", "while True: sys.stdout.write('x')", "output"),
    _hogs("writes-huge-file", "with open('big', 'wb') as f:\n    while True: f.write(b'x' * (1 << 20))", "error"),
    _hogs(
        "fills-tmp", "for i in range(10 ** 6):\n    with open(f'f{i}', 'wb') as f: f.write(b'x' * (1 << 20))", "error"
    ),
    _hogs("makes-many-files", "for i in range(10 ** 6): open(f'f{i}', 'w').close()", "error", "timeout"),
    _hogs("opens-many-files", "x = [open('/dev/null') for _ in range(10 ** 5)]", "error"),
    _hogs(
        "memory-files",
        """
x = [os.memfd_create(str(i)) for i in range(50)]
for f in x:
    for i in range(100):
        os.write(f, b'x' * (1 << 20))
time.sleep(1000)
""",
        "error",
        "memory",
    ),
    _hogs(
        "memory-segments",
        """
libc.shmat.restype = ctypes.c_void_p
for i in range(1000):
    segment = libc.shmget(0, ctypes.c_size_t(16 << 20), 0o1600)
    if segment < 0: sys.exit(9)
    address = libc.shmat(segment, None, 0)
    ctypes.memset(ctypes.c_void_p(address), 1, 16 << 20)
    libc.shmdt(ctypes.c_void_p(address))
""",
        "error",
        "memory",
    ),
    _hogs("computes-forever", "len(str(7 ** 7 ** 9))", "timeout", "memory", "error"),
    _hogs("matches-forever", "import re\nre.match('(a+)+$', 'a' * 64 + 'b')", "timeout"),
    _hogs("recurses", "def f(): f()\nf()", "error"),
    _hogs(
        "recurses-without-limit",
        "sys.setrecursionlimit(10 ** 9)\ndef f(): return [f() for _ in [0]]\nf()",
        "killed",
        "memory",
        "timeout",
    ),
    _hogs("nests-source", "eval('(' * 10 ** 5 + ')' * 10 ** 5)", "error", "memory", "killed"),
    _hogs("reads-input-forever", "while True: sys.stdin.read()", "timeout"),
    _hogs("waits-in-thread", "threading.Thread(target=time.sleep, args=(1000,)).start()", "timeout"),
    _hogs("refuses-to-exit", "import atexit\natexit.register(time.sleep, 1000)", "timeout"),
]

SURVIVORS = [
    _tries(
        "daemon",
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv('/bin/sleep', ['@MARK@', '1000'])
    os._exit(0)
os.wait()
""",
    ),
    _tries(
        "daemon-without-streams",
        """
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 64)
    if os.fork() == 0:
        for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
        time.sleep(1000)
    os._exit(0)
os.wait()
""",
    ),
    _tries(
        "background-program", "subprocess.Popen(['@MARK@', '1000'], executable='/bin/sleep', start_new_session=True)"
    ),
    _tries("zombies", "for i in range(10):\n    if os.fork() == 0: os._exit(0)"),
    _hogs(
        "orphan-forks-on", "if os.fork() == 0:\n    while True:\n        if os.fork(): os._exit(0)\nos._exit(0)", "ok"
    ),
    _hogs("exits-at-once", "os._exit(0)", "ok"),
    _hogs(
        "timeout-with-children",
        "for i in range(5):\n    if os.fork() == 0: os.execv('/bin/sleep', ['@MARK@', '1000'])\ntime.sleep(1000)",
        "timeout",
    ),
]

FAKES = [
    _hogs(
        "prints-a-verdict",
        """
for fd in range(3, 1024):
    try: os.write(fd, b'{"reason": null, "exit_code": 0}')
    except OSError: pass
sys.exit(3)
""",
        "error",
    ),
    _hogs("fails-with-patched-exit", "os._exit = sys.exit = lambda code=0: None\nraise ValueError", "error"),
    _hogs("fails-with-broken-streams", "sys.stdout = sys.stderr = None\nsys.excepthook = 1\nraise ValueError", "error"),
    _hogs("closes-everything", "os.closerange(0, 4096)\nos._exit(5)", "error"),
    _hogs("dies-of-memory-signal", "os.kill(os.getpid(), 63)", "memory"),
]

PROGRAMS = [*READING, *NETWORK, *WRITING, *PRIVILEGES, *SIGNALS, *HOGS, *SURVIVORS, *FAKES]
