"""transformers, 5.20.0 to 5.23.0: a request that does not fit the host pool ends the loop of continuous batching.

`OffloadingManager._reserve_cpu_blocks` subtracts the free blocks of the pool from what a request needs. If the sectors
that are free do not hold the rest, `try_to_free_sectors` makes free sectors of sectors whose blocks are all free. Those
blocks were subtracted already, and now they count again, as sectors: `ValueError`. The request should be reset instead.

Here the pool has one sector of two blocks. A request was offloaded into it and has come back; the next one needs three
blocks. Run it with the transformers that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if_raised
from transformers.generation.continuous_batching.cache_allocators.cache_pool import CachePool
from transformers.generation.continuous_batching.offloading_manager import OffloadingManager

BLOCKS_PER_SECTOR = 2
pool = CachePool(num_sectors=1, num_allocators=1, num_reserved_sectors=0)
pool.set_blocks_per_sector(0, BLOCKS_PER_SECTOR)
allocators = {"layers": StandIn(index=0, blocks_per_sector=BLOCKS_PER_SECTOR)}
manager: Any = StandIn(_cpu_pool=pool, cache=StandIn(cache_allocators=allocators))

first = OffloadingManager._reserve_cpu_blocks(manager, {"layers": 2})
pool.free_blocks(0, first["layers"])
with fault_if_raised(ValueError, "a request of three blocks, a pool of two"):
    print("a request of three blocks, a pool of two:", OffloadingManager._reserve_cpu_blocks(manager, {"layers": 3}))
