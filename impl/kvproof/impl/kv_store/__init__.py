"""A small store of KV in several tiers behind the KV cache engine: host memory, and a directory as a disk below it.

A *slot* has room for the KV of one key. A key names content, so equal keys have equal bytes in every tier. An entry of
a tier is *staged* while its slot is written, and no look-up finds it; then it is *resident*. What a load reads is
*held*, and nothing evicts it. The least recently used entry that nobody holds is evicted first.

`slots` decides which slot belongs to which key, and moves no bytes; `kvproof verify --subject kvproof-store` judges it
by the rules of `kvproof.spec.store`. `offers` puts leases on what readers far away load, and is judged as
`kvproof-offers`. `disk` keeps bytes in a file, with a checksum for each slot. `tiers` puts them together: what host
memory evicts goes to the disk, and what the disk is asked for comes back. `device`, which needs torch, puts the blocks
of a KV cache engine in front: `memory` has the host slots as tensors for it.
"""

from kvproof.impl.kv_store.disk import DiskSlots, StoreFileError
from kvproof.impl.kv_store.slots import NoSlotError, StagedSlots, StoreSlots
from kvproof.impl.kv_store.tiers import TieredStore

__all__ = ["DiskSlots", "NoSlotError", "StagedSlots", "StoreFileError", "StoreSlots", "TieredStore"]
