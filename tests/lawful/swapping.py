"""Managers with host blocks: the choices of a swap, and in which order it is told."""

from dataclasses import replace
from typing import Any

from tests.lawful.caching import Caches
from tests.lawful.plain import Plain

from kvproof.check import Capabilities, Config
from kvproof.check.protocol.manager import Admission, Pair


class Swaps(Plain):
    """Groups move to host blocks and back; a block that several sequences of a group hold moves once."""

    capabilities = Capabilities(fork=True, swap=True)

    def make(self, config: Config) -> Any:
        self.free_host = list(range(config.num_gpu_blocks, config.num_gpu_blocks + config.num_host_blocks))
        return super().make(config)

    def ordered(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of a swap, as they are shown."""
        return pairs

    def take_on_host(self) -> int:
        block = self.free_host.pop()
        self.refs[block] = 1
        return block

    def give_back(self, block: int) -> None:
        if block < self.config.num_gpu_blocks:
            super().give_back(block)
        else:
            self.free_host.append(block)

    def blocks_of(self, group: int) -> list[int]:
        return [*dict.fromkeys(block for seq in self.groups[group] for block in self.held[seq])]

    def can_swap_out(self, group: int) -> bool | Admission:
        return len(self.blocks_of(group)) <= len(self.free_host)

    def can_swap_in(self, group: int) -> bool | Admission:
        growth = sum(self.cost(seq) + 1 for seq in self.groups[group])
        return len(self.blocks_of(group)) + growth <= self.num_free()

    def stays(self, block: int, group: int) -> bool:
        """Whether a swap-out leaves a block on the GPU."""
        return False

    def moved(self, group: int, is_out: bool) -> list[Pair]:
        base, found = self.config.num_gpu_blocks, dict[int, int]()
        left = {block for block in self.blocks_of(group) if is_out and self.stays(block, group)}
        for seq in self.groups[group]:
            for index, block in enumerate(self.held[seq]):
                if block in left or (not is_out and block < base):
                    continue
                if block in found:
                    self.refs[found[block]] += 1
                else:
                    found[block] = self.take_on_host() if is_out else self.take()
                self.held[seq][index] = found[block]
                self.drop(block)
        gpu, host = (0, base) if is_out else (base, 0)
        return self.ordered([(source - gpu, target - host) for source, target in found.items()])

    def swap_out(self, group: int) -> list[Pair]:
        return self.moved(group, is_out=True)

    def swap_in(self, group: int) -> list[Pair]:
        return self.moved(group, is_out=False)

    def num_free_host(self) -> int:
        return len(self.free_host)

    def free_ids(self) -> list[int] | None:
        return [*(super().free_ids() or []), *self.free_host]


class SwapsInReverse(Swaps):
    """The pairs of a swap are shown from the last to the first."""

    def ordered(self, pairs: list[Pair]) -> list[Pair]:
        return pairs[::-1]


class SwapsFromHashMap(Swaps):
    """The pairs stand in a hash map, whose order is another one each time."""

    num_swaps = 0

    def ordered(self, pairs: list[Pair]) -> list[Pair]:
        type(self).num_swaps += 1
        at = self.num_swaps % len(pairs)
        return [*pairs[at:], *pairs[:at]]

    def free_ids(self) -> list[int] | None:
        ids = [*self.free_host, *self.free_blocks]
        return ids[:: 1 if self.num_swaps % 2 else -1]


class SwapsToLowestHostBlock(Swaps):
    """The lowest host block is taken, and the lowest of the GPU."""

    def pick(self) -> int:
        return self.free_blocks.index(min(self.free_blocks))

    def take_on_host(self) -> int:
        self.free_host.sort(reverse=True)
        return super().take_on_host()


class SwapsInLate(Swaps):
    """A group comes back only when twice its blocks are free, or all are."""

    def can_swap_in(self, group: int) -> bool | Admission:
        has_room = 2 * len(self.blocks_of(group)) <= self.num_free() or self.num_free() == self.config.num_gpu_blocks
        return has_room and super().can_swap_in(group)


class CachesAndSwaps(Swaps, Caches):
    """A group that swaps leaves what is cached of it, and gets other blocks when it comes back."""

    capabilities = replace(Swaps.capabilities, caching=True)


class LeavesSharedBlocks(CachesAndSwaps):
    """A swap leaves the blocks on the GPU that other groups hold too. That is right, and kvproof does not judge it."""

    def stays(self, block: int, group: int) -> bool:
        own = sum(block in self.held[seq] for seq in self.groups[group])
        return self.refs[block] > own
