"""How some small runs begin: with operations that lead into a state which random runs reach too seldom.

- A long prompt comes back again and again before anything is evicted. Each return takes its blocks out of the order of
  eviction, and each preemption puts them back. A manager may only mark what it took out, and clean up when much is
  marked and little is left. Random runs of a small pool evict before that.
- A group is swapped in, forked between two steps, and in the next step leaves a block behind its window; another group
  is swapped in and needs that block. Within one step it must not use it, and here a new step has begun.
- A group is swapped in, and with its next token it fills a block whose content is cached. It gets the cached block, and
  its own is free at once. Another group is swapped in in the same step, and must not use that block.
- A group computes its prompt and then waits, while the blocks of later groups are used and released. When it ends, its
  block is the next to be evicted, although it was released last.
- A prompt comes again with the same tokens, and its image lies elsewhere in the block where it begins.
- A sampled token fills a block with an image. A prompt comes with the same tokens and without the image. Then both have
  ended, and the cache is reset: the manager should remember nothing of them.
- A group computes a part of the prefix that it names, is swapped out and in, and computes the rest, perhaps in copies
  of the blocks that the prefix keeps. Another group names the same prefix.

After its opening a run goes on as it was drawn.
"""

from random import Random

from kvproof.check.protocol.manager import Capabilities, Config
from kvproof.check.search.prompts import ImagesData, Prompts
from kvproof.spec.trace import Operation

SHARE = 1 / 20  # of the runs with a prefix cache, for each of the ways in which they begin
COPIED_SHARE = 1 / 4  # of the runs in which a prefix can be computed in part and swapped
NUM_ENTRIES = 60  # blocks that are put back before the last one is
NUM_BLOCKS_MIN = 3  # of a prompt that comes back
NUM_EVICTABLE_MIN = 5  # blocks of later groups, when the block of a group that waited is released
NUM_NUMBERS = 3  # the groups and sequences of an opening have the numbers 1 to 3


def opening(
    random: Random, config: Config, can: Capabilities, prompts: Prompts, without: frozenset[str] = frozenset()
) -> list[Operation]:
    """The first operations of a run; none of most runs. without: kinds of operation that the run does not have."""
    operations = _drawn(random, config, can, prompts)
    return operations if without.isdisjoint(kind for kind, *_ in operations) else []


def _drawn(random: Random, config: Config, can: Capabilities, prompts: Prompts) -> list[Operation]:
    if config.group_size > 1:
        return []
    if config.caching:
        at = int(random.random() / SHARE)
        return WITH_CACHE[at](random, config, prompts) if at < len(WITH_CACHE) else []
    if config.prefixes and config.chunked and config.num_host_blocks and random.random() < COPIED_SHARE:
        return _copied_prefix(config, prompts)
    can_leave = config.window and config.num_host_blocks and can.fork
    return _landing(random, config, prompts) if can_leave else []


def _new(number: int, tokens: tuple[int, ...], images: ImagesData = ()) -> Operation:
    return "new", number, (number,), tokens, (None, 0, None), images


