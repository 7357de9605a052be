"""Caches of encoder outputs that differ in what they evict, when, and in what they show; and broken neighbours."""

from collections.abc import Callable

from kvproof.check.protocol.capabilities import EncoderCan
from kvproof.check.protocol.encoder import EncoderConfig, EncoderObservation, Input
from kvproof.check.protocol.manager import Assumption
from kvproof.spec.text.eviction_policy import KEY_LRU

CAN = EncoderCan(reset=True, lost_hits=0, refusal_slack=0)


class Oldest:
    """Evicts the output that was released first. outputs: what is cached; what goes first comes first."""

    name = "outputs"
    capabilities = EncoderCan(reset=True, lost_hits=0, refusal_slack=0, eviction=KEY_LRU)
    assumptions: tuple[Assumption, ...] = ()

    def open(self, config: EncoderConfig) -> None:
        self.room = config.num_embeddings
        self.inputs: dict[int, list[Input]] = {}
        self.forget_outputs()

    def forget_outputs(self) -> None:
        self.free = self.room
        self.outputs: dict[int, int] = {}
        self.held: set[tuple[int, int]] = set()
        self.dropped: list[int] = []

    def content_of(self, request: int, place: int) -> int:
        return self.inputs[request][place].content

    def refs(self, content: int) -> list[int]:
        return sorted({request for request, place in self.held if self.content_of(request, place) == content})

    def unreferenced(self) -> list[int]:
        """What can be evicted."""
        return [content for content in self.outputs if not self.refs(content)]

    def begin_request(self, request: int, inputs: list[Input]) -> None:
        self.inputs[request] = inputs

    def has_output(self, request: int, place: int) -> bool:
        content = self.content_of(request, place)
        if content in self.outputs:
            self.held.add((request, place))
        return content in self.outputs

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        length = self.inputs[request][place].length
        if length > budget or length + num_taken > self.reclaimable():
            return False
        victims = self.victims()
        while self.free < length + num_taken:
            self.evict(victims.pop(0))
        return True

    def reclaimable(self) -> int:
        return self.free + sum(self.outputs[content] for content in self.unreferenced())

    def victims(self) -> list[int]:
        """What is evicted, in order."""
        return self.unreferenced()

    def evict(self, content: int) -> None:
        self.free += self.outputs.pop(content)
        self.dropped.append(content)

    def take_room(self, request: int, place: int) -> None:
        content, length = self.inputs[request][place]
        self.free -= length
        self.outputs[content] = length
        self.held.add((request, place))

    def release_output(self, request: int, place: int) -> None:
        self.held.discard((request, place))
        content = self.content_of(request, place)
        if not self.refs(content):
            self.outputs[content] = self.outputs.pop(content)

    def release_all(self, request: int) -> None:
        for one, place in sorted(self.held):
            if one == request:
                self.release_output(request, place)

    def end_request(self, request: int) -> None:
        self.release_all(request)
        del self.inputs[request]

    def take_dropped(self) -> list[int]:
        dropped = [content for content in self.dropped if content not in self.outputs]
        self.dropped = []
        return dropped

    def observe(self) -> EncoderObservation:
        refs = {content: self.refs(content) for content in self.outputs}
        places: dict[int, list[int]] = {}
        for request, place in sorted(self.held):
            places.setdefault(request, []).append(place)
        return EncoderObservation(refs, self.free, self.reclaimable(), places)


class Newest(Oldest):
    """Evicts the output that was released last."""

    capabilities = CAN

    def victims(self) -> list[int]:
        return super().victims()[::-1]


class Longest(Newest):
    """Evicts the longest output first."""

    def victims(self) -> list[int]:
        return sorted(super().victims(), key=lambda content: -self.outputs[content])


class AtOnce(Newest):
    """Evicts an output as soon as nobody references it."""

    def release_output(self, request: int, place: int) -> None:
        super().release_output(request, place)
        for content in self.unreferenced():
            self.evict(content)


class AtTheEnd(Newest):
    """Evicts at the end of each step what nobody references."""

    def take_dropped(self) -> list[int]:
        for content in self.unreferenced():
            self.evict(content)
        return super().take_dropped()


class AllAtOnce(Newest):
    """Evicts everything that it can when it needs room."""

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        needs_room = self.inputs[request][place].length + num_taken > self.free
        has_room = super().has_room(request, place, budget, num_taken)
        for content in self.unreferenced() if has_room and needs_room else []:
            self.evict(content)
        return has_room


class ReportsAll(Oldest):
    """Reports what it evicted, also what is computed again: its worker removes first."""

    capabilities = EncoderCan(reset=True, lost_hits=0, refusal_slack=0, reports_before_computing=True)

    def take_dropped(self) -> list[int]:
        dropped, self.dropped = self.dropped, []
        return dropped


