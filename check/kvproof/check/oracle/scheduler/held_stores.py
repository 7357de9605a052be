"""Blocks of the device that a connector to host memory holds, since its stores read them (`holds_copies`).

A store holds its blocks from when the connector decides on it until it is over: meanwhile each is in use by a flight of
the specification, so it is neither free nor evictable. A step names most stores as soon as they are decided. A
connector may decide on a store between two steps, as when a request ends; then the next step names it.
"""

from collections.abc import Sequence

from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.oracle.scheduler.pending import Pending
from kvproof.check.protocol.adapter_check import check_answer, check_ids
from kvproof.check.protocol.finding import AdapterError, Finding

CALL = "stores_to_come"


class HeldStores:
    """The flights of the stores under way, and of those that the next step will name."""

    def __init__(self, host: HostMemory, pending: Pending) -> None:
        self.host, self.pending = host, pending
        self.named: dict[int, list[int]] = {}  # by job
        self.to_come: list[tuple[list[int], list[int]]] = []  # blocks and flights of each

    def look(self, to_come: Sequence[Sequence[int]], context: str) -> None:
        """Hold what the connector holds now. to_come: the blocks of each store that no step has named. Raises Finding.

        Flights of new stores begin before those of others end, so that no block is given back in between.
        """
        check_answer(CALL, to_come, list)
        for blocks in to_come:
            check_ids(CALL, blocks, self.pending.explainer.num_blocks, CALL)
        stores = {job: copy for job, copy in self.host.copies.items() if copy.seq is None}
        for job in [job for job in stores if job not in self.named]:
            self.named[job] = self._begin([source for source, _ in stores[job].pairs], context)
        kept = [one for one in self.to_come if one[0] in to_come]
        known = [blocks for blocks, _ in kept]
        begun = [([*blocks], self._begin(blocks, context)) for blocks in to_come if blocks not in known]
        ended = [flights for blocks, flights in self.to_come if blocks not in known]
        ended += [self.named.pop(job) for job in [*self.named] if job not in stores]
        self.to_come = kept + begun
        for flights in ended:
            self.pending.land(flights, context)

    def judge_named(self, context: str) -> None:
        """A step has been scheduled: no store is left that it should have named. Raises Finding."""
        if self.to_come:
            blocks = self.to_come[0][0]
            sentence = "the connector holds blocks $observed for a store that the step does not name"
            raise Finding("progress", sentence, call=context, observed=blocks, blocks=blocks)

    def _begin(self, blocks: Sequence[int], context: str) -> list[int]:
        if len(blocks) > len(self.pending.idle):
            raise AdapterError(f"the stores under way read more blocks than {CALL} may name", CALL)
        return self.pending.copy_out(blocks, context)
