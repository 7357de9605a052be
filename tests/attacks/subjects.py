"""Hostile subjects: each is the built-in block manager with one call, or its class, replaced.

`at` writes a subject that runs a piece of Python when a call comes, and then answers rightly, unless the piece returned
something itself; `right()` is the right answer. `whole` is the text of a module, of which `Subject` is judged.
"""

# ruff: noqa: E501 (a row of a table is one attack)

from dataclasses import replace
from textwrap import dedent, indent

from tests.attacks.case import BUDGET_SECONDS, ENOUGH_SECONDS, HELD, OK, REFUTED, UNREACHED, USAGE, Attack

FILE = "subject.py"
HEAD = """
import asyncio, atexit, builtins, ctypes, gc, json, logging, os, random, resource, select, signal, socket, subprocess
import sys, threading, time, warnings, weakref
from pathlib import Path
from kvproof.check.protocol.adapter_fault import *
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import *
from kvproof.check.hosts.time_limit import Expired, OutOfTime
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.builtin.manager import BuiltIn
HERE = Path(__file__).parent
def first_time(name):
    if (HERE / "out" / name).exists():
        return False
    (HERE / "out" / name).touch()
    return True
"""


def _source(call: str, code: str) -> str:
    body = indent(dedent(code).strip(), " " * 8)
    right = f"right = lambda: super(Subject, self).{call}(*arguments)"
    return f"{HEAD}\nclass Subject(BuiltIn):\n    def {call}(self, *arguments):\n        {right}\n{body}\n        return right()\n"


def at(call: str, name: str, code: str, exit_code: int | tuple[int, ...], words: str = "") -> Attack:
    """A subject that does something when a call comes."""
    return Attack(f"{call}: {name}", _source(call, code), exit_code, words)


def whole(name: str, code: str, exit_code: int | tuple[int, ...], words: str = "") -> Attack:
    """A module."""
    return Attack(name, HEAD + dedent(code), exit_code, words)


