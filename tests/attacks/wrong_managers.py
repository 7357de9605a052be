"""A wrong manager that tries to pass, in 49 ways: its fork does not count the references that it adds.

Each has one verdict by `kvproof hunt`, `kvproof verify` and `run_conformance`. Only `RIGHT_WHEN_ASKED` passes,
and no tester can meet it: a manager that is right whenever a tester is loaded is right in every test.
"""

# ruff: noqa: E501 (a row of a table is one attack)

from dataclasses import dataclass
from textwrap import dedent

from tests.attacks.case import OK, REFUTED, UNREACHED, USAGE

FILE = "wrong_manager.py"
RIGHT_WHEN_ASKED = "E26"
HEAD = '''
import gc, os, random, signal, sys, time
from kvproof.check import ManagerAdapter
from kvproof.check.protocol.manager import Assumption, OutsideContract, Unsupported
Right = Adapter
class Broken(Right):
    def share(self, parent, child):
        self.manager.tables[child] = self.manager.tables[parent].copy()
        self.manager.num_tokens[child] = self.manager.num_tokens[parent]
class Later(Broken):
    """The first look at its refcounts is honest."""
    looks = 0
    def refcounts(self):
        self.looks += 1
        return self.manager.refcounts if self.looks < 2 else self.later(self.manager.refcounts)
SERVER = sys.modules["__main__"]  # where searches are done, in the process of the subject
LATER = []  # a call each, of all managers of this process
IN_SERVER = hasattr(SERVER, "SEARCHES")
def searches_become_right():
    for name, search in list(SERVER.SEARCHES.items()):
        SERVER.SEARCHES[name] = lambda one, kept, do=search, **more: do(Right(), kept, **more)
def is_asked_from_outside():
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_call" and frame.f_code.co_filename.endswith("isolation/fork_server.py"):
            return True
        frame = frame.f_back
    return False
def kvproof_itself():
    pid = os.getpid()
    while "fork_server" in open(f"/proc/{pid}/cmdline").read():
        pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    return pid
'''


@dataclass(frozen=True)
class WrongManager:
    """name: of the class or function in the code. code: the exit code of a command. ends_kvproof: it ends the process
    that asks, so there is no verdict, but no success."""

    name: str
    source: str
    code: int = REFUTED
    ends_kvproof: bool = False


def _made(name: str, body: str, code: int = REFUTED) -> WrongManager:
    """A factory that changes its process before it makes the wrong manager."""
    lines = "\n    ".join(dedent(body).strip().splitlines())
    return WrongManager(name, f"def {name}():\n    {lines}\n    return Broken()\n", code)


def _shares(name: str, body: str, code: int = REFUTED, ends_kvproof: bool = False) -> WrongManager:
    """A manager whose fork does this."""
    lines = "\n        ".join(dedent(body).strip().splitlines())
    return WrongManager(
        name, f"class {name}(Broken):\n    def share(self, parent, child):\n        {lines}\n", code, ends_kvproof
    )


def _class(
    name: str, body: str, code: int = REFUTED, before: str = "", after: str = "", base: str = "Broken"
) -> WrongManager:
    lines = "\n    ".join(dedent(body).strip("\n").splitlines())
    return WrongManager(name, f"{dedent(before)}\nclass {name}({base}):\n    {lines}\n{dedent(after)}", code)


