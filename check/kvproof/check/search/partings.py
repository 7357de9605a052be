"""Runs in which beams part: requests repeat earlier ones, are forked, and their members go different ways in one step.

In such a step some members copy a shared block, and others exchange it for a cached one, so that a block may be given
up that a copy of the same step still reads. Random runs meet this too seldom: several groups must be forked just before
a block is full, and append in one step. So a run with partings now and then does a whole parting, operation by
operation. What was drawn for the run otherwise comes in between partings.

Where prompts are computed in chunks, a group also overtakes another one: it fills a block whose content the other has
announced, and not computed. Then the other one may leave, and is looked up.

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

RUN_SHARE = 1 / 3  # of the runs with a prefix cache: those with partings
PARTING_SHARE = 0.25  # of the operations of such a run between steps: those that begin a parting
CHUNKED_SHARE = 0.5  # of the partings where prompts are computed in chunks: those of a prompt and its beginning
NUM_GROUPS_OF_PARTINGS = 5  # there may be at least so many in such a run
LIKELY_SHARE = 0.7  # of the tokens: those with which an earlier sequence went on


class Run(Protocol):
    """The run whose operations are drawn."""

    judge: ManagerJudge
    prompts: Prompts
    chats: Chats
    num_seqs: int
    num_groups: int


class Partings:
    """Draws the partings of one run, and what its sequences sample.

    without: kinds of operation that the run does not have.
    """

    def __init__(self, random: Random, run: Run, can_fork: bool, without: frozenset[str] = frozenset()) -> None:
        self.random, self.run, self.judge, self.prompts, self.chats = random, run, run.judge, run.prompts, run.chats
        self.is_on = random.random() < RUN_SHARE
        self.can_fork, self.without = can_fork, without
        self.script: Iterator[Operation] = iter(())

    def draw(self) -> Operation | None:
        """The next operation of a parting; None if the run goes on otherwise."""
        if (operation := self._next()) is not None:
            return operation
        is_between_steps = not self.judge.worker.is_pending
        if self.can_fork and self.chats.latest and is_between_steps and self.random.random() < PARTING_SHARE:
            is_chunked = self.judge.config.chunked and self.random.random() < CHUNKED_SHARE
            self.script = self._overtaking() if is_chunked else self._parting()
        return self._next()

    def _next(self) -> Operation | None:
        """The next operation of the parting that is enabled, if there is one."""
        for operation in self.script:
            if operation[0] not in self.without and self.judge.is_enabled(*operation):
                return operation
        return None

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

    def _overtaking(self) -> Iterator[Operation]:
        """A long prompt is computed in chunks; a group whose prompt is its beginning fills the next block first."""
        random, size, judge = self.random, self.judge.config.block_size, self.judge
        num_blocks = random.randint(1, 3)
        tokens = self.prompts.some(num_blocks * size + random.randint(0, size))
        begun = tokens[: random.randint(1, num_blocks) * size - 1]
        if not begun:
            return
        for prompt, chunk in ((tokens, 1), (begun, len(begun))):
            self.run.num_groups += 1
            self.run.num_seqs += 1
            yield "new", self.run.num_groups, (self.run.num_seqs,), prompt, (None, 0, None), ()
            yield "admit", self.run.num_groups, chunk
            yield "run", 1
        group = self.run.num_groups
        if group in judge.groups:
            yield "sample", group, (tokens[len(begun)],)
        yield "append", group
        yield "run", 1
        if random.random() < 0.5:  # what the first group announced goes with it, and what the other one filled stays
            yield "preempt", group - 1
            yield "lookup", group - 1

    def _all_but_one_of_a_block(self, earlier: ExpectedSequence) -> tuple[int, ...]:
        """The first tokens of an earlier sequence, up to the last slot of a block, if there are any.

        If a block that the sequence filled is still cached, it is one of those.
        """
        size = self.judge.config.block_size
        num_blocks = min(len(earlier.tokens), self.prompts.length_max) // size
        if earlier.images or not num_blocks:
            return ()
        known = self._known()
        lasts = [earlier.whole[earlier.layout.slots(count * size) - 1] for count in range(1, num_blocks + 1)]
        filled = [count for count, last in enumerate(lasts, 1) if last in known]
        return tuple(earlier.tokens[: self.random.choice(filled or range(1, num_blocks + 1)) * size - 1])

    def sampled(self, group: int) -> tuple[int, ...]:
        """A token for each member of a group. Mostly the last one goes on as an earlier sequence did, and no other."""
        members, known = self.judge.groups[group].members, self._known()
        return tuple(self._token(seq, known, is_last=seq is members[-1]) for seq in members)

    def _token(self, seq: ExpectedSequence, known: set[int], is_last: bool) -> int:
        after, values = self.judge.identities.after, self.prompts.values
        if self.random.random() < LIKELY_SHARE:
            place = len(seq.tokens)
            ways = [(after(seq.last, item_at(place, token, seq.images)) in known, token) for token in values]
            values = tuple(token for is_known, token in ways if is_known == is_last) or values
        return self.random.choice(values)

    def _known(self) -> set[int]:
        """The identities of all slots of computed blocks."""
        state = self.judge.state
        return {identity for b, row in enumerate(state.content) if state.computed[b] for identity in row}
