"""The state of the specification beside one opened cache of encoder outputs, and the rules that run on it.

Each embedding of each content has the next number as its key; pins and blocks are taken from a list, and go back. A
guard that refuses a rule is the finding.
"""

from collections import Counter

from kvproof.check.oracle.store.firing import RunningText
from kvproof.check.protocol.encoder import EncoderConfig, Input
from kvproof.check.protocol.finding import Finding
from kvproof.spec.store.machine import StoreSizes
from kvproof.spec.store.state import EVICTABLE, NONE

CACHE, WORKER, NUM_TIERS = 0, 1, 2
GROUP, FLIGHT, NO_END = 0, 0, -1
WORKERS = 0  # the owner of what the worker writes
NUM_SMALLEST = 16  # embeddings: the state of a smaller cache has room for so many, so that few sizes are compiled
KEYS_PER_BLOCK, PINS_PER_BLOCK, NUM_OWNERS = 12, 8, 33


class EncoderRules(RunningText):
    """The state of the specification for one opened cache.

    inputs: of each request that is there. pins: of each input that is referenced, by request and place. free: the
    blocks of each tier that nothing has.
    """

    def __init__(self, config: EncoderConfig, coverage: Counter[str]) -> None:
        self.config = config
        room = config.num_embeddings
        size = max(NUM_SMALLEST, 1 << (room - 1).bit_length())
        self.num_keys_max, self.num_pins = KEYS_PER_BLOCK * size, PINS_PER_BLOCK * size
        sizes = StoreSizes(
            num_blocks=NUM_TIERS * size,
            num_tiers=NUM_TIERS,
            num_keys=self.num_keys_max,
            num_pins=self.num_pins,
            num_owners=NUM_OWNERS,
            num_flights=1,
        )
        super().__init__(sizes, coverage)
        function = self.machine.function
        self.is_resident, self.unused_in = function("is_resident"), function("unused_in")
        self.must_go, self.must_come, self.may_go = function("must_go"), function("must_come"), function("may_go")
        self.free_pins, self.free_owners = list(range(self.num_pins)), list(range(NUM_OWNERS - 1, WORKERS, -1))
        self.keys: dict[int, list[int]] = {}  # of each content that came, those of its embeddings
        self.num_keys = 0
        self.free: tuple[list[int], list[int]] = ([], [])
        self.owners: dict[int, int] = {}
        self.inputs: dict[int, list[Input]] = {}
        self.pins: dict[tuple[int, int], list[int]] = {}
        for tier in (CACHE, WORKER):
            for block in range(tier * size, tier * size + room):
                self.fire("grow", "open", block, tier)
                self.free[tier].append(block)
        self.fire("begin_owner", "open", WORKERS)

    # Requests ------------------------------------------------------------------------------------------------------

    def has_room_for(self, inputs: list[Input]) -> bool:
        """Whether the state has room for one more request with these inputs."""
        new = {one.content: one.length for one in inputs if one.content not in self.keys}
        num_pins = sum(one.length for these in (inputs, *self.inputs.values()) for one in these)
        is_roomy = bool(self.free_owners) and num_pins < self.num_pins
        return is_roomy and self.num_keys + sum(new.values()) <= self.num_keys_max

    def begin(self, request: int, inputs: list[Input]) -> None:
        """A request is there."""
        self.inputs[request] = inputs
        self.owners[request] = self.free_owners.pop()
        self.fire("begin_owner", "begin_request", self.owners[request])
        for content, length in inputs:
            if content not in self.keys:
                self.keys[content] = list(range(self.num_keys, self.num_keys + length))
                self.num_keys += length
                for key in self.keys[content]:
                    self.fire("introduce", "begin_request", key, GROUP, [key], 1)

    def end(self, request: int, context: str) -> None:
        """The request is over."""
        self.release_all(request, context)
        self.fire("end_owner", context, self.owners[request])
        self.free_owners.append(self.owners.pop(request))
        del self.inputs[request]

    # Outputs -------------------------------------------------------------------------------------------------------

    def contents(self, tier: int) -> list[int]:
        """The contents whose outputs a tier has."""
        return [content for content in self.keys if self.has(content, tier)]

    def has(self, content: int, tier: int = CACHE) -> bool:
        """Whether a tier has the output of a content, whole: what the rules do, they do for each of its embeddings."""
        return content in self.keys and bool(self.is_resident(self.state, tier, self.keys[content][0]))

    def is_unreferenced(self, content: int) -> bool:
        """Whether the output is cached, and no request references it."""
        state = self.state
        return self.has(content) and bool(state.status[state.entry[CACHE][self.keys[content][0]]] == EVICTABLE)

    def num_unused(self) -> int:
        """The embeddings that nothing takes, and those that can be evicted."""
        return int(self.unused_in(self.state, CACHE))

    def refer(self, request: int, place: int, context: str) -> None:
        """A look-up found the output of an input."""
        content, _ = self.inputs[request][place]
        if (request, place) not in self.pins:
            for key in self.keys[content]:
                pin = self._new_pin(request, place)
                self.fire("begin_load", context, pin, self.owners[request], CACHE, key, NO_END)

    def take(self, request: int, place: int, context: str) -> None:
        """The cache counts the output as one that it has. Raises Finding if it has no room for it."""
        content, length = self.inputs[request][place]
        if length > len(self.free[CACHE]):
            sentence = f"content {content} has $observed embeddings, and $expected are free after `has_room` said yes"
            expected = len(self.free[CACHE])
            raise Finding("admission-sound", sentence, call=context, expected=expected, observed=length)
        for key in self.keys[content]:
            pin = self._new_pin(request, place)
            self._write(CACHE, key, pin, self.owners[request], context)
            self.fire("keep", context, pin, self.owners[request])

    def compute(self, content: int, context: str) -> None:
        """The worker computes an output, and keeps it."""
        for key in self.keys[content]:
            pin = self.free_pins.pop()
            self._write(WORKER, key, pin, WORKERS, context)
            self.fire("commit", context, pin, WORKERS)
            self.free_pins.append(pin)

    def _write(self, tier: int, key: int, pin: int, owner: int, context: str) -> None:
        self.fire("begin_store", context, pin, owner, self.free[tier].pop(), key, NO_END)
        self.fire("submit_store", context, FLIGHT, pin)
        self.fire("land", context, FLIGHT)
        self.fire("report", context, FLIGHT)

    def _new_pin(self, request: int, place: int) -> int:
        pin = self.free_pins.pop()
        self.pins.setdefault((request, place), []).append(pin)
        return pin

    def release(self, request: int, place: int, context: str) -> None:
        """The request does not reference this input any more."""
        for pin in self.pins.pop((request, place)):
            block = self.state.pinned[pin]
            self.fire("end_load", context, pin, self.owners[request])
            self.free_pins.append(pin)
            if self.state.key[block] == NONE:  # it was forgotten before
                self.free[CACHE].append(block)

    def release_all(self, request: int, context: str) -> None:
        """The request does not reference anything any more."""
        for place in self.places_of(request):
            self.release(request, place, context)

    def remove(self, content: int, tier: int, context: str) -> None:
        """A tier removes the output of a content, which it has."""
        for key in self.keys[content]:
            block = self.state.entry[tier][key]
            self.fire("evict", context, block)
            self.free[tier].append(block)

    def forget_all(self, context: str) -> None:
        """Both tiers forget every output, and who references it."""
        for content in self.contents(CACHE):
            for key in self.keys[content]:
                block = self.state.entry[CACHE][key]
                self.fire("drop", context, CACHE, key)
                if self.state.key[block] == NONE:
                    self.free[CACHE].append(block)
        for request in self.inputs:
            self.release_all(request, context)
        for content in self.contents(WORKER):
            self.remove(content, WORKER, context)

    # Who references what -------------------------------------------------------------------------------------------

    def places_of(self, request: int) -> list[int]:
        """The places of the inputs that a request references, in order."""
        return sorted(place for one, place in self.pins if one == request)

    def refs(self) -> dict[int, list[int]]:
        """Of each content that is cached, the requests that reference it, in order."""
        found: dict[int, list[int]] = {content: [] for content in self.contents(CACHE)}
        for request, place in sorted(self.pins):
            content = self.inputs[request][place].content
            if request not in found[content]:
                found[content].append(request)
        return found

    def places(self) -> dict[int, list[int]]:
        """Of each request that references something, the places, in order."""
        found: dict[int, list[int]] = {}
        for request, place in sorted(self.pins):
            found.setdefault(request, []).append(place)
        return found