def _num_kept(config: Config) -> int:
    """Blocks that a group may not get when it is admitted, or that it needs for its lookahead."""
    return -(-config.lookahead // config.block_size) + int(config.watermark * config.num_gpu_blocks)


def _comebacks(random: Random, config: Config, prompts: Prompts) -> list[Operation]:
    """The first group leaves room for one block. The second is put back alone, and the third takes its block."""
    size, token = config.block_size, prompts.values[0]
    num_blocks = min(config.num_gpu_blocks - 1 - _num_kept(config), prompts.length_max // size)
    if num_blocks < NUM_BLOCKS_MIN:
        return []
    long, short, last = [(token ^ other,) * length for other, length in ((0, num_blocks * size), (1, size), (2, size))]
    admitted: list[Operation] = [("admit", 1, len(long)), ("run", 1)]
    returns = [*admitted, ("preempt", 1)] * -(-NUM_ENTRIES // num_blocks)
    put_back = [_new(2, short), ("admit", 2, size), ("run", 1), ("preempt", 2)]
    return [_new(1, long), *returns, *admitted, *put_back, _new(3, last), ("admit", 3, size), ("run", 1)]


def _exchanging(random: Random, config: Config, prompts: Prompts) -> list[Operation]:
    """The first group waits on the host until the second one gets a cached block for one that it was just given.

    The first one needs all blocks that are free then. The third one has cached the block.
    """
    size, token = config.block_size, prompts.values[0]
    num_blocks = random.randint(1 if size > 1 else 2, 3)
    num_waiting = min(config.num_gpu_blocks - 1 - num_blocks, config.num_host_blocks - num_blocks)
    num_waiting = min(num_waiting - _num_kept(config) - random.randint(0, 1), prompts.length_max // size)
    if num_waiting < num_blocks:
        return []
    waiting, cached = [(token ^ other,) * count for other, count in ((1, num_waiting * size), (0, num_blocks * size))]
    return [
        *(_new(1, waiting), ("admit", 1, len(waiting)), ("run", 1), ("swap_out", 1), ("run", 1)),
        *(_new(3, cached), ("admit", 3, len(cached)), ("run", 1), ("free", 3)),
        *(_new(2, cached[1:]), ("admit", 2, len(cached) - 1), ("run", 1), ("sample", 2, (token,))),
        *(("swap_out", 2), ("run", 1), ("swap_in", 2), ("swap_in", 1), ("run", 1)),
    ]


def _waiting(random: Random, config: Config, prompts: Prompts) -> list[Operation]:
    """The first group waits while the second one fills the other blocks and ends. The third evicts before and after."""
    size, token, num_kept = config.block_size, prompts.values[0], _num_kept(config)
    num_blocks = min(config.num_gpu_blocks - 1 - num_kept, prompts.length_max // size)
    if num_blocks < NUM_EVICTABLE_MIN + 1:
        return []
    counts = 1, num_blocks, config.num_gpu_blocks - num_blocks
    first, second, third = [(token ^ other,) * (count * size) for other, count in enumerate(counts)]
    return [
        *(_new(1, first), ("admit", 1, size), ("run", 1)),
        *(_new(2, second), ("admit", 2, len(second)), ("run", 1), ("free", 2)),
        *(_new(3, third), ("admit", 3, len(third)), ("run", 1), ("free", 1)),
        *(("sample", 3, (token,)), ("append", 3), ("run", 1)),
    ]


def _moving_image(random: Random, config: Config, prompts: Prompts) -> list[Operation]:
    """The second group repeats the prompt of the first one, whose image begins at another slot of the first block."""
    size = config.block_size
    name, num_rows = random.choice(prompts.pictures)
    num_blocks = 1 + -(-(size - 1 + num_rows) // size)  # the last block that is found may be dropped
    if not config.images or size == 1 or num_blocks > config.num_gpu_blocks - 2 - _num_kept(config):
        return []
    tokens = prompts.some(1) * (num_blocks * size)
    first, second = [((name, start, num_rows),) for start in random.sample(range(size), 2)]
    return [
        *(_new(1, tokens, first), ("admit", 1, len(tokens)), ("run", 1), ("free", 1)),
        *(_new(2, (*tokens, tokens[0]), second), ("admit", 2, len(tokens) + 1), ("run", 1)),
    ]


def _filled_image(random: Random, config: Config, prompts: Prompts) -> list[Operation]:
    """The first group's image lies in the block that its first sampled token fills. The second group has no image."""
    size = config.block_size
    fitting = [picture for picture in prompts.pictures if picture[1] < size]
    if not config.images or not fitting or config.num_gpu_blocks < 4 + _num_kept(config):
        return []
    (name, num_rows), num_before = random.choice(fitting), random.choice((0, size))
    tokens = prompts.some(1) * (num_before + size + 1)
    num_prompt, start = num_before + size - 1, num_before + random.randrange(size - num_rows)
    return [
        *(_new(1, tokens[:num_prompt], ((name, start, num_rows),)), ("admit", 1, num_prompt), ("run", 1)),
        *(("sample", 1, tokens[:1]), ("append", 1), ("run", 1), ("free", 1)),
        *(_new(2, tokens), ("admit", 2, len(tokens)), ("run", 1), ("free", 2), ("reset",)),
    ]


# Few configurations have images.
WITH_CACHE = _comebacks, _exchanging, _waiting, *[_moving_image] * 3, *[_filled_image] * 2


def _copied_prefix(config: Config, prompts: Prompts) -> list[Operation]:
    """The first group computes its prefix in two chunks, and is swapped between them; the second one names it too."""
    size = config.block_size
    tokens = prompts.some(1) * (2 * size)
    if 6 > config.num_gpu_blocks - _num_kept(config) or config.num_host_blocks < 2:
        return []
    first, second = [(*_new(number, tokens), None, len(tokens)) for number in (1, 2)]
    moves: list[Operation] = [("swap_out", 1), ("run", 1), ("swap_in", 1)]
    return [
        *(first, ("admit", 1, size), ("run", 1), *moves, ("extend", 1, size), ("run", 1)),
        *(second, ("admit", 2, size), ("run", 1)),
    ]


def _landing(random: Random, config: Config, prompts: Prompts) -> list[Operation]:
    """The first group waits on the host until the second one, which is forked, leaves a block.

    The first one needs about as many blocks as are free then.
    """
    size, num_gpu, window = config.block_size, config.num_gpu_blocks, config.window or 0
    num_kept = -(-window // size) + 1  # a manager may keep one entry more than the window needs
    if num_gpu - 2 <= num_kept:
        return []
    for num_blocks in random.sample(range(num_kept + 1, num_gpu - 1), num_gpu - num_kept - 2):
        num_tokens = num_blocks * size - random.randint(0, size - 1)
        num_left = max(1, num_tokens // size - num_kept)
        num_taken = 1 + (num_tokens % size == 0)  # the parent and the child write to different blocks
        num_free = num_gpu - 1 - num_blocks - num_taken + num_left  # one is the null block
        num_waiting = num_free - random.randint(0, num_left - 1)
        if 0 < num_waiting <= config.num_host_blocks - num_blocks:
            break
    else:
        return []
    leaving = prompts.some(num_tokens)
    waiting = prompts.some(num_waiting * size)
    moves: list[Operation] = [("swap_out", 2), ("run", 1), ("swap_in", 2), ("run", 1), ("fork", 2, 3)]
    return [
        *(_new(1, waiting), ("admit", 1, len(waiting)), ("run", 1), ("swap_out", 1), ("run", 1)),
        *(_new(2, leaving), ("admit", 2, len(leaving)), ("run", 1), *moves),
        *(("sample", 2, prompts.some(2)), ("append", 2), ("swap_in", 1), ("run", 1)),
    ]
