"""LMCache 0.4.1: what was loaded from the second level is stored to the second level again (PR 2744).

When a prefetch is over, the L1 manager tells its listeners that the keys were written. The store controller takes them
for new ones, and stores them where they have just come from: each hit in the second level is a write there. From 0.4.2
on the end of a prefetch has an event of its own. Run it with the LMCache that is to be tried: exit code 1 if the fault
is there.
"""

from on_any_engine import StandIn, fault_if
from on_lmcache import CONTROLLERS, SecondLevel, module, new_manager, prefetch

KEY = 7

manager, second_level = new_manager(), SecondLevel()
stores = module(f"{CONTROLLERS}.store_controller").StoreController(
    manager,
    [second_level],
    [StandIn(index=0, config=None)],
    module(f"{CONTROLLERS}.store_policy").DefaultStorePolicy(),
)
prefetch(manager, second_level, [KEY])
assert manager.unsafe_read([KEY])[KEY][1] is not None, "nothing was loaded"
stores._process_new_keys(stores._listener.pop_pending_keys())  # what its thread does next
print(f"the key {KEY} was loaded from the second level; keys that are stored there now: {second_level.stored}")
fault_if(second_level.stored, "what was loaded is stored again")
