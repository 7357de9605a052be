"""Pools that report what they cache and forget, and differ in how they do it; and broken neighbours."""

from itertools import count

from kvproof.check.protocol.capabilities import PoolCan
from kvproof.check.protocol.manager import Assumption, Observation, Refused
from kvproof.check.protocol.pool import Cleared, PoolConfig, PoolEvent, Removed, Stored

Content = tuple[int, ...]


class Reports:
    """It reports each content once when its first block is cached, and once when its last block has gone."""

    name = "lawful"
    capabilities = PoolCan(fork=True, caching=True, reset=True, lost_hits=0, events=True)
    assumptions: tuple[Assumption, ...] = ()

    def open(self, config: PoolConfig) -> None:
        self.refs = [0] * config.num_gpu_blocks
        self.order = [*range(config.num_gpu_blocks)]  # of the free blocks
        self.content: dict[int, Content] = {}
        self.reported: list[PoolEvent] = []
        self.names: dict[Content, str] = {}
        self.numbers = count()

    def name_of(self, content: Content) -> str:
        return self.names.setdefault(content, f"block {next(self.numbers)}")

    def stored(self, content: Content) -> Stored:
        parent = self.name_of(content[:-1]) if content[:-1] else None
        return Stored(self.name_of(content), parent, content[-1])

    def is_cached(self, content: Content) -> bool:
        return content in self.content.values()

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        if num_blocks > len(self.order):
            return Refused()
        taken, self.order = self.order[:num_blocks], self.order[num_blocks:]
        for block in taken:
            self.refs[block] = 1
            if block in self.content:
                self.forget(block)
        return taken

    def forget(self, block: int) -> None:
        content = self.content.pop(block)
        if not self.is_cached(content):
            self.reported.append(Removed(self.name_of(content)))

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            if not self.refs[block]:
                self.order.remove(block)
            self.refs[block] += 1

    def free(self, blocks: list[int]) -> None:
        for block in blocks:
            self.refs[block] -= 1
            if not self.refs[block]:
                self.order.append(block)

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        for at, block in enumerate(blocks):
            content = tuple(pages[: at + 1])
            if not self.is_cached(content):
                self.reported.append(self.stored(content))
            self.content[block] = content

    def find(self, pages: list[int]) -> list[int]:
        found: list[int] = []
        for at in range(len(pages)):
            having = [block for block, content in self.content.items() if content == tuple(pages[: at + 1])]
            if not having:
                break
            found.append(having[0])
        return found

    def reset_cache(self) -> bool:
        if any(self.refs):
            return False
        self.content.clear()
        self.reported.append(Cleared())
        return True

    def events(self) -> list[PoolEvent]:
        reported, self.reported = self.reported, []
        return reported

    def observe(self) -> Observation:
        return Observation({}, (len(self.order), 0), (), self.refs[:], self.order[:])


class ReportsEachBlock(Reports):
    """It reports a content again with each further block."""

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        super().cache(blocks, pages)
        self.reported += [self.stored(tuple(pages[: at + 1])) for at in range(len(blocks))]


class ReportsHits(Reports):
    """It reports a content again when it is found."""

    def share(self, blocks: list[int]) -> None:
        super().share(blocks)
        for content in sorted(self.content[block] for block in blocks if block in self.content):
            if len(content) == 1 or self.is_cached(content[:-1]):
                self.reported.append(self.stored(content))


class ReportsTheEndTwice(Reports):
    """It reports twice that a content has gone."""

    def events(self) -> list[PoolEvent]:
        reported = super().events()
        return reported + [event for event in reported if isinstance(event, Removed) and event == reported[-1]]


class RemovesOneByOne(Reports):
    """A reset reports each content, and not that all have gone."""

    def reset_cache(self) -> bool:
        contents = {*self.content.values()}
        done = super().reset_cache()
        if done:
            self.reported[-1:] = [Removed(self.name_of(content)) for content in contents]
        return done


class NamesAnew(Reports):
    """A content that comes back has a new name."""

    def forget(self, block: int) -> None:
        content = self.content[block]
        super().forget(block)
        if not self.is_cached(content):
            del self.names[content]


class NamesBlocks(Reports):
    """Each block has a name of its own, so a content may have several."""

    def open(self, config: PoolConfig) -> None:
        super().open(config)
        self.mine: dict[int, str] = {}

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        for at, block in enumerate(blocks):
            self.content[block], self.mine[block] = tuple(pages[: at + 1]), f"use {next(self.numbers)}"
            self.reported.append(Stored(self.mine[block], self.mine[blocks[at - 1]] if at else None, pages[at]))

    def forget(self, block: int) -> None:
        del self.content[block]
        self.reported.append(Removed(self.mine.pop(block)))


class ReusesNames(NamesAnew):
    """The name of a content that has gone is given to another one."""

    def name_of(self, content: Content) -> str:
        if content not in self.names:
            free = (str(number) for number in count() if str(number) not in self.names.values())
            self.names[content] = next(free)
        return self.names[content]

    def reset_cache(self) -> bool:
        done = super().reset_cache()
        if done:
            self.names.clear()
        return done


class RemovesWhatIsBehind(Reports):
    """It reports what a look-up finds: a content behind one that has gone is removed, and stored again with that."""

    def open(self, config: PoolConfig) -> None:
        super().open(config)
        self.known: set[Content] = set()

    def events(self) -> list[PoolEvent]:
        contents, known = {*self.content.values()}, self.known
        self.known = {one for one in contents if all(one[:at] in contents for at in range(1, len(one)))}
        self.reported.clear()
        gone = [Removed(self.name_of(one)) for one in sorted(known - self.known)]
        return [*gone, *(self.stored(one) for one in sorted(self.known - known))]


LAWFUL: list[type[Reports]] = [
    Reports,
    NamesBlocks,
    ReusesNames,
    RemovesWhatIsBehind,
    ReportsEachBlock,
    ReportsHits,
    ReportsTheEndTwice,
    RemovesOneByOne,
    NamesAnew,
]


class RemovesEachBlock(Reports):
    """It reports a content as removed with each of its blocks (vLLM 0.33.0, pull request 55092)."""

    def forget(self, block: int) -> None:
        self.reported.append(Removed(self.name_of(self.content.pop(block))))


class NeverRemoves(Reports):
    """It does not report what has gone."""

    def forget(self, block: int) -> None:
        del self.content[block]


class KeepsQuietAboutResets(Reports):
    """It does not report a reset."""

    def reset_cache(self) -> bool:
        done = super().reset_cache()
        if done:
            del self.reported[-1]
        return done


class NamesPages(Reports):
    """The name of a block says its page only."""

    def name_of(self, content: Content) -> str:
        return str(content[-1])


class LeavesParentsOut(Reports):
    """Only the last block of a prompt is reported."""

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        super().cache(blocks, pages)
        self.reported = self.reported[-1:]


class LosesTheBeginning(Reports):
    """Every block is reported as the first one of a prompt."""

    def stored(self, content: Content) -> Stored:
        return super().stored(content)._replace(parent=None)


BROKEN: list[type[Reports]] = [
    RemovesEachBlock,
    NeverRemoves,
    KeepsQuietAboutResets,
    NamesPages,
    LeavesParentsOut,
    LosesTheBeginning,
]