CRASHED = "total-calls"
CALLS = (
    *("new", "grow", "can_admit", "can_append", "admit", "reserve", "fork", "free", "preempt"),
    *("step_scheduled", "step_done", "observe", "swap_out", "can_swap_out", "hits", "reset_cache"),
)
RAISED = {
    name: f"raise {name}('a text of the subject')"
    for name in (
        *("RuntimeError", "KeyError", "MemoryError", "RecursionError", "StopIteration", "AssertionError", "SystemExit"),
        *("KeyboardInterrupt", "GeneratorExit", "BaseException", "OSError", "TimeoutError", "DeprecationWarning"),
        *("asyncio.CancelledError", "NotImplementedError", "BrokenPipeError", "InterruptedError", "EOFError"),
        *("UnknownSubject", "Expired", "OutOfTime", "Unsupported"),
    )
} | {
    "ExceptionGroup": "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])",
    "UnicodeDecodeError": "b'\\xff'.decode()",
    "a string": "raise 'text'",
    "control characters": "raise RuntimeError('\\x1b]0;x\\x07 \\x1b[2J\\r\\n::error::x\\n##[error]y')",
    "half characters": "raise RuntimeError('\\ud800\\0')",
    "a megabyte": "raise RuntimeError('x' * 1_000_000)",
    "no text": "raise type('Unreadable', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "a class whose name is a lie": "raise type('a\\0b\\n::error::', (Exception,), {})('x')",
    "a chain of a thousand": "error = None\nfor _ in range(1000):\n    later = ValueError('x'); later.__cause__ = error; error = later\nraise error",
}
ENDS = {
    "exit code 0": "os._exit(0)",
    "exit code 3": "os._exit(3)",
    "exit code 70": "os._exit(70)",
    "abort": "os.abort()",
    "segmentation fault": "ctypes.string_at(0)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "its group": "os.killpg(0, signal.SIGKILL)",
    "its server": "os.kill(os.getppid(), signal.SIGKILL); os._exit(0)",
    "its server, and it sleeps": "os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)",
    "another program": "os.execv('/bin/true', ['true'])",
    "a program that does not end": "os.execv('/bin/sleep', ['sleep', '100'])",
    "sys.exit in a thread": "thread = threading.Thread(target=lambda: os._exit(5)); thread.start(); thread.join(); time.sleep(9)",
    "a timer later": "threading.Timer(0.3, lambda: os._exit(6)).start(); time.sleep(9)",
}
STOPS = {
    "sleep": "time.sleep(100)",
    "a lock": "threading.Lock().acquire() and (lock := threading.Lock()).acquire() and lock.acquire()",
    "SIGSTOP": "os.kill(os.getpid(), signal.SIGSTOP)",
    "ignores alarms": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(100)",
    "a read": "os.read(os.pipe()[0], 1)",
    "a socket": "listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen(); listener.accept()",
    "a join": "thread = threading.Thread(target=time.sleep, args=(100,)); thread.start(); thread.join()",
    "a child": "subprocess.run(['sleep', '100'])",
}
# The time in which a process waits for a processor does not count, so these have a long budget.
WORKS_ON = {
    "memory bit by bit": "kept = []\nwhile True: kept.append(bytearray(1 << 24))",
    "busy loop": "while True: pass",
    "busy native code": "9 ** 9 ** 9",
    "recursion without a limit": "sys.setrecursionlimit(10**9)\ndef deep(n): return deep(n + 1)\ndeep(0)",
    "a regular expression": "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
}
EXHAUSTS = {
    "recursion": "def deep(): deep()\ndeep()",
    "memory at once": "bytearray(1 << 40)",
    "memory in native code": "b'x' * (1 << 36)",
    "descriptors": "kept = [os.dup(0) for _ in range(100_000)]",
    "a long repr": "raise ValueError([list(range(1000))] * 1000)",
}
HARMLESS = {
    "25 daemons": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(100)
            os._exit(0)
        os.wait()""",
    "a child in a session of its own": "subprocess.Popen(['sleep', '100'], start_new_session=True)",
    "children that ignore signals": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; sleep 100'])",
    "threads that go on": "\nif threading.active_count() < 3: threading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
    "threads that raise": "threading.Thread(target=lambda: 1 / 0).start()",
    "megabytes to stdout": "print('x' * 300_000, flush=True)",
    "megabytes to stderr": "sys.stderr.write('y' * 300_000)",
    "bytes that are no text": "os.write(1, bytes(range(256)))",
    "control characters": "print('\\x1b]0;x\\x07\\x1b[31m\\x1b[2J', flush=True)",
    "workflow commands": "print('::error::x\\n  ::add-mask::y\\n##[error]z', flush=True)",
    "closes its output": "os.close(1) if not hasattr(BuiltIn, 'closed') else None; BuiltIn.closed = True",
    "no sys.stdout": "sys.stdout = sys.stderr = None",
    "another folder": "os.chdir('/')",
    "a folder that is gone": "os.makedirs('out/x', exist_ok=True); os.chdir('out/x'); os.rmdir(os.getcwd()); os.chdir(HERE)",
    "no environment": "os.environ.clear()",
    "no path": "sys.path.clear()",
    "no modules of the standard library": "[sys.modules.pop(name) for name in ('json', 'random', 'traceback') if name in sys.modules]",
    "settrace": "sys.settrace(lambda *event: None)",
    "setprofile": "sys.setprofile(lambda *event: None)",
    "gc callbacks that raise": "gc.callbacks.append(lambda *phase: 1 / 0) if len(gc.callbacks) < 2 else None",
    "atexit that raises": "atexit.register(lambda: 1 / 0)",
    "atexit that hangs": "atexit.register(time.sleep, 100)",
    "atexit that prints": "atexit.register(print, 'x' * 100_000)",
    "finalizers that raise": "weakref.finalize(self, lambda: 1 / 0)",
    "deleted objects that raise": "type('Bad', (), {'__del__': lambda self: 1 / 0})()",
    "ignores every signal": "[signal.signal(number, signal.SIG_IGN) for number in (2, 14, 15, 17)]",
    "an alarm": "signal.signal(signal.SIGALRM, lambda *got: None); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)",
    "a seed": "random.seed(1)",
    "no garbage collection": "gc.disable(); gc.freeze()",
    "umask": "os.umask(0o777)",
    "nice": "os.nice(1)",
    "warnings as errors": "warnings.simplefilter('error')",
    "logging": "logging.basicConfig(level=0); logging.getLogger().critical('::error::x')",
    "except hooks": "sys.excepthook = sys.unraisablehook = threading.excepthook = None",
    "waits for children that are not its own": "\ntry: os.waitpid(-1, os.WNOHANG)\nexcept OSError: pass",
    "slow calls": "time.sleep(0.02)",
    "an event loop": "asyncio.run(asyncio.sleep(0))",
    "is equal to nothing": "Subject.__eq__ = lambda self, other: 1 / 0",
    "no repr": "Subject.__repr__ = lambda self: 1 / 0",
}
# What a call answers, and the exit code: 1 if the manager is wrong, 2 if the adapter breaks the protocol.
OBSERVED: dict[str, tuple[str, int | tuple[int, ...]]] = {
    "None": ("return None", USAGE),
    "a number": ("return 7", USAGE),
    "a generator": ("return (one for one in right())", USAGE),
    "a plain tuple": ("return tuple(right())", USAGE),
    "a coroutine": ("async def later(): return right()\nreturn later()", USAGE),
    "tables: None": ("return right()._replace(tables=None)", USAGE),
    "tables: a list": ("return right()._replace(tables=[[0]])", USAGE),
    "tables: a dict of a subclass": (
        "return right()._replace(tables=type('D', (dict,), {})(right().tables))",
        USAGE,
    ),
    "tables: a dict that lies": (
        "return right()._replace(tables=type('D', (dict,), {'items': lambda s: [], '__len__': lambda s: 0})({99: [[0]]}))",
        USAGE,
    ),
    "tables: texts as keys": ("return right()._replace(tables={'1': [[0]]})", USAGE),
    "tables: a sequence that does not exist": ("return right()._replace(tables={77: [[0]]})", REFUTED),
    "tables: a negative sequence": ("return right()._replace(tables={-1: [[0]]})", REFUTED),
    "tables: a huge sequence": ("return right()._replace(tables={10**30: [[0]]})", USAGE),
    "tables: flat": ("return right()._replace(tables={1: [0, 1]})", USAGE),
    "tables: deep": (
        "table = []\nfor _ in range(100_000): table = [table]\nreturn right()._replace(tables={1: table})",
        USAGE,
    ),
    "tables: a table in itself": ("table = []; table.append(table)\nreturn right()._replace(tables={1: table})", USAGE),
    "tables: a million entries": ("return right()._replace(tables={1: [[0] * 1_000_000]})", USAGE),
    "tables: a generator": ("return right()._replace(tables={1: (one for one in [[0]])})", USAGE),
    "tables: a negative block": (
        "return right()._replace(tables={s: [[-5] * len(t) for t in ts] for s, ts in right().tables.items()})",
        REFUTED,
    ),
    "tables: a huge block": (
        "return right()._replace(tables={s: [[10**6] * len(t) for t in ts] for s, ts in right().tables.items()})",
        REFUTED,
    ),
    "tables: a block of 10^30": ("return right()._replace(tables={1: [[10**30]]})", USAGE),
    "tables: floats": (
        "return right()._replace(tables={s: [[float(b) for b in t] for t in ts] for s, ts in right().tables.items()})",
        USAGE,
    ),
    "tables: nan": ("return right()._replace(tables={1: [[float('nan')]]})", USAGE),
    "tables: None as a block": ("return right()._replace(tables={1: [[None]]})", USAGE),
    "tables: bytes": ("return right()._replace(tables={1: [b'abc']})", USAGE),
    "tables: always the same dict": (
        "Subject.kept = getattr(Subject, 'kept', right().tables)\nreturn right()._replace(tables=Subject.kept)",
        REFUTED,
    ),
    "free: None": ("return right()._replace(free=None)", USAGE),
    "free: three": ("return right()._replace(free=(1, 2, 3))", USAGE),
    "free: negative": ("return right()._replace(free=(-1, 0))", REFUTED),
    "free: huge": ("return right()._replace(free=(10**40, 0))", USAGE),
    "free: nan": ("return right()._replace(free=(float('nan'), 0))", USAGE),
    "free: texts": ("return right()._replace(free=('8', '0'))", USAGE),
    "free: one too many": ("seen = right(); return seen._replace(free=(seen.free[0] + 1, seen.free[1]))", REFUTED),
    "free: numbers that compare as they like": (
        "return right()._replace(free=(type('N', (int,), {'__eq__': lambda s, o: True, '__hash__': int.__hash__})(999), 0))",
        USAGE,
    ),
    "refs: too short": ("return right()._replace(refs=[])", USAGE),
    "refs: too long": ("return right()._replace(refs=[0] * 100_000)", USAGE),
    "refs: negative": ("return right()._replace(refs=[-1] * len(right().refs))", REFUTED),
    "refs: huge": ("return right()._replace(refs=[10**40] * len(right().refs))", USAGE),
    "refs: texts": ("return right()._replace(refs=['0'] * len(right().refs))", USAGE),
    "refs: a million": ("return right()._replace(refs=[10**6] * len(right().refs))", REFUTED),
    "free_ids: twice": ("seen = right(); return seen._replace(free_ids=seen.free_ids * 2)", REFUTED),
    "free_ids: foreign": ("return right()._replace(free_ids=[999])", REFUTED),
    "free_ids: none": ("return right()._replace(free_ids=[])", REFUTED),
    "reserved: all": ("return right()._replace(reserved=tuple(range(100)))", REFUTED),
    "reserved: huge": ("return right()._replace(reserved=(10**30,))", USAGE),
}
ANSWERED: list[tuple[str, str, str, int | tuple[int, ...]]] = [
    ("can_admit", "None", "return None", USAGE),
    ("can_admit", "2", "return 2", USAGE),
    ("can_admit", "a text", "return 'yes'", USAGE),
    ("can_admit", "NotImplemented", "return NotImplemented", USAGE),
    ("can_admit", "always", "return Admission.OK", REFUTED),
    ("can_admit", "never", "return Admission.NEVER", REFUTED),
    ("can_admit", "a value without truth", "return type('T', (), {'__bool__': lambda s: 1 / 0})()", USAGE),
    ("can_append", "never", "return Admission.NEVER", REFUTED),
    ("can_append", "an int that is a bool", "return 1", USAGE),
    ("admit", "None", "right(); return None", USAGE),
    ("admit", "a negative hit", "right(); return Admitted(-1)", REFUTED),
    ("admit", "a huge hit", "right(); return Admitted(10**40)", USAGE),
    ("admit", "a hit in text", "right(); return Admitted('3')", USAGE),
    ("admit", "a hit that is true", "right(); return Admitted(True)", USAGE),
    ("admit", "refused after it was promised", "return Refused('no')", REFUTED),
    ("admit", "refused with a number", "return Refused(3)", REFUTED),
    ("admit", "does nothing", "return Admitted(0)", REFUTED),
    ("reserve", "None", "right(); return None", USAGE),
    ("reserve", "copies: a generator", "right(); return Reserved(one for one in [])", USAGE),
    ("reserve", "copies without end", "import itertools; right(); return Reserved(itertools.repeat((0, 1)))", USAGE),
    ("reserve", "copies: singles", "right(); return Reserved([(0,)])", USAGE),
    ("reserve", "copies: foreign blocks", "right(); return Reserved([(-7, 900)])", REFUTED),
    ("reserve", "copies of nothing", "right(); return Reserved([(0, 0)])", REFUTED),
    ("reserve", "copies: a million", "right(); return Reserved([(0, 1)] * 1_000_000)", USAGE),
    ("hits", "negative", "return -1", REFUTED),
    ("hits", "huge", "return 10**30", USAGE),
    ("hits", "nan", "return float('nan')", USAGE),
    ("hits", "a million", "return 1_000_000", REFUTED),
    ("free", "does nothing", "return None", REFUTED),
    ("free", "twice", "right(); right()", REFUTED),
    ("free", "everything", "for seq in list(self.seqs): super().free(seq)\nreturn None", REFUTED),
    ("fork", "does nothing", "return None", REFUTED),
    ("fork", "twice", "right(); right()", REFUTED),
    ("fork", "itself", "super().fork(arguments[0], arguments[0])", REFUTED),
    ("swap_out", "None", "right(); return None", USAGE),
    ("swap_out", "nothing", "right(); return []", REFUTED),
    ("swap_out", "foreign blocks", "right(); return [(99, -99)]", REFUTED),
    ("reset_cache", "a text", "right(); return 'done'", USAGE),
    ("step_done", "changes what it was given", "right(); arguments[0].clear(); return None", UNREACHED),
    ("new", "changes what it was given", "arguments[2].append(7)", REFUTED),
    (
        "new",
        "changes what it was given later",
        "right(); self.later = arguments[2]; arguments[2][:] = []; return None",
        UNREACHED,
    ),
]
ONCE: list[tuple[str, str, str, int | tuple[int, ...], str]] = [
    ("fork", "only the first run", "if not first_time('f'): return None", REFUTED, ""),
    (
        "fork",
        "only in the first process",
        "Subject.is_first = getattr(Subject, 'is_first', None) or first_time('p')\nif Subject.is_first: return None",
        REFUTED,
        "",
    ),
    ("fork", "by the time", "if time.monotonic_ns() // 1000 % 2: return None", REFUTED, ""),
    ("fork", "by chance", "if random.SystemRandom().random() < 0.5: return None", REFUTED, ""),
    # The system draws the addresses: it decides whether this comes in a run at all.
    ("fork", "by address", "if id(object()) // 16 % 2: return None", (*HELD, REFUTED), ""),
    ("fork", "by the hash of a text", "if hash('text') % 2: return None", UNREACHED, ""),
    (
        "fork",
        "the second time",
        "Subject.n = getattr(Subject, 'n', 0) + 1\nif Subject.n == 2: raise RuntimeError('second')",
        REFUTED,
        CRASHED,
    ),
    (
        "observe",
        "every thousandth call",
        "Subject.n = getattr(Subject, 'n', 0) + 1\nif Subject.n % 1000 == 999: raise RuntimeError('n')",
        REFUTED,
        "",
    ),
    (
        "fork",
        "from a file that is not there a second time",
        "(HERE / 'out' / 'f').unlink(missing_ok=True) if not first_time('f') else os._exit(4)",
        REFUTED,
        "",
    ),
]
MADE = [
    whole("import: a syntax error", "def :", USAGE, "SyntaxError"),
    whole("import: raises", "raise RuntimeError('at import')", USAGE, "at import"),
    whole("import: leaves", "sys.exit(0)", USAGE, ""),
    whole("import: ends", "os._exit(0)", USAGE, "cannot be created"),
    whole("import: KeyboardInterrupt", "raise KeyboardInterrupt", USAGE, ""),
    whole("import: recursion", "def deep(): deep()\ndeep()", USAGE, "RecursionError"),
    whole("import: megabytes of output", "print('x' * 3_000_000)\nSubject = BuiltIn", UNREACHED, "left out"),
    whole("import: closes every descriptor", "os.closerange(0, 100)\nSubject = BuiltIn", USAGE, "cannot be created"),
    whole("import: a daemon", "if os.fork() == 0:\n    os.setsid(); time.sleep(100); os._exit(0)\nSubject = BuiltIn", UNREACHED),
    whole("import: a thread", "threading.Thread(target=time.sleep, args=(100,)).start()\nSubject = BuiltIn", UNREACHED),
    whole("import: no Subject", "pass", USAGE, "Subject"),
    whole("made: None", "Subject = lambda: None", USAGE),
    whole("made: a number", "Subject = 7", USAGE),
    whole("made: a class without calls", "class Subject: pass", USAGE),
    whole("made: a function with arguments", "def Subject(a, b): return BuiltIn()", USAGE),
    whole("made: a generator", "def Subject(): yield BuiltIn()", USAGE),
    whole("made: a coroutine", "async def Subject(): return BuiltIn()", USAGE),
    whole("made: raises", "def Subject(): raise RuntimeError('port 80 is in use')", USAGE, "port 80 is in use"),
    whole("made: raises SystemExit", "def Subject(): raise SystemExit(0)", USAGE),
    whole("made: raises without text", "class E(Exception):\n    def __str__(self): 1 / 0\ndef Subject(): raise E", USAGE),
    whole("made: ends", "def Subject(): os._exit(0)", USAGE, "cannot be created"),
    whole("made: once", "def Subject():\n    if not first_time('f'): raise RuntimeError('in use')\n    return BuiltIn()", REFUTED, "cannot be made again"),
    whole("made: once, then it ends", "def Subject():\n    if not first_time('f'): os._exit(3)\n    return BuiltIn()", REFUTED, CRASHED),
    whole("made: once, then it hangs", "def Subject():\n    if not first_time('f'): time.sleep(100)\n    return BuiltIn()", REFUTED, CRASHED),
    whole("made: always the same", "ONE = BuiltIn()\nSubject = lambda: ONE", UNREACHED),
    whole("made: a proxy", "class Subject:\n    def __init__(self): self.__dict__['one'] = BuiltIn()\n    def __getattr__(self, name): return getattr(self.one, name)", UNREACHED),
    whole("made: a proxy that has everything", "class Subject:\n    def __getattr__(self, name): return lambda *a: None", USAGE),
    whole("made: its class is a lie", "class Subject(BuiltIn):\n    __class__ = property(lambda self: dict)", UNREACHED),
    whole("made: attributes that raise", "class Subject(BuiltIn):\n    capabilities = property(lambda self: 1 / 0)", USAGE),
    whole("made: capabilities: a dict", "class Subject(BuiltIn):\n    capabilities = {'fork': True}", USAGE),
    whole("made: capabilities: texts", "class Subject(BuiltIn):\n    capabilities = Capabilities(fork='yes', lost_hits='many')", USAGE, "capabilities.fork is wrong"),
    whole("made: capabilities: huge", "class Subject(BuiltIn):\n    capabilities = Capabilities(lost_hits=10**40)", OK),
    whole("made: other capabilities each time", "class Subject(BuiltIn):\n    capabilities = property(lambda self: Capabilities(fork=next(COUNT) % 2 == 0))\nimport itertools; COUNT = itertools.count()", (*HELD, USAGE)),  # by how often it is read
    whole("made: assumptions: a number", "class Subject(BuiltIn):\n    assumptions = 3", USAGE),
    whole("made: assumptions: texts", "class Subject(BuiltIn):\n    assumptions = ('x', 3)", USAGE),
    whole("made: assumptions: control characters", "class Subject(BuiltIn):\n    assumptions = (Assumption('x\\x1b[2J', '::error::y\\n::error::z'),)", UNREACHED),
    whole("made: name: a number", "class Subject(BuiltIn):\n    name = 7", USAGE),
    whole("made: name: control characters", "class Subject(BuiltIn):\n    name = '\\x1b[2J\\n::error::x'", UNREACHED),
    whole("made: name: half characters", "class Subject(BuiltIn):\n    name = '\\ud800'", USAGE),
    whole("made: name: a megabyte", "class Subject(BuiltIn):\n    name = 'x' * 1_000_000", UNREACHED),
    whole("made: name: a text of a subclass", "class Subject(BuiltIn):\n    name = type('S', (str,), {'__str__': lambda s: 1 / 0})('x')", USAGE),
]  # fmt: skip
OUT = [
    at("fork", "writes over the result", "(HERE / 'out' / 'result.json').write_text('{}')", UNREACHED),
    at("fork", "removes the result", "(HERE / 'out' / 'result.json').unlink(missing_ok=True)", UNREACHED),
    at("fork", "a link in place of the result", "path = HERE / 'out' / 'result.json'; path.unlink(missing_ok=True); path.symlink_to('/etc/passwd')", UNREACHED),
    at("fork", "a folder in place of a report", "path = HERE / 'out' / 'report.txt'\nif path.is_file(): path.unlink()\npath.mkdir(exist_ok=True)", USAGE),
    at("fork", "a forged trace", "os.makedirs(HERE / 'out' / 'crashes', exist_ok=True); (HERE / 'out' / 'crashes' / 'x.json').write_text('{}')", UNREACHED),
    at("fork", "removes the output folder", "import shutil; shutil.rmtree(HERE / 'out', ignore_errors=True)", USAGE),
]  # fmt: skip
# With the limit alone, what the process has already got may be enough for the rest of the search.
FILLED = """
resource.setrlimit(resource.RLIMIT_AS, (1, 1))
for size in (1 << 20, 1 << 10, 1 << 5):
    try:
        while True: sys.path.append(bytes(size))
    except MemoryError: pass
"""
# Code in the process of a search can change the judge itself. What is found before is kept; the rest is what the subject says.
JUDGE = [
    at("fork", "its hash raises", "Subject.__hash__ = lambda self: 1 / 0", UNREACHED),
    at("fork", "its capabilities raise", "Subject.capabilities = property(lambda self: 1 / 0)", USAGE, "where no call was asked for"),
    at("fork", "no builtins", "builtins.len = None", REFUTED),
    at("fork", "no modules at all", "sys.modules.clear()", UNREACHED),
    at("fork", "a clock that stands", "time.monotonic = lambda: 0.0", UNREACHED),
    at("fork", "a clock that jumps", "before = time.monotonic\ntime.monotonic = lambda: before() + 1e9", UNREACHED),
    at("fork", "no recursion", "sys.setrecursionlimit(60)", UNREACHED),
    at("fork", "no descriptors left", "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", UNREACHED),
    at("fork", "no processor time left", "resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); exec('while True: pass')", REFUTED, CRASHED),
    at("fork", "no memory left", FILLED, REFUTED),
    at("fork", "closes every descriptor", "os.closerange(3, 100)", REFUTED),
    at("fork", "writes to every descriptor", "for number in range(3, 40):\n    try: os.write(number, b'\\xff' * 99)\n    except OSError: pass", REFUTED),
    at("fork", "shrinks every file", "for number in range(3, 40):\n    try: os.ftruncate(number, 0)\n    except OSError: pass", UNREACHED),
    at("fork", "Finding raises", "import kvproof.check.protocol.finding as f; f.Finding.__init__ = lambda *a: 1 / 0", UNREACHED),
    at("fork", "the judge is no judge", "import kvproof.check.oracle.firing as f; f.SpecRunner.run = lambda *a: None", REFUTED),
    at("fork", "the channel is another", "import kvproof.check.hosts.channel as m; m.Connection.send = lambda *a: os._exit(0)", REFUTED),
]  # fmt: skip
ENDLESS = "class L(list):\n    def __iter__(self):\n        while True: yield 0\nreturn right()._replace(tables={1: [L([0])]})"
# Answers that lie about themselves, and code that runs outside of a call.
LIES: list[tuple[str, str, str, int]] = [
    ("can_admit", "a bool whose class lies", "return type('B', (int,), {'__class__': property(lambda s: bool)})(1)", USAGE),
    ("can_admit", "equal to everything", "return type('E', (), {'__eq__': lambda s, o: True, '__hash__': lambda s: 0})()", USAGE),
    ("can_admit", "a numpy bool", "import numpy; return numpy.bool_(True)", USAGE),
    ("hits", "an index", "return type('I', (), {'__index__': lambda s: 0, '__int__': lambda s: 0})()", USAGE),
    ("hits", "a subclass of int that changes", "return type('I', (int,), {'__lt__': lambda s, o: 1 / 0, '__index__': lambda s: 9})(0)", USAGE),
    ("observe", "tables: a list without a length", "return right()._replace(tables={1: [type('L', (list,), {'__len__': lambda s: -1})([0])]})", USAGE),
    ("observe", "tables: keys whose hash changes", "return right()._replace(tables={type('K', (int,), {'__hash__': lambda s: random.getrandbits(8)})(1): [[0]]})", USAGE),
    ("observe", "tables: keys that are equal to all", "return right()._replace(tables={type('K', (int,), {'__eq__': lambda s, o: True, '__hash__': lambda s: 1})(1): [[0]]})", USAGE),
    ("observe", "refs: a dict", "return right()._replace(refs={0: 1})", USAGE),
    ("observe", "a subclass of its tuple", "return type('O', (type(right()),), {'__getattribute__': lambda s, n: 1 / 0})(*right())", USAGE),
    ("observe", "free: bools", "return right()._replace(free=(True, False))", USAGE),
    ("admit", "a subclass of Admitted", "return type('Admitted', (type(right()),), {})(0)", USAGE),
    ("admit", "text of 10 MB", "return 'x' * 10_000_000", USAGE),
]  # fmt: skip
OUTSIDE = {
    "ends in a finalizer": ("type('Bad', (), {'__del__': lambda self: os._exit(9)})()", REFUTED),
    "ends in a weak reference": ("thing = type('T', (), {})(); kept = weakref.ref(thing, lambda _: os._exit(9)); del thing", REFUTED),
    "raises in a weak reference": ("thing = type('T', (), {})(); kept = weakref.ref(thing, lambda _: 1 / 0); del thing", UNREACHED),
    "ends in a cycle that is collected": ("cycle = type('C', (), {'__del__': lambda self: os._exit(9)})(); cycle.me = cycle; del cycle; gc.collect()", REFUTED),
    "an exception whose repr raises": ("raise type('E', (Exception,), {'__repr__': lambda s: 1 / 0, '__str__': lambda s: 1 / 0})", REFUTED),
    "an exception whose text is no text": ("raise type('E', (Exception,), {'__str__': lambda s: 7})", REFUTED),
    "an exception whose class lies": ("raise type('E', (Exception,), {'__class__': property(lambda s: SystemExit)})", REFUTED),
    "an exception whose traceback is a cycle": ("try: raise ValueError\nexcept ValueError as error: error.__context__ = e = KeyError(); e.__context__ = error; raise error", REFUTED),
    "groups of groups": ("group = ValueError('x')\nfor _ in range(500): group = ExceptionGroup('g', [group])\nraise group", REFUTED),
    "an exception with huge arguments": ("raise RuntimeError(*[b'x' * 1_000_000] * 20)", REFUTED),
    "an exception with notes": ("error = ValueError('x'); error.add_note('\\x1b[2J\\n::error::x'); raise error", REFUTED),
    "a thread that changes the manager later": ("threading.Timer(0.01, lambda: self.__dict__.clear()).start(); time.sleep(0.03)", REFUTED),
    "a thread that ends the process later": ("threading.Timer(0.05, lambda: os._exit(4)).start()", REFUTED),
    "a trace function that raises": ("sys.settrace(lambda *event: 1 / 0)", REFUTED),
    "a handler of its own for alarms": ("signal.signal(signal.SIGALRM, lambda *got: None)", UNREACHED),
    "an alarm that kills": ("signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(1); time.sleep(3)", REFUTED),
    "capabilities that change": ("self.capabilities = None", USAGE),
    "assumptions that change": ("Subject.assumptions = 7; Subject.name = None", USAGE),
    "the messages are others": ("import kvproof.check.isolation.messages as m; m.pack = lambda value: value", REFUTED),
    "the journal is closed": ("import mmap\n[one.close() for one in gc.get_objects() if isinstance(one, mmap.mmap)]", UNREACHED),
    "a meta path that raises": ("sys.meta_path.insert(0, type('F', (), {'find_spec': lambda *a: 1 / 0})())", UNREACHED),
    "an import of a broken module": ("import this_is_not_there", REFUTED),
    "standard input": ("sys.stdin.read()", UNREACHED),
    "10,000 files in its folder": ("[(HERE / 'out' / f'{n}.txt').touch() for n in range(10_000)] if first_time('many') else None", UNREACHED),
    "swallows the end of time": ("while True:\n    try: time.sleep(100)\n    except BaseException: pass", REFUTED),
}  # fmt: skip

ATTACKS: list[Attack] = [
    *(at(call, "raises", "raise RuntimeError('at this call')", REFUTED, "at this call") for call in CALLS),
    *(at("fork", f"raises {name}", code, REFUTED, CRASHED) for name, code in RAISED.items()),
    at("fork", "raises AdapterError", "raise AdapterError('a text')", USAGE, "breaks the protocol: a text"),
    replace(
        at(
            "fork",
            "raises OutsideContract",
            "raise OutsideContract('asks-first', 'it was not asked')",
            UNREACHED,
            "never reached: fork (walker operations)",
        ),
        effort=3000,
    ),
    at("fork", "raises Finding of nothing", "raise Finding('no-such-property', 'I say so')", USAGE, "no property"),
    at("fork", "raises Finding of a property", "raise Finding('no-leak-at-rest', 'x')", REFUTED, "no-leak-at-rest"),
    replace(
        at("observe", "tables: a list without an end", ENDLESS, USAGE, "must be a list of ints"), budget=ENOUGH_SECONDS
    ),
    *(
        replace(at("fork", name, code, REFUTED, CRASHED), budget=ENOUGH_SECONDS)
        for name, code in {
            **{f"ends: {name}": code for name, code in ENDS.items()},
            **{f"stops: {name}": code for name, code in STOPS.items()},
            **{f"works on: {name}": code for name, code in WORKS_ON.items()},
        }.items()
    ),
    *(at("fork", f"exhausts {name}", code, REFUTED, CRASHED) for name, code in EXHAUSTS.items()),
    *(at("fork", f"harmless: {name}", code, UNREACHED) for name, code in HARMLESS.items()),
    *(at("observe", name, code, exit_code) for name, (code, exit_code) in OBSERVED.items()),
    *(at(*answered) for answered in ANSWERED),
    *(at(*lie) for lie in LIES),
    *(at("fork", f"outside: {name}", code, exit_code) for name, (code, exit_code) in OUTSIDE.items()),
    *(at(*once) for once in ONCE),
    *MADE,
    *OUT,
    *JUDGE,
]
ARGUMENTS = (
    *("verify", "--subject", f"{FILE}:Subject", "--judges", "walker", "--effort", "1500", "--seed", "1"),
    *("--budget", f"{BUDGET_SECONDS:g}", "--out", "out"),
)
