"""Run programs of rules on the specification's state; a guard that refuses is a finding.

Each call of the subject is explained by a program, that is, a sequence of rules with arguments. The specification runs
each rule, and each is counted as a witness. Before a rule runs, the worker is given what it needs (new blocks, copies).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from kvproof.check.oracle.eviction_policy import EvictionOrder
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, Pair
from kvproof.spec.compilation import Guard
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.operations import Program
from kvproof.spec.text.state import EVICTABLE, State

SMALL_POOL_MAX = 64  # blocks of both devices; the state of a larger pool has room for more
NUM_SEQS_MAX, NUM_SEQS_OF_LARGE_MAX = 24, 64
NUM_PREFIXES_MAX = 8  # named prefixes of one manager
NUM_ENTRIES_MAX, NUM_ENTRIES_SPARE, NUM_ENTRIES_OF_LARGE_MAX = 40, 10, 640
LONG_TABLE = "table of several blocks"  # a situation that every manager must reach
NAMES_A_BLOCK = {  # rules about one block, and which argument it is
    "reserve": 1,
    "append": 1,
    "hit": 1,
    "share": 1,
    "exchange": 2,
    "evict": 0,
    "set_aside": 0,
    "copy_out": 1,
    "move_entry": 1,
    "rehit_entry": 1,
}


def is_large(config: Config) -> bool:
    """Whether the pools have so many blocks that looking at each of them after every call would take too long."""
    return config.num_gpu_blocks + config.num_host_blocks > SMALL_POOL_MAX


def num_seqs_max(config: Config) -> int:
    """How many sequences the state of the specification has room for. A small state is opened faster."""
    return NUM_SEQS_OF_LARGE_MAX if is_large(config) else NUM_SEQS_MAX


def num_entries_max(config: Config) -> int:
    """How many entries a table of the state has room for."""
    num_blocks = max(config.num_gpu_blocks, config.num_host_blocks)
    return max(NUM_ENTRIES_MAX, min(num_blocks + NUM_ENTRIES_SPARE, NUM_ENTRIES_OF_LARGE_MAX))


class SpecRunner:
    """The state of the specification for one opened subject, and the rules that run on it."""

    def __init__(
        self,
        config: Config,
        identities: Identities,
        coverage: Counter[str],
        num_flights: int = 0,
    ) -> None:
        self.config, self.identities = config, identities
        self.block_size = config.block_size
        self.num_blocks = config.num_gpu_blocks + config.num_host_blocks
        self.has_flights = num_flights > 0
        pools = config.num_gpu_blocks, config.num_host_blocks
        self.num_prefixes = NUM_PREFIXES_MAX if config.prefixes else 0  # the first slots are those of named prefixes
        num_tables = num_seqs_max(config) * len(config.kv_groups)
        if config.prefixes:  # a sequence may have a further slot, for its part of a named prefix
            num_tables = NUM_PREFIXES_MAX + 2 * num_tables
        num_entries = num_entries_max(config)
        sizes = Sizes(*pools, config.block_size, num_tables + 1, num_entries, num_flights, has_transfers=False)
        self.machine = Machine(sizes, with_ghosts=False, with_checks=False)
        self.rules = self.machine.rules
        self.blocks_for: Callable[[int], int] = self.machine.function("blocks_for")
        self.unused_in: Callable[[State, int], int] = self.machine.function("unused_in")
        self.state: State = self.machine.first_state()
        self.worker = Worker(self.num_blocks, config.block_size)
        self.free_slots = list(range(num_tables - 1, self.num_prefixes - 1, -1))
        self.spare_slot = num_tables  # for a sequence that begins and ends within one explanation
        self.copied: list[Pair] = []
        self.num_reserved = 0
        self.unaligned: set[int] = set()  # cached blocks after the last place of their sequence where a hit may end
        self.forgotten: set[int] = set()  # computed by a sequence that need not keep them (`retention`)
        self.maybe_evicted: set[int] = set()  # blocks of cached content that the manager may not know, or know as new
        self.coverage = coverage
        self.order: EvictionOrder | None = None

    def watch_eviction_order(self, policy: str, finds_all: bool) -> None:
        """From now on compare the victims of each call with the policy. finds_all: see `EvictionOrder`."""
        goes_before, num_blocks = self.machine.function("goes_before"), self.config.num_gpu_blocks
        what = self.coverage, self.maybe_evicted, finds_all
        self.order = EvictionOrder(policy, self.state, num_blocks, goes_before, *what)

    @cached_property
    def blocks(self) -> frozenset[int]:
        """The ids of all blocks."""
        return frozenset(range(self.num_blocks))

    def enlarge(self, num_seqs: int, num_indexes: int) -> None:
        """Make room in the state, which stays the same object, for so many sequences and entries of a table at least.

        Not while the order of eviction is watched.
        """
        sizes, state = self.machine.sizes, self.state
        num_before = sizes.num_seqs
        sizes = replace(sizes, num_seqs=max(num_seqs, num_before), num_indexes=max(num_indexes, sizes.num_indexes))
        self.machine = Machine(sizes, with_ghosts=False, with_checks=False)
        self.rules, larger = self.machine.rules, self.machine.first_state()
        for name, field in FIELDS.items():
            if field.kind != "ghost":
                setattr(state, name, _stretched(getattr(state, name), getattr(larger, name)))
        self.free_slots[:0] = range(sizes.num_seqs - 1, num_before - 1, -1)

    def run(self, program: Program, context: str) -> None:
        """Run a program that explains the call `context`. Raises Finding if a guard refuses a rule."""
        rules, state, coverage = self.rules, self.state, self.coverage
        if self.order is not None:
            program = self.order.watched(program)
        for name, arguments in program:
            coverage[name] += 1
            if name == "append":
                self._note_append(arguments[0], arguments[1])
            elif name == "reserve":
                self.worker.fresh.append(arguments[1])
            elif name == "hit" and arguments[1] < self.num_blocks and state.status[arguments[1]] == EVICTABLE:
                coverage["hit on an evictable block"] += 1
            elif name == "share" and state.status[arguments[1]] == EVICTABLE:
                self.maybe_evicted.add(arguments[1])
            elif name == "evict":
                self.maybe_evicted.discard(arguments[0])
                self.forgotten.discard(arguments[0])
            refusal = rules[name](state, *arguments)
            if refusal is not None:
                raise self._refused(refusal, name, arguments, context)

    def try_out(self, programs: Iterable[Program], context: str) -> None:
        """Run programs that together change nothing: neither the witnesses nor the order of eviction count them."""
        coverage, order, self.order = Counter(self.coverage), self.order, None
        for program in programs:
            self.run(program, context)
        self.order = order
        self.coverage.clear()
        self.coverage.update(coverage)

    def _note_append(self, slot: int, block: int) -> None:
        state = self.state
        index = state.num_full[slot]
        if index == state.num_blocks[slot]:
            self.worker.fresh.append(block)
            if index:
                self.coverage[LONG_TABLE] += 1
        elif state.table[slot][index] != block:
            old = state.table[slot][index]
            self.coverage["copy-on-write"] += 1
            if self.unused_in(state, state.home[slot]) == 1:
                self.coverage["copy-on-write into the last block"] += 1
            if state.num_written[old]:
                self.copied.append((old, block))

    def _refused(self, guard: Guard, name: str, arguments: tuple[Any, ...], context: str) -> Finding:
        if not guard.property:
            raise AssertionError(
                f"the judge ran {name}{arguments} for {context}, but a guard refused: {guard.sentence}"
            )
        sentence, property, blocks = f"it must be that {guard.sentence}", guard.property, []
        if name in NAMES_A_BLOCK:
            block = arguments[NAMES_A_BLOCK[name]]
            blocks.append(block)
            sentence += f"; {self.described(block)}"
            if self.is_left_in_flight(block):
                property = "in-flight-held"
        row = arguments[-1]
        if guard.property == "sharing-equal" and isinstance(row, list):
            sentence += f"; the sequence has {self.identities.describe(row[-1])}"
        return Finding(property, sentence, call=context, blocks=blocks, rule=name)

    def is_left_in_flight(self, block: int) -> bool:
        """Whether no table names the block any more, and something in flight still uses it."""
        return 0 <= block < self.num_blocks and self.state.pins[block] > 0 and not self.state.refcount[block]

    def described(self, block: int) -> str:
        """The state of a block in the specification, as text."""
        if not 0 <= block < self.num_blocks:
            return f"block {block} is none of {self.num_blocks}"
        state = self.state
        status = ("free", f"used, refcount {state.refcount[block]}", "evictable", "kept by the manager")
        text = f"block {block} is {status[state.status[block]]}"
        if state.pins[block]:
            text += ", in use by what is in flight"
        if state.cached[block]:
            text += f", cached for {self.identities.describe(state.content[block][-1])}"
            text += (
                ""
                if state.computed[block]
                else f", with {state.num_written[block]} of {self.block_size} slots computed"
            )
        return text


def _stretched(old: Any, new: Any) -> Any:
    """The old values, followed by the initial values of the larger state."""
    if not isinstance(old, list):
        return old
    if not old or not isinstance(old[0], list):
        return old + new[len(old) :]
    return [_stretched(*pair) for pair in zip(old, new, strict=False)] + new[len(old) :]
