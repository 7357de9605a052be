"""What prompts are made of, at every level that has prompts: tokens that repeat earlier ones, keys and images.

Prompts are cut from earlier ones and continue them, over one to three token values, so that prefixes meet in the cache.
"""

from random import Random

from kvproof.check.protocol.manager import Config, PromptKeys

NUM_KEPT = 6
ADAPTERS = ((None, 0), ("X", 1), ("X", 2), ("Y", 3))  # ids are unique, names need not be
SALTS = (None, "X", "Y")  # one small alphabet for every string, so that any two can be equal
WITH_IMAGES = 0.8  # of the prompts that are long enough


def draw_key(random: Random, config: Config) -> tuple[str | None, int, str | None]:
    """An adapter and a salt, as far as prompts of this configuration have them."""
    name, number = random.choice(ADAPTERS) if config.keys >= PromptKeys.ADAPTERS else ADAPTERS[0]
    return name, number, random.choice(SALTS) if config.keys >= PromptKeys.ADAPTERS_AND_SALTS else None


def draw_images(random: Random, config: Config, num_tokens: int) -> tuple[tuple[str, int, int], ...]:
    """The images in a prompt of so many tokens; the name of an image determines its number of rows."""
    if not (config.images and num_tokens > 3 and random.random() < WITH_IMAGES):
        return ()
    first = random.randint(0, num_tokens - 3)
    return ("P", first, 1), ("Q", random.randint(first + 1, num_tokens - 2), 2)


class Prompts:
    """The prompts of one run of a scheduler."""

    def __init__(self, random: Random, block_size: int, length_max: int) -> None:
        self.random, self.block_size, self.length_max = random, block_size, length_max
        self.num_values = random.choice((1, 2, 2, 3))
        self.kept: list[tuple[int, ...]] = []

    def some(self, count: int) -> tuple[int, ...]:
        """So many tokens."""
        return tuple(self.random.randrange(self.num_values) for _ in range(count))

    def draw(self) -> tuple[int, ...]:
        """The tokens of the next prompt."""
        random = self.random
        tokens: tuple[int, ...] = ()
        if self.kept and random.random() < 0.7:
            tokens = random.choice(self.kept)
            if random.random() < 0.5:
                tokens = tokens[: random.randint(0, len(tokens))]
        if not tokens or random.random() < 0.5:
            limit = max(1, self.length_max - len(tokens))
            count = random.randint(1, limit if random.random() < 0.5 else min(limit, 2 * self.block_size))
            tokens += self.some(1) * count if random.random() < 0.5 else self.some(count)
        if len(self.kept) < NUM_KEPT:
            self.kept.append(tokens)
        return tokens
