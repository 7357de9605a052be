"""What a listener believes who hears the events of a cache, and nothing else: a router of requests, for example.

The listener keeps the names that the events give. A stored block is the one named before it and one more page, so the
listener knows its whole content if it knows the parent. To hear twice that a name was stored or removed changes
nothing. Several names may mean one content: each block may have its own. Who hears every event must believe only
contents that are cached, and must know a name of each content that a look-up finds. A content behind one that has gone
is cached and cannot be found: it may be reported or not.
"""

from collections.abc import Mapping, Sequence, Set

from kvproof.check.protocol.adapter_check import check_answer, require_length
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pool import Cleared, PoolEvent, Removed, Stored
from kvproof.spec.text.identity import Identities

PROPERTY = "events-agree"


class Listener:
    """What was heard. there: the names that were stored and not removed, each with the identity of its content."""

    def __init__(self, identities: Identities, root: int) -> None:
        self.identities, self.root = identities, root
        self.there: dict[str, int] = {}
        self.ever: set[int] = set()  # contents that were reported as stored

    def hear(self, events: Sequence[PoolEvent], num_blocks: int, context: str) -> None:
        """Take the events of a call. Raises Finding if one of them means nothing to who heard the others."""
        check_answer("events", events, list)
        require_length("events()", len(events), num_blocks, "events")
        for event in events:
            check_answer("events (each one)", event, Stored, Removed, Cleared)
            if isinstance(event, Cleared):
                self.there.clear()
                continue
            check_answer("events (each name)", event.name, str)
            if isinstance(event, Stored):
                self._stored(event, context)
            else:
                self.there.pop(event.name, None)

    def _stored(self, event: Stored, context: str) -> None:
        check_answer("events (each parent)", event.parent, str, type(None))
        check_answer("events (each page)", event.page, int)
        before = self.root if event.parent is None else self.there.get(event.parent)
        if before is None:
            sentence = f"page {event.page} is reported as stored behind a block that is not reported as stored"
            raise Finding(PROPERTY, sentence, call=context, about="a parent")
        content = self.identities.after(before, event.page)
        if self.there.setdefault(event.name, content) != content:
            sentence = f"{self._described(content)} has the name of {self._described(self.there[event.name])}"
            raise Finding(PROPERTY, sentence, call=context, about="a name")
        self.ever.add(content)

    def compare(self, cached: Set[int], before: Mapping[int, int], context: str) -> None:
        """Compare what was heard with the contents that are cached. before: the content before each content."""
        there = {*self.there.values()}
        if there == cached:
            return
        if gone := there - cached:
            sentence = f"{self._described(min(gone))} can be found no longer, and is not reported as removed"
            raise Finding(PROPERTY, sentence, call=context, about="it went")
        for missing in sorted(cached - there):
            first = missing
            while first in cached:
                first = before[first]
            if first == self.root:
                said = "reported as removed" if missing in self.ever else "not reported as stored"
                sentence = f"{self._described(missing)} can be found, and is {said}"
                raise Finding(PROPERTY, sentence, call=context, about="it is there")

    def _described(self, content: int) -> str:
        return f"the content with {self.identities.describe(content)}"
