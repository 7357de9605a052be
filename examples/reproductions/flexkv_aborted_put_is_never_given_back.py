"""FlexKV (taco-project, commit 34ab141e87; its tree in Python): the blocks of an aborted put stay for ever.

A put is planned, and its blocks are in the tree as not ready. Another request plans a longer one below it. If the
first put is aborted, `remove_unready_leaf` leaves its node in the tree, because it is no leaf any more. The node never
becomes ready: it is neither evicted nor hit, and the prefix is taken for known, so that nobody puts it again.

Run it with a checkout: `python flexkv_aborted_put_is_never_given_back.py CHECKOUT`. It needs numpy and torch, and ends
with exit code 1 if the fault is there.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from on_a_checkout import checkout, without_init
from on_any_engine import StandIn, fault_if

NUM_BLOCKS = 4


class Prompt:
    """Stands in for `SequenceMeta`: the hashes of the blocks of a prompt, each of the prefix that ends there."""

    def __init__(self, *hashes: int) -> None:
        import numpy

        self.block_hashes, self.num_blocks = numpy.array(hashes, dtype=numpy.uint64), len(hashes)

    def gen_hashes(self) -> None:
        """They are there."""

    def get_hash(self, index: int) -> int | None:
        """The hash of the prefix that ends with this block."""
        return int(self.block_hashes[index]) if index < self.num_blocks else None


folder = checkout() / "flexkv"
for package in ("", ".cache", ".common"):
    without_init(f"flexkv{package}", folder.joinpath(package[1:]))
STAND_INS: dict[str, dict[str, Any]] = {
    "block": {"SequenceMeta": Prompt},
    "hash_utils": {"HashType": int, "Hasher": object},
    "transfer": {"DeviceType": StandIn(CPU=0)},
}
for name, words in STAND_INS.items():
    module = sys.modules[f"flexkv.common.{name}"] = ModuleType(f"flexkv.common.{name}")
    module.__dict__.update(words)
index = importlib.import_module("flexkv.cache.radixtree").RadixTreeIndex(1)
pool = importlib.import_module("flexkv.cache.mempool").Mempool(NUM_BLOCKS)

prefix = Prompt(1, 2)
aborted = index.insert(prefix, pool.allocate_blocks(2), is_ready=False)
longer = index.insert(Prompt(1, 2, 3), pool.allocate_blocks(1), is_ready=False)
pool.recycle_blocks(index.remove_unready_leaf(aborted))
index.set_ready(longer, True, 1)
pool.recycle_blocks(index.evict(NUM_BLOCKS)[0])

found = index.match_prefix(prefix)
print(f"all that can be evicted is evicted; free blocks: {pool.num_free_blocks} of {NUM_BLOCKS}")
print(f"of the prefix, {found.num_matched_blocks} blocks are known, and {found.num_ready_matched_blocks} can be read")
fault_if(pool.num_free_blocks < NUM_BLOCKS, f"{NUM_BLOCKS - pool.num_free_blocks} blocks are never given back")
