"""How the cost of judging grows: with tables, sequences, runs and recordings, with a scope, and with the rules.

Each row is a curve and the exponent e of the best fit *cost = c · size^e*. What can be constant should be at most 0.2,
what can be linear at most 1.1:

- an operation of a walk, when tables are longer, when more sequences are alive, and when the run is longer. An
  operation reads the table that it is about, and a prompt has all its tokens, so a table's length may count linearly.
  The number of sequences may, too: an operation is followed by an observation of each table;
- a recording, when it has more lines: processor seconds to judge it;
- the search of the specification, when a scope has more transitions;
- the proofs of the specification, when it has more rules: building and deciding the obligations of the first ones.

`pools` shows how the cost of an operation grows with the pool.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import recording
from benchmarks.growth import exponent
from kvproof.check.oracle.manager.judge import SearchLimits
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.search.random_walk import Parts
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.models.obligation import made
from kvproof.models.proofs import induction
from kvproof.models.solvers.solving import Settings, decide
from kvproof.models.translation.translator import Translator
from kvproof.spec.trace import Operation
from kvproof.spec.verdict import Verdict

CONSTANT_MAX, LINEAR_MAX = 0.2, 1.1
BLOCK_SIZE, NUM_BLOCKS = 4, 16_384
NUM_GROUPS, NUM_ENTRIES, NUM_OPERATIONS = 4, 16, 4_000
NUM_SEEDS = 3
ENTRIES = (16, 64, 256, 1_024)  # of the longest table
GROUPS = (4, 16, 64, 256)  # alive at a time
LENGTHS = (1_000, 4_000, 16_000, 64_000)  # operations of a run
LINES = (10_000, 30_000, 100_000)  # of a recording
EXPLORED = ("tables-4x3x6", "tables-5x3x8", Scope(6, num_seqs=3, num_tokens=10), Scope(6, num_seqs=4, num_tokens=7))
RULES = (4, 8, 16)
SECONDS_MAX = 1e6


def seconds_of_walk(num_entries: int, num_groups: int, num_operations: int, seed: int) -> float:
    """Processor seconds of one run of the built-in manager, with tables of up to so many blocks and so many groups."""
    config, operations = Config(BLOCK_SIZE, NUM_BLOCKS, caching=True), list[Operation]()
    run = ManagerOperations(BuiltIn(), Random(seed), config)
    num_tokens = num_entries * BLOCK_SIZE
    run.judge.limits = SearchLimits(num_groups, num_tokens, 2)
    run.prompts.length_max, run.prompts.is_large, run.chunk_max = num_tokens, False, num_tokens
    run.weights |= {"new": 1.0, "free": 0.03, "sample": 1.0, "append": 1.0, "extend": 1.0, "run": 1.0}
    parts = Parts(run.judge, config, operations, lambda: None)
    run.pause = parts.end
    began = time.process_time()
    run.run(operations, num_operations)
    parts.end_run()
    return (time.process_time() - began) * num_operations / len(operations)


def microseconds(num_entries: int, num_groups: int, num_operations: int) -> float:
    """Processor time for one operation, the median of several runs."""
    runs = [seconds_of_walk(num_entries, num_groups, num_operations, seed) for seed in range(1, NUM_SEEDS + 1)]
    return statistics.median(runs) * 1e6 / num_operations


def of_recordings() -> Iterator[tuple[int, float]]:
    """The number of lines and the seconds of recordings of several lengths."""
    with tempfile.TemporaryDirectory() as folder:
        for num_lines in LINES:
            one = recording.judged(Path(folder), num_lines)
            yield int(one["lines"]), one["lines"] / one["lines/s"]


def of_scopes() -> Iterator[tuple[int, float]]:
    """The number of transitions and the seconds of scopes. The first search also compiles the specification."""
    scopes = [SCOPES[one] if isinstance(one, str) else one for one in EXPLORED]
    explore_specification(scopes[0], seconds=SECONDS_MAX)
    for scope in scopes:
        began = time.process_time()
        done = explore_specification(scope, seconds=SECONDS_MAX)
        if not done.is_exhausted:
            raise RuntimeError(f"this scope was not searched whole: {scope}")
        yield done.num_operations, time.process_time() - began


def of_rules() -> Iterator[tuple[int, float]]:
    """The number of rules, and the seconds to build and decide the obligations of these."""
    names = [rule.__name__ for rule in induction.Induction(Translator()).collected.rules]
    Random(1).shuffle(names)
    for num_rules in (*RULES, len(names)):
        wanted = frozenset(names[:num_rules])
        began = time.process_time()
        for obligation in made(unit for unit in induction.units() if unit.name in wanted):
            if decide(obligation, Settings()).answer.verdict is not Verdict.PROVED:
                raise RuntimeError(f"not proved: {obligation.id}")
        yield num_rules, time.process_time() - began


CURVES: dict[str, tuple[float, str, Callable[[], Iterator[tuple[int, float]]]]] = {
    "entries of the longest table": (
        LINEAR_MAX,
        "us an operation",
        lambda: ((size, microseconds(size, NUM_GROUPS, NUM_OPERATIONS)) for size in ENTRIES),
    ),
    "groups at a time": (
        LINEAR_MAX,
        "us an operation",
        lambda: ((size, microseconds(NUM_ENTRIES, size, NUM_OPERATIONS)) for size in GROUPS),
    ),
    "operations of a run": (
        CONSTANT_MAX,
        "us an operation",
        lambda: ((size, microseconds(NUM_ENTRIES, NUM_GROUPS, size)) for size in LENGTHS),
    ),
    "lines of a recording": (LINEAR_MAX, "s", of_recordings),
    "transitions of a scope": (LINEAR_MAX, "s", of_scopes),
    "rules that are proved": (LINEAR_MAX, "s", of_rules),
}


def main() -> dict[str, Any]:
    """Measure and print; returns the figures."""
    print("how the cost of judging grows, in processor time")
    found: dict[str, Any] = {}
    for name, (most, unit, measured) in CURVES.items():
        curve = dict(measured())
        found[name] = {unit: curve, "exponent": exponent(curve)}
        state = "met" if found[name]["exponent"] <= most else "missed"
        cells = "  ".join(f"{size:,}: {cost:.4g}" for size, cost in curve.items())
        print(
            f"  {name}, {unit}:  {cells}  exponent {found[name]['exponent']:.2f}, at most {most}: {state}", flush=True
        )
    return found
