"""The operations of a random run of a block manager: how prompts, chunks and tokens are drawn.

Prompts are cut from and continue earlier ones, over one to three tokens, so that prefixes meet.
"""

from random import Random

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.level import MANAGER
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.manager.base import Limits
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.search.operations_by_kind import OperationsByKind
from kvproof.check.search.prompts import Chats, draw_key_and_images
from kvproof.spec.trace import Operation

RUN_LENGTH = 80
GROUP_MEMBERS_MAX = 4
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
    "reset": (0.0, 0.05, 0.3),
}


class ManagerOperations(OperationsByKind):
    """Draws the operations of one run."""

    judge: ManagerJudge

    def __init__(
        self, subject: ManagerSubject, random: Random, config: Config, without: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(MANAGER, WEIGHTS, {}, subject, random, config, without)
        pick = random.choice
        self.num_tokens = pick((1, 2, 2, 3))  # different token values
        self.tick = pick((0.0, 0.5, 1.0))
        num_groups_max = random.randint(1, 5)
        self.length_max = config.block_size * min(config.num_gpu_blocks + 2, pick((3, 6, 18)))
        self.judge.limits = Limits(num_groups_max, self.length_max, GROUP_MEMBERS_MAX)
        self.chunk_max = 2 * config.block_size + 1
        self.num_seqs = self.num_groups = 0
        self.prompts: list[tuple[int, ...]] = []
        self.chats = Chats(random, self.judge.seqs)
        self.samples = [tuple(random.randrange(self.num_tokens) for _ in range(GROUP_MEMBERS_MAX)) for _ in range(4)]

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
            case "reset":
                return ("reset",)
            case _:
                return kind, one

    def _new(self) -> Operation:
        random, config = self.random, self.config
        chat = self.chats.next_turn()
        tokens = self._prompt(chat)
        seqs = []
        for _ in range(config.group_size):
            self.num_seqs += 1
            seqs.append(self.num_seqs)
        self.num_groups += 1
        self.chats.newest = seqs[0]
        key, images = draw_key_and_images(random, config, len(tokens), chat)
        operation: Operation = ("new", self.num_groups, tuple(seqs), tokens, key, images)
        if config.cross and random.random() < 0.7:
            self.num_seqs += 1
            length = random.randint(1, 2 * config.block_size)
            return (*operation, (self.num_seqs, tuple(random.randrange(self.num_tokens) for _ in range(length))))
        return operation

    def _prompt(self, chat: ExpectedSequence | None) -> tuple[int, ...]:
        random, size = self.random, self.config.block_size
        tokens = chat.tokens[:] if chat else []
        if not tokens and self.prompts and random.random() < 0.7:
            tokens = list(random.choice(self.prompts))
            if random.random() < 0.5:
                tokens = tokens[: random.randint(0, len(tokens))]
        if not tokens or random.random() < 0.5:
            limit = max(1, self.length_max - len(tokens))
            more = random.randint(1, limit if random.random() < 0.5 else min(limit, 2 * size))
            value = random.randrange(self.num_tokens)
            same = random.random() < 0.5
            tokens += [value if same else random.randrange(self.num_tokens) for _ in range(more)]
        if len(self.prompts) < 6:
            self.prompts.append(tuple(tokens))
        return tuple(tokens)
