"""Scenarios: operations of a small run that lead into a state which random runs reach too seldom.

A run may begin with one:

- A long prompt comes back again and again before anything is evicted. Each return takes its blocks out of the order of
  eviction, and each preemption puts them back. A manager may only mark what it took out, and clean up when much is
  marked and little is left. Random runs of a small pool evict before that.
- A group is swapped in, forked between two steps, and in the next step leaves a block behind its window; another group
  is swapped in and needs that block. Within one step it must not use it, and here a new step has begun.
- A group is swapped in, and with its next token it fills a block whose content is cached. It gets the cached block, and
  its own is free at once. Another group is swapped in in the same step, and must not use that block, also if a third
  one came in between.
- A sampled token fills a block with an image. A prompt comes with the same tokens and without the image. Then both have
  ended, and the cache is reset: the manager should remember nothing of them.
- A group computes a part of the prefix that it names, is swapped out and in, and computes the rest, perhaps in copies
  of the blocks that the prefix keeps. Another group names the same prefix.
- A group that names a prefix has nearly all blocks, and a token that waits for its slot. It is swapped out, and when it
  comes back its own copies of the prefix must fit beside the blocks that the prefix keeps: at first while another group
  has blocks of the prefix only, and then alone.

In some runs with a prefix cache others begin now and then between two steps:

- Beams diverge: requests repeat earlier ones up to the last slot of a block, are forked, and append in one step. Some
  members copy a shared block, and others exchange it for a cached one, so that a block may be given up that a copy of
  the same step still reads.
- A prompt is computed in chunks, and another group overtakes it: it fills a block whose content the prompt has
  announced, and not computed. Then the prompt may leave, and is looked up.

The sizes follow the configuration, because most of these states need a pool that is nearly full. An operation that is
not enabled, or that the run does not have, is left out, and what was drawn for the run otherwise goes on after it.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config
from kvproof.check.search.prompts import Chats, ImagesData, KeyData, Prompts
from kvproof.spec.trace import Operation

SHARE = 1 / 4  # of the runs with a prefix cache; few others can begin with a scenario, and all of these do
NUM_NUMBERS = 3  # the groups and sequences at the beginning have the numbers 1 to 3
NUM_ENTRIES = 60  # blocks that are put back before the last one is
NUM_BLOCKS_MIN = 3  # of a prompt that comes back
RUN_SHARE = 1 / 3  # of the runs with a prefix cache: those with scenarios between steps
STEP_SHARE = 0.25  # of the operations of such a run between steps: those with which one begins
Beginning = Callable[[Random, Config, Prompts, int], list[Operation]]  # the last: blocks that a prompt can have


class DrawnRun(Protocol):
    """The run whose operations are drawn."""

    random: Random
    judge: ManagerJudge
    prompts: Prompts
    chats: Chats
    num_seqs: int
    num_groups: int


class Scenarios:
    """Draws the scenarios of one run. without: kinds of operation that the run does not have."""

    def __init__(self, run: DrawnRun, can: Capabilities, without: frozenset[str]) -> None:
        self.run, self.without = run, without
        self.go_on = can.fork and run.judge.config.caching and run.random.random() < RUN_SHARE
        first = beginning(run.random, run.judge.config, can, run.prompts)
        if first:
            run.num_groups = run.num_seqs = NUM_NUMBERS
        self.operations: Iterator[Operation] = iter(first)
        self.are_any = self.go_on or bool(first)

    def draw(self) -> Operation | None:
        """The next operation of a scenario; None if the run goes on otherwise."""
        run, operation = self.run, self._next()
        if operation is not None or not self.go_on or not run.chats.latest or run.judge.worker.is_pending:
            return operation
        if run.random.random() >= STEP_SHARE:
            return None
        is_chunked = run.judge.config.chunked and run.random.random() < 0.5
        self.operations = _overtaking(run) if is_chunked else _diverging_beams(run)
        return self._next()

    def _next(self) -> Operation | None:
        for operation in self.operations:
            if operation[0] not in self.without and self.run.judge.is_enabled(*operation):
                return operation
        return None


def beginning(random: Random, config: Config, can: Capabilities, prompts: Prompts) -> list[Operation]:
    """The first operations of a run; none of most runs."""
    possible: list[Beginning] = []
    if config.caching and random.random() < SHARE:
        possible = [_comebacks, _exchanged_block, *([_filled_image] * 2 if config.images else [])]
    elif not config.caching and config.num_host_blocks:
        possible += [_copied_prefix] if config.prefixes and config.chunked else []
        possible += [_return_beside_prefix] if config.prefixes else []
        possible += [_left_block] if config.window and can.fork else []
    if not possible or config.group_size > 1:
        return []
    num_kept = -(-config.lookahead // config.block_size) + int(config.watermark * config.num_gpu_blocks)
    return random.choice(possible)(random, config, prompts, config.num_gpu_blocks - 1 - num_kept)


def _computed(number: int, tokens: tuple[int, ...], images: ImagesData = ()) -> list[Operation]:
    """A group arrives, and its prompt is computed."""
    new: Operation = ("new", number, (number,), tokens, (None, 0, None), images)
    return [new, ("admit", number, len(tokens)), ("run", 1)]


def _comebacks(random: Random, config: Config, prompts: Prompts, num_blocks: int) -> list[Operation]:
    """The first group leaves room for one block. The second is put back alone, and the third takes its block."""
    size, token = config.block_size, prompts.values[0]
    num_long = min(num_blocks, prompts.length_max // size)
    if num_long < NUM_BLOCKS_MIN:
        return []
    long, short, last = [(token ^ other,) * length for other, length in ((0, num_long * size), (1, size), (2, size))]
    comes = _computed(1, long)
    returns = [("preempt", 1), *comes[1:]] * -(-NUM_ENTRIES // num_long)
    return [*comes, *returns, *_computed(2, short), ("preempt", 2), *_computed(3, last)]


def _exchanged_block(random: Random, config: Config, prompts: Prompts, num_blocks: int) -> list[Operation]:
    """The first group waits on the host until the second one gets a cached block for one that it was just given.

    The first one needs all blocks that are free then. The third one has cached the block; if the number of the first
    one's blocks is even, it comes back with a block of its own, and is swapped in between the two.
    """
    size, token = config.block_size, prompts.values[0]
    num_cached = random.randint(1 if size > 1 else 2, 3)
    num_waiting = min(num_blocks - random.randint(0, 1), config.num_host_blocks) - num_cached
    num_waiting = min(num_waiting, prompts.length_max // size)
    if num_waiting < num_cached:
        return []
    is_between = num_waiting > 1 and num_waiting % 2 == 0
    waiting, cached = (token ^ 1,) * ((num_waiting - is_between) * size), (token,) * (num_cached * size)
    third: list[Operation] = [*_computed(3, (token ^ 2,) * size), ("swap_out", 3), ("run", 1)]
    return [
        *(*_computed(1, waiting), ("swap_out", 1), ("run", 1)),
        *(*_computed(3, cached), ("free", 3), *(third if is_between else ())),
        *(*_computed(2, cached[1:]), ("sample", 2, (token,))),
        *(("swap_out", 2), ("run", 1), ("swap_in", 2)),
        *(*((("swap_in", 3),) if is_between else ()), ("swap_in", 1), ("run", 1)),
    ]


def _filled_image(random: Random, config: Config, prompts: Prompts, num_blocks: int) -> list[Operation]:
    """The first group's image lies in the block that its first sampled token fills. The second group has no image."""
    size = config.block_size
    fitting = [picture for picture in prompts.pictures if picture[1] < size]
    if not fitting or num_blocks < 3:
        return []
    (name, num_rows), num_before = random.choice(fitting), random.choice((0, size))
    tokens = prompts.some(1) * (num_before + size + 1)
    image = name, num_before + random.randrange(size - num_rows), num_rows
    return [
        *(*_computed(1, tokens[:-2], (image,)), ("sample", 1, tokens[:1]), ("append", 1), ("run", 1), ("free", 1)),
        *(*_computed(2, tokens), ("free", 2), ("reset",)),
    ]


