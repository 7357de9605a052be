"""Managers that report what they cache and forget, and differ in how they do it; and broken neighbours."""

from dataclasses import replace
from itertools import count
from typing import Any

from tests.lawful.caching import Caches

from kvproof.check import Config
from kvproof.check.protocol.block_events import BlockEvent, RemovedBlock, StoredBlock
from kvproof.spec.text.identity import Image, Key

Content = tuple[int, ...]


class Reports(Caches):
    """Each content is reported once when a block with it is cached, and once when it is evicted."""

    capabilities = replace(Caches.capabilities, block_events=True)
    says_tokens = True

    def make(self, config: Config) -> Any:
        self.names: dict[Content, str] = {}
        self.numbers = count()
        self.reported: list[BlockEvent] = []
        return super().make(config)

    def name_of(self, content: Content) -> str:
        return self.names.setdefault(content, f"block {next(self.numbers)}")

    def stored(self, content: Content) -> StoredBlock:
        size = self.config.block_size
        parent = self.name_of(content[:-size]) if content[:-size] else None
        if not self.says_tokens:
            return StoredBlock(0, self.name_of(content), None)
        return StoredBlock(0, self.name_of(content), parent, content[-size:])

    def removed(self, content: Content) -> list[BlockEvent]:
        return [RemovedBlock(0, self.name_of(content))]

    def publish(self, seq: int) -> None:
        before = set(self.block_of)
        super().publish(seq)
        self.reported += [self.stored(content) for content in sorted(set(self.block_of) - before, key=len)]

    def uncache(self, block: int) -> None:
        content = self.key_of[block]
        super().uncache(block)
        if content not in self.block_of:
            self.reported += self.removed(content)

    def block_events(self) -> list[BlockEvent]:
        reported, self.reported = self.reported, []
        return reported

    def block_names(self, tokens: list[int], key: Key, images: tuple[Image, ...]) -> list[str]:
        size = self.config.block_size
        return [self.name_of(tuple(tokens[:stop])) for stop in range(size, len(tokens) + 1, size)]


class ReportsTwice(Reports):
    """Each event is reported twice, one after the other."""

    def block_events(self) -> list[BlockEvent]:
        return [event for event in super().block_events() for _ in range(2)]


class ReportsHits(Reports):
    """What a prompt hits is reported as stored once more."""

    def allocate(self, seq: int, tokens: list[int]) -> Any:
        size = self.config.block_size
        for index in range(len(self.found(tokens))):
            self.reported.append(self.stored(tuple(tokens[: (index + 1) * size])))
        return super().allocate(seq, tokens)


class ReportsNames(Reports):
    """Neither the tokens of a block nor what is before it is reported."""

    says_tokens = False


class KnowsEveryTwin(Reports):
    """Each block with a content is known, so that a look-up misses nothing."""

    capabilities = replace(Reports.capabilities, lost_hits=0)

    def is_cached(self, seq: int, index: int) -> bool:
        """A block whose content has one already is known too."""
        block, stop = self.held[seq][index], (index + 1) * self.config.block_size
        content = tuple(self.tokens[seq][:stop])
        if content in self.block_of and block not in self.key_of:
            self.key_of[block] = content
        return True

    def uncache(self, block: int) -> None:
        content = self.key_of[block]
        twin = next((one for one, other in self.key_of.items() if other == content and one != block), None)
        if twin is not None:
            self.block_of[content] = twin
        super().uncache(block)


class ReportsEachTwinAsRemoved(KnowsEveryTwin):
    """A content is reported as removed when the first of its blocks is evicted."""

    def uncache(self, block: int) -> None:
        content = self.key_of[block]
        super().uncache(block)
        if content in self.block_of:
            self.reported += self.removed(content)


class ReportsNoRemoval(Reports):
    """What is evicted is not reported."""

    def removed(self, content: Content) -> list[BlockEvent]:
        return []


class ReportsTheRemovalOfTheBlockBefore(Reports):
    """In the place of a block, the one before it is reported as removed."""

    def removed(self, content: Content) -> list[BlockEvent]:
        return super().removed(content[: -self.config.block_size] or content)


class ReportsAnotherParent(Reports):
    """The first block of a prompt is reported as the one before each."""

    def stored(self, content: Content) -> StoredBlock:
        event, size = super().stored(content), self.config.block_size
        return event if event.parent is None else event._replace(parent=self.name_of(content[:size]))


class ReportsTheFirstTokens(Reports):
    """A block is reported with the first tokens of its prompt."""

    def stored(self, content: Content) -> StoredBlock:
        return super().stored(content)._replace(tokens=content[: self.config.block_size])


class ReportsEverySecondBlock(KnowsEveryTwin):
    """Of the blocks that a step fills, every second one is not reported."""

    def block_events(self) -> list[BlockEvent]:
        events = super().block_events()
        return [event for at, event in enumerate(events) if at % 2 == 0 or isinstance(event, RemovedBlock)]


class ReportsWhatIsNotComputed(Reports):
    """The full blocks of a prompt are reported when they are taken."""

    def allocate(self, seq: int, tokens: list[int]) -> Any:
        size = self.config.block_size
        taken = super().allocate(seq, tokens)
        for stop in range(size, len(tokens) + 1, size) if self.config.caching else ():
            self.reported.append(self.stored(tuple(tokens[:stop])))
        return taken


LAWFUL = (Reports, ReportsTwice, ReportsHits, ReportsNames, KnowsEveryTwin)
BROKEN = (
    ReportsEachTwinAsRemoved,
    ReportsNoRemoval,
    ReportsTheRemovalOfTheBlockBefore,
    ReportsAnotherParent,
    ReportsTheFirstTokens,
    ReportsEverySecondBlock,
    ReportsWhatIsNotComputed,
)
