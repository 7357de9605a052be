"""Runs in which beams part: requests repeat earlier ones, are forked, and their members go different ways in one step.

In such a step some members copy a shared block, and others exchange it for a cached one, so that a block may be given
up that a copy of the same step still reads. Random runs meet this too seldom: several groups must be forked just before
a block is full, and append in one step. So a run with partings now and then does a whole parting, operation by
operation. What was drawn for the run otherwise comes in between partings.

In the other operations of the run, sampling is greedy, as with temperature 0: a sequence mostly goes on as an earlier
one with equal tokens did.
"""

from collections.abc import Iterator
from random import Random
from typing import Protocol

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.search.prompts import Chats, Prompts
from kvproof.spec.text.identity import item_at
from kvproof.spec.trace import Operation

RUN_SHARE = 1 / 4  # of the runs with a prefix cache: those with partings
PARTING_SHARE = 0.15  # of the operations of such a run between steps: those that begin a parting
LIKELY_SHARE = 0.7  # of the tokens: those with which an earlier sequence went on


class Run(Protocol):
    """The run whose operations are drawn."""

    judge: ManagerJudge
    prompts: Prompts
    chats: Chats
    num_seqs: int
    num_groups: int


class Partings:
    """Draws the partings of one run, and what its sequences sample."""

    def __init__(self, random: Random, run: Run, can_fork: bool) -> None:
        self.random, self.run, self.judge, self.prompts, self.chats = random, run, run.judge, run.prompts, run.chats
        self.is_on = random.random() < RUN_SHARE
        self.can_fork = can_fork
        self.script: Iterator[Operation] = iter(())

    def draw(self) -> Operation | None:
        """The next operation of a parting; None if the run goes on otherwise."""
        operation = next(self.script, None)
        if operation is not None or self.judge.worker.is_pending or not (self.can_fork and self.chats.latest):
            return operation
        if self.random.random() < PARTING_SHARE:
            self.script = self._parting()
        return next(self.script, None)

    def _parting(self) -> Iterator[Operation]:
        """Groups whose last block lacks one token arrive, are forked, and append in one step."""
        random, judge, groups = self.random, self.judge, list[int]()
        for _ in range(random.choice((2, 2, 3))):
            earlier = random.choice(self.chats.latest)
            tokens = self._all_but_one_of_a_block(earlier)
            if not tokens:
                return
            self.run.num_groups += 1
            self.run.num_seqs += 1
            groups.append(self.run.num_groups)
            key = earlier.key
            yield "new", groups[-1], (self.run.num_seqs,), tokens, (key.adapter_name, key.adapter_id, key.salt), ()
            yield "admit", groups[-1], len(tokens)
        yield "run", 1
        for group in groups:
            for _ in range(random.choice((1, 1, 2))):
                if group in judge.groups:
                    self.run.num_seqs += 1
                    yield "fork", judge.groups[group].members[0].id, self.run.num_seqs
        for group in groups:
            if group in judge.groups:
                yield "sample", group, self.sampled(group)
        for group in groups:
            yield "append", group
        yield "run", 1

    def _all_but_one_of_a_block(self, earlier: ExpectedSequence) -> tuple[int, ...]:
        """The first tokens of an earlier sequence, up to the last slot of a block; () if there are none."""
        size = self.judge.config.block_size
        num_blocks = min(len(earlier.tokens), self.prompts.length_max) // size
        if earlier.images or not num_blocks:
            return ()
        return tuple(earlier.tokens[: self.random.randint(1, num_blocks) * size - 1])

    def sampled(self, group: int) -> tuple[int, ...]:
        """A token for each member of a group. Mostly the last one goes on as an earlier sequence did."""
        members, random = self.judge.groups[group].members, self.random
        shares = [*[1 - LIKELY_SHARE] * (len(members) - 1), LIKELY_SHARE]
        return tuple(
            self._known(seq) if random.random() < share else random.choice(self.prompts.values)
            for seq, share in zip(members, shares, strict=True)
        )

    def _known(self, seq: ExpectedSequence) -> int:
        """A token with which the sequence goes on as a cached block does, if there is one."""
        state, after, values = self.judge.state, self.judge.identities.after, self.prompts.values
        known = {identity for b, row in enumerate(state.content) if state.computed[b] for identity in row}
        for token in self.random.sample(values, len(values)):
            if after(seq.last, item_at(len(seq.tokens), token, seq.images)) in known:
                return token
        return self.random.choice(values)
