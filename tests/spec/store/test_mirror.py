"""A tier that mirrors another one: what it must lose and what it must add, natively."""

from kvproof.spec.store.machine import StoreMachine, StoreSizes
from kvproof.spec.store.state import NONE

SIZES = StoreSizes(num_blocks=2, num_tiers=2, num_keys=1, num_pins=1, num_owners=1, num_flights=1)
ABOVE, BELOW, KEY, BLOCK_ABOVE, BLOCK_BELOW = 0, 1, 0, 0, 1


def test_a_key_must_come_then_both_agree_then_it_must_go() -> None:
    machine = StoreMachine(SIZES)
    state = machine.first_state()
    mirrors, must_come, must_go = map(machine.function, ("mirrors", "must_come", "must_go"))

    def fire(*firings: tuple[object, ...]) -> list[bool]:
        for name, *arguments in firings:
            assert machine.rules[str(name)](state, *arguments) is None
        return [
            mirrors(state, ABOVE, BELOW), must_come(state, ABOVE, BELOW, KEY), must_go(state, ABOVE, BELOW, KEY)
        ]  # fmt: skip

    def stored(block: int) -> list[tuple[object, ...]]:
        written = [("submit_store", 0, 0), ("land", 0), ("report", 0), ("commit", 0, 0)]
        return [("begin_store", 0, 0, block, KEY, NONE), *written]

    blocks = [("grow", BLOCK_ABOVE, ABOVE), ("grow", BLOCK_BELOW, BELOW)]
    assert fire(*blocks, ("begin_owner", 0), ("introduce", KEY, 0, [7], 1)) == [True, False, False]
    assert fire(*stored(BLOCK_ABOVE)) == [False, True, False]
    assert fire(*stored(BLOCK_BELOW)) == [True, False, False]
    assert fire(("evict", BLOCK_ABOVE)) == [False, False, True]
    assert fire(("evict", BLOCK_BELOW)) == [True, False, False]
