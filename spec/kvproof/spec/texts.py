"""The modules that hold the text of the specification, in reading order. `contract_texts` has the contracts."""

from types import ModuleType

from kvproof.spec.text import (
    admission,
    budgets,
    cache_rules,
    eviction_policy,
    flight_invariants,
    flight_rules,
    invariants,
    loads,
    mapping,
    retention,
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
    budgets,
    loads,
    retention,
    mapping,
    *RULE_TEXTS,
    invariants,
    theorems,
    flight_invariants,
    eviction_policy,
)
