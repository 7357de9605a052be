"""LMCache 0.4.1: what was loaded for several readers has one lock, and the first one deletes it (PR 2725).

If several workers read one object (tensor parallelism and MLA), a look-up takes a lock for each of them. What is loaded
from the second level gets one lock only, whatever the number of readers, and is temporary: at the end of the first
reader it is deleted. The others find nothing, or read memory that something else is written to. From 0.4.2 on the
prefetch gets a lock for each reader. Run it with the LMCache that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_lmcache import SecondLevel, new_manager, prefetch

KEY, NUM_READERS = 7, 2

manager = new_manager()
prefetch(manager, SecondLevel(), [KEY], NUM_READERS)
finds = []
for reader in range(NUM_READERS):
    finds.append(manager.unsafe_read([KEY])[KEY][1] is not None)
    print(f"reader {reader + 1} of {NUM_READERS} finds what was loaded for it: {finds[-1]}")
    manager.finish_read([KEY])
assert finds[0], "nothing was loaded"
fault_if(not all(finds), "the object is deleted while another reader has not read it")
