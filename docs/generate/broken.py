"""Subjects that are broken on purpose, each with the short run in which its fault shows.

They are for the properties that no trace of `examples/traces` breaks, and that a fault of the catalogue does not break
either, or only in a long run. Each subject is a built-in one with one change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kvproof.check.oracle.repetition import replay_twice
from kvproof.check.oracle.replay import ReplayResult, replay
from kvproof.check.protocol.manager import Config, Refused, Reserved
from kvproof.check.protocol.pool import PoolConfig, PoolEvent, Removed, Stored
from kvproof.check.protocol.scheduler import HostStore, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.store import MISS, StoreConfig
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.check.subjects.builtin.store import OwnOffers, OwnStore
from kvproof.impl import Device
from kvproof.impl.scheduler import SchedulerOutputs
from kvproof.spec.text.properties import NOTES
from kvproof.spec.trace import Operation

PLAIN = (None, 0, None)  # the key of a request: no adapter, no salt
STORED = [("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1)]
OFFERED = [*STORED, ("begin_load", 2, 1, (0,))]


class SaysThatAllCounts(OwnOffers):
    """What a reader far away has read counts, also if the lease had run out before."""

    def notice(self, transfer: int, part: int) -> bool:
        super().notice(transfer, part)
        return True


class EndsOneLeaseAtATime(OwnOffers):
    """Of the leases that have run out, the first one ends."""

    def advance(self, seconds: int) -> None:
        self.offers.now += seconds
        over = [number for number, offer in self.offers.open.items() if offer.until <= self.offers.now]
        for number in over[:1]:
            self.offers.end(number)


class CopiesIntoTheCache(BuiltIn):
    """When a sequence gets slots, its first block is also copied over a cached block."""

    def reserve(self, seq: int, num_tokens: int) -> Reserved | Refused:
        done = super().reserve(seq, num_tokens)
        assert isinstance(done, Reserved)
        cached = self.manager.evictable_ids(Device.GPU)
        first = self.manager.tables[seq].ids[0]
        return done._replace(copies=[*done.copies, *((first, block) for block in cached[:1])])


class FindsWholePrompts(BuiltIn):
    """It finds whole prompts, and does not declare it."""

    capabilities = replace(BuiltIn.capabilities, hits_whole_prompts=False)


class RemovesEachCopy(OwnPool):
    """It reports what it caches, and that a content is gone when one of the blocks that have it is taken."""

    capabilities = replace(OwnPool.capabilities, events=True)

    def open(self, config: PoolConfig) -> None:
        super().open(config)
        self.reported: list[PoolEvent] = []
        self.names: dict[int, str] = {}

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        super().cache(blocks, pages)
        names = [str(pages[: at + 1]) for at in range(len(pages))]
        self.reported += map(Stored, names, [None, *names], pages)
        self.names.update(zip(blocks, names, strict=True))

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        taken = super().allocate(num_blocks)
        if isinstance(taken, list):
            self.reported += [Removed(self.names.pop(block)) for block in taken if block in self.names]
        return taken

    def events(self) -> list[PoolEvent]:
        reported, self.reported = self.reported, []
        return reported


class RepeatsTokens(BuiltInScheduler):
    """Each user gets the tokens of a step twice."""

    capabilities = replace(BuiltInScheduler.capabilities, reports_tokens=True)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        super().take_results(output, sampled, finished)
        self.outputs = {seq: [token, token] for seq, token in sampled.items()}


class StoresWithoutHolding(BuiltInScheduler):
    """It stores the first block of the first prompt to host memory, and does not hold the block meanwhile."""

    capabilities = replace(BuiltInScheduler.capabilities, connectors=("eager",))

    def make(self, config: SchedulerConfig) -> Any:
        self.has_stored = False
        return super().make(config)

    def next_step(self) -> tuple[SchedulerOutputs, ScheduledStep]:
        outputs, step = super().next_step()
        if self.has_stored:
            return outputs, step
        self.has_stored = True
        block = self.manager.tables[step.chunks[0].seq].ids[0]
        return outputs, step._replace(stores=[HostStore(1, [(block, 0)])])

    def copied(self, jobs: list[int]) -> None:
        """It does not use this."""

    def reset_caches(self, preempts: bool) -> bool:
        return False


class OneLoadAtATime(OwnStore):
    """It says of every key that is there that it is there, and refuses the second of two loads."""

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        self.num_loads = 0

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> Any:
        if self.num_loads:
            return Refused("a load is under way")
        self.num_loads += 1
        return super().begin_load(transfer, request, keys)


class FindsTheFirstKey(OwnStore):
    """A look-up finds the first key only. It declares no number of keys that a look-up may miss."""

    capabilities = replace(OwnStore.capabilities, lost_hits=None)

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        return [*super().look_up(request, keys)[:1], *([MISS] * (len(keys) - 1))]


class OtherOrderEachTime(OwnStore):
    """Every second store takes its slots in the opposite order, because a counter outlives the store."""

    num_opened = 0

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        OtherOrderEachTime.num_opened += 1
        if OtherOrderEachTime.num_opened % 2 == 0:
            self.slots.free.reverse()


@dataclass(frozen=True)
class Broken:
    """A subject with the run that breaks it."""

    make: type[Any]
    config: Config
    operations: Sequence[Operation]

    def outcome(self, property: str) -> tuple[ReplayResult, str]:
        """The run, and what it shows of this property. Raises LookupError if that is nothing."""
        if property == "nondeterministic":
            done, parted = replay_twice(self.make, self.config, self.operations)
            if parted:
                return done, f"the same calls, other answers: {parted}"
        judges: list[Any] = []
        done = replay(self.make, self.config, self.operations, watch=judges.append)
        if property in NOTES:
            text = judges[-1].notes[property] and "The second key is there, and the look-up misses it (a note)"
        else:
            text = done.finding and done.finding.property == property and str(done.finding.text)
        if not text:
            raise LookupError(f"{self.make.__name__} does not break {property}: {done.finding}")
        return done, str(text)


class Replayed(NamedTuple):
    """A run of a fault of the catalogue that takes minutes to find and to shrink."""

    fault: str
    config: Config
    operations: Sequence[Operation]


EXCLUSIVE_WRITER = Replayed(
    "kvproof-objects/only-blocks-with-tokens-are-copied",
    Config(block_size=1, num_gpu_blocks=15, caching=True, lookahead=2),
    [
        ("new", 1, (1,), (0,), PLAIN, ()),
        ("admit", 1, 1),
        ("run", 0),
        ("fork", 1, 2),
        ("sample", 1, (0, 0)),
        ("append", 1),
        ("run", 0),
        ("fork", 2, 3),
        ("sample", 1, (0, 0, 0)),
        ("append", 1),
        ("run", 0),
    ],
)
BROKEN = {
    "cache-content": Broken(
        CopiesIntoTheCache,
        Config(block_size=1, num_gpu_blocks=3, caching=True, chunked=True),
        [
            ("new", 1, (1,), (7,), PLAIN, ()),
            ("admit", 1, 1),
            ("run", 0),
            ("free", 1),
            ("new", 2, (2,), (8, 9), PLAIN, ()),
            ("admit", 2, 1),
            ("run", 0),
            ("extend", 2, 1),
            ("run", 0),
        ],
    ),
    "hit-complete": Broken(
        FindsTheFirstKey,
        StoreConfig(num_gpu_blocks=2),
        [("begin_store", 1, 1, (0, 1)), *STORED[1:], ("look_up", 2, (0, 1))],
    ),
    "events-agree": Broken(
        RemovesEachCopy,
        PoolConfig(num_gpu_blocks=2, caching=True),
        [("store", 1, (7,)), ("store", 2, (7,)), ("give", 1), ("take", 3, 1)],
    ),
    "tokens-delivered": Broken(
        RepeatsTokens,
        SchedulerConfig(block_size=1, num_gpu_blocks=4, max_model_len=3),
        [("add", 1, (1,), (7,), 2), ("schedule",), ("launch",), ("complete", (8,))],
    ),
    "token-left": Broken(
        FindsWholePrompts,
        Config(block_size=1, num_gpu_blocks=2, caching=True),
        [
            ("new", 1, (1,), (7,), PLAIN, ()),
            ("admit", 1, 1),
            ("run", 0),
            ("new", 2, (2,), (7,), PLAIN, ()),
            ("admit", 2, 1),
        ],
    ),
    "promise-kept": Broken(
        OneLoadAtATime,
        StoreConfig(num_gpu_blocks=1),
        [*STORED, ("look_up", 2, (0,)), ("begin_load", 2, 2, (0,)), ("look_up", 3, (0,)), ("begin_load", 3, 3, (0,))],
    ),
    "void-told": Broken(
        SaysThatAllCounts, StoreConfig(num_gpu_blocks=1), [*OFFERED, ("wait", 10), ("land", 2), ("notice", 2, 0)]
    ),
    "lease-ends": Broken(
        EndsOneLeaseAtATime, StoreConfig(num_gpu_blocks=1), [*OFFERED, ("begin_load", 3, 2, (0,)), ("wait", 10)]
    ),
    "source-held": Broken(
        StoresWithoutHolding,
        SchedulerConfig(
            block_size=1,
            num_gpu_blocks=1,
            max_num_batched_tokens=8,
            max_num_seqs=1,
            max_model_len=2,
            connector="eager",
            host_slots=1,
        ),
        [
            ("add", 1, (1,), (7,), 1, PLAIN, (), None),
            ("schedule",),
            ("launch",),
            ("complete", (0,), (), (), (), ()),
            ("add", 2, (2,), (8,), 1, PLAIN, (), None),
            ("schedule",),
            ("launch",),
        ],
    ),
    "nondeterministic": Broken(
        OtherOrderEachTime,
        StoreConfig(num_gpu_blocks=2),
        [*STORED, ("begin_load", 2, 2, (0,))],
    ),
}
