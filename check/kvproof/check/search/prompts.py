"""The prompts of one run, at every level that has prompts: tokens that repeat earlier ones, keys and images.

Prompts are cut from earlier ones, continue them, or differ from them in one token, over a few token values, so that
prefixes meet in the cache. Some are the next turn of a chat: they begin with an earlier prompt and the tokens that were
sampled after it. In a large world most prompts are short too, but some have thousands of tokens.
"""

from collections.abc import Mapping
from random import Random

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.protocol.manager import Config, PromptKeys
from kvproof.check.search.worlds import PLAIN_SHARE, differing_in_one_bit, draw_values, has_large_sizes, log_uniform

NUM_KEPT = 6
NUM_TOKENS_MAX, NUM_TOKENS_OF_RUN_MAX = 4_096, 100_000  # of a prompt, and of all of a run; later prompts are short
ADAPTERS: tuple[tuple[str | None, int], ...] = (
    (None, 0),
    ("X", 1),
    ("X", 2),
    ("Y", 3),
)  # ids are unique, names need not be
SALTS: tuple[str | None, ...] = (None, "X", "Y")  # one small alphabet for every string, so that any two can be equal
ALIKE_SHARE = 0.3  # of the runs with adapters: those in which names, ids and salts are alike
LONG_SALTS: tuple[str | None, ...] = (  # they differ at the end, in the order of two characters, or in case
    None,
    "tenant-0000-0010",
    "tenant-0000-0001",
    "Tenant-0000-0010",
)
PICTURES: tuple[tuple[str, int], ...] = (
    ("P", 1),
    ("R", 1),
    ("Q", 2),
    ("S", 3),
)  # the name of an image determines its number of rows
WITH_IMAGES = 0.8  # of the prompts that are long enough
LARGEST_BLOCKS = 64  # slots; prompts seldom fill such a block and differ within it
CHANGED_SHARES = 0.2, 0.5  # of the prompts of a large world that repeat another: those that differ from it in one token
EQUAL_SHARE = 0.7  # of the prompts that repeat another, in a run with the base of a weak hash: equal for that hash
SAME_CHAT = 0.8  # of the next turns, those with the adapter, salt and images of their chat
NUM_IMAGES_MAX = 3  # of a prompt, in most runs
KeyData = tuple[str | None, int, str | None]
ImagesData = tuple[tuple[str, int, int], ...]


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


