"""How large the world of a run is: most worlds are small, and one in seven is large in one way or in several.

Runs are drawn from a swarm (Groce et al., "Swarm Testing", 2012): each has sizes, values, features and weights of its
own. Small worlds find most faults, and find them fastest and with the shortest runs. But some faults need a size: a
block with many slots, a table with many entries, a pool with many blocks, or a long life. A large world has one of
these, or several at once, and may have no operations of some kinds at all. Values do not cost time, so every world may
have tokens, adapters and salts that are large numbers and differ in one bit only.

The first runs of a seed are all small and short. Of runs that are drawn at any size, the longest twentieth takes two
fifths of the time, and most faults are seen in the first forty operations of a small run.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

from kvproof.check.protocol.encoder import EncoderConfig
from kvproof.check.protocol.features import NUM_BLOCKS_MAX
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.store import StoreConfig

BLOCK_SIZES = (1, 2, 2, 3, 4)
NUM_BLOCKS_MIN = 3
LARGE_SHARE = 1 / 8  # of the runs: those with large blocks, with many blocks, or with both
LARGE_BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
LARGE_NUM_BLOCKS = (NUM_BLOCKS_MAX + 1, 2_048)
LONG_LIVES = (1_000, 2_000, 4_000)  # operations
LONGEST_LIFE = 100_000  # of the first run of some units of a hunt
LONG_SHARE, LARGE_LONG_SHARE = 1 / 64, 1 / 12  # of the small and of the large runs: those with a long life
NUM_SMALL_RUNS = 64  # the first ones of a seed
NUM_REDRAWN_MAX = 8  # times that a large world is drawn again: if the user fixed large sizes, every one is large
NUM_AT_A_TIME = (1, 2, 4, 8, 24, 40)  # at most so many groups, requests or holders are there in a large run
ABSENT_SHARE = 1 / 6  # of the operations that a large run can do without: those that it never does
VALUE_BITS = 31  # of tokens and adapters: engines keep them in signed 32-bit numbers
DIGITS_SHARE = 1 / 10  # of the runs: those whose values differ in their number of digits only
HASHED_SHARE = 1 / 6  # of the runs: those with prompts that are equal for a weak hash
HASH_BASES = (31, 33, 131, 257, 65_599, 1_000_003)  # by which hashes are multiplied before the next token is added
PLAIN_SHARE = 0.6  # of the runs: those whose values are the first numbers
# The sizes that a report names, largest first, each with its least number of slots or of blocks for each KV group.
BLOCKS_BY_SIZE = (
    (max(BLOCK_SIZES) + 1, "many slots"),
    (3, "three or four slots"),
    (2, "two slots"),
    (1, "one slot"),
)
POOLS_BY_SIZE = ((NUM_BLOCKS_MAX + 1, "many"), (NUM_BLOCKS_MAX // 2, "some"), (0, "few"))
C = TypeVar("C", bound=Config)
Sizes = Callable[[Random], tuple[int, int]]  # draws the slots of a block, and the blocks of the GPU


def log_uniform(random: Random, least: int, most: int) -> int:
    """A number from `least` to `most`; each order of magnitude is equally likely."""
    return min(most, int(least * (most / least) ** random.random() + 0.5)) if most > least else most


def draw_small_sizes(random: Random) -> tuple[int, int]:
    """The slots of a block, and the blocks of the GPU, of a small world."""
    return random.choice(BLOCK_SIZES), random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX)


def draw_sizes(random: Random) -> tuple[int, int]:
    """The slots of a block, and the blocks of the GPU."""
    block_size, num_blocks = draw_small_sizes(random)
    if random.random() < LARGE_SHARE:
        ways = random.choice((1, 2, 3))  # large blocks, many blocks, both
        block_size = random.choice(LARGE_BLOCK_SIZES) if ways & 1 else block_size
        num_blocks = log_uniform(random, *LARGE_NUM_BLOCKS) if ways & 2 else num_blocks
    return block_size, num_blocks


def has_large_sizes(config: Config) -> bool:
    """Whether a configuration has large blocks, or more blocks than a small one."""
    num_blocks_max = NUM_BLOCKS_MAX * len(config.kv_groups)
    return config.block_size > max(BLOCK_SIZES) or max(config.num_gpu_blocks, config.num_host_blocks) > num_blocks_max


def sizes_of(config: Config) -> Iterator[str]:
    """The sizes of a configuration, as situations. A fault may need any of them, so a subject must be seen in each.

    A size is asked for if it was drawn: one that the subject cannot have by its capabilities is not drawn.
    """
    if not isinstance(config, (PoolConfig, StoreConfig, EncoderConfig)):  # their blocks have one size
        yield next(f"blocks of {words}" for least, words in BLOCKS_BY_SIZE if config.block_size >= least)
    per_group = config.num_gpu_blocks / len(config.kv_groups)
    yield next(f"a pool of {words} blocks" for least, words in POOLS_BY_SIZE if per_group >= least)
    if isinstance(config, SchedulerConfig):
        yield f"sequences of {'several blocks' if config.max_model_len > config.block_size else 'one block'}"


def draw_small(draw: Callable[[], C]) -> C:
    """A configuration of a small world; of a large one only if nearly every one that is drawn is large."""
    config = draw()
    for _ in range(NUM_REDRAWN_MAX):
        if not has_large_sizes(config):
            break
        config = draw()
    return config


def draw_length(random: Random, config: Config, usual: int) -> int:
    """How many operations the run has. usual: in a small world."""
    is_large = has_large_sizes(config)
    if random.random() < (LARGE_LONG_SHARE if is_large else LONG_SHARE):
        return random.choice(LONG_LIVES)
    return usual * random.choice((1, 1, 2)) if is_large else usual


def differing_in_one_bit(random: Random, count: int) -> list[int]:
    """Different positive numbers; each differs from the first in one bit."""
    first = random.getrandbits(VALUE_BITS) | 1 << random.randrange(VALUE_BITS)
    others = (first ^ 1 << bit for bit in random.sample(range(VALUE_BITS), count))
    return [first, *[number for number in others if number][: count - 1]]


def repeating_digits(random: Random) -> list[int]:
    """The numbers 1, 11 and 111 in some base: if such numbers are joined without a mark, different lists look equal."""
    base = random.choice((10, 16, 1 << 8))
    return [1, base + 1, base * base + base + 1]


def draw_values(random: Random) -> tuple[tuple[int, ...], int]:
    """The token values of a run: a few, so that prompts meet. And in some runs the base of a weak hash, else 0.

    A sum, an XOR, and a hash in which zeros do not count take many prompts over the first numbers for equal.
    """
    count, kind = random.choice((1, 2, 2, 3)), random.random()
    if kind < DIGITS_SHARE:
        return tuple(repeating_digits(random)[: max(2, count)]), 0
    if kind < DIGITS_SHARE + HASHED_SHARE:
        return tuple(range(count + 1)), random.choice(HASH_BASES)
    if random.random() < PLAIN_SHARE:
        return tuple(range(count)), 0
    if random.random() < 0.5:
        return tuple(differing_in_one_bit(random, count + 1)), 0
    return tuple(random.getrandbits(VALUE_BITS) for _ in range(count + 2)), 0
