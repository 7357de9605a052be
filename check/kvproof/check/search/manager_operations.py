"""The operations of a random run of a block manager: how groups, chunks and tokens are drawn.

In a third of the runs groups act together, as in the steps of engines: what one group has just done, the next one
mostly does too. So several groups are swapped in one step, or copy and exchange blocks in one step.

Many runs have a load of one kind, as engines have for a while. With weights that are drawn independently, a few groups
mostly wait for room. When requests come and go, more are admitted, and their prompts meet in the prefix cache. When
groups are swapped all the time, they return to a pool that others have filled meanwhile.
"""

from collections.abc import Mapping
from random import Random

from kvproof.check.oracle.level import MANAGER
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.manager.judge import SearchLimits
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.protocol.manager_operations import may_lose_steps
from kvproof.check.search.operations_by_kind import OperationsByKind
from kvproof.check.search.prompts import Chats, PrefixNames, Prompts
from kvproof.check.search.refusals import RefusedOperations
from kvproof.check.search.result import MovedLists
from kvproof.check.search.scenarios import Scenarios
from kvproof.check.search.worlds import NUM_AT_A_TIME, has_large_sizes
from kvproof.spec.trace import Operation

RUN_LENGTH = 80
GROUP_MEMBERS_MAX = 4  # in most runs
MANY_MEMBERS, MANY_MEMBERS_SHARE = (8, 16), 1 / 16
DONE_TOGETHER = frozenset({"sample", "append", "fork", "swap_out", "swap_in"})
MOODS: tuple[dict[str, float], ...] = (  # weights of some runs in which groups act together
    {"append": 0.5, "swap_out": 3.0, "swap_in": 3.0},  # groups are swapped while a token waits for its slot
    {"fork": 3.0, "append": 3.0, "free": 0.1, "swap_out": 0.1},  # many share their last block
    {},
)
REQUESTS_COME_AND_GO = {
    "new": 3.0,
    "admit": 3.0,
    "sample": 0.3,
    "append": 1.0,
    "run": 3.0,
    "lookup": 0.1,
    "fork": 0.3,
    "free": 1.0,
    "swap_out": 0.3,
    "reset": 0.03,
}
GROUPS_ARE_SWAPPED = {
    "new": 1.0,
    "admit": 3.0,
    "sample": 0.3,
    "append": 0.3,
    "run": 3.0,
    "lookup": 0.1,
    "fork": 0.03,
    "free": 0.1,
    "swap_out": 3.0,
    "swap_in": 3.0,
    "reset": 0.03,
}
NUM_GROUPS_MIN = 5  # of a run with scenarios: there may be so many at a time, at least
TOGETHER_SHARE = 0.85  # of the operations of a run in which groups act together: those of the kind of the previous one
WEIGHTS = {  # what ends something is drawn less often, so that sequences grow and pools fill
    "new": (0.3, 1.0, 1.0),
    "lookup": (0.0, 0.2, 0.5),
    "sample": (1.0, 3.0, 6.0),
    "append": (0.5, 1.0, 3.0),
    "extend": (1.0, 3.0),
    "run": (1.0, 3.0),
    "free": (0.03, 0.1, 0.3, 1.0),
    "preempt": (0.0, 0.1, 0.3),
    "swap_out": (0.1, 0.3, 1.0),
    "fail": (0.1, 0.3),
    "reset": (0.0, 0.05, 0.3),
}
LOADED_SHARE = 0.6  # of the prompts of a run in which KV comes from elsewhere: those that have some
LOSING_SHARE = 1 / 3  # of the runs in which it is possible: those that release what was admitted before its step


def loads_of(config: Config) -> list[dict[str, float]]:
    """The loads that a small run may have, as weights of some kinds. With the first load the drawn weights stay."""
    loads: list[dict[str, float]] = [{}]
    if config.caching:
        loads.append(REQUESTS_COME_AND_GO)
    if config.num_host_blocks:
        loads.append(GROUPS_ARE_SWAPPED)
    return loads


