"""The modules that are the text of the specification, in the order in which it is read."""

from types import ModuleType

from kvproof.spec.contracts import (
    admit_contract,
    admit_progress,
    append_contract,
    end_contract,
    free_contract,
    send_contract,
    send_progress,
    swap_contract,
    swap_progress,
    swap_schedule,
)
from kvproof.spec.text import (
    admission,
    cache_rules,
    eviction_policy,
    flight_invariants,
    flight_rules,
    invariants,
    rules,
    state,
    steps,
    swap_rules,
    theorems,
    window_rules,
)

RULE_TEXTS: tuple[ModuleType, ...] = (steps, rules, window_rules, cache_rules, swap_rules, flight_rules)
TEXTS: tuple[ModuleType, ...] = (
    state,
    admission,
    *RULE_TEXTS,
    invariants,
    theorems,
    flight_invariants,
    append_contract,
    free_contract,
    end_contract,
    admit_progress,
    admit_contract,
    swap_schedule,
    swap_progress,
    swap_contract,
    send_progress,
    send_contract,
    eviction_policy,
)
