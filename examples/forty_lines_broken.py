"""The manager of forty_lines.py with one line left out: its fork forgets to count the new references.

Run `kvproof hunt --subject examples/forty_lines_broken.py:Adapter` to see how it is refuted.
"""

import forty_lines

from kvproof.check import Config, run_conformance


class BlockManager(forty_lines.BlockManager):
    """The same, but for one line."""

    def fork(self, parent: int, child: int) -> None:
        self.tables[child] = self.tables[parent].copy()
        self.num_tokens[child] = self.num_tokens[parent]


class Adapter(forty_lines.Adapter):
    """The broken manager, behind kvproof's protocol."""

    name = "forty-lines-broken"

    def make(self, config: Config) -> BlockManager:
        return BlockManager(config.num_gpu_blocks, config.block_size)


if __name__ == "__main__":
    run_conformance(Adapter)
