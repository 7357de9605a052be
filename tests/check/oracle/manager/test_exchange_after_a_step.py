"""A manager that publishes blocks when a step is over, and takes over what another has published meanwhile."""

from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config, Scheduled
from kvproof.check.protocol.manager_adapter import ManagerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

NUM_OPERATIONS = 12_000


class Publishing(ManagerAdapter):
    """Nothing outlives its last holder, but for what `make` sets up: blocks by content, and how often each is held."""

    name = "publishing"
    capabilities = Capabilities(caching=True, dedups_after_step=True)

    def make(self, config: Config) -> Any:
        self.unused = list(range(config.num_gpu_blocks))
        self.by_content: dict[tuple[int, ...], int] = {}
        self.held = [0] * config.num_gpu_blocks
        self.rows: dict[int, list[int]] = {}
        return self

    def _take(self) -> int:
        block = self.unused.pop(0)
        for content in [content for content, known in self.by_content.items() if known == block]:
            del self.by_content[content]
        self.held[block] = 1
        return block

    def _drop(self, block: int) -> None:
        self.held[block] -= 1
        if not self.held[block]:
            self.unused.append(block)

    def can_allocate(self, tokens: list[int]) -> bool:
        return -(-len(tokens) // self.config.block_size) <= len(self.unused)

    def hits(self, group: int) -> int:
        return 0

    def allocate(self, seq: int, tokens: list[int]) -> int:
        self.rows[seq] = [self._take() for _ in range(-(-len(tokens) // self.config.block_size))]
        return 0

    def can_append(self, group: int) -> bool:
        return bool(self.unused)

    def append(self, seq: int, num_tokens: int) -> None:
        if len(self.rows[seq]) * self.config.block_size < len(self.tokens[seq]):
            self.rows[seq].append(self._take())

    def release(self, seq: int) -> None:
        for block in self.rows.pop(seq):
            self._drop(block)

    def step_done(self, step: list[Scheduled]) -> None:
        size = self.config.block_size
        if self.config.caching:
            for one in step:
                for index in range(one.stop // size):
                    self.publish(one.seq, index, tuple(self.tokens[one.seq][: (index + 1) * size]))

    def publish(self, seq: int, index: int, content: tuple[int, ...]) -> None:
        own = self.rows[seq][index]
        published = self.by_content.setdefault(content, own)
        if published != own and self.held[published]:
            self.held[published] += 1
            self.rows[seq][index] = published
            self._drop(own)

    def tables(self) -> dict[int, list[int]]:
        return self.rows

    def num_free(self) -> int:
        return len(self.unused)


class Late(Publishing):
    """Publishes what a sequence has filled only when it asks for its next slot."""

    def step_done(self, step: list[Scheduled]) -> None:
        """Nothing yet."""

    def append(self, seq: int, num_tokens: int) -> None:
        filled = (len(self.tokens[seq]) - 1) // self.config.block_size
        for index in range(filled if self.config.caching else 0):
            self.publish(seq, index, tuple(self.tokens[seq][: (index + 1) * self.config.block_size]))
        super().append(seq, num_tokens)


class LateAndConfusing(Late, Publishing):
    """Takes the tokens of the block alone for its content."""

    def publish(self, seq: int, index: int, content: tuple[int, ...]) -> None:
        super().publish(seq, index, content[-self.config.block_size :])


class Forgetting(Publishing):
    """Gives its own block back, and goes on reading it."""

    def publish(self, seq: int, index: int, content: tuple[int, ...]) -> None:
        own = self.rows[seq][index]
        super().publish(seq, index, content)
        self.rows[seq][index] = own


class Confusing(Publishing):
    """Takes the tokens of the block alone for its content."""

    def publish(self, seq: int, index: int, content: tuple[int, ...]) -> None:
        super().publish(seq, index, content[-self.config.block_size :])


class Silent(Publishing):
    """Does not say that it exchanges blocks."""

    capabilities = Capabilities(caching=True)


def test_blocks_of_equal_content_may_be_exchanged_when_a_step_is_over() -> None:
    done = walk(MANAGERS, Publishing(), 1, max_operations=NUM_OPERATIONS, seconds=60)
    assert done.finding is None, done.finding
    assert done.coverage["exchange after a step"] > 20


def test_blocks_filled_earlier_may_be_exchanged_with_the_next_slot() -> None:
    done = walk(MANAGERS, Late(), 1, max_operations=NUM_OPERATIONS, seconds=60)
    assert done.finding is None, done.finding
    assert done.coverage["exchange"] > 20


def test_a_block_of_other_content_is_refuted_with_the_next_slot() -> None:
    done = walk(MANAGERS, LateAndConfusing(), 1, max_operations=NUM_OPERATIONS, seconds=60)
    assert done.finding is not None
    assert done.finding.property == "sharing-equal"


def test_a_block_that_was_given_back_and_is_still_named_is_refuted() -> None:
    done = walk(MANAGERS, Forgetting(), 1, max_operations=NUM_OPERATIONS, seconds=60)
    assert done.finding is not None
    assert done.finding.property in ("conservation", "no-use-after-free")


def test_a_block_of_other_content_is_refuted() -> None:
    done = walk(MANAGERS, Confusing(), 1, max_operations=NUM_OPERATIONS, seconds=60)
    assert done.finding is not None
    assert done.finding.property == "sharing-equal"


def test_an_exchange_that_was_not_declared_breaks_the_frame() -> None:
    done = walk(MANAGERS, Silent(), 1, max_operations=NUM_OPERATIONS, seconds=60)
    assert done.finding is not None
    assert done.finding.property in ("frame-kept", "failed-call-changes-nothing")
