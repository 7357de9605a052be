"""What a long walk of a block manager must reach.

Other situations (such as a copy-on-write into the very last block) are counted too, but some managers rule them out by
their own caution.
"""

from collections.abc import Callable, Mapping

from kvproof.check.oracle.firing import LONG_TABLE
from kvproof.check.protocol.capabilities import Capabilities

MANAGER_WITNESSES: Mapping[str, Callable[[Capabilities], bool]] = {
    "admitted": lambda can: True,
    "pool full": lambda can: True,
    LONG_TABLE: lambda can: True,
    "append": lambda can: True,
    "compute": lambda can: True,
    "drop_last": lambda can: True,
    "preempted": lambda can: True,
    "fork": lambda can: can.fork,
    "three holders": lambda can: can.fork or can.caching,
    "copy-on-write": lambda can: can.fork,
    "reserve": lambda can: can.lookahead,
    "slide": lambda can: can.window,
    "local attention left an entry": lambda can: can.local_attention,
    "hit past a window": lambda can: can.window_with_caching and can.window and can.caching,
    "state left an entry": lambda can: can.states and can.caching,
    "hit of a state": lambda can: can.states and can.caching,
    "hit in blocks of different sizes": lambda can: can.block_sizes and can.caching,
    "promote": lambda can: can.caching,
    "mark_computed": lambda can: can.caching,
    "hit": lambda can: can.caching,
    "hit on an evictable block": lambda can: can.caching,
    "hit within a block": lambda can: can.hits_within_blocks and can.caching,
    "evict": lambda can: can.caching,
    "eviction with a choice": lambda can: can.caching and bool(can.eviction),
    "loaded from elsewhere": lambda can: can.loads,
    "reset": lambda can: can.reset and can.caching,
    "begin_swap": lambda can: can.swap,
    "move_entry": lambda can: can.swap,
    "end_swap": lambda can: can.swap,
}