class ShowsLess(Oldest):
    """Does not show what it could reclaim, nor the places."""

    def observe(self) -> EncoderObservation:
        return EncoderObservation(*super().observe()[:2])


class KeepsReserve(Oldest):
    """Keeps room for one embedding."""

    capabilities = EncoderCan(lost_hits=0, refusal_slack=1)

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        length = self.inputs[request][place].length
        return length <= budget and super().has_room(request, place, budget + 1, num_taken + 1)


class Forgetful(Oldest):
    """Finds no output of an even content that nobody references; it does not declare that it finds all."""

    capabilities = EncoderCan(reset=True, refusal_slack=0)

    def has_output(self, request: int, place: int) -> bool:
        content = self.content_of(request, place)
        return not (content % 2 == 0 and not self.refs(content)) and super().has_output(request, place)


class OutputsOfNobody(Oldest):
    """Evicts what a request references."""

    def victims(self) -> list[int]:
        return list(self.outputs)


class ForgetsTheReport(Oldest):
    """Reports one of the outputs that it evicted in a step."""

    def take_dropped(self) -> list[int]:
        return super().take_dropped()[:1]


class ReportsTwice(Oldest):
    """Reports again what it reported in the step before."""

    last: tuple[int, ...] = ()

    def take_dropped(self) -> list[int]:
        dropped = super().take_dropped()
        known, self.last = self.last, tuple(dropped)
        return [*dropped, *known]


class ReportsWhatIsThere(ReportsAll):
    """Reports what is computed again, without a word that its worker removes first."""

    capabilities = CAN


class KeepsTheRoom(Oldest):
    """Does not count the room of what it evicted as free."""

    def evict(self, content: int) -> None:
        super().evict(content)
        self.free -= 1


class OnePlaceForAll(Oldest):
    """The first input that a request has read ends its references to all inputs with that content."""

    def release_output(self, request: int, place: int) -> None:
        content = self.content_of(request, place)
        for one, other in sorted(self.held):
            if one == request and self.content_of(request, other) == content:
                super().release_output(request, other)


class LeaksWhatIsAborted(Oldest):
    """A request that ends keeps the reference to its last input."""

    def end_request(self, request: int) -> None:
        for one, place in sorted(self.held)[:-1]:
            if one == request:
                self.release_output(request, place)


class CountsOneOnly(Oldest):
    """Forgets that the request was given room for other inputs."""

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        return super().has_room(request, place, budget, 0)


class IgnoresTheBudget(Oldest):
    """Says yes although the step cannot compute it."""

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        return super().has_room(request, place, budget + 8, num_taken)


class RefusesEarly(Oldest):
    """Says no instead of evicting."""

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        is_free = self.inputs[request][place].length + num_taken <= self.free
        return is_free and super().has_room(request, place, budget, num_taken)


class HitsWhatIsGone(Oldest):
    """Finds an output that it has just evicted."""

    def has_output(self, request: int, place: int) -> bool:
        return super().has_output(request, place) or self.content_of(request, place) in self.dropped


class WrongOrder(Newest):
    """Declares the order of the others, and evicts the newest."""

    capabilities = Oldest.capabilities


class MissesAHit(Forgetful):
    """Declares that it finds all."""

    capabilities = CAN


class KeepsReferences(Oldest):
    """A reset keeps who references what."""

    def forget_outputs(self) -> None:
        held: set[tuple[int, int]] = getattr(self, "held", set())
        super().forget_outputs()
        self.held = {one for one in held if one[0] in self.inputs}


LAWFUL: list[Callable[[], Oldest]] = [
    Oldest, Newest, Longest, AtOnce, AtTheEnd, AllAtOnce, ReportsAll, ShowsLess, KeepsReserve, Forgetful
]  # fmt: skip
BROKEN: list[tuple[Callable[[], Oldest], str]] = [
    (OutputsOfNobody, "evict-unreferenced"),
    (ForgetsTheReport, "events-agree"),
    (ReportsTwice, "events-agree"),
    (ReportsWhatIsThere, "events-agree"),
    (KeepsTheRoom, "conservation"),
    (OnePlaceForAll, "refcount-exact"),
    (LeaksWhatIsAborted, "refcount-exact"),
    (CountsOneOnly, "admission-sound"),
    (IgnoresTheBudget, "admission-sound"),
    (RefusesEarly, "refusal-needed"),
    (HitsWhatIsGone, "hit-written"),
    (WrongOrder, "eviction-order"),
    (MissesAHit, "hit-found"),
    (KeepsReferences, "refcount-exact"),
]
