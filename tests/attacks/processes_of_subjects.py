"""Hostile subjects that change the process of their search, or the process that forks it.

`judge_breaks` are pieces of Python that run in the first fork, each under a judge. `server` is a module that does its
harm while it is imported, in the process that forks; `forged` lets each search answer a value of the module's choice.
Nothing that such a process sends is believed without a check.
"""

# ruff: noqa: E501 (a row of a table is one attack)

from dataclasses import replace

from tests.attacks.case import REFUTED, UNREACHED, USAGE, Attack
from tests.attacks.subjects import ARGUMENTS as ARGUMENTS
from tests.attacks.subjects import FILE as FILE
from tests.attacks.subjects import at, whole

NOT_THERE = "import kvproof.check.{} as m; [setattr(m, n, None) for n in list(vars(m)) if not n.startswith('_')]"
JUDGE_BREAKS: dict[str, tuple[str, int, int]] = {  # the code, and the exit codes under the explorer and the walker
    "no sorted": ("builtins.sorted = None", UNREACHED, REFUTED),
    "no zip": ("builtins.zip = None", UNREACHED, REFUTED),
    "no str": ("builtins.str = None", REFUTED, REFUTED),
    "no hash": ("builtins.hash = None", REFUTED, REFUTED),
    "no min": ("builtins.min = None", REFUTED, REFUTED),
    "no type": ("builtins.type = None", REFUTED, REFUTED),
    "no tuple": ("builtins.tuple = None", USAGE, USAGE),
    "no Counter.update": ("import collections; collections.Counter.update = None", UNREACHED, UNREACHED),
    "no walk": (NOT_THERE.format("search.random_walk"), UNREACHED, UNREACHED),
    "no canonical states": (NOT_THERE.format("search.exhaustive.canonical"), UNREACHED, UNREACHED),
    "the end of time in sorted": ("def ends(*a, **k): raise OutOfTime\nbuiltins.sorted = ends", REFUTED, REFUTED),
    "a failed stand-in": ("from kvproof.check.protocol.fault_attribution import StandInError; raise StandInError('x')", USAGE, USAGE),
    "a part of kvproof that is called wrongly": ("import kvproof.check.subjects.registry as m; m.Row()", USAGE, USAGE),
    "a callback of the collector that ends": ("gc.callbacks.append(lambda *a: os._exit(0))", REFUTED, REFUTED),
}  # fmt: skip
WRITES = "def writes(data):\n    for number in range(3, 40):\n        try: os.write(number, data)\n        except OSError: pass\n"
LATER = WRITES + "def later():\n    time.sleep(0.7); writes({})\nthreading.Thread(target=later).start()"
AT_FORK = WRITES + "os.register_at_fork(before=lambda: writes({}))"
WRITTEN = {
    "writes": "b'\\xff' * 99",
    "announces no fork": "b'\\0\\0\\0\\x09\\x92\\xa6forked\\xc0'",
    "announces process 1 as a fork": "b'\\0\\0\\0\\x09\\x92\\xa6forked\\x01'",
    "sends a number": "b'\\0\\0\\0\\1\\5'",
}
SENDS = (
    WRITES + "import msgspec, struct; data = msgspec.msgpack.encode({}); writes(struct.pack('!I', len(data)) + data)"
)
SERVERS: dict[str, tuple[str, int | tuple[int, ...]]] = {
    "writes to every descriptor": (WRITES + "writes(b'\\xff' * 99)", USAGE),
    "writes half a length": (WRITES + "writes(b'\\0\\0\\1')", USAGE),
    "sends nothing": (SENDS.format("None"), USAGE),
    "sends a number": (SENDS.format("7"), USAGE),
    "sends an empty list": (SENDS.format("[]"), USAGE),
    "describes itself with a dict": (SENDS.format("['made', 'manager', 7, {}, 3]"), USAGE),
    "describes itself with nothing": (SENDS.format("['made', 'manager', 'x', None, None]"), USAGE),
    "describes a level that is not there": (SENDS.format("['made', 'x', 'x', [6, 'Capabilities', []], [2, []]]"), USAGE),
    **{f"a thread {name} later": (LATER.format(data), (REFUTED, UNREACHED)) for name, data in WRITTEN.items()},  # or too late
    **{f"{name} at a fork": (AT_FORK.format(data), REFUTED) for name, data in WRITTEN.items()},
    "no len": ("builtins.len = None", USAGE),
    "fork raises": ("os.fork = lambda: 1 / 0", REFUTED),
    "fork answers 0": ("os.fork = lambda: 0", REFUTED),
    "fork answers 1": ("os.fork = lambda: 1", REFUTED),
    "fork answers a text": ("os.fork = lambda: 'x'", REFUTED),
    "does not answer": ("select.select = lambda *a: time.sleep(100)", UNREACHED),
    "waits for no fork": ("os.waitpid = lambda *a: (0, 0)", UNREACHED),
    "packs every value as a text": ("import __main__ as c, kvproof.check.isolation.messages as m; c.pack = m.pack = lambda v: [8, v]", USAGE),
}  # fmt: skip
ANSWERS: dict[str, tuple[str, int]] = {
    "a failed stand-in": ("['stand-in', 'x']", USAGE),
    "what is not supported": ("['unsupported', 'x']", UNREACHED),
    "a fault": ("['fault', 'x']", UNREACHED),
    "a finding of no property": ("['finding', m.pack(Finding('nope', 'x'))]", UNREACHED),
    "an adapter's fault without a text": ("['adapter', 7]", UNREACHED),
    "a count that is a text": ("['done', [6, 'SearchResult', [['num_operations', 'x']]]]", UNREACHED),
    "a time that is no number": ("['done', [6, 'SearchResult', [['seconds', float('nan')]]]]", UNREACHED),
    "a negative count": ("['done', [6, 'SearchResult', [['num_operations', -5]]]]", UNREACHED),
    "control characters": ("['done', [6, 'SearchResult', [['text', '\\x1b[2J']]]]", UNREACHED),
}
RUNS: dict[str, tuple[str, int]] = {  # a run that could be true is repeated outside: it refutes, as it does not repeat
    "an operation that is not there": ("Config(), [('nonsense', 3)]", UNREACHED),
    "an operation without a name": ("Config(), [()]", UNREACHED),
    "an operation that is a number": ("Config(), [(7,)]", UNREACHED),
    "a text in place of a sequence": ("Config(), [('free', 'x')]", UNREACHED),
    "no operation": ("Config(), []", REFUTED),
    "a huge pool": ("Config(num_gpu_blocks=10**9), []", UNREACHED),
    "a negative pool": ("Config(num_gpu_blocks=-4), []", UNREACHED),
    "what refutes nothing": ("Config(), [('free', 1)]", REFUTED),
    "300,000 operations": ("Config(), [('free', 1)] * 300_000", UNREACHED),
}
FORGED = (
    "import __main__ as c, kvproof.check.isolation.messages as m\n"  # the fork server runs as the main module
    "from kvproof.check.search.result import SearchResult\n"
    "from kvproof.check.oracle.replay import Counterexample\n"
    "c._done = lambda one, kind, *rest, do=c._done: {} if kind == 'search' else do(one, kind, *rest)"
)