def _copied_prefix(random: Random, config: Config, prompts: Prompts, num_blocks: int) -> list[Operation]:
    """The first group computes its prefix in two chunks, and is swapped between them; the second one names it too."""
    size = config.block_size
    tokens = prompts.some(1) * (2 * size)
    if num_blocks < 5 or config.num_host_blocks < 2:
        return []
    (new, _, run), (other, *_) = _computed(1, tokens), _computed(2, tokens)
    first, second = (*new, None, len(tokens)), (*other, None, len(tokens))
    moves: list[Operation] = [("swap_out", 1), run, ("swap_in", 1)]
    return [first, ("admit", 1, size), run, *moves, ("extend", 1, size), run, second, ("admit", 2, size), run]


def _return_beside_prefix(random: Random, config: Config, prompts: Prompts, num_blocks: int) -> list[Operation]:
    """The first group has all blocks, or all but one, that its prefix will leave it; the second one is the prefix."""
    size, num_prefix = config.block_size, random.randint(1, max(1, config.num_gpu_blocks // 3))
    num_own = config.num_gpu_blocks - num_prefix - random.randint(0, 1)
    if not num_prefix < num_own <= config.num_host_blocks:
        return []
    tokens, length = prompts.some(1) * (num_own * size), num_prefix * size
    (new, admit, run), (other, *computed) = _computed(1, tokens), _computed(2, tokens[:length])
    return [
        *((*new, None, length), admit, run, ("sample", 1, tokens[:1]), ("swap_out", 1), run),
        *((*other, None, length), *computed, ("swap_in", 1), run, ("free", 2), ("swap_in", 1), run),
    ]


def _left_block(random: Random, config: Config, prompts: Prompts, num_blocks: int) -> list[Operation]:
    """The first group waits on the host until the second one, which is forked, leaves a block.

    The first one needs about as many blocks as are free then.
    """
    size, num_gpu = config.block_size, config.num_gpu_blocks
    num_kept = -(-(config.window or 0) // size) + 1  # a manager may keep one entry more than the window needs
    sizes = range(num_kept + 1, num_gpu - 1)
    for num_leaving in random.sample(sizes, len(sizes)):
        num_tokens = num_leaving * size - random.randint(0, size - 1)
        num_left = max(1, num_tokens // size - num_kept)
        num_taken = 1 + (num_tokens % size == 0)  # the parent and the child write to different blocks
        num_free = num_gpu - 1 - num_leaving - num_taken + num_left  # one is the null block
        num_waiting = num_free - random.randint(0, num_left - 1)
        if 0 < num_waiting <= config.num_host_blocks - num_leaving:
            break
    else:
        return []
    return [
        *(*_computed(1, prompts.some(num_waiting * size)), ("swap_out", 1), ("run", 1)),
        *(*_computed(2, prompts.some(num_tokens)), ("swap_out", 2), ("run", 1), ("swap_in", 2), ("run", 1)),
        *(("fork", 2, 3), ("sample", 2, prompts.some(2)), ("append", 2), ("swap_in", 1), ("run", 1)),
    ]


def _arriving(run: DrawnRun, tokens: tuple[int, ...], key: KeyData, num_computed: int) -> Iterator[Operation]:
    """A group arrives, and so many tokens of it are to be computed in the next step."""
    run.num_groups += 1
    run.num_seqs += 1
    yield "new", run.num_groups, (run.num_seqs,), tokens, key, ()
    yield "admit", run.num_groups, num_computed


def _diverging_beams(run: DrawnRun) -> Iterator[Operation]:
    random, judge, size, groups = run.random, run.judge, run.judge.config.block_size, list[int]()
    for _ in range(random.choice((2, 2, 3))):
        earlier = random.choice(run.chats.latest)
        num_blocks = min(len(earlier.tokens), run.prompts.length_max) // size
        tokens = tuple(earlier.tokens[: random.randint(1, num_blocks) * size - 1]) if num_blocks else ()
        if earlier.images or not tokens:
            return
        adapter, number, salt = earlier.key
        yield from _arriving(run, tokens, (adapter, number, salt), len(tokens))
        groups.append(run.num_groups)
    yield "run", 1
    for group in groups:
        for _ in range(random.choice((1, 1, 2))):
            if group in judge.groups:
                run.num_seqs += 1
                yield "fork", judge.groups[group].members[0].id, run.num_seqs
    for group in groups:
        if group in judge.groups:
            yield "sample", group, run.prompts.some(len(judge.groups[group].members))
    for group in groups:
        yield "append", group
    yield "run", 1


def _overtaking(run: DrawnRun) -> Iterator[Operation]:
    random, size = run.random, run.judge.config.block_size
    num_blocks = random.randint(1, 3)
    tokens = run.prompts.some(num_blocks * size + random.randint(0, size))
    begun = tokens[: random.randint(1, num_blocks) * size - 1]
    if not begun:
        return
    for prompt, chunk in ((tokens, 1), (begun, len(begun))):
        yield from _arriving(run, prompt, (None, 0, None), chunk)
        yield "run", 1
    group = run.num_groups
    yield from (("sample", group, (tokens[len(begun)],)), ("append", group), ("run", 1))
    if random.random() < 0.5:  # what the first group announced goes with it, and what the other one filled stays
        yield from (("preempt", group - 1), ("lookup", group - 1))
