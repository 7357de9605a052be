"""The specification of stores, run natively.

A judge makes a machine, and fires the rules that explain what a store did, one key at a time:

    machine = StoreMachine(StoreSizes(num_blocks=4, num_tiers=1, num_keys=9, num_groups=1, ...), with_ghosts=False)
    state = machine.first_state()
    refused = machine.rules["evict"](state, block)  # None if the rule has fired; else the guard that does not hold

A guard names the property that the store breaks if it acts nevertheless. Fields, predicates and functions of `state`
and the rules of `rules` and `transfer_rules` are for judges; steps are not. With the ghosts, `machine.broken_claims`
evaluates the invariants and theorems.
"""

from dataclasses import dataclass

from kvproof.spec.language import COLLECTED_OF_STORES
from kvproof.spec.native import MachineOf
from kvproof.spec.sizes import SizesOf
from kvproof.spec.store import groups, invariants, mirror, rules, state, steps, theorems, transfer_rules
from kvproof.spec.store.domains import DOMAINS
from kvproof.spec.store.state import StoreState
from kvproof.spec.systems import System, fields_of

STORES = System(
    "store",
    StoreState,
    (state, steps, rules, transfer_rules, invariants, theorems, groups, mirror),
    (steps, rules, transfer_rules),
    tuple,
    COLLECTED_OF_STORES,
    DOMAINS,
    fields_of(StoreState),
)


@dataclass(frozen=True)
class StoreSizes(SizesOf[StoreState]):
    """The sizes of a store.

    num_pins, num_owners, num_flights: at most so many at a time. num_parts: of one owner. block_size: token slots.
    """

    num_blocks: int
    num_tiers: int
    num_keys: int
    num_groups: int = 1
    num_pins: int = 8
    num_owners: int = 4
    num_flights: int = 4
    num_parts: int = 1
    block_size: int = 1

    system = STORES
    has_transfers = True

    def numbers(self) -> dict[str, int]:
        """The sizes under the names that the text uses."""
        return {
            "NUM_BLOCKS": self.num_blocks,
            "NUM_TIERS": self.num_tiers,
            "NUM_KEYS": self.num_keys,
            "NUM_GROUPS": self.num_groups,
            "NUM_PINS": self.num_pins,
            "NUM_OWNERS": self.num_owners,
            "NUM_FLIGHTS": self.num_flights,
            "NUM_PARTS": self.num_parts,
            "NUM_RANKS": max(self.num_blocks, self.num_pins) + 1,
            "BLOCK_SIZE": self.block_size,
        }

    @property
    def longest(self) -> int:
        """One more than the blocks or pins that are enumerated."""
        return self.numbers()["NUM_RANKS"]


class StoreMachine(MachineOf[StoreState]):
    """The specification of stores for given sizes."""

    sizes: StoreSizes
