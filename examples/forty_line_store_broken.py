"""The store of forty_line_store.py with one condition left out: a call may evict what it names itself.

Run `kvproof hunt --subject examples/forty_line_store_broken.py:Store` to see how it is refuted. vLLM had this fault
until 0.17 (pull request 35846).
"""

import forty_line_store

from kvproof.check import Refused, run_conformance
from kvproof.check.protocol.store import Staged


class Store(forty_line_store.Store):
    """The same, but for one condition."""

    name = "forty-line-store-broken"

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        new = [key for key in keys if key not in self.slots]
        evictable = [key for key, loads in self.loads.items() if loads == 0]
        if len(new) > len(self.free) + len(evictable):
            return Refused(f"{len(self.free)} slots are free, {len(evictable)} can be evicted")
        evicted = evictable[: max(0, len(new) - len(self.free))]
        for key in evicted:
            self.drop(key)
        for key in new:
            self.slots[key], self.loads[key] = self.free.pop(), -1
        return Staged(new, [self.slots[key] for key in new], evicted)


if __name__ == "__main__":
    run_conformance(Store, level="store")
