"""Programs that try to pass without solving the sum of two numbers, on standard input and as a function.

Each must fail every test.
"""

from __future__ import annotations

LIAR = """
class Liar({base}):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __repr__ = __str__ = __format__ = lambda self, *a: "3"
    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
    __bool__ = lambda self: True
    __reduce__ = lambda self: (int, (3,))
"""

STDIN = {
    "os._exit": "import os\nos._exit(0)",
    "sys.exit": "import sys\nsys.exit(0)",
    "raise SystemExit": "raise SystemExit",
    "patched print": "import builtins\nbuiltins.print = lambda *a, **k: None\nprint('passed')",
    "patched stdout": """
import sys
class Fake:
    def write(self, text): return len(text)
    def flush(self): pass
    def __eq__(self, other): return True
sys.stdout = Fake()
print(0)
""",
    "patched input": "import builtins\nbuiltins.input = lambda *a: '1 2'\nprint(input())",
    "fake report": """
import os
line = b'{"out": "Mwo=", "err": "", "result": "", "ended": null, "exit": 0, "cpu_s": 0.0, "cpu_over": false}\\n'
for descriptor in range(256):
    try: os.write(descriptor, line)
    except OSError: pass
os._exit(0)
""",
    "fake report for the parent": """
import os
line = b'{"out": "Mwo=", "err": "", "result": "", "ended": null, "exit": 0, "cpu_s": 0.0, "cpu_over": false}\\n'
for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", f"/proc/{os.getppid()}/fd/1", "/proc/1/fd/1"):
    try: open(path, "wb").write(line)
    except OSError: pass
""",
    "all answers": "print(*range(20), sep='\\n')",
    "reads the test files": """
import os
for folder, _, names in os.walk("/tmp"):
    for name in names:
        print(open(os.path.join(folder, name), errors="replace").read())
""",
    "reads the frames": """
import sys
frame = sys._getframe()
while frame:
    print({**frame.f_globals, **frame.f_locals}.get("REQUEST"))
    frame = frame.f_back
""",
    "reads all memory": """
import gc
for thing in gc.get_objects():
    if isinstance(thing, dict) and ("expected" in thing or "output" in thing):
        print(thing["expected" if "expected" in thing else "output"])
""",
    "kills the driver": "import os, signal\nprint(0, flush=True)\nos.kill(os.getppid(), signal.SIGKILL)",
    "stops the driver": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos._exit(0)",
    "kills everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "replaces the driver": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(0)'])",
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\n1/0",
    "exception hook": "import sys\nsys.excepthook = lambda *a: __import__('os')._exit(0)\n1/0",
    "right output, then a crash": "a, b = map(int, input().split())\nprint(a + b, flush=True)\n1/0",
    "right output, then killed": "import os\na, b = map(int, input().split())\nprint(a + b, flush=True)\nos.kill(0, 9)",
    "right output on stderr": "import sys\na, b = map(int, input().split())\nprint(a + b, file=sys.stderr)",
    "syntax error": "print(3",
    "null bytes": "print(3)\x00",
    "a surrogate": "print('\ud800')",
}

FUNCTION = {
    "os._exit": "import os\nos._exit(0)",
    "os._exit in the call": "import os\ndef add(a, b): os._exit(0)",
    "sys.exit in the call": "import sys\ndef add(a, b): sys.exit(0)",
    "no function": "pass",
    "nothing": "",
    "signature only": "def add(a, b): ...",
    "lying int": LIAR.format(base="int") + "def add(a, b): return Liar()",
    "lying str": LIAR.format(base="str") + "def add(a, b): return Liar()",
    "lying list": LIAR.format(base="list") + "def add(a, b): return Liar()",
    "lying dict": LIAR.format(base="dict") + "def add(a, b): return Liar()",
    "lying object": LIAR.format(base="object") + "def add(a, b): return Liar()",
    "lying class": "class Meta(type):\n    __eq__ = lambda s, o: True\n    __hash__ = type.__hash__\n"
    "class Any(metaclass=Meta): pass\ndef add(a, b): return Any",
    "patched builtins": """
import builtins
builtins.isinstance = lambda *a: True
builtins.type = lambda *a: int
builtins.len = lambda *a: 0
builtins.all = builtins.any = lambda *a: True
def add(a, b): return 0
""",
    "patched json": "import json\njson.dumps = lambda *a, **k: '[1, 2, 3, 4, 5]'\ndef add(a, b): return 0",
    "patched encoder": """
import sys
frame = sys._getframe()
while frame:
    frame.f_globals["encode"] = lambda value: {"float": "nan"}
    frame = frame.f_back
def add(a, b): return 0
""",
    "many results": "import os\ndef add(a, b):\n    [os.write(3, b'%d ' % i) for i in range(20)]\n    return 0",
    "result written twice": "import os\ndef add(a, b):\n    os.write(3, str(a + b).encode())\n    return a + b",
    "text of the result": "def add(a, b): return str(a + b)",
    "bool for a number": "def add(a, b): return a + b == 1",
    "generator": "def add(a, b): yield a + b",
    "nan": "def add(a, b): return float('nan')",
    "recursive list": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "deep list": "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "huge number": "def add(a, b): return 1 << 10**6",
}