def server(name: str, code: str, exit_code: int | tuple[int, ...], judge: str = "") -> Attack:
    """A module that changes the process that forks, and is a right subject otherwise."""
    return replace(whole(name, f"{code}\nSubject = BuiltIn\n", exit_code), judge=judge)


def forged(name: str, answer: str, exit_code: int, judge: str = "") -> Attack:
    """A module whose searches answer a forged value."""
    return server(f"{judge or 'walker'}: forges {name}", FORGED.format(answer), exit_code, judge)


ATTACKS: list[Attack] = [
    *(
        replace(at("fork", f"{judge}: {name}", code, exit_code), judge=judge)
        for name, (code, *exit_codes) in JUDGE_BREAKS.items()
        for judge, exit_code in zip(("explorer", "walker"), exit_codes, strict=True)
    ),
    *(server(f"import: {name}", code, exit_code) for name, (code, exit_code) in SERVERS.items()),
    *(forged(name, answer, exit_code) for name, (answer, exit_code) in ANSWERS.items()),
    *(
        forged(f"a run: {name}", f"['done', m.pack(SearchResult(Counterexample({run}, Finding('no-leak-at-rest', 'x'))))]", exit_code, judge)
        for name, (run, exit_code) in RUNS.items()
        for judge in ("", "explorer")
    ),
]  # fmt: skip
