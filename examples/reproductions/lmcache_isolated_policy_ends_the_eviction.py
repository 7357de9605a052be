"""LMCache 0.5.0 to 0.5.6: the policy IsolatedLRU ends the thread that evicts from the first level (issue 4817).

IsolatedLRU is one of the policies that an option of the server takes. It evicts for one salt at a time, and raises if
it is asked without a salt; the thread of the first level never names one. So the thread ends when memory is filled
above its watermark for the first time. Nothing is evicted any more, and soon nothing new can be stored or loaded. Run
it with the LMCache that is to be tried: exit code 1 if the fault is there.
"""

from collections.abc import Callable
from typing import Any

from on_any_engine import StandIn, fault_if
from on_lmcache import CONTROLLERS, module, new_manager, write

NUM_OBJECTS = 4


class Key(int):
    """The key of an object of a request without a salt."""

    cache_salt = ""


def ends(policy: str) -> bool:
    """Whether the thread ends when it looks at a full memory; it is asked to stop when it looks again."""
    manager, controllers = new_manager(NUM_OBJECTS), module(f"{CONTROLLERS}.eviction_controller")
    config = StandIn(eviction_policy=policy, trigger_watermark=0.8, eviction_ratio=0.5, extra_logging_enabled=False)
    waits = list[Callable[[], Any]]()
    controllers.time = StandIn(sleep=lambda seconds: waits.pop()(), monotonic=lambda: 0.0)
    controller = controllers.L1EvictionController(manager, config)
    write(manager, [Key(number) for number in range(NUM_OBJECTS)])
    waits += [controller._stop_flag.set, lambda: None]
    try:
        controller.eviction_loop()
    except ValueError as error:
        print(f"{policy}: the thread ends: {error}")
        return True
    print(f"{policy}: objects that are left of {NUM_OBJECTS}: {len(manager._objects)}")
    return False


assert not ends("LRU"), "this loop ends with every policy"
fault_if(ends("IsolatedLRU"), "nothing is evicted any more")
