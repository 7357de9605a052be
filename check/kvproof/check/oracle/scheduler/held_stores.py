"""Blocks of the device that a connector to host memory holds, since its stores read them (`holds_copies`).

A store holds its blocks from when the connector decides on it until it is over: meanwhile each is in use by a flight of
the specification, so it is neither free nor evictable. A step names most stores as soon as they are decided. A
connector may decide on a store between two steps, as when a request ends; then the next step names it.
"""

from collections.abc import Sequence

from kvproof.check.oracle.firing import SpecRunner
from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.protocol.adapter_check import check_answer, check_ids
from kvproof.check.protocol.finding import AdapterError, Finding

CALL = "stores_to_come"


class HeldStores:
    """The flights of the stores under way, and of those that the next step will name."""

    def __init__(self, host: HostMemory, explainer: SpecRunner, idle: list[int]) -> None:
        """idle: the flights that are not under way, which others use too."""
        self.host, self.explainer, self.idle = host, explainer, idle
        self.named: dict[int, list[int]] = {}  # by job
        self.to_come: list[tuple[list[int], list[int]]] = []  # blocks and flights of each

    def look(self, to_come: Sequence[Sequence[int]], context: str) -> None:
        """Hold what the connector holds now. to_come: the blocks of each store that no step has named. Raises Finding.

        Flights of new stores begin before those of others end, so that no block is given back in between.
        """
        check_answer(CALL, to_come, list)
        for blocks in to_come:
            check_ids(CALL, blocks, self.explainer.num_blocks, CALL)
        stores = {job: copy for job, copy in self.host.copies.items() if copy.seq is None}
        for job in stores.keys() - self.named.keys():
            self.named[job] = self._begin([source for source, _ in stores[job].pairs], context)
        kept = [one for one in self.to_come if one[0] in to_come]
        ended = [flights for one in self.to_come if one not in kept for flights in [one[1]]]
        known = [blocks for blocks, _ in kept]
        kept += [([*blocks], self._begin(blocks, context)) for blocks in to_come if blocks not in known]
        ended += [self.named.pop(job) for job in [*self.named] if job not in stores]
        self.to_come = kept
        for flights in ended:
            self.explainer.run((("land", (flight,)) for flight in flights), context)
            self.idle += flights

    def judge_named(self, context: str) -> None:
        """A step has been scheduled: no store is left that it should have named. Raises Finding."""
        if self.to_come:
            blocks = self.to_come[0][0]
            sentence = "the connector holds blocks $observed for a store that the step does not name"
            raise Finding("progress", sentence, call=context, observed=blocks, blocks=blocks)

    def _begin(self, blocks: Sequence[int], context: str) -> list[int]:
        if len(blocks) > len(self.idle):
            raise AdapterError(f"the stores under way read more blocks than {CALL} may name", CALL)
        flights = [self.idle.pop() for _ in blocks]
        self.explainer.run((("copy_out", pair) for pair in zip(flights, blocks, strict=True)), context)
        return flights
