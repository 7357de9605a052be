"""Random operations on a manager with a ring, compared with a model of the worker that has only slots.

A ring of W blocks keeps the last W * block_size positions of a sequence readable: position p is in the block that the
table has for it until p + W * block_size is written. The judge checks less, because the subject `kvproof-generation1`
reports a ring as a window of whole entries.
"""

from __future__ import annotations

import random

from kvproof.impl import AllocStatus, BlockSpaceManagerV1, Device, Sequence, SequenceGroup, SequenceStatus

WAITING, RUNNING, SWAPPED = SequenceStatus.WAITING, SequenceStatus.RUNNING, SequenceStatus.SWAPPED
OK, LATER, NEVER = AllocStatus.OK, AllocStatus.LATER, AllocStatus.NEVER


class World:
    """A manager with a ring, and slots that hold what was written."""

    def __init__(self, seed: int) -> None:
        self.random = pick = random.Random(seed)
        self.size, self.num_gpu, self.num_host = pick.randint(1, 4), pick.randint(2, 12), pick.randint(0, 12)
        self.ring = pick.randint(1, 4)
        self.watermark = pick.choice((0.0, 0.0, 0.25))
        window = (self.ring - 1) * self.size + pick.randint(1, self.size)
        self.manager = BlockSpaceManagerV1(self.size, self.num_gpu, self.num_host, self.watermark, window)
        self.slots: list[list[object]] = [[None] * self.size for _ in range(self.num_gpu + self.num_host)]
        self.groups: list[SequenceGroup] = []
        self.swaps: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int]] = []
        self.writes: list[tuple[Sequence, int]] = []
        self.busy, self.next_id, self.num_turns = set[str](), 0, 0

    def kv(self, seq: Sequence, position: int) -> tuple[int, ...]:
        return tuple(seq.get_token_ids()[: position + 1])

    def slot(self, seq: Sequence, position: int) -> tuple[list[object], int]:
        return self.slots[self.manager.get_block_table(seq)[position // self.size]], position % self.size

    def run(self) -> None:
        """Execute the step; then every sequence on the GPU reads its whole ring."""
        self.random.shuffle(self.copies)
        for source, target in self.swaps + self.copies:
            self.slots[target] = self.slots[source][:]
        for seq, start in self.writes:
            stop = seq.get_len()
            for position in range(max(start, stop - self.ring * self.size), stop):
                row, slot = self.slot(seq, position)
                row[slot] = self.kv(seq, position)
            seq.data.update_num_computed_tokens(stop - seq.data.get_num_computed_tokens())
        for part in (self.swaps, self.copies, self.writes, self.busy):
            part.clear()
        for seq in (seq for group in self.groups for seq in group.get_seqs(RUNNING)):
            computed = seq.data.get_num_computed_tokens()
            for position in range(max(0, computed - self.ring * self.size), computed):
                row, slot = self.slot(seq, position)
                assert row[slot] == self.kv(seq, position)
        for group in self.groups:
            first = group.seqs[0]
            is_done = first.status is RUNNING and not first.data.get_num_uncomputed_tokens()
            if is_done and first.get_len() < 40 and self.random.random() < 0.8:
                for seq in group.seqs:
                    seq.append_token_id(self.random.randint(0, 1))

    def admit(self, group: SequenceGroup) -> None:
        manager, seqs = self.manager, group.get_seqs(WAITING)
        if not seqs:
            return
        num_needed = min(-(-seqs[0].get_len() // self.size), self.ring)
        held_back = int(self.watermark * self.num_gpu)
        answer = manager.can_allocate(group)
        assert (answer is NEVER) == (num_needed > self.num_gpu - held_back)
        if answer is LATER:
            assert any(other.get_seqs(RUNNING) for other in self.groups)
        if answer is OK:
            manager.allocate(group)
            for index, seq in enumerate(seqs):
                seq.status = RUNNING
                self.writes.append((seq, 0 if index == 0 else seq.get_len()))
            self.busy.add(group.request_id)

    def append(self, group: SequenceGroup) -> None:
        if group.get_seqs(RUNNING) and group.seqs[0].data.get_num_uncomputed_tokens():
            can = self.manager.can_append_slots(group)
            assert can or len(group.seqs) > self.manager.get_num_free_gpu_blocks()
            if can:
                self.append_all(group)

    def append_all(self, group: SequenceGroup) -> None:
        for seq in group.seqs:
            num_blocks = len(self.manager.get_block_table(seq))
            copies = self.manager.append_slots(seq)
            self.copies += copies
            self.num_turns += bool(copies) and len(self.manager.get_block_table(seq)) > num_blocks
            self.writes.append((seq, seq.get_len() - 1))
        self.busy.add(group.request_id)

    def fork(self, group: SequenceGroup) -> None:
        seq = self.random.choice(group.seqs)
        if not self.busy and seq.status is RUNNING and not seq.data.get_num_uncomputed_tokens() and len(group.seqs) < 4:
            self.next_id += 1
            child = seq.fork(self.next_id)
            self.manager.fork(seq, child)
            group.add(child)

    def free(self, group: SequenceGroup) -> None:
        if not self.busy and not self.swaps:
            seq = self.random.choice(group.seqs)
            self.manager.free(seq)
            group.remove(seq.seq_id)
            if not group.seqs:
                self.groups.remove(group)

    def swap(self, group: SequenceGroup) -> None:
        if self.busy or self.swaps:
            return
        base = self.num_gpu
        if group.get_seqs(RUNNING) and self.manager.can_swap_out(group):
            self.swaps += [(source, target + base) for source, target in self.manager.swap_out(group)]
            status = SWAPPED
        elif group.get_seqs(SWAPPED) and self.manager.can_swap_in(group) is OK:
            self.swaps += [(source + base, target) for source, target in self.manager.swap_in(group)]
            status = RUNNING
        else:
            return
        for seq in group.seqs:
            seq.status = status
        if status is RUNNING and group.seqs[0].data.get_num_uncomputed_tokens():
            self.append_all(group)

    def check(self) -> None:
        manager = self.manager
        held = [0] * len(manager.refcounts)
        for group in self.groups:
            for seq in group.seqs:
                base = self.num_gpu if seq.status is SWAPPED else 0
                table = manager.get_block_table(seq)
                assert all(table[index] == table[index - self.ring] for index in range(self.ring, len(table) - 1))
                for block in set(table):
                    held[block + base] += 1
        assert held == manager.refcounts
        free = manager.free_ids(Device.GPU) + manager.free_ids(Device.CPU)
        assert sorted(free) == [block for block, count in enumerate(held) if not count]

    def walk(self, num_operations: int) -> None:
        for _ in range(num_operations):
            kind = self.random.random()
            if kind < 0.1 and len(self.groups) < 4:
                tokens = [self.random.randint(0, 1) for _ in range(self.random.randint(1, 6 * self.size))]
                self.next_id += 2
                ids = (self.next_id, self.next_id - 1)[: self.random.randint(1, 2)]
                self.groups.append(SequenceGroup(str(ids[0]), [Sequence(i, tokens, self.size) for i in ids]))
            elif kind < 0.4:
                self.run()
            elif self.groups:
                group = self.random.choice(self.groups)
                about = (self.admit, self.append, self.append, self.append, self.fork, self.swap, self.free)
                if group.request_id not in self.busy:
                    self.random.choices(about, (8, 8, 8, 8, 4, 3, 1))[0](group)
            self.check()


def test_a_ring_keeps_its_whole_window_through_forks_copies_and_swaps() -> None:
    num_turns = 0
    for seed in range(300):
        world = World(seed)
        world.walk(200)
        num_turns += world.num_turns
    assert num_turns > 100, f"only {num_turns} shared blocks took a second place"
