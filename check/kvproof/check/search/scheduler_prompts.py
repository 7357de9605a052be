"""Prompts that meet: cut from earlier ones and continuing them, over one to three token values."""

from random import Random

NUM_KEPT = 6


class Prompts:
    """The prompts of one run."""

    def __init__(self, random: Random, block_size: int, length_max: int) -> None:
        self.random, self.block_size, self.length_max = random, block_size, length_max
        self.num_values = random.choice((1, 2, 2, 3))
        self.kept: list[tuple[int, ...]] = []

    def some(self, count: int) -> tuple[int, ...]:
        """So many tokens."""
        return tuple(self.random.randrange(self.num_values) for _ in range(count))

    def draw(self) -> tuple[int, ...]:
        """One more prompt."""
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
