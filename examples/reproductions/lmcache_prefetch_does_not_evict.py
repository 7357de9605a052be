"""LMCache 0.4.1 and 0.4.2: a prefetch finds no memory, although most of what is there could be evicted (PR 5290).

Only a thread evicts, and only when memory is filled above a watermark, which is 0.8. A prefetch of more than the rest
fails before that. Here six objects of ten are taken, none of them has a lock, and five are to be loaded: nothing is
loaded, and nothing is evicted, so that the same prefetch fails whenever it comes again, and what the second level has
is computed. Run it with the LMCache that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_lmcache import SecondLevel, new_manager, prefetch, write

NUM_OBJECTS, WATERMARK = 10, 0.8
RESIDENT, WANTED = list(range(6)), list(range(10, 15))


def num_loaded(manager: Any) -> int:
    """How many of the wanted objects a prefetch loads."""
    prefetch(manager, SecondLevel(), WANTED)
    return sum(found is not None for _, found in manager.unsafe_read(WANTED).values())


manager = new_manager(NUM_OBJECTS)
write(manager, RESIDENT)
assert len(RESIDENT) < WATERMARK * NUM_OBJECTS, "the thread would evict"
refused = num_loaded(manager) == 0
print(f"objects of {NUM_OBJECTS} that are taken: {len(RESIDENT)}; the prefetch of {len(WANTED)} is refused: {refused}")
manager.delete(RESIDENT[:1])
print(f"objects that it loads after one of those without a lock was evicted: {num_loaded(manager)}")
fault_if(refused, "a prefetch is refused for one object that could be evicted")
