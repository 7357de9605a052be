"""A KV store in about forty lines, as its own adapter, and the test that lets kvproof judge it.

A store keeps KV outside the device: it decides which slot of the host's memory belongs to which key, and a worker
copies. A key is staged while its slot is written, then resident; what a load reads stays until the load has ended. Run
`pytest examples/forty_line_store.py`, or `kvproof hunt --subject examples/forty_line_store.py:Store`.
"""

from kvproof.check import Refused, StoreCan, run_conformance
from kvproof.check.protocol.store import HIT, MISS, PENDING, Staged, StoreAdapter, StoreConfig, StoreObservation


class Store(StoreAdapter):
    """For each key its slot, and how many loads read it; -1 while it is written."""

    name = "forty-line-store"
    capabilities = StoreCan(reset=True, lost_hits=0, refusal_slack=0)

    def open(self, config: StoreConfig) -> None:
        self.free = list(range(config.num_slots))
        self.slots: dict[int, int] = {}
        self.loads: dict[int, int] = {}

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        return [MISS if key not in self.slots else PENDING if self.loads[key] < 0 else HIT for key in keys]

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        for key in keys:
            self.loads[key] += 1
        return [self.slots[key] for key in keys]

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        for key in keys:
            self.loads[key] -= 1

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        new = [key for key in keys if key not in self.slots]
        evictable = [key for key, loads in self.loads.items() if loads == 0 and key not in keys]
        if len(new) > len(self.free) + len(evictable):
            return Refused(f"{len(self.free)} slots are free, {len(evictable)} can be evicted")
        evicted = evictable[: max(0, len(new) - len(self.free))]
        for key in evicted:
            self.drop(key)
        for key in new:
            self.slots[key], self.loads[key] = self.free.pop(), -1
        return Staged(new, [self.slots[key] for key in new], evicted)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        for key in stored:
            self.loads[key] = 0
        for key in failed:
            self.drop(key)

    def clear(self) -> None:
        for key in list(self.slots):
            self.drop(key)

    def drop(self, key: int) -> None:
        self.free.append(self.slots.pop(key))
        del self.loads[key]

    def observe(self) -> StoreObservation:
        return StoreObservation(dict(self.slots), len(self.free), dict(self.loads), self.free[:])


def test_the_store_conforms() -> None:
    run_conformance(Store, level="store")
