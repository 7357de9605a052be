"""What a listener believes who hears the events of a cache, and nothing else: a router of requests, for example.

The listener knows a block by the name that the events give it. A stored block is the one named before it and one more
page, so the listener knows its whole content if it knows the parent. Who hears every event must believe of each content
that it can be found exactly while a look-up finds it. A content may be in several blocks: it is there until the last
one has gone. To hear twice that something was stored or removed changes nothing.
"""

from collections.abc import Sequence, Set

from kvproof.check.protocol.adapter_check import check_answer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.pool import Cleared, PoolEvent, Removed, Stored
from kvproof.spec.text.identity import Identities

PROPERTY = "events-agree"


class Listener:
    """What was heard. contents: the identity of the content that each name means. there: those that can be found."""

    def __init__(self, identities: Identities, root: int) -> None:
        self.identities, self.root = identities, root
        self.contents: dict[str, int] = {}
        self.there: set[int] = set()

    def hear(self, events: Sequence[PoolEvent], context: str) -> None:
        """Take the events of a call. Raises Finding if one of them means nothing to who heard the others."""
        check_answer("events", events, list)
        for event in events:
            check_answer("events (each one)", event, Stored, Removed, Cleared)
            if isinstance(event, Stored):
                check_answer("events (each parent)", event.parent, str, type(None))
                check_answer("events (each page)", event.page, int)
            if not isinstance(event, Cleared):
                check_answer("events (each name)", event.name, str)
            if isinstance(event, Stored):
                self._stored(event, context)
            elif isinstance(event, Removed):
                self.there.discard(self.contents.get(event.name, -1))
            else:
                self.there.clear()

    def _stored(self, event: Stored, context: str) -> None:
        before = self.root
        if event.parent is not None:
            before = self.contents.get(event.parent, -1)
            if before not in self.there:
                sentence = f"page {event.page} is reported as stored behind a block that is not reported as stored"
                raise Finding(PROPERTY, sentence, call=context, about="a parent")
        content = self.identities.after(before, event.page)
        if self.contents.setdefault(event.name, content) != content:
            sentence = f"{self._described(content)} has the name of {self._described(self.contents[event.name])}"
            raise Finding(PROPERTY, sentence, call=context, about="a name")
        self.there.add(content)

    def compare(self, cached: Set[int], context: str) -> None:
        """Compare what was heard with what can be found."""
        if self.there == cached:
            return
        if gone := self.there - cached:
            sentence = f"{self._described(min(gone))} can be found no longer, and is not reported as removed"
            raise Finding(PROPERTY, sentence, call=context, about="it went")
        missing = min(cached - self.there)
        said = "reported as removed" if missing in self.contents.values() else "not reported as stored"
        sentence = f"{self._described(missing)} can be found, and is {said}"
        raise Finding(PROPERTY, sentence, call=context, about="it is there")

    def _described(self, content: int) -> str:
        return f"the content with {self.identities.describe(content)}"
