"""Random operations on a manager in a small pool, beside a model that knows only tokens and slots.

The model plays the worker: it does a step's swap-ins, swap-outs and copies, each list in a random order, writes
the KV of the scheduled tokens, and junk into the lookahead. KV is the pair of what is before and the token, so a
slot that holds anything else is seen when it is read. After every call references, free lists and counts
must agree, and every OK must be kept.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kvproof.impl import AllocStatus, BlockManager, Device, Sequence, SequenceGroup, SequenceStatus

RUNNING, SWAPPED, WAITING = SequenceStatus.RUNNING, SequenceStatus.SWAPPED, SequenceStatus.WAITING
Pairs = list[tuple[int, int]]


@dataclass
class Step:
    """What the worker will do."""

    swap_ins: Pairs = field(default_factory=list)
    swap_outs: Pairs = field(default_factory=list)
    copies: Pairs = field(default_factory=list)
    writes: list[tuple[Sequence, int, int]] = field(default_factory=list)


class World:
    """One manager in one configuration, and the model beside it."""

    def __init__(self, seed: int) -> None:
        self.random = pick = random.Random(seed)
        self.size, self.num_gpu, self.num_host = pick.randint(1, 4), pick.randint(3, 16), pick.randint(0, 16)
        self.is_cached = pick.random() < 0.5
        self.window = pick.randint(1, 9) if not self.is_cached and pick.random() < 0.5 else None
        self.lookahead = pick.choice((0, 0, 1, 3))
        self.chunked = pick.random() < 0.5
        self.manager = BlockManager(
            self.size, self.num_gpu, self.num_host, pick.choice((0, 0, 0.2)), self.window, self.is_cached
        )
        self.groups: list[SequenceGroup] = []
        self.slots: list[list[object]] = [[None] * self.size for _ in range(self.num_gpu + self.num_host)]
        self.step, self.busy, self.has_preempted, self.next_id = Step(), set[str](), False, 0
        self.done: dict[str, int] = {}

    # ---- the model ----

    def kv(self, seq: Sequence, position: int) -> tuple[object, ...]:
        return (seq.extra, *seq.get_token_ids()[: position + 1])

    def execute(self) -> None:
        """The worker's step."""
        step, size, gpu = self.step, self.size, self.num_gpu
        swap_ins = [(source + gpu, target) for source, target in step.swap_ins]
        swap_outs = [(source, target + gpu) for source, target in step.swap_outs]
        for pairs in (swap_ins, swap_outs, step.copies):
            self.random.shuffle(pairs)
            for source, target in pairs:
                self.slots[target] = self.slots[source][:]
        for seq, start, stop in step.writes:
            table = self.manager.get_block_table(seq)
            for position in range(start, stop):
                self.slots[table[position // size]][position % size] = self.kv(seq, position)
            for position in range(len(seq.get_token_ids()), min(stop + self.lookahead, len(table) * size)):
                self.slots[table[position // size]][position % size] = "junk"
            seq.data.update_num_computed_tokens(stop - seq.data.get_num_computed_tokens())
        self.step, self.has_preempted = Step(), False
        self.busy.clear()
        for seq in self.seqs(RUNNING):
            computed, table = seq.data.get_num_computed_tokens(), self.manager.get_block_table(seq)
            first = 0 if self.window is None else max(0, computed - self.window + 1)
            for position in range(first, computed):
                assert self.slots[table[position // size]][position % size] == self.kv(seq, position)

    def seqs(self, status: SequenceStatus) -> list[Sequence]:
        return [seq for group in self.groups for seq in group.get_seqs(status)]

    def check(self) -> None:
        """References, lists and counts tell one story."""
        manager, null = self.manager, self.manager.null_block_id
        held = [0] * len(manager.refcounts)
        for table in manager.tables.values():
            for block in table.ids:
                if block != null:
                    held[block] += 1
        if null is not None:
            assert held[null] == 0
            held[null] = 1
        assert held == manager.refcounts
        free = manager.free_ids(Device.GPU) + manager.evictable_ids(Device.GPU) + manager.free_ids(Device.CPU)
        assert sorted(free) == [block for block, count in enumerate(held) if not count]
        assert len(free) == manager.get_num_free_gpu_blocks() + manager.get_num_free_cpu_blocks()
        assert set(manager.tables) == {s.seq_id for s in self.seqs(RUNNING) + self.seqs(SWAPPED)}
        for seq in self.seqs(SWAPPED):
            assert all(block >= self.num_gpu or block == null for block in manager.get_block_table(seq))

    def judge(self, answer: AllocStatus) -> bool:
        """LATER is not said in an idle pool."""
        if answer is AllocStatus.LATER:
            assert self.seqs(RUNNING)
        return answer is AllocStatus.OK

    # ---- operations ----

    def new(self) -> None:
        if len(self.groups) < 5:
            tokens = [self.random.randint(0, 1) for _ in range(self.random.randint(1, 4 * self.size))]
            extra = self.random.choice((None, "adapter")) if self.is_cached else None
            ids = range(self.next_id, self.next_id + self.random.choice((1, 1, 2)))
            self.next_id += 10
            self.groups.append(SequenceGroup(str(ids[0]), [Sequence(i, tokens, self.size, extra) for i in ids]))

    def admit(self, group: SequenceGroup) -> None:
        if group.seqs[0].status is not WAITING or not self.judge(self.manager.can_allocate(group, self.lookahead)):
            return
        self.manager.allocate(group)
        first = group.seqs[0]
        hit = len(self.manager.get_common_computed_block_ids(group.seqs)) * self.size
        stop = first.get_len()
        if self.chunked and len(group.seqs) == 1:
            stop = self.random.randint(min(hit + 1, stop), stop)
        for seq in group.seqs:
            seq.status = RUNNING
            self.step.writes.append((seq, min(hit, stop - 1) if seq is first else stop, stop))
        self.busy.add(group.request_id)

    def append(self, group: SequenceGroup) -> None:
        seq = group.seqs[0]
        if seq.status is not RUNNING or group.request_id in self.busy or not seq.data.get_num_uncomputed_tokens():
            return
        if self.manager.can_append_slots(group, self.lookahead):
            self.count("append")
            self.append_all(group)

    def append_all(self, group: SequenceGroup) -> None:
        for seq in group.seqs:
            shared = self.manager.get_block_table(seq)[:]
            copies = self.manager.append_slots(seq, self.lookahead)
            self.count("copy on write", len(copies))
            self.count("exchange or drop", shared != self.manager.get_block_table(seq)[: len(shared)] and not copies)
            self.step.copies += copies
            start = seq.data.get_num_computed_tokens()
            self.step.writes.append((seq, start, seq.get_len()))
        self.busy.add(group.request_id)

    def sample(self) -> None:
        """Between two steps most groups get their next tokens."""
        for group in self.groups:
            is_computed = not any(seq.data.get_num_uncomputed_tokens() for seq in group.seqs)
            if group.seqs[0].status is RUNNING and is_computed and self.random.random() < 0.8:
                for seq in group.seqs:
                    if seq.get_len() < 40:
                        seq.append_token_id(self.random.randint(0, 1))

    def fork(self, group: SequenceGroup) -> None:
        seq = self.random.choice(group.seqs)
        is_computed = not any(seq.data.get_num_uncomputed_tokens() for seq in group.seqs)
        if seq.status is RUNNING and not self.pending and len(group.seqs) < 4 and is_computed:
            self.next_id += 1
            child = seq.fork(1_000_000 + self.next_id)
            self.manager.fork(seq, child)
            group.add(child)

    def free(self, group: SequenceGroup) -> None:
        if not self.pending:
            seq = self.random.choice(group.seqs)
            self.manager.free(seq)
            group.remove(seq.seq_id)
            if not group.seqs:
                self.groups.remove(group)

    def preempt(self, group: SequenceGroup) -> None:
        if group.seqs[0].status is RUNNING and group.request_id not in self.busy and len(group.seqs) == 1:
            self.manager.free(group.seqs[0])
            seq = group.seqs[0]
            other = Sequence(seq.seq_id, seq.get_token_ids(), self.size, seq.extra)
            group.seqs[0] = other
            self.has_preempted = True

    def swap_out(self, group: SequenceGroup) -> None:
        if group.seqs[0].status is RUNNING and group.request_id not in self.busy and self.manager.can_swap_out(group):
            self.step.swap_outs += self.manager.swap_out(group)
            self.set_status(group, SWAPPED)
            self.has_preempted = True

    def swap_in(self, group: SequenceGroup) -> None:
        if group.seqs[0].status is not SWAPPED or self.has_preempted:
            return
        if self.judge(self.manager.can_swap_in(group, self.lookahead)):
            pairs = self.manager.swap_in(group)
            assert not {target for _, target in pairs} & {target for _, target in self.step.swap_ins}
            self.step.swap_ins += pairs
            self.count("swap in")
            self.set_status(group, RUNNING)
            if group.seqs[0].data.get_num_uncomputed_tokens():
                self.append_all(group)

    def run(self) -> None:
        for group in self.groups:
            if group.request_id in self.busy:
                sizes = [
                    stop - seq.data.get_num_computed_tokens() for seq, _, stop in self.step.writes if seq in group.seqs
                ]
                self.manager.mark_blocks_as_computed(group, min(sizes))
                for seq in group.seqs:
                    self.manager.access_all_blocks_in_seq(seq, self.random.random())
        self.execute()
        if self.random.random() < 0.7:
            self.sample()

    @property
    def pending(self) -> bool:
        step = self.step
        return bool(self.busy or step.swap_ins or step.swap_outs or step.copies or step.writes)

    def set_status(self, group: SequenceGroup, status: SequenceStatus) -> None:
        for seq in group.seqs:
            seq.status = status

    def count(self, what: str, times: int = 1) -> None:
        self.done[what] = self.done.get(what, 0) + times

    def walk(self, num_operations: int) -> None:
        about = [self.admit, self.append, self.fork, self.free, self.preempt, self.swap_out, self.swap_in]
        often = (9, 30, 4, 1, 0.5, 2, 9)  # work is frequent, leaving is rare: so pools fill and tables grow
        weights = [times * self.random.choice((0.3, 1, 1, 3)) for times in often]
        for _ in range(num_operations):
            kind = self.random.random()
            if kind < 0.15:
                self.new()
            elif kind < 0.35:
                self.run()
            elif kind < 0.36 and not self.pending:
                assert self.manager.reset_prefix_cache() == (not self.manager.tables)
            elif self.groups:
                self.random.choices(about, weights)[0](self.random.choice(self.groups))
            self.check()


@pytest.mark.parametrize("part", range(4))
def test_random_operations_agree_with_the_model(part: int) -> None:
    done: dict[str, int] = {}
    for seed in range(part * 200, part * 200 + 200):
        world = World(seed)
        world.walk(150)
        for what, times in world.done.items():
            done[what] = done.get(what, 0) + times
    for witness in ("append", "copy on write", "exchange or drop", "swap in"):
        assert done.get(witness, 0) > 10, f"{witness} was exercised {done.get(witness, 0)} times"


def test_a_process_repeats_itself() -> None:
    one, other = World(3), World(3)
    one.walk(200)
    other.walk(200)
    assert one.manager.refcounts == other.manager.refcounts
    assert one.slots == other.slots
