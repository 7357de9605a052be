"""A block manager in about forty lines, the adapter that lets kvproof judge it, and the test that does.

Refcounts, forks that share every block, and copy-on-write: what a paged KV cache needs at the least. Run
`pytest examples/forty_lines.py`, or `kvproof hunt --subject examples/forty_lines.py:Adapter`.
"""

from kvproof.check import Config, ManagerAdapter, ManagerCan, run_conformance


class BlockManager:
    """Block tables of sequences, and who holds which block."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free_blocks = list(range(num_blocks))
        self.refcounts = [0] * num_blocks
        self.tables: dict[int, list[int]] = {}
        self.num_tokens: dict[int, int] = {}

    def can_allocate(self, num_tokens: int) -> bool:
        return -(-num_tokens // self.block_size) <= len(self.free_blocks)

    def allocate(self, seq: int, num_tokens: int) -> None:
        self.tables[seq] = [self._take() for _ in range(-(-num_tokens // self.block_size))]
        self.num_tokens[seq] = num_tokens

    def can_append(self, num_seqs: int) -> bool:
        return num_seqs <= len(self.free_blocks)

    def append(self, seq: int) -> list[tuple[int, int]]:
        """A slot for one more token; the (source, target) copies that the worker must make before it writes."""
        table, index = self.tables[seq], self.num_tokens[seq] // self.block_size
        self.num_tokens[seq] += 1
        if index == len(table):
            table.append(self._take())
        elif self.refcounts[table[index]] > 1:
            shared, table[index] = table[index], self._take()
            self.refcounts[shared] -= 1
            return [(shared, table[index])]
        return []

    def fork(self, parent: int, child: int) -> None:
        self.tables[child] = self.tables[parent].copy()
        self.num_tokens[child] = self.num_tokens[parent]
        for block in self.tables[child]:
            self.refcounts[block] += 1

    def free(self, seq: int) -> None:
        for block in self.tables.pop(seq):
            self.refcounts[block] -= 1
            if not self.refcounts[block]:
                self.free_blocks.append(block)

    def _take(self) -> int:
        block = self.free_blocks.pop()
        self.refcounts[block] = 1
        return block


class Adapter(ManagerAdapter):
    """The manager, behind kvproof's protocol."""

    name = "forty-lines"
    capabilities = ManagerCan(fork=True)
    manager: BlockManager

    def make(self, config: Config) -> BlockManager:
        return BlockManager(config.num_gpu_blocks, config.block_size)

    def can_allocate(self, tokens: list[int]) -> bool:
        return self.manager.can_allocate(len(tokens))

    def allocate(self, seq: int, tokens: list[int]) -> None:
        self.manager.allocate(seq, len(tokens))

    def can_append(self, group: int) -> bool:
        return self.manager.can_append(len(self.groups[group]))

    def append(self, seq: int, num_tokens: int) -> list[tuple[int, int]]:
        return self.manager.append(seq)

    def share(self, parent: int, child: int) -> None:
        self.manager.fork(parent, child)

    def release(self, seq: int) -> None:
        self.manager.free(seq)

    def tables(self) -> dict[int, list[int]]:
        return self.manager.tables

    def num_free(self) -> int:
        return len(self.manager.free_blocks)

    def refcounts(self) -> list[int]:
        return self.manager.refcounts


def test_the_manager_conforms() -> None:
    run_conformance(Adapter)
