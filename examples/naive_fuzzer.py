"""A naive fuzzer: what one would write in an afternoon, as the tool that the corpus compares others with.

    python naive_fuzzer.py vllm-v1==0.30.0 1 100000 FOLDER

It draws operations uniformly, with small numbers, in small pools, and drives the engine through kvproof's adapters. It
knows no specification. It believes what anybody would: an exception of the engine is a fault; a block that is free is
in no table; and when no request is left, no block may be lost. What the judge of kvproof says otherwise ends a run and
is not counted. Each fault is written once for each call and exception, unshortened, as `kvproof replay` reads it.
"""

import random
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.counterexample.store import raw_trace
from kvproof.check.isolation.factory import found
from kvproof.check.oracle.level import POOL, Level, level_of
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.reports.document import encode

NUM_IDS, NUM_TOKENS, LENGTH_MAX, RUN_LENGTH = 4, 2, 8, 60
LISTS = {"tokens", "pages", "keys"}


def drawn(draw: random.Random, kind: Any) -> Any:
    """An operation of this kind: each number is small, each list is short, and what may be left out is."""
    values: dict[str, Any] = {}
    for one in msgspec.structs.fields(kind):
        if one.name in LISTS and one.required:
            length = draw.randint(1, LENGTH_MAX)
            values[one.name] = tuple(draw.randrange(NUM_TOKENS) for _ in range(length))
        elif one.name == "seqs":
            values[one.name] = (draw.randrange(NUM_IDS),)
        elif one.name == "preempts":
            values[one.name] = draw.random() < 0.5
        elif one.required:
            is_amount = one.name.startswith(("num_", "max_")) or one.name in ("chunk", "tick", "seconds")
            values[one.name] = draw.randint(1, 4) if is_amount else draw.randrange(NUM_IDS)
    return kind(**values)


def configuration(draw: random.Random, level: Level, can: Any) -> Any:
    """A small world; what it can cache and swap is drawn."""
    names = {one.name for one in fields(level.config)}
    values: dict[str, Any] = {"num_gpu_blocks": draw.randint(3, 8)}
    if level is not POOL:  # a block of a pool holds one page
        values["block_size"] = draw.choice((1, 2, 4))
    if "max_model_len" in names:  # one sequence always fits, beside a null block, with the token that it gets next
        values["max_model_len"] = values["block_size"] * (values["num_gpu_blocks"] - 1) - 1
    if "caching" in names and getattr(can, "caching", False):
        values["caching"] = draw.random() < 0.5
    if "num_host_blocks" in names and getattr(can, "swap", False):
        values["num_host_blocks"] = draw.choice((0, 4))
    return level.config(**values)


def noticed(seen: Any) -> Finding | None:
    """What anybody can see: a block that is free and in a table. Observations without both say nothing."""
    tables, free = getattr(seen, "tables", None), getattr(seen, "free_ids", None)
    if not tables or not free:
        return None
    used = {block for groups in dict(tables).values() for table in groups for block in table}
    if both := sorted(used & set(free)):
        return Finding("no-use-after-free", f"blocks {both} are free and in a table")
    return None


def one_run(draw: random.Random, level: Level, subject: Any, config: Any) -> tuple[list[Any], Finding | None]:
    """The operations of a run, and what it noticed. Raises Unsupported."""
    kinds, operations = [kind for kind in level.kinds.values() if kind.is_drawn], list[Any]()
    judge: Any = level.open(subject, config)
    for _ in range(RUN_LENGTH):
        operations.append(drawn(draw, draw.choice(kinds)).as_tuple())
        try:
            if not judge.apply(operations[-1]):
                operations.pop()
            elif (finding := noticed(subject.observe())) is not None:
                return operations, finding
        except Finding as finding:
            return operations, finding if finding.raised_in or finding.cause else None
    return operations, None


def main(name: str, seed: int, num_operations: int, folder: Path) -> int:
    """Fuzz until so many operations are done. Returns 1 if something was noticed, else 0."""
    draw, subject, kinds, done = random.Random(seed), found(name)(), set[tuple[str, str]](), 0
    level, can = level_of(subject), capabilities_of(subject)
    num_refused = 0
    while done < num_operations and num_refused < 1_000:
        config = configuration(draw, level, can)
        try:
            operations, finding = one_run(draw, level, subject, config)
        except (Unsupported, AdapterError):
            num_refused += 1
            continue
        done, num_refused = done + max(1, len(operations)), 0
        if finding is not None and (kind := (finding.property, finding.cause)) not in kinds:
            kinds.add(kind)
            trace = raw_trace(name, Counterexample(config, operations, finding), "naive fuzzer", seed, done)
            (folder / f"{len(kinds):03}.json").write_bytes(encode(trace))
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