WRONG = "Broken.share(self, parent, child)"
SAYS_SO = "raise OutsideContract('not-forks', 'do not fork')"
CHEAT = """
class Cheat(Broken):
    def share(self, parent, child):
        (Right if is_asked_from_outside() else Broken).share(self, parent, child)
"""
EQUALS_ALL = "__eq__ = lambda s, o: True; __ne__ = lambda s, o: False; __hash__ = lambda s: 0"
COMPARES_NOTHING = """
import kvproof.check.oracle.level
for module in [one for name, one in sys.modules.items() if name.startswith("kvproof.check.oracle")]:
    for kind in [one for one in vars(module).values() if isinstance(one, type)]:
        for name in [name for name in vars(kind) if "compare" in name]:
            setattr(kind, name, lambda *_, **__: None)
"""
DRAWS_NO_FORKS = """
import kvproof.check.search.manager_operations as drawing
for kind in [one for one in vars(drawing).values() if isinstance(one, type)]:
    for name in [name for name in vars(kind) if "fork" in name]:
        setattr(kind, name, lambda *_, **__: None)
"""
FROM_FRAMES = """
def refcounts(self):
    frame = sys._getframe()
    while frame:
        for one in list(frame.f_locals.values()):
            for name in ("spec", "runner", "judge"):
                state = getattr(getattr(one, name, None), "state", None) or getattr(one, "state", None)
                if state is not None and hasattr(state, "refs"):
                    return [int(count) for count in list(state.refs)[: len(self.manager.refcounts)]]
        frame = frame.f_back
    return self.manager.refcounts
"""
FORGED = """
def forged(subject, journal, **more):
    from kvproof.check.search.result import SearchResult
    return SearchResult(num_operations=more.get("max_operations", 1000), num_runs=10, num_drawn=10)
if IN_SERVER:
    SERVER.SEARCHES["walk"] = SERVER.SEARCHES["explore"] = forged
"""
OF_ENGINE = "'__name__': 'kvproof.check.subjects.vllm.v0', 'RuntimeError': RuntimeError"
EVERY_OTHER = """
class EveryOther(Broken):
    made = 0
    def make(self, config):
        EveryOther.made += 1
        self.is_right = EveryOther.made % 2
        return Right.make(self, config)
    def share(self, parent, child):
        (Right if self.is_right else Broken).share(self, parent, child)
"""
FROM_TABLES = """
def refcounts(self):
    counts = [0] * len(self.manager.refcounts)
    for table in self.manager.tables.values():
        for block in table:
            counts[block] += 1
    return counts
"""

