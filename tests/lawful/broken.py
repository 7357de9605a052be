"""A broken neighbour of each kind of lawful manager: what looks like an unusual choice, and is a fault."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.lawful import events
from tests.lawful.caching import (
    Caches,
    CachesAtRelease,
    EvictsBeforeTakingFree,
    HitsWithinBlocks,
    LastTwinIsKnown,
)
from tests.lawful.loads import Loads
from tests.lawful.plain import CopiesFullBlocks, CopiesWhatWasShared, KeepsReserveAndSaysSo, TurnsWhenRefusing
from tests.lawful.swapping import LeavesSharedBlocks, SwapsFromHashMap

from kvproof.check.protocol.manager import Admitted, Pair, Refused, Scheduled


class ForgetsToReport(CopiesFullBlocks):
    """It copies full blocks, and reports only the copy of the last one."""

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        return (super().append(seq, num_tokens) or [])[-1:]


class ReportsAnotherSource(CopiesFullBlocks):
    """The copies are reported with their sources turned by one."""

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        copies = super().append(seq, num_tokens) or []
        return [(copies[at - 1][0], target) for at, (_, target) in enumerate(copies)]


class KeepsTheReference(CopiesFullBlocks):
    """A block that is copied keeps the reference of the sequence that copied it."""

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        copies = super().append(seq, num_tokens) or []
        for source, _ in copies:
            self.refs[source] += 1
        return copies


class TakesSourcesOfCopies(CopiesWhatWasShared):
    """A block that the step copies is taken again for a copy of the same step."""

    def num_takable(self) -> int:
        return self.num_free()

    def pick(self) -> int:
        return -1


class KeepsMoreThanItDeclares(KeepsReserveAndSaysSo):
    """Three blocks are kept, and two are declared."""

    num_reserved = 3


class LosesABlockWhenRefusing(TurnsWhenRefusing):
    """A refused call takes a block out of the free list."""

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        if not self.can_allocate(tokens) and self.free_blocks:
            self.free_blocks.pop()
        return super().allocate(seq, tokens)


class MixesTargets(SwapsFromHashMap):
    """The targets of two pairs change places."""

    def ordered(self, pairs: list[Pair]) -> list[Pair]:
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        return list(zip(sources, [*targets[1:], *targets[:1]], strict=True))


class LeavesOwnBlocks(LeavesSharedBlocks):
    """The first block of a group stays on the GPU, whoever holds it."""

    def stays(self, block: int, group: int) -> bool:
        return block == self.held[self.groups[group][0]][0]


class LeavesWithoutReference(LeavesSharedBlocks):
    """What stays on the GPU is not held by the group any more, though its tables name it."""

    def swap_out(self, group: int) -> list[Pair]:
        pairs = super().swap_out(group)
        for seq in self.groups[group]:
            for block in self.held[seq]:
                self.refs[block] -= block < self.config.num_gpu_blocks
        return pairs


class EvictsNewestFirst(EvictsBeforeTakingFree):
    """What was used last is evicted first."""

    def victim(self, unused: list[int]) -> int:
        return max(unused, key=self.used.__getitem__)


class EvictsShortestFirst(LastTwinIsKnown):
    """Of blocks that were used at one time, the shortest prefix is evicted first."""

    def victim(self, unused: list[int]) -> int:
        return min(unused, key=lambda block: (self.used[block], len(self.key_of[block])))


class CachesWhatWasAdmitted(CachesAtRelease):
    """A released sequence is cached as far as it has slots, whether or not a step has computed them."""

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        hit = super().allocate(seq, tokens)
        self.admitted(seq)
        return hit

    def append(self, seq: int, num_tokens: int) -> Sequence[Pair] | None:
        copies = super().append(seq, num_tokens)
        self.admitted(seq)
        return copies

    def admitted(self, seq: int) -> None:
        """Every token of the sequence has a slot."""
        self.num_done[seq] = len(self.tokens[seq])
        self.used.update(dict.fromkeys(self.held[seq], self.clock + 1))


class CachesWhatWasScheduled(Caches):
    """What a step is to compute is cached when it is scheduled, and stays so if the step fails."""

    def step_scheduled(self, step: list[Scheduled], now: int) -> None:
        self.computed([one.seq for one in step], [one.stop for one in step])

    def step_done(self, step: list[Scheduled]) -> None:
        pass


class CachesTheSampledToken(CachesAtRelease):
    """What is cached at a release has the token that was sampled last, whose KV no step has computed."""

    def release(self, seq: int) -> None:
        if self.config.caching:
            num_slots = len(self.held[seq]) * self.config.block_size
            self.num_done[seq] = min(len(self.tokens[seq]), num_slots)
            self.used.update(dict.fromkeys(self.held[seq], self.clock))
        super().release(seq)


class HitsWithoutCopy(HitsWithinBlocks):
    """A hit ends within a block, and nothing is copied."""

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        hit = super().allocate(seq, tokens)
        return hit.hit if isinstance(hit, Admitted) else hit


class CopiesAnotherBlock(HitsWithinBlocks):
    """Another block than the one that was found is copied."""

    def allocate(self, seq: int, tokens: list[int]) -> int | Admitted | None:
        hit = super().allocate(seq, tokens)
        if isinstance(hit, Admitted):
            ((source, target),) = hit.copies
            return hit._replace(copies=[((source + 1) % self.config.num_gpu_blocks, target)])
        return hit


class HitsOneTokenTooMany(HitsWithinBlocks):
    """A hit within a block counts one token more than the block and the prompt have in common."""

    def found_within(self, tokens: list[int]) -> tuple[int, int]:
        block, num_tokens = super().found_within(tokens)
        return block, num_tokens + bool(num_tokens and num_tokens < self.config.block_size - 1)


class HitsWhatIsLoaded(Loads):
    """What is loaded can be hit at once: so it may if the load is over before the step computes, but not otherwise."""

    capabilities = replace(Loads.capabilities, same_step_hits=True)

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        done = super().admit(group, num_tokens)
        if isinstance(done, Admitted) and done.loaded:
            (seq,) = self.groups[group]
            self.num_done[seq] = done.hit + done.loaded
            self.used.update(dict.fromkeys(self.held[seq], self.clock + 1))
            self.publish(seq)
        return done


class CountsWhatIsLoadedAsHit(Loads):
    """Of what is elsewhere it says that it is in the cache."""

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        done = super().admit(group, num_tokens)
        return done if isinstance(done, Refused) else Admitted(done.hit + done.loaded)


class TakesSourceOfHit(HitsWithinBlocks):
    """The block that a hit copies is evicted for another prompt of the same step."""

    def num_takable(self) -> int:
        return self.num_free()

    def has_room(self, tokens: list[int], kept: set[int]) -> bool:
        num_kept = len([one for one in {*self.found(tokens), *kept} if not self.refs[one]])
        return self.wanted(len(tokens)) - len(self.found(tokens)) <= self.num_takable() - num_kept

    def victim(self, unused: list[int]) -> int:
        self.sources.clear()
        return super().victim(unused)


BROKEN: dict[type[Any], set[str]] = {  # the properties that say so
    ForgetsToReport: {"cow-copied", "frame-kept"},
    ReportsAnotherSource: {"cow-copied", "frame-kept"},
    KeepsTheReference: {"refcount-exact"},
    TakesSourcesOfCopies: {"mapping-hazard-free", "read-back"},
    KeepsMoreThanItDeclares: {"admission-final", "admission-exact"},
    LosesABlockWhenRefusing: {"failed-call-changes-nothing"},
    MixesTargets: {"swap-mapping"},
    LeavesOwnBlocks: {"swap-mapping"},
    LeavesWithoutReference: {"swap-mapping"},
    EvictsNewestFirst: {"eviction-order"},
    EvictsShortestFirst: {"eviction-order"},
    CachesWhatWasAdmitted: {"hit-computed"},
    CachesWhatWasScheduled: {"hit-computed"},
    CachesTheSampledToken: {"hit-computed"},
    HitsWithoutCopy: {"hit-computed"},
    CopiesAnotherBlock: {"hit-computed"},
    HitsOneTokenTooMany: {"hit-computed"},
    HitsWhatIsLoaded: {"hit-computed"},
    CountsWhatIsLoadedAsHit: {"hit-computed"},
    TakesSourceOfHit: {"hit-computed", "mapping-hazard-free", "read-back"},
    **{manager: {"events-agree"} for manager in events.BROKEN},
}