class ManagerOperations(OperationsByKind):
    """Draws the operations of one run."""

    judge: ManagerJudge
    newest: Operation | None  # the operation that was drawn last

    def __init__(
        self, subject: ManagerSubject, random: Random, config: Config, without: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(MANAGER, WEIGHTS, {}, subject, random, config, without)
        pick, is_large = random.choice, has_large_sizes(config)
        self.tick = pick((0.0, 0.5, 1.0))
        num_groups_max = pick(NUM_AT_A_TIME) if is_large else random.randint(1, 5)
        num_entries = pick((3, 18, 60, 300)) if is_large else pick((3, 6, 18))
        length_max = config.block_size * min(config.num_gpu_blocks + 2, num_entries)
        num_members_max = self._members_max()
        self.chunk_max = config.block_size * (pick((2, 8)) if is_large else 2) + 1
        self.acts_together, self.previous = pick((False, False, True)), ""
        if not is_large:
            self._take_weights(pick(loads_of(config)))
        if self.acts_together:
            self._take_weights(pick(MOODS))
        self.refusals, self.newest = RefusedOperations(), None
        self.moved: list[MovedLists] = []
        self.num_seqs = self.num_groups = 0
        self.named = PrefixNames(random, config, length_max) if config.prefixes else None
        self.prompts, self.chats = Prompts(random, config, length_max), Chats(random, self.judge.seqs)
        few = [self.prompts.some(GROUP_MEMBERS_MAX) for _ in range(4)]
        self.samples = [(sample * num_members_max)[:num_members_max] for sample in few]
        self.scenarios = None if is_large else Scenarios(self, capabilities_of(subject), without)
        if self.scenarios is not None and self.scenarios.are_any:
            num_groups_max = max(num_groups_max, NUM_GROUPS_MIN)
        loses_steps = may_lose_steps(config, capabilities_of(subject)) and random.random() < LOSING_SHARE
        # A sequence that cannot grow is not forked; otherwise two thirds of the forks are of such sequences.
        self.judge.limits = SearchLimits(
            num_groups_max, length_max, num_members_max, num_tokens_forked=length_max, loses_steps=loses_steps
        )

    def draw_from(self, random: Random) -> None:
        """Let this make the random choices of all operations from now on."""
        self.random = self.prompts.random = self.chats.random = random

    def _members_max(self) -> int:
        """How many sequences a group may have. In some runs it has many, as with a wide beam: forks are likely then."""
        if not self.weights["fork"] or self.random.random() >= MANY_MEMBERS_SHARE:
            return GROUP_MEMBERS_MAX
        self._take_weights({"fork": 3.0, "free": 0.03})
        return self.random.choice(MANY_MEMBERS)

    def _take_weights(self, weights: dict[str, float]) -> None:
        """Give these kinds their weights, but for those that the run does not have."""
        self.weights |= {kind: weight for kind, weight in weights.items() if self.weights[kind]}

    def draw(self) -> Operation | None:
        """The next operation; None if nothing is enabled."""
        judge = self.judge
        self.refusals.note(self.newest, judge.is_refused, judge.explainer.observed.free)
        self.newest = self._drawn()
        if self.newest is not None and self.newest[0] == "run":
            self._note_moved()
        return self.newest

    def _note_moved(self) -> None:
        """Note the lists that the worker is about to execute. The same copy twice is one.

        Lists whose order matters but for equal contents are left out: this judge knows the contents, that of bytes not.
        """
        worker, first_host = self.judge.worker, self.config.num_gpu_blocks
        if (worker.swap_in or worker.swap_out or worker.copies) and not worker.is_ordered:
            swap_in = [block for source, target in worker.swap_in for block in (source - first_host, target)]
            swap_out = [block for source, target in worker.swap_out for block in (source, target - first_host)]
            self.moved.append([swap_in, swap_out, [block for pair in dict.fromkeys(worker.copies) for block in pair]])

    def _drawn(self) -> Operation | None:
        if self.scenarios is not None and (operation := self.scenarios.draw()) is not None:
            return operation
        if not self.acts_together:
            return super().draw()
        if self.previous in DONE_TOGETHER and self.random.random() < TOGETHER_SHARE:
            candidates = self.candidates()
            if self.weights[self.previous] and self.previous in candidates:
                return self.concrete(self.previous, candidates[self.previous])
        operation = super().draw()
        self.previous = operation[0] if operation else ""
        return operation

    def candidates(self) -> Mapping[str, list[int]]:
        """The kinds that may be drawn now, each with the groups or sequences that it may be about."""
        return self.refusals.left(self.judge.enabled())

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these groups or sequences."""
        random = self.random
        if self.chats.newest:
            self.chats.follow()
        one = about[int(random.random() * len(about))] if about else 0
        match kind:
            case "new":
                return self._new()
            case "admit" | "extend":
                return kind, one, random.randint(1, self.chunk_max)
            case "sample":
                return "sample", one, self.samples[int(random.random() * 4)]
            case "fork":
                self.num_seqs += 1
                return "fork", one, self.num_seqs
            case "run":
                return "run", 1 if random.random() < self.tick else 0
            case "reset" | "fail":
                return (kind,)
            case _:
                return kind, one

    def _new(self) -> Operation:
        random, config = self.random, self.config
        chat = self.chats.next_turn()
        tokens = self.prompts.draw(chat)
        if self.named:
            tokens = self.named.with_prefix(tokens)
        seqs = []
        for _ in range(config.group_size):
            self.num_seqs += 1
            seqs.append(self.num_seqs)
        self.num_groups += 1
        self.chats.newest = seqs[0]
        key, images = self.prompts.key_and_images(len(tokens), chat)
        operation: Operation = ("new", self.num_groups, tuple(seqs), tokens, key, images)
        encoder = None
        if config.cross and random.random() < 0.7:
            self.num_seqs += 1
            encoder = self.num_seqs, self.prompts.some(random.randint(1, 2 * config.block_size))
            operation = (*operation, encoder)
        prefix = self.named.of(tokens) if self.named else 0
        if config.loads and random.random() < LOADED_SHARE:
            num_tokens = random.randint(1, 1 + len(tokens) // config.block_size) * config.block_size
            return (*operation, None, None, num_tokens)
        return (*operation, *(() if encoder else (None,)), prefix) if prefix else operation
