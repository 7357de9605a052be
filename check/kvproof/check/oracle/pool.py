"""A pool in lockstep with the specification: a holder is a sequence of it, its blocks are that sequence's table.

No rule is stated here. Allocation is the rules that give a sequence new entries, sharing is a fork or a prefix hit,
freeing is the rules that drop every entry; each is fired with the ids that the pool gave, and a guard that refuses is
the finding. Operations that are not enabled are passed over, as at every level.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from kvproof.check.oracle.manager.base import Judge
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.adapter_check import POOL_CALLS, check_adapter, check_answer, check_observation
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import ManagerSubject, Refused
from kvproof.check.protocol.pool import PoolConfig, PoolSubject
from kvproof.spec.text import operations
from kvproof.spec.text.identity import Identities, Key
from kvproof.spec.text.operations import RuleCall
from kvproof.spec.text.state import EVICTABLE, FREE, GPU
from kvproof.spec.trace import Operation

OPERATIONS = ("take", "store", "find", "reuse", "share", "give", "forget")
ROOT = Key()
ONE_PAGE = 1  # tokens of a block, as the specification counts


class PoolJudge(Judge):
    """One opened pool, its holders, and the specification beside it."""

    def __init__(self, subject: PoolSubject, config: PoolConfig, identities: Identities | None = None) -> None:
        check_adapter(subject, POOL_CALLS)
        self.subject = cast(ManagerSubject, subject)  # of whose calls only `open` and `observe` are used by name
        self.config, self.capabilities = config, subject.capabilities
        self.identities = Identities() if identities is None else identities
        self.stored: list[int] = []  # blocks, in the order in which they were last cached
        self.given_up: list[int] = []  # blocks, in the order in which they were last given up
        self.holders: dict[int, int] = {}  # holder -> its number in the specification
        self.coverage: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.answer = ""
        self._open()
        first = self._call("total-calls", "observe")
        check_observation(first, 1)
        self.explainer = Explainer(config, first, self.identities, self.coverage)
        self.state = self.explainer.state
        self.explainer.compare_pool("open", self._is_at_rest)

    def apply(self, operation: Operation) -> bool:
        """Do one operation; raises Finding, or AdapterError if the adapter breaks the protocol."""
        if operation[0] not in OPERATIONS:
            raise ValueError(f"there is no operation {operation[0]!r}; there are {', '.join(OPERATIONS)}")
        self.answer = ""
        try:
            return getattr(self, f"op_{operation[0]}")(*operation[1:])  # type: ignore[no-any-return]
        except Finding:
            check_observation(self.explainer.observed, 1)
            raise

    def _is_at_rest(self) -> bool:
        return not self.holders

    def blocks_of(self, holder: int) -> list[int]:
        """The blocks that a holder has."""
        slot = self.holders[holder]
        return list(self.state.table[slot][: self.state.num_blocks[slot]])

    def _is_new(self, holder: int) -> bool:
        return holder not in self.holders and bool(self.explainer.free_slots)

    def _begin(self, holder: int) -> int:
        slot = self.holders[holder] = self.explainer.free_slots.pop()
        return slot

    def _settle_pool(self, context: str) -> None:
        self.explainer.observed = self._call("total-calls", "observe")
        self.explainer.compare_pool(context, self._is_at_rest)
        if not sum(self.explainer.observed.free):
            self.coverage["pool full"] += 1
        if any(count >= 3 for count in self.state.refcount):
            self.coverage["three holders"] += 1

    def _ids(self, name: str, *arguments: Any) -> list[int] | None:
        """The ids that a call gave; None if it refused."""
        given = self._call("total-calls", name, *arguments)
        check_answer(name, given, list, *([Refused] if name == "allocate" else []))
        if isinstance(given, Refused):
            return None
        for block in given:
            check_answer(f"{name} (each id)", block, int)
        return cast(list[int], given)

    # Allocation ----------------------------------------------------------------------------------------------------

    def op_take(self, holder: int, num_blocks: int) -> bool:
        """A new holder takes blocks without content."""
        if not self._is_new(holder):
            return False
        context = f"allocate({num_blocks})"
        blocks = self._allocated(num_blocks, context)
        if blocks is not None:
            slot = self._begin(holder)
            named = blocks.__getitem__
            program = operations.admit_sequence(
                self.state, ONE_PAGE, slot, 0, (), 0, num_blocks, named, self.config.caching
            )
            self.explainer.run(program, context)
            self._settle_pool(context)
        return True

    def op_store(self, holder: int, pages: Sequence[int]) -> bool:
        """A new holder takes blocks, computes these pages in them, and lets them be found."""
        if not self._is_new(holder):
            return False
        context = f"allocate({len(pages)})"
        blocks = self._allocated(len(pages), context)
        if blocks is None:
            return True
        slot, known = self._begin(holder), self._identities(pages)
        self.explainer.run(self._stored(slot, known, blocks), context)
        self._settle_pool(context)
        if self.config.caching:
            context = f"cache({blocks}, {list(pages)})"
            self._call("total-calls", "cache", list(blocks), list(pages))
            self.explainer.run(operations.register_entries(self.state, ONE_PAGE, slot), context)
            self._settle_pool(context)
            _move_to_the_end(self.stored, blocks)
        return True

    def _stored(self, slot: int, known: list[int], blocks: list[int]) -> Iterator[RuleCall]:
        yield from operations.admit_sequence(self.state, ONE_PAGE, slot, 0, (), 0, 0, blocks.__getitem__, False)
        for index, block in enumerate(blocks):  # a block just taken is new, whatever it was cached under
            yield from operations.take(self.state, block)
            yield "append", (slot, block, operations.row_of(known, index, ONE_PAGE), ONE_PAGE)
        yield from operations.compute_tokens(self.state, ONE_PAGE, slot, len(known))

    def _allocated(self, num_blocks: int, context: str) -> list[int] | None:
        """What `allocate` gave; None if it refused what could not be."""
        before = self.explainer.observed
        blocks = self._ids("allocate", num_blocks)
        unused = self.state.count[GPU][FREE] + self.state.count[GPU][EVICTABLE]
        if blocks is None:
            self.answer = "refused"
            if num_blocks <= unused:
                raise Finding("admission-sound", f"{context} was refused, and {unused} blocks are free")
            self._unchanged(before, f"{context} was refused")
            self.coverage["refused"] += 1
            return None
        if len(blocks) != num_blocks:
            raise Finding("admission-sound", f"{context} gave {len(blocks)} blocks: {blocks}")
        self.answer = _named(blocks)
        return blocks

    # Sharing -------------------------------------------------------------------------------------------------------

    def op_share(self, parent: int, child: int) -> bool:
        """A new holder shares every block of another one."""
        if parent not in self.holders or not self._is_new(child) or not self.capabilities.fork:
            return False
        blocks = self.blocks_of(parent)
        context = f"share({blocks})"
        self._call("total-calls", "share", list(blocks))
        slot = self.holders[parent]
        self.explainer.run(operations.fork_sequence(slot, self._begin(child)), context)
        self._settle_pool(context)
        self.answer = _named(blocks)
        return True

    def op_find(self, pages: Sequence[int]) -> bool:
        """Look pages up, and leave it at that: what is found must be what a holder could share."""
        if not self.config.caching or not self.explainer.free_slots:
            return False
        self._found(pages)
        return True

    def op_reuse(self, holder: int, pages: Sequence[int]) -> bool:
        """A new holder looks pages up, and shares the blocks found."""
        if not self.config.caching or not self._is_new(holder):
            return False
        blocks = self._found(pages)
        if blocks:
            context = f"share({blocks})"
            self._call("total-calls", "share", list(blocks))
            self.explainer.run(self._hit(self._begin(holder), pages, blocks), context)
            self._settle_pool(context)
        return True

    def _found(self, pages: Sequence[int]) -> list[int]:
        context, before = f"find({list(pages)})", self.explainer.observed
        blocks = self._ids("find", list(pages)) or []
        self._unchanged(before, f"{context} only asks")
        if len(blocks) > len(pages):
            raise Finding("hit-computed", f"{context} gave {len(blocks)} blocks for {len(pages)} pages: {blocks}")
        state, slot, coverage = self.state, self.explainer.free_slots[-1], Counter(self.coverage)
        self.explainer.run(self._hit(slot, pages, blocks), context)  # on trial: given up again at once
        self.explainer.run(operations.free_sequence(state, slot), context)
        self.coverage.clear()
        self.coverage.update(coverage)
        row = operations.row_of(self._identities(pages), len(blocks), ONE_PAGE)
        if len(blocks) < len(pages):
            self.notes["hit-complete"] += any(
                state.computed[block] and state.content[block] == row for block in range(self.explainer.num_blocks)
            )
        self.answer = _named(blocks)
        return blocks

    def _hit(self, slot: int, pages: Sequence[int], blocks: list[int]) -> Iterator[RuleCall]:
        known = self._identities(pages)[: len(blocks)]
        named = blocks.__getitem__
        yield from operations.admit_sequence(
            self.state, ONE_PAGE, slot, 0, known, len(blocks), len(blocks), named, True
        )

    def _identities(self, pages: Sequence[int]) -> list[int]:
        known, last = [], self.identities.root(ROOT)
        for page in pages:
            last = self.identities.after(last, (page, None, 0))
            known.append(last)
        return known

    # Giving up -----------------------------------------------------------------------------------------------------

    def op_give(self, holder: int, others: Sequence[int] = ()) -> bool:
        """A holder gives up every block, the last one first; in the same call, so do others, one after another."""
        if holder not in self.holders:
            return False
        giving = dict.fromkeys((holder, *(other for other in others if other in self.holders)))
        blocks = [block for one in giving for block in self.blocks_of(one)[::-1]]
        context = f"free({blocks})"
        self._call("total-calls", "free", blocks[:])
        for one in giving:
            slot = self.holders.pop(one)
            self.explainer.run(operations.free_sequence(self.state, slot), context)
            self.explainer.free_slots.append(slot)
        self.coverage["a block twice in one call"] += len(set(blocks)) < len(blocks)
        _move_to_the_end(self.given_up, blocks)
        self._settle_pool(context)
        return True

    def op_forget(self) -> bool:
        """The cache is forgotten, which a pool refuses while blocks are held."""
        if not (self.capabilities.reset and self.config.caching):
            return False
        before = self.explainer.observed
        done = self._call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        self.answer = "done" if done else "refused"
        if not done:
            self._unchanged(before, "reset_cache() was refused")
        self._judge_reset(done, "reset_cache()")
        if not done:
            return True
        self.explainer.run(operations.reset_cache(self.state), "reset_cache()")
        self._settle_pool("reset_cache()")
        self.coverage["reset"] += 1
        return True


def _move_to_the_end(order: list[int], blocks: Sequence[int]) -> None:
    order[:] = [*(block for block in order if block not in blocks), *blocks]


def _named(blocks: Sequence[int]) -> str:
    return f"blocks {', '.join(map(str, blocks))}" if blocks else "no block"