class PrefixNames:
    """Draws which prompts of one run name a prefix, and how long it is. There are few prefixes: they keep blocks."""

    def __init__(self, random: Random, config: Config, length_max: int) -> None:
        self.random, self.config, self.length_max = random, config, length_max
        self.num_max = random.randint(1, 3)
        self.known: list[tuple[int, ...]] = []

    def with_prefix(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The prompt; often it begins with a prefix that was named before."""
        if not self.known or self.random.random() < 0.5:
            return tokens
        return (self.random.choice(self.known) + tokens)[: self.length_max]

    def of(self, tokens: tuple[int, ...]) -> int:
        """How many tokens of the prompt are its named prefix, 0 for none."""
        random = self.random
        if random.random() < 0.2:
            return 0
        fitting = [prefix for prefix in self.known if tokens[: len(prefix)] == prefix]
        if fitting and random.random() < 0.9:
            return len(random.choice(fitting))
        if len(self.known) >= self.num_max:
            return 0
        num_blocks_max = max(1, self.config.num_gpu_blocks // 4)
        num_tokens = random.randint(1, min(len(tokens), self.config.block_size * num_blocks_max + 1))
        if self.known and random.random() < 0.5:  # as long as another one
            num_tokens = min(len(tokens), len(random.choice(self.known)))
        self.known.append(tokens[:num_tokens])
        return num_tokens


def alike(random: Random) -> tuple[tuple[tuple[str | None, int], ...], tuple[str | None, ...]]:
    """Adapters and salts; some are equal if name, id and salt are joined without a mark, or if case does not count."""
    first, second = random.sample(range(1, 10), 2)
    name, both = random.choice("Xy"), 10 * first + second
    adapters = (None, 0), (f"{name}{first}", second), (name, both), (name.swapcase(), first)
    return adapters, (None, str(first), random.choice((str(both), name)))


class Prompts:
    """Draws the prompts of one run."""

    def __init__(self, random: Random, config: Config, length_max: int) -> None:
        self.random, self.config, self.length_max = random, config, min(length_max, NUM_TOKENS_MAX)
        self.is_large = has_large_sizes(config)
        self.changed_share = CHANGED_SHARES[config.block_size >= LARGEST_BLOCKS]
        self.values, self.base = draw_values(random)
        self.kept: list[tuple[int, ...]] = []
        self.num_left = NUM_TOKENS_OF_RUN_MAX
        self.adapters, self.salts, self.pictures, self.num_images_max = ADAPTERS, SALTS, PICTURES, NUM_IMAGES_MAX
        kind = random.random() if config.keys > PromptKeys.TOKENS else 0.0
        if 0 < kind < ALIKE_SHARE:
            self.adapters, self.salts = alike(random)
        elif kind > PLAIN_SHARE:
            first, *others = differing_in_one_bit(random, 3)
            self.adapters = ((None, 0), ("X", first), *(("Y", number) for number in others))
            self.salts = LONG_SALTS
        if config.images and random.random() > PLAIN_SHARE:
            rows_max = 3 * config.block_size
            self.pictures = tuple((name, random.randint(1, rows_max)) for name in "ABCD")
            self.num_images_max = random.choice((2, 4, 16))

    def some(self, count: int) -> tuple[int, ...]:
        """So many tokens."""
        return tuple(self.random.choices(self.values, k=count))

    def draw(self, chat: ExpectedSequence | None) -> tuple[int, ...]:
        """The tokens of the next prompt; the next turn of a chat begins with all that the chat has."""
        random = self.random
        tokens = tuple(chat.tokens) if chat else ()
        if not tokens and self.kept and random.random() < 0.7:
            tokens = random.choice(self.kept)
            if self.base and random.random() < EQUAL_SHARE:
                tokens = self._equal_for_hash(tokens)
            elif self.is_large and random.random() < self.changed_share:
                tokens = self._changed(tokens)
            elif random.random() < 0.5:
                tokens = tokens[: self._place(len(tokens))]
        if not tokens or random.random() < 0.5:
            count = self._num_more(max(1, self.length_max - len(tokens)))
            tokens += self.some(1) * count if random.random() < 0.5 else self.some(count)
        if self.num_left < len(tokens):
            tokens = tokens[: 2 * max(4, self.config.block_size // 8)]
        self.num_left -= len(tokens)
        if len(self.kept) < NUM_KEPT:
            self.kept.append(tokens)
        return tokens

    def _changed(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """These tokens, but for one, which is often the last of a block: a manager may not look that far."""
        size, num_blocks = self.config.block_size, len(tokens) // self.config.block_size
        is_last_slot = num_blocks and self.random.random() < 0.5
        place = size * self.random.randint(1, num_blocks) - 1 if is_last_slot else self._place(len(tokens))
        at = min(len(tokens) - 1, place)
        others = [token for token in self.values if token != tokens[at]] or [tokens[at] ^ 1]
        return (*tokens[:at], self.random.choice(others), *tokens[at + 1 :])

    def _equal_for_hash(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Other tokens, or these, with the same hash, if it is multiplied by the base before each token is added.

        Of two tokens side by side in one block, one less of the first is as the base more of the second.
        """
        places = [at for at in range(len(tokens) - 1) if (at + 1) % self.config.block_size]
        if not places:
            return tokens
        at = self.random.choice(places)
        less = 1 if tokens[at] else -1
        pair = tokens[at] - less, tokens[at + 1] + less * self.base
        return (*tokens[:at], *pair, *tokens[at + 2 :]) if min(pair) >= 0 else tokens

    def _place(self, num_tokens: int) -> int:
        """A place in a prompt; in a large world often the end of a block, or the last slot before it."""
        random, size = self.random, self.config.block_size
        if self.is_large and num_tokens >= size and random.random() < 0.5:
            return size * random.randint(1, num_tokens // size) - random.randint(0, 1)
        return random.randint(0, num_tokens)

    def _num_more(self, limit: int) -> int:
        """By how many tokens a prompt grows, up to a limit."""
        random, size = self.random, self.config.block_size
        if not self.is_large:
            return random.randint(1, limit if random.random() < 0.5 else min(limit, 2 * size))
        if random.random() < 0.5:  # whole blocks, or a token more or less
            return min(limit, max(1, size * log_uniform(random, 1, limit // size + 1) + random.choice((-1, 0, 0, 1))))
        return log_uniform(random, 1, limit)

    def key_and_images(self, num_tokens: int, chat: ExpectedSequence | None) -> tuple[KeyData, ImagesData]:
        """The key and images of a prompt of so many tokens; the next turn of a chat mostly has those of the chat."""
        if self.config.embeddings:
            return self._key(), self._embeddings(num_tokens, chat)
        if chat is not None and self.random.random() < SAME_CHAT:
            adapter, number, salt = chat.key
            return (adapter, number, salt), tuple((name, start, length) for name, start, length in chat.images)
        return self._key(), self.images(num_tokens)

    def _embeddings(self, num_tokens: int, chat: ExpectedSequence | None) -> ImagesData:
        """One image that covers the prompt and stands for its embeddings, often that of the chat; some have none."""
        random = self.random
        if random.random() < PLAIN_SHARE:
            return ()
        name, _ = random.choice(self.pictures)
        if chat is not None and chat.images and random.random() < SAME_CHAT:
            name = chat.images[0].name
        return ((name, 0, num_tokens),)

    def _key(self) -> KeyData:
        """An adapter and a salt, as far as prompts of this configuration have them."""
        random, keys = self.random, self.config.keys
        name, number = random.choice(self.adapters) if keys >= PromptKeys.ADAPTERS else ADAPTERS[0]
        return name, number, random.choice(self.salts) if keys >= PromptKeys.ADAPTERS_AND_SALTS else None

    def images(self, num_tokens: int) -> ImagesData:
        """The images of a prompt: in order, side by side or apart; the first often begins the prompt."""
        random = self.random
        if not (self.config.images and random.random() < WITH_IMAGES):
            return ()
        images, start = list[tuple[str, int, int]](), 0
        for _ in range(random.randint(1, self.num_images_max)):
            name, length = random.choice(self.pictures)
            start += random.choice((0, 0, random.randint(0, num_tokens)))
            if start + length > num_tokens:
                break
            images.append((name, start, length))
            start += length
        return tuple(images)
