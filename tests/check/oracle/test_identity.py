"""The identity of a finding: two faults of one property have two, and one fault has one, whatever else a run does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.check.oracle.scheduler.test_drain import Weary, add

from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Admission, Config, Refused
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.store import HIT, MISS, PENDING, Staged, StoreAdapter, StoreConfig, StoreObservation
from kvproof.check.subjects.registry import find
from kvproof.reports.identity import Identity
from kvproof.spec.trace import Operation

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


# Subjects with one fault each -----------------------------------------------------------------------------------------


def altered(**calls: Callable[..., Any]) -> Any:
    """The built-in manager with other calls."""
    subject = find("kvproof")()
    for name, call in calls.items():
        setattr(subject, name, MethodType(call, subject))
    return subject


def swaps_in_without_the_next_token() -> Any:
    """`can_swap_in` forgets the token that is appended next."""
    return altered(can_swap_in=lambda self, group: Admission.OK)


def grows_without_asking() -> Any:
    """`can_append` says OK whatever is free."""
    return altered(can_append=lambda self, group: True)


def leaks() -> Any:
    """What a sequence held is not given back."""
    return altered(free=lambda self, seq: self._admitted.discard(seq))


def forks(*added: int) -> Any:
    """A manager of forty lines, whose fork adds these numbers to the refcounts of the first blocks; right is (1,)."""
    subject: Any = find(f"{EXAMPLES}/forty_lines.py:Adapter")()

    def fork(parent: int, child: int) -> None:
        manager = subject.manager
        manager.tables[child] = manager.tables[parent].copy()
        manager.num_tokens[child] = manager.num_tokens[parent]
        block = manager.tables[parent][0]
        for number, one in enumerate(added):
            manager.refcounts[(block + number) % len(manager.refcounts)] += one

    subject.share = fork
    return subject


class LateWriter(StoreAdapter):
    """A store whose writes run out. The end of a write publishes the key, whoever writes it now."""

    name = "late-writer"
    capabilities = Capabilities(leases=True, evicts_on_call=True)

    def open(self, config: StoreConfig) -> None:
        self.free, self.now, self.seconds = list(range(config.num_gpu_blocks)), 0, config.lease_seconds
        self.slots: dict[int, int] = {}
        self.loads: dict[int, int] = {}
        self.until: dict[int, int] = {}  # of each key that is written

    def advance(self, seconds: int) -> None:
        self.now += seconds

    def is_over(self, key: int) -> bool:
        """Whether the write of a key has run out."""
        return self.loads[key] < 0 and self.until[key] <= self.now

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        return [MISS if key not in self.slots else PENDING if self.loads[key] < 0 else HIT for key in keys]

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        for key in keys:
            self.loads[key] += 1
        return [self.slots[key] for key in keys]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        for key in keys:
            self.loads[key] -= 1

    def new(self, keys: list[int]) -> list[int]:
        """The keys that a call may write."""
        return [key for key in keys if key not in self.slots]

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        new = self.new(keys)
        if len([key for key in new if key not in self.slots]) > len(self.free):
            return Refused("full")
        for key in new:
            self.slots[key] = self.slots[key] if key in self.slots else self.free.pop()
            self.loads[key], self.until[key] = -1, self.now + self.seconds
        return Staged(new, [self.slots[key] for key in new], [])

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        self.loads.update({key: 0 for key in stored if key in self.slots})
        for key in failed:
            self.drop(key)

    def evict(self, keys: list[int]) -> list[int]:
        gone = [key for key in keys if key in self.slots and (self.loads[key] == 0 or self.is_over(key))]
        for key in gone:
            self.drop(key)
        return gone

    def drop(self, key: int) -> None:
        self.free.append(self.slots.pop(key))
        del self.loads[key]

    def observe(self) -> StoreObservation:
        return StoreObservation(dict(self.slots), len(self.free), dict(self.loads), self.free[:])


class TakesOver(LateWriter):
    """A write that has run out is taken over by the next one, in its slot."""

    name = "takes-over"

    def new(self, keys: list[int]) -> list[int]:
        return [key for key in keys if key not in self.slots or self.is_over(key)]


# Their shortest runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShortRun:
    """A run that ends in a finding."""

    make: Callable[[], Any]
    config: Config
    operations: tuple[Operation, ...]
    further: tuple[Operation, ...]  # of another request, in order

    def identity(self, config: Config, operations: list[Operation]) -> Identity | None:
        """The identity of what a run of the subject finds, if it finds it where this run does."""
        for number in range(1, len(operations) + 1):
            if (finding := finding_of(self.make(), config, operations[:number])) is not None:
                found = Counterexample(config, operations[:number], finding)
                return found.identity if operations[number - 1] == self.operations[-1] else None
        return None


def new(group: int, *seqs: int, num_tokens: int = 1) -> Operation:
    return "new", group, seqs, (0,) * num_tokens, (None, 0, None), ()


LEASED = StoreConfig(num_gpu_blocks=4, lease_seconds=5)
OTHER_GROUP: tuple[Operation, ...] = (new(9, 90, num_tokens=2), ("admit", 9, 2), ("run", 0))
OTHER_STORE: tuple[Operation, ...] = (("begin_store", 9, 9, (8, 9)), ("look_up", 9, (7, 8)))
RUNNING: tuple[Operation, ...] = (new(1, 1), ("admit", 1, 1), ("run", 0))
RUNS = {
    "fork": ShortRun(
        lambda: find(f"{EXAMPLES}/forty_lines_broken.py:Adapter")(),
        Config(block_size=1, num_gpu_blocks=4),
        (*RUNNING, ("fork", 1, 2)),
        OTHER_GROUP,
    ),
    "fork counts twice": ShortRun(
        lambda: forks(2), Config(block_size=1, num_gpu_blocks=4), (*RUNNING, ("fork", 1, 2)), OTHER_GROUP
    ),
    "fork counts another block": ShortRun(
        lambda: forks(0, 1), Config(block_size=1, num_gpu_blocks=4), (*RUNNING, ("fork", 1, 2)), OTHER_GROUP
    ),
    "swap in": ShortRun(
        swaps_in_without_the_next_token,
        Config(block_size=1, num_gpu_blocks=1, num_host_blocks=1),
        (*RUNNING, ("sample", 1, (0,)), ("swap_out", 1), ("run", 0), ("swap_in", 1)),
        OTHER_GROUP[:1],
    ),
    "append": ShortRun(
        grows_without_asking,
        Config(block_size=1, num_gpu_blocks=1),
        (*RUNNING, ("sample", 1, (0,)), ("append", 1)),
        OTHER_GROUP[:1],
    ),
    "append in a window": ShortRun(
        grows_without_asking,
        Config(block_size=1, num_gpu_blocks=1, window=1),
        (*RUNNING, ("sample", 1, (0,)), ("append", 1)),
        OTHER_GROUP[:1],
    ),
    "leak": ShortRun(leaks, Config(num_gpu_blocks=4), (*RUNNING, ("free", 1)), OTHER_GROUP),
    "for ever": ShortRun(Weary, SchedulerConfig(), (add(1, 3, 5), ("drain", (0,))), (add(2, 4, 2), add(3, 1, 1))),
    "late after an eviction": ShortRun(
        LateWriter,
        LEASED,
        (("begin_store", 1, 1, (0,)), ("wait", 5), ("evict", (0,)), ("begin_store", 2, 1, (0,)), ("report", 1)),
        OTHER_STORE,
    ),
    "late after a take-over": ShortRun(
        TakesOver,
        LEASED,
        (("begin_store", 1, 1, (0,)), ("wait", 5), ("begin_store", 2, 1, (0,)), ("report", 1)),
        OTHER_STORE,
    ),
}


def found(name: str) -> Identity:
    """The identity of the finding of a run."""
    identity = RUNS[name].identity(RUNS[name].config, list(RUNS[name].operations))
    assert identity is not None, name
    return identity


# Two faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("late after an eviction", "late after a take-over"),  # LMCache 0.5.5 and 0.5.6
        ("swap in", "append"),  # vLLM 0.6.2, and what later releases have too
        ("append in a window", "append"),
        ("fork", "fork counts twice"),
        ("fork", "fork counts another block"),
        ("fork counts twice", "fork counts another block"),
    ],
)
def test_two_faults_of_one_property_have_two_identities(one: str, other: str) -> None:
    first, second = found(one), found(other)
    assert first.property == second.property
    assert first != second
    assert not second.is_covered_by(first)


def test_an_identity_names_the_claim_the_promise_the_place_and_what_the_call_was_about() -> None:
    signatures = {name: found(name).signature for name in RUNS}
    no_room = "reserve NoFreeBlocksError: raised in"
    count = "report: the count of key: the specification says the store, too large"
    of_block = "fork: refcount of block: the specification says the subject"
    assert signatures == {
        "fork": f"{of_block}, too small",
        "fork counts twice": f"{of_block}, too large",
        "fork counts another block": f"{of_block}, some too large, others too small",
        "swap in": f"{no_room} DeviceBlocks.take_one of device_blocks.py after can_swap_in said OK (num_host_blocks)",
        "append": f"{no_room} DeviceBlocks.take_one of device_blocks.py",
        "append in a window": f"{no_room} Growth.append of growth.py (window)",
        "leak": "free: sequences that are over still have tables:",
        "for ever": "drain: steps and not all is done",
        "late after an eviction": f"{count}, of a store whose lease was over",
        "late after a take-over": f"{count}, of a store whose lease was over and whose key another store took over",
    }


# One fault ------------------------------------------------------------------------------------------------------------


@given(name=st.sampled_from([*RUNS]), data=st.data())
def test_a_run_with_a_request_more_shows_the_same_fault(name: str, data: st.DataObject) -> None:
    run = RUNS[name]
    operations, last = list(run.operations), 0
    for operation in run.further[: data.draw(st.integers(1, len(run.further)))]:
        last = data.draw(st.integers(last, len(operations) - 1))
        operations.insert(last, operation)
        last += 1
    config = replace(run.config, num_gpu_blocks=run.config.num_gpu_blocks + data.draw(st.integers(0, 3)))
    again = run.identity(config, operations)
    assert again in (None, found(name))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_all_of_another_request_before_it_shows_the_same_fault(name: str) -> None:
    run = RUNS[name]
    assert run.identity(run.config, [*run.further, *run.operations]) == found(name)