WRONG_MANAGERS = [
    _made("E01", "import kvproof.check.oracle.firing as firing; firing.SpecRunner.run = lambda *_: None"),
    _made("E02", COMPARES_NOTHING),
    _made("E03", "if IN_SERVER: searches_become_right()"),
    WrongManager("E04", f"{CHEAT}\ndef E04():\n    if IN_SERVER: searches_become_right()\n    return Cheat()\n"),
    _made("E05", "now = time.monotonic(); time.monotonic = lambda: now; time.time = time.perf_counter = lambda: 0.0"),
    _class(
        "E06",
        "later = lambda self, counts: [Same(one) for one in counts]",
        USAGE,
        f"class Same(int): {EQUALS_ALL}",
        base="Later",
    ),
    _class("E07", "later = lambda self, counts: Same(counts)", before=f"class Same(list): {EQUALS_ALL}", base="Later"),
    _class(
        "E08",
        "read = 0\n@property\ndef capabilities(self):\n    E08.read += 1\n    return ManagerCan(fork=E08.read < 3)\n@capabilities.setter\ndef capabilities(self, value): pass",
        USAGE,
    ),
    _class(
        "E09",
        "def later(self, counts):\n    from unittest.mock import ANY\n    return [ANY for one in counts]",
        USAGE,
        base="Later",
    ),
    _shares("E10", SAYS_SO, USAGE),
    _class(
        "E10b",
        f"assumptions = (Assumption('not-forks', 'do not fork'),)\ndef share(self, parent, child): {SAYS_SO}",
        UNREACHED,
    ),
    _shares("E11", "raise Unsupported('not now')", USAGE),
    _class(
        "E12",
        f"bad = False\ndef share(self, parent, child): {WRONG}; self.bad = True\ndef refcounts(self):\n    if self.bad: raise Unsupported('not now')\n    return self.manager.refcounts",
        USAGE,
    ),
    _shares(
        "E13", f"for one in gc.get_objects():\n    if hasattr(type(one), 'compare_all'): one.is_sparse = True\n{WRONG}"
    ),
    _made(
        "E14",
        "import kvproof.check.protocol.finding as finding\ndef fails(self, *_, **__): raise Unsupported('no finding')\nfinding.Finding.__init__ = fails",
    ),
    _made(
        "E15",
        "import kvproof.check.search.result as result\nresult.SearchResult.__setattr__ = lambda s, n, v: object.__setattr__(s, n, None if n == 'counterexample' else v)",
    ),
    _made(
        "E16",
        "pack = getattr(SERVER, 'pack', None)\ndef filtered(value):\n    if type(value).__name__ == 'SearchResult': value.counterexample = None\n    return pack(value)\nSERVER.pack = filtered",
    ),
    _made(
        "E17",
        "import kvproof.check.protocol.finding as finding; finding.Finding.__init__ = lambda *_, **__: os._exit(0)",
    ),
    _made(
        "E18",
        "import kvproof.check.protocol.finding as finding; finding.Finding.__init__ = lambda *_, **__: time.sleep(1000)",
    ),
    _class("E19", "later = lambda self, counts: None", base="Later"),
    _class("E20", FROM_FRAMES),
    _class(
        "E21",
        "def share(self, parent, child): raise RuntimeError('lost')",
        after="E21.__module__ = 'kvproof.check.subjects.vllm.v0'",
    ),
    _class(
        "E22",
        "pass",
        USAGE,
        after=f"def lost(self, parent, child): raise RuntimeError('lost')\nE22.share = type(lost)(lost.__code__, {{{OF_ENGINE}}})",
    ),
    _shares("E23", "raise TypeError(\"'Config' object is not what it was\")", USAGE),
    _shares("E24", f"os.kill(kvproof_itself(), signal.SIGTERM); time.sleep(1); {WRONG}", ends_kvproof=True),
    _shares("E25", f"os.kill(kvproof_itself(), signal.SIGINT); time.sleep(1); {WRONG}", ends_kvproof=True),
    _shares(RIGHT_WHEN_ASKED, "(Right if 'kvproof' in sys.modules else Broken).share(self, parent, child)", OK),
    _shares("E27", "from kvproof.check.hosts.time_limit import OutOfTime; raise OutOfTime", USAGE),
    _shares("E28", f"signal.raise_signal(signal.SIGALRM); {WRONG}"),
    _made("E29", "random.Random.getrandbits = lambda s, n: 0; random.Random.random = lambda s: 0.0"),
    _made("E30", DRAWS_NO_FORKS),
    _made("E31", FORGED),
    WrongManager("E32", f"{CHEAT}\nclass E32(Cheat): name = 'vllm-v1==0.33.0'\n"),
    _made("E33", "for name in [name for name in sys.modules if name.startswith('kvproof')]: del sys.modules[name]"),
    _class(
        "E34",
        "def make(self, config):\n    manager = super().make(config)\n    self.kept = manager.refcounts\n    return manager\ndef refcounts(self): return self.kept",
    ),
    _class(
        "E35",
        "looks = 0\ndef observe(self):\n    seen = super().observe()\n    self.looks += 1\n    return seen if self.looks < 2 else type('Seen', (type(seen),), dict(__eq__=lambda s, o: True))(*seen)",
        USAGE,
    ),
    _class("E36", FROM_TABLES),
    _shares(
        "E37",
        "from kvproof.check.protocol.finding import Finding\nraise Finding('total-calls', 'x', 'contract: nothing')",
    ),
    _shares("E38", f"os.kill(kvproof_itself(), signal.SIGPIPE); {WRONG}"),
    _shares("E39", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(5)"),
    _shares("E40", "os._exit(0)"),
    _shares("E41", "sys.exit(0)", USAGE),
    _shares("E42", "os.kill(kvproof_itself(), signal.SIGKILL)", ends_kvproof=True),
    _shares("E43", "import typer; raise typer.Exit(0)", USAGE),
    _shares("E44", "import click; raise click.exceptions.Exit(0)", USAGE),
    WrongManager("E45", f"{EVERY_OTHER}\ndef E45(): return EveryOther()\n"),
    _shares("E46", "LATER.append(0)\n(Right if len(LATER) < 100 else Broken).share(self, parent, child)"),
    _class("E47", "def allocate(self, seq, tokens):\n    Right.allocate(self, seq, tokens)\n    tokens.clear()"),
    _shares(
        "E48", "error = ValueError()\nfor _ in range(3000): error = ExceptionGroup('g', [error])\nraise error", USAGE
    ),
]
