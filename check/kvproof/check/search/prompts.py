"""What prompts are made of, at every level that has prompts: tokens that repeat earlier ones, keys and images.

Prompts are cut from earlier ones and continue them, over one to three token values, so that prefixes meet in the cache.
Some are the next turn of a chat: they begin with an earlier prompt and the tokens that were sampled after it.
"""

from collections.abc import Mapping
from random import Random

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.protocol.manager import Config, PromptKeys

NUM_KEPT = 6
ADAPTERS = ((None, 0), ("X", 1), ("X", 2), ("Y", 3))  # ids are unique, names need not be
SALTS = (None, "X", "Y")  # one small alphabet for every string, so that any two can be equal
WITH_IMAGES = 0.8  # of the prompts that are long enough
IMAGES = (("P", 1), ("R", 1), ("Q", 2), ("S", 3))  # the name of an image determines its number of rows
NUM_IMAGES_MAX = 3  # of a prompt
SAME_CHAT = 0.8  # of the next turns, those with the adapter, salt and images of their chat
KeyData = tuple[str | None, int, str | None]
ImagesData = tuple[tuple[str, int, int], ...]


def draw_key(random: Random, config: Config) -> KeyData:
    """An adapter and a salt, as far as prompts of this configuration have them."""
    name, number = random.choice(ADAPTERS) if config.keys >= PromptKeys.ADAPTERS else ADAPTERS[0]
    return name, number, random.choice(SALTS) if config.keys >= PromptKeys.ADAPTERS_AND_SALTS else None


def draw_images(random: Random, config: Config, num_tokens: int) -> ImagesData:
    """The images in a prompt of so many tokens: in order, side by side or apart; the first often begins the prompt."""
    if not (config.images and random.random() < WITH_IMAGES):
        return ()
    images, start = list[tuple[str, int, int]](), 0
    for _ in range(random.randint(1, NUM_IMAGES_MAX)):
        name, length = random.choice(IMAGES)
        start += random.choice((0, 0, random.randint(0, num_tokens)))
        if start + length > num_tokens:
            break
        images.append((name, start, length))
        start += length
    return tuple(images)


def draw_key_and_images(
    random: Random, config: Config, num_tokens: int, chat: ExpectedSequence | None
) -> tuple[KeyData, ImagesData]:
    """What a prompt of so many tokens differs in from others; the next turn of a chat mostly has what the chat has."""
    if chat is not None and random.random() < SAME_CHAT:
        adapter, number, salt = chat.key
        return (adapter, number, salt), tuple((name, start, length) for name, start, length in chat.images)
    return draw_key(random, config), draw_images(random, config, num_tokens)


class Chats:
    """The latest chats of one run: sequences, each with its prompt and what was sampled after it so far."""

    def __init__(self, random: Random, seqs: Mapping[int, ExpectedSequence]) -> None:
        self.random, self.seqs, self.share = random, seqs, random.choice((0.0, 0.2, 0.6))
        self.latest: list[ExpectedSequence] = []
        self.newest = 0  # the number of a sequence that was drawn, and is expected with the next operation

    def next_turn(self) -> ExpectedSequence | None:
        """The chat that the next prompt continues, if any."""
        if self.latest and self.random.random() < self.share:
            return self.random.choice(self.latest)
        return None

    def follow(self) -> None:
        """Keep the newest sequence, also when it is over, unless it could not be added."""
        if (seq := self.seqs.get(self.newest)) is not None:
            self.latest.append(seq)
            del self.latest[:-NUM_KEPT]
        self.newest = 0


class Prompts:
    """The prompts of one run of a scheduler."""

    def __init__(self, random: Random, block_size: int, length_max: int) -> None:
        self.random, self.block_size, self.length_max = random, block_size, length_max
        self.num_values = random.choice((1, 2, 2, 3))
        self.kept: list[tuple[int, ...]] = []

    def some(self, count: int) -> tuple[int, ...]:
        """So many tokens."""
        return tuple(self.random.randrange(self.num_values) for _ in range(count))

    def draw(self, chat: ExpectedSequence | None) -> tuple[int, ...]:
        """The tokens of the next prompt; the next turn of a chat begins with all that the chat has."""
        random = self.random
        tokens = tuple(chat.tokens) if chat else ()
        if not tokens and self.kept and random.random() < 0.7:
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
