"""The judge of pools: drives a pool and the specification in lockstep.

A holder is a sequence of the specification, and its blocks are the table of that sequence. An allocation gives a
sequence new entries, sharing is a fork or a prefix hit, and freeing drops every entry. The specification runs each of
these programs with the ids that the pool gave; if a guard refuses, this is the finding. Operations that are not enabled
are skipped, as at every level.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from kvproof.check.oracle.enabled import RuledJudge, enabled_when
from kvproof.check.oracle.events import Listener
from kvproof.check.oracle.hits import HitJudge
from kvproof.check.oracle.lockstep import LockstepJudge
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_adapter, check_answer
from kvproof.check.protocol.finding import Finding, direction
from kvproof.check.protocol.manager import Refused, Unsupported
from kvproof.check.protocol.pool import POOL_CALLS, PoolConfig, PoolOperation, PoolSubject
from kvproof.spec.text import operations
from kvproof.spec.text.identity import Identities, Key
from kvproof.spec.text.operations import RuleCall
from kvproof.spec.text.state import GPU

ROOT = Key()
ONE_PAGE = 1  # tokens of a block, as the specification counts


def has_room(judge: "HolderJudge") -> bool:
    """Whether the specification can hold one more holder."""
    return bool(judge.explainer.free_slots)


class HolderJudge:
    """Does all operations of one pool.

    holders: each with its number in the specification. last_given: blocks that were given up last. stored, given_up:
    blocks in the order in which they were last cached, and released. They are for exhaustive searches; a sparse judge,
    which walks only, does not keep them.
    """

    def __init__(self, oracle: Oracle, holders: dict[int, int]) -> None:
        self.oracle, self.explainer, self.state = oracle, oracle.explainer, oracle.state
        self.config, self.capabilities, self.coverage = oracle.config, oracle.capabilities, oracle.coverage
        self.identities, self.notes = oracle.identities, oracle.notes
        self.call, self.reply, self.hits = oracle.call, oracle.reply, HitJudge(oracle)
        self.holders = holders
        reports = self.capabilities.events and self.config.caching and self.capabilities.lost_hits == 0
        self.listener = Listener(self.identities, self.identities.root(ROOT)) if reports else None
        self.content_before: dict[int, int] = {}  # of each content that was stored
        self.last_given: list[int] = []
        self.stored: list[int] = []
        self.given_up: list[int] = []

    def can_give_again(self) -> bool:
        """Whether blocks were given up, and nobody has got one of them since."""
        return bool(self.last_given) and not any(self.state.refcount[block] for block in self.last_given)

    def blocks_of(self, holder: int) -> list[int]:
        """The blocks of a holder."""
        slot = self.holders[holder]
        return list(self.state.table[slot][: self.state.num_blocks[slot]])

    def _begin(self, holder: int) -> int:
        slot = self.holders[holder] = self.explainer.free_slots.pop()
        return slot

    def _settle_pool(self, context: str) -> None:
        self.oracle.observe(context)
        self.oracle.settle(context)
        if self.listener is not None:
            self._judge_events(self.listener, context)
        if not sum(self.explainer.observed.free):
            self.coverage["pool full"] += 1
        if not self.oracle.is_sparse and max(self.state.refcount) >= 3:
            self.coverage["three holders"] += 1

    def _judge_events(self, listener: Listener, context: str) -> None:
        """Who hears the events must believe what is cached."""
        listener.hear(self.call("total-calls", "events"), self.config.num_gpu_blocks, context)
        cached = operations.hittable_identities(self.state, range(self.config.num_gpu_blocks), False)
        listener.compare(cached, self.content_before, context)
        self.coverage["a content in two blocks"] += len(cached) < sum(self.state.computed)

    def _ids(self, name: str, *arguments: Any) -> list[int] | None:
        """The ids that a call returned; None if it refused."""
        given = self.call("total-calls", name, *arguments)
        check_answer(name, given, list, *([Refused] if name == "allocate" else []))
        if isinstance(given, Refused):
            return None
        for block in given:
            check_answer(f"{name} (each id)", block, int)
        return cast(list[int], given)

    # Allocation ----------------------------------------------------------------------------------------------------

    @enabled_when(has_room)
    def op_take(self, holder: int, num_blocks: int) -> bool:
        """A new holder takes blocks without content."""
        if holder in self.holders or num_blocks > self.oracle.num_tokens_max:
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

    @enabled_when(has_room)
    def op_store(self, holder: int, pages: Sequence[int]) -> bool:
        """A new holder takes blocks, computes these pages in them, and puts them into the cache."""
        if holder in self.holders or len(pages) > self.oracle.num_tokens_max:
            return False
        context = f"allocate({len(pages)})"
        blocks = self._allocated(len(pages), context)
        if blocks is None:
            return True
        slot, known = self._begin(holder), self._identities(pages)
        self.content_before.update(zip(known, [self.identities.root(ROOT), *known], strict=False))
        self.explainer.run(self._stored(slot, known, blocks), context)
        self._settle_pool(context)
        if self.config.caching:
            context = f"cache({blocks}, {list(pages)})"
            self.call("total-calls", "cache", list(blocks), list(pages))
            self.explainer.run(operations.register_entries(self.state, ONE_PAGE, slot), context)
            self._settle_pool(context)
            if not self.oracle.is_sparse:
                _move_to_the_end(self.stored, blocks)
        return True

    def _stored(self, slot: int, known: list[int], blocks: list[int]) -> Iterator[RuleCall]:
        yield from operations.admit_sequence(self.state, ONE_PAGE, slot, 0, (), 0, 0, blocks.__getitem__, False)
        for index, block in enumerate(blocks):  # its cached content is lost
            yield from operations.take(self.state, block)
            yield "append", (slot, block, operations.row_of(known, index, ONE_PAGE), ONE_PAGE)
        yield from operations.compute_tokens(self.state, ONE_PAGE, slot, len(known))

    def _allocated(self, num_blocks: int, context: str) -> list[int] | None:
        """The blocks that `allocate` returned; None if it refused, and had to."""
        before = self.explainer.observed
        blocks = self._ids("allocate", num_blocks)
        unused = self.explainer.unused_in(self.state, GPU)
        if blocks is None:
            self.reply.text = "refused"
            if self.explainer.machine.function("may_answer_ok")(num_blocks, unused, 0):
                sentence = f"{context} was refused, and $expected blocks are free"
                raise Finding("admission-sound", sentence, expected=unused, observed=num_blocks)
            self.oracle.require_unchanged(before, f"{context} was refused")
            self.coverage["refused"] += 1
            return None
        if len(blocks) != num_blocks:
            sentence = f"{context} gave $observed blocks: {blocks}"
            about, num_given = direction([(num_blocks, len(blocks))]), len(blocks)
            raise Finding(
                "admission-sound", sentence, expected=num_blocks, observed=num_given, blocks=blocks, about=about
            )
        self.reply.text = _named(blocks)
        return blocks

    # Sharing -------------------------------------------------------------------------------------------------------

    @enabled_when(has_room, about=lambda judge: judge.holders)
    def op_share(self, parent: int, child: int) -> bool:
        """A new holder shares every block of another one."""
        if child in self.holders:
            return False
        blocks = self.blocks_of(parent)
        context = f"share({blocks})"
        self.call("total-calls", "share", list(blocks))
        slot = self.holders[parent]
        self.explainer.run(operations.fork_sequence(slot, self._begin(child)), context)
        self._settle_pool(context)
        self.reply.text = _named(blocks)
        return True

    @enabled_when(has_room)
    def op_find(self, pages: Sequence[int]) -> bool:
        """Look pages up, and do no more: a holder could share the blocks that are found."""
        if len(pages) > self.oracle.num_tokens_max:
            return False
        self._found(pages)
        return True

    @enabled_when(has_room)
    def op_reuse(self, holder: int, pages: Sequence[int]) -> bool:
        """A new holder looks pages up, and shares the blocks that are found."""
        if holder in self.holders or len(pages) > self.oracle.num_tokens_max:
            return False
        blocks = self._found(pages)
        if blocks:
            context = f"share({blocks})"
            self.call("total-calls", "share", list(blocks))
            self.explainer.run(self._hit(self._begin(holder), pages, blocks), context)
            self._settle_pool(context)
        return True

    def _found(self, pages: Sequence[int]) -> list[int]:
        context, before = f"find({list(pages)})", self.explainer.observed
        blocks = self._ids("find", list(pages)) or []
        self.oracle.require_unchanged(before, f"{context} only asks")
        if len(blocks) > len(pages):
            sentence = f"{context} gave $observed blocks for $expected pages: {blocks}"
            raise Finding("hit-computed", sentence, expected=len(pages), observed=len(blocks), blocks=blocks)
        slot = self.explainer.free_slots[-1]
        self.explainer.try_out((self._hit(slot, pages, blocks), operations.free_sequence(self.state, slot)), context)
        self._judge_missed(pages, len(blocks), context)
        self.reply.text = _named(blocks)
        return blocks

    def _judge_missed(self, pages: Sequence[int], num_found: int, context: str) -> None:
        """Compare what was found with the longest cached prefix; the subject may declare how much it misses at most."""
        if num_found == len(pages) or self.hits.leaves_out():
            return
        hittable = operations.hittable_identities(self.state, range(self.config.num_gpu_blocks), False)
        declared, missed = self.capabilities.lost_hits, 0
        for identity in self._identities(pages)[num_found:]:
            if identity not in hittable:
                break
            missed += 1
        self.notes["hit-complete"] += missed > 0
        if declared is not None and missed > declared:
            raise Finding(
                "hit-found",
                f"{context} gave $observed blocks, but $expected are cached; the subject declares that a look-up "
                f"misses at most {declared} blocks",
                expected=num_found + missed,
                observed=num_found,
            )

    def _hit(self, slot: int, pages: Sequence[int], blocks: list[int]) -> Iterator[RuleCall]:
        known = self._identities(pages)[: len(blocks)]
        named = blocks.__getitem__
        yield from operations.admit_sequence(
            self.state, ONE_PAGE, slot, 0, known, len(blocks), len(blocks), named, True
        )

    def _identities(self, pages: Sequence[int]) -> list[int]:
        return self.identities.along(self.identities.root(ROOT), pages)

    # Releasing -----------------------------------------------------------------------------------------------------

    @enabled_when(about=lambda judge: judge.holders)
    def op_give(self, holder: int, others: Sequence[int] = ()) -> bool:
        """A holder releases every block, the last one first; in the same call others do so, one after another."""
        giving = dict.fromkeys((holder, *(other for other in others if other in self.holders)))
        blocks = [block for one in giving for block in self.blocks_of(one)[::-1]]
        context = f"free({blocks})"
        self.call("total-calls", "free", blocks[:])
        for one in giving:
            slot = self.holders.pop(one)
            self.explainer.run(operations.free_sequence(self.state, slot), context)
            self.explainer.free_slots.append(slot)
        self.last_given[:] = blocks
        self.coverage["a block twice in one call"] += len(set(blocks)) < len(blocks)
        if not self.oracle.is_sparse:
            _move_to_the_end(self.given_up, blocks)
        self._settle_pool(context)
        return True

    @enabled_when(lambda judge: judge.can_give_again())
    def op_give_again(self) -> bool:
        """The blocks that were given up last are given up once more, which changes nothing."""
        self.call("total-calls", "free", self.last_given[:])
        self.coverage["given up twice"] += 1
        try:
            self._settle_pool(f"free({self.last_given}) once more")
        except Finding as finding:
            raise finding.of_property("no-double-free") from None
        return True

    @enabled_when()
    def op_forget(self) -> bool:
        """Reset the cache; a pool refuses this while blocks are held."""
        before = self.explainer.observed
        done = self.call("total-calls", "reset_cache")
        check_answer("reset_cache", done, bool)
        self.reply.text = "done" if done else "refused"
        if not done:
            self.oracle.require_unchanged(before, "reset_cache() was refused")
        self.oracle.judge_reset(done, "reset_cache()")
        if not done:
            return True
        self.explainer.run(operations.reset_cache(self.state), "reset_cache()")
        self._settle_pool("reset_cache()")
        self.coverage["reset"] += 1
        return True


def _move_to_the_end(order: list[int], blocks: Sequence[int]) -> None:
    order[:] = [*(block for block in order if block not in blocks), *blocks]


def _named(blocks: Sequence[int]) -> str:
    return f"{'block' if len(blocks) == 1 else 'blocks'} {', '.join(map(str, blocks))}" if blocks else "no block"


class PoolJudge(LockstepJudge, RuledJudge):
    """One opened pool in lockstep with the specification."""

    kinds = PoolOperation.kinds()

    def __init__(self, subject: PoolSubject, config: PoolConfig, identities: Identities | None = None) -> None:
        check_adapter(subject, POOL_CALLS)
        if config.block_size != 1:
            raise Unsupported(f"a block of a pool holds one page, so block_size is 1, and not {config.block_size}")
        holders: dict[int, int] = {}
        oracle = Oracle(subject, config, identities, is_at_rest=lambda: not holders)
        LockstepJudge.__init__(self, oracle)
        judge = HolderJudge(oracle, holders)
        RuledJudge.__init__(self, oracle.reply, judge)
        self.holders, self.blocks_of, self.can_give_again = judge.holders, judge.blocks_of, judge.can_give_again
        self.last_given, self.stored, self.given_up = judge.last_given, judge.stored, judge.given_up

    def compare_memory(self) -> None:
        """A pool has no worker, and so no memory."""
