"""How some small runs begin: with operations that lead into a state which random runs reach too seldom.

- A long prompt comes back again and again before anything is evicted. Each return takes its blocks out of the order of
  eviction, and each preemption puts them back. A manager may only mark what it took out, and clean up when much is
  marked and little is left. Random runs of a small pool evict before that.
- A group is swapped in, forked between two steps, and in the next step leaves a block behind its window; another group
  is swapped in and needs that block. Within one step it must not use it, and here a new step has begun.

After its opening a run goes on as it was drawn.
"""

from random import Random

from kvproof.check.protocol.manager import Capabilities, Config
from kvproof.check.search.prompts import Prompts
from kvproof.spec.trace import Operation

COMEBACK_SHARE = 1 / 20  # of the runs that can begin so
NUM_ENTRIES = 60  # blocks that are put back before the last one is
NUM_BLOCKS_MIN = 3  # of a prompt that comes back
NUM_NUMBERS = 3  # the groups and sequences of an opening have the numbers 1 to 3


def opening(random: Random, config: Config, can: Capabilities, prompts: Prompts) -> list[Operation]:
    """The first operations of a run; none of most runs."""
    if config.group_size > 1:
        return []
    if config.caching:
        return _comebacks(config, prompts) if random.random() < COMEBACK_SHARE else []
    can_leave = config.window and config.num_host_blocks and can.fork
    return _landing(random, config, prompts) if can_leave else []


def _new(number: int, tokens: tuple[int, ...]) -> Operation:
    return "new", number, (number,), tokens, (None, 0, None), ()


def _comebacks(config: Config, prompts: Prompts) -> list[Operation]:
    """The first group leaves room for one block. The second is put back alone, and the third takes its block."""
    size, token = config.block_size, prompts.values[0]
    num_kept = -(-config.lookahead // size) + int(config.watermark * config.num_gpu_blocks)
    num_blocks = min(config.num_gpu_blocks - 1 - num_kept, prompts.length_max // size)
    if num_blocks < NUM_BLOCKS_MIN:
        return []
    long, short, last = [(token ^ other,) * length for other, length in ((0, num_blocks * size), (1, size), (2, size))]
    admitted: list[Operation] = [("admit", 1, len(long)), ("run", 1)]
    returns = [*admitted, ("preempt", 1)] * -(-NUM_ENTRIES // num_blocks)
    put_back = [_new(2, short), ("admit", 2, size), ("run", 1), ("preempt", 2)]
    return [_new(1, long), *returns, *admitted, *put_back, _new(3, last), ("admit", 3, size), ("run", 1)]


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
