"""Managers without a cache in which each choice that the specification leaves open is a method, and variants of them.

Whatever these methods choose, the manager is right: which free block is taken, which blocks are copied before a growth,
how many a sequence has beyond those that it needs, how many are kept in reserve, in which order lists are shown.
"""

from collections.abc import Sequence
from typing import Any

from kvproof.check import Capabilities, Config, ManagerAdapter
from kvproof.check.protocol.manager import Admission, Admitted, Pair, Scheduled


class NoRoom(Exception):
    """A call is refused."""


class Plain(ManagerAdapter):
    """Tables, refcounts, forks and copy-on-write."""

    name = "plain"
    capabilities = Capabilities(fork=True)
    num_reserved = 0  # blocks that no call takes

    def make(self, config: Config) -> Any:
        self.free_blocks = list(range(config.num_gpu_blocks))
        self.refs = [0] * (config.num_gpu_blocks + config.num_host_blocks)
        self.held: dict[int, list[int]] = {}
        return self

    # What is open

    def pick(self) -> int:
        """The place in the free list of the block that is taken."""
        return -1

    def give_back(self, block: int) -> None:
        """Nobody holds the block any more."""
        self.free_blocks.append(block)

    def wanted(self, num_tokens: int) -> int:
        """How many blocks a sequence of so many tokens has."""
        return -(-num_tokens // self.config.block_size)

    def copied(self, seq: int, index: int) -> bool:
        """Whether the block at this place of the table is copied before the sequence writes at its end."""
        is_written = index == (len(self.tokens[seq]) - 1) // self.config.block_size
        return is_written and self.refs[self.held[seq][index]] > 1

    # What follows

    def num_free(self) -> int:
        return len(self.free_blocks)

    def num_takable(self) -> int:
        """How many blocks a call can take now."""
        return self.num_free()

    def take(self) -> int:
        block = self.free_blocks.pop(self.pick())
        self.refs[block] = 1
        return block

    def drop(self, block: int) -> None:
        self.refs[block] -= 1
        if not self.refs[block]:
            self.give_back(block)

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        return self.wanted(len(tokens)) + self.num_reserved <= self.num_takable()

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        self.held[seq] = [self.take() for _ in range(self.wanted(len(tokens)))]
        return None

    def cost(self, seq: int) -> int:
        """How many blocks the next growth of a sequence takes."""
        table = self.held[seq]
        grown = max(0, self.wanted(len(self.tokens[seq])) - len(table))
        return grown + sum(self.copied(seq, index) for index in range(len(table)))

    def can_append(self, group: int) -> bool:
        return sum(map(self.cost, self.groups[group])) <= self.num_takable()

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        table, copies = self.held[seq], list[Pair]()
        for index, block in enumerate(table):
            if self.copied(seq, index):
                table[index] = self.take()
                copies.append((block, table[index]))
                self.drop(block)
        while len(table) < self.wanted(len(self.tokens[seq])):
            table.append(self.take())
        return copies

    def share(self, parent: int, child: int) -> None:
        self.held[child] = self.held[parent][:]
        for block in self.held[child]:
            self.refs[block] += 1

    def release(self, seq: int) -> None:
        for block in self.held.pop(seq):
            self.drop(block)

    def tables(self) -> dict[int, list[int]]:
        return self.held

    def refcounts(self) -> list[int] | None:
        return self.refs

    def free_ids(self) -> list[int] | None:
        return self.free_blocks


class FirstFreed(Plain):
    """The block that was freed first is taken."""

    def pick(self) -> int:
        return 0


class Lowest(Plain):
    """The lowest free block is taken."""

    def pick(self) -> int:
        return self.free_blocks.index(min(self.free_blocks))


class Middle(Plain):
    """A block from the middle of the free list is taken."""

    def pick(self) -> int:
        return len(self.free_blocks) // 2


class SortsWhenAsked(Plain):
    """Freed blocks are sorted in when somebody asks."""

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        self.free_blocks.sort()
        return super().can_allocate(tokens)


class TurnsWhenAsked(Plain):
    """Each question turns the free list, and so does looking at it."""

    def can_append(self, group: int) -> bool:
        self.free_blocks.reverse()
        return super().can_append(group)

    def free_ids(self) -> list[int] | None:
        self.free_blocks.append(self.free_blocks.pop(0)) if self.free_blocks else None
        return self.free_blocks


class ShowsLittle(Plain):
    """Neither refcounts nor free ids are shown."""

    def refcounts(self) -> list[int] | None:
        return None

    def free_ids(self) -> list[int] | None:
        return None


class CopiesFullBlocks(Plain):
    """Every shared block of a sequence is copied before it grows, full ones too."""

    def copied(self, seq: int, index: int) -> bool:
        return self.refs[self.held[seq][index]] > 1


class CopiesFirstBlock(Plain):
    """The first block of a table is copied whenever another sequence holds it."""

    def copied(self, seq: int, index: int) -> bool:
        return super().copied(seq, index) or (not index and self.refs[self.held[seq][0]] > 1)


class CopiesWhatWasShared(Plain):
    """A block that was shared once is copied before it is written, though nobody else holds it any more.

    A block that the step copies is not taken before the step has run: a worker may run the copies in any order.
    """

    def make(self, config: Config) -> Any:
        self.were_shared: set[int] = set()
        self.sources: set[int] = set()
        return super().make(config)

    def num_takable(self) -> int:
        return len([block for block in self.free_blocks if block not in self.sources])

    def pick(self) -> int:
        return next(at for at, block in enumerate(self.free_blocks) if block not in self.sources)

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        copies = super().append(seq, num_tokens) or []
        self.sources.update(source for source, _ in copies)
        return copies

    def step_done(self, step: list[Scheduled]) -> None:
        self.sources.clear()

    def share(self, parent: int, child: int) -> None:
        super().share(parent, child)
        self.were_shared.update(self.held[child])

    def take(self) -> int:
        block = super().take()
        self.were_shared.discard(block)
        return block

    def copied(self, seq: int, index: int) -> bool:
        is_written = index == (len(self.tokens[seq]) - 1) // self.config.block_size
        return is_written and self.held[seq][index] in self.were_shared


class OneBlockAhead(Plain):
    """A sequence has one block more than it needs, which is a slack where that one is not there."""

    capabilities = Capabilities(fork=True, refusal_slack=16)  # one for each sequence of a group

    def wanted(self, num_tokens: int) -> int:
        return super().wanted(num_tokens) + 1


class NextBlockWhenFull(Plain):
    """The next block is taken when the last one is full, not when the next token comes."""

    capabilities = Capabilities(fork=True, refusal_slack=16)

    def wanted(self, num_tokens: int) -> int:
        return num_tokens // self.config.block_size + 1


class KeepsReserve(Plain):
    """Two blocks are kept from prompts for good, which the slack declares."""

    capabilities = Capabilities(fork=True, refusal_slack=2)
    num_reserved = 2


class KeepsReserveAndSaysSo(KeepsReserve):
    """It says NEVER where its reserve is in the way for good, and LATER where it is not."""

    def can_allocate(self, tokens: list[int]) -> Admission:
        needed = self.wanted(len(tokens)) + self.num_reserved
        if needed > self.config.num_gpu_blocks:
            return Admission.NEVER
        return Admission.OK if needed <= self.num_free() else Admission.LATER


class KeepsReserveWithoutQuestion(KeepsReserve):
    """It is not asked, and refuses."""

    capabilities = Capabilities(fork=True, refusal_slack=2, has_admission_query=False)
    refusals = (NoRoom,)

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        if not self.can_allocate(tokens):
            raise NoRoom
        return super().allocate(seq, tokens)

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        if self.cost(seq) > self.num_free():
            raise NoRoom
        return super().append(seq, num_tokens)


class TurnsWhenRefusing(KeepsReserveWithoutQuestion):
    """A refused call leaves the free list in another order."""

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        if not self.can_allocate(tokens):
            self.free_blocks.reverse()
        return super().allocate(seq, tokens)


class CountsEveryWrite(Plain):
    """Before a growth it asks for one block for each sequence, whether that needs one or not."""

    def can_append(self, group: int) -> bool:
        return max(len(self.groups[group]), sum(map(self.cost, self.groups[group]))) <= self.num_free()


class SharesAtAdmission(Plain):
    """The sequences of a group share their prompt from the beginning."""

    capabilities = Capabilities(fork=True, waiting_groups=True)


class InChunks(Plain):
    """A prompt gets blocks for the chunk that is computed next, and no more."""

    capabilities = Capabilities(fork=True, chunked=True)

    def make(self, config: Config) -> Any:
        self.num_slots: dict[int, int] = {}
        return super().make(config)

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        num_tokens = min(len(tokens), self.first_chunk) if self.config.chunked else len(tokens)
        self.held[seq] = [self.take() for _ in range(self.wanted(num_tokens))]
        return None


class LooksAhead(Plain):
    """A sequence has the blocks of its lookahead slots from the beginning."""

    capabilities = Capabilities(fork=True, lookahead=True, admits_lookahead=True)

    def wanted(self, num_tokens: int) -> int:
        return super().wanted(num_tokens + self.config.lookahead)

    def copied(self, seq: int, index: int) -> bool:
        is_written = index >= (len(self.tokens[seq]) - 1) // self.config.block_size
        return is_written and self.refs[self.held[seq][index]] > 1


class LooksAheadLate(LooksAhead):
    """A prompt gets no blocks for lookahead slots; its first decode does."""

    capabilities = Capabilities(fork=True, lookahead=True)

    def can_allocate(self, tokens: list[int]) -> bool | Admission:
        return Plain.wanted(self, len(tokens)) <= self.num_takable()

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        self.held[seq] = [self.take() for _ in range(Plain.wanted(self, len(tokens)))]
        return None


class HoldsBack(Plain):
    """An admission leaves the blocks of the watermark free."""

    capabilities = Capabilities(fork=True, watermark=True)

    def can_allocate(self, tokens: list[int]) -> Admission:
        needed = self.wanted(len(tokens)) + int(self.config.watermark * self.config.num_gpu_blocks)
        if needed > self.config.num_gpu_blocks:
            return Admission.NEVER
        return Admission.OK if needed <= self.num_free() else Admission.LATER


class Windowed(Plain):
    """A sequence gives up the blocks that its window has left, and has null blocks in their place."""

    capabilities = Capabilities(window=True)

    def num_left(self, num_tokens: int) -> int:
        """How many entries a sequence has given up when it has so many tokens."""
        window = self.config.window
        return 0 if window is None else max(0, num_tokens - window) // self.config.block_size

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        table = self.held[seq]
        for index in range(self.num_left(len(self.tokens[seq]) - num_tokens)):
            if table[index] >= 0:
                self.drop(table[index])
                table[index] = -1
        return super().append(seq, num_tokens)

    def copied(self, seq: int, index: int) -> bool:
        return self.held[seq][index] >= 0 and super().copied(seq, index)

    def release(self, seq: int) -> None:
        for block in self.held.pop(seq):
            if block >= 0:
                self.drop(block)


class LeavesWindowLate(Windowed):
    """It gives up a block only when the window has left the next one too."""

    def num_left(self, num_tokens: int) -> int:
        return max(0, super().num_left(num_tokens) - 1)
