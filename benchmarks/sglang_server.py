"""A server without a model around SGLang's pool and prefix cache: requests arrive, compute their prompts, decode, end.

The cache is that of a downloaded release, driven by the adapter of the subject `sglang`.
"""

from random import Random

from kvproof.check.protocol.manager import Config, Scheduled
from kvproof.check.subjects.sglang.manager import SGLang
from kvproof.spec.text.identity import Key

NUM_COMMON = 3  # beginnings of prompts


class Server:
    """A constant number of requests: a new one arrives when another ends. The pool evicts what no request holds.

    sizes: the tokens of a page, the pages of the pool, and the requests. length: the tokens of a prompt, of which half
    are common to many.
    """

    def __init__(self, release: str, seed: int, sizes: tuple[int, int, int], length: int) -> None:
        block_size, num_blocks, self.num_requests_max = sizes
        self.random, self.half = Random(seed), length // 2
        self.adapter = SGLang(release)
        self.adapter.open(Config(block_size=block_size, num_gpu_blocks=num_blocks, caching=True))
        self.common = [self._tokens(self.half) for _ in range(NUM_COMMON)]
        self.running: list[int] = []
        self.num_requests = 0

    def _tokens(self, number: int) -> list[int]:
        return [self.random.randrange(50_000) for _ in range(number)]

    def step(self) -> None:
        """Admit requests, compute their prompts or one token of each, and end some of them."""
        adapter, random = self.adapter, self.random
        scheduled = []
        while len(self.running) < self.num_requests_max:
            self.num_requests += 1
            seq, tokens = self.num_requests, random.choice(self.common) + self._tokens(random.randint(1, self.half))
            adapter.new(seq, [seq], tokens, Key(), ())
            adapter.admit(seq, len(tokens))
            self.running.append(seq)
            scheduled.append(Scheduled(seq, len(tokens), len(tokens)))
        for seq in self.running[: self.num_requests_max - len(scheduled)]:
            adapter.grow(seq, random.randrange(50_000))
            adapter.reserve(seq, 1)
        adapter.step_done(scheduled)
        for seq in [seq for seq in self.running if random.random() < 0.1]:
            self.end(seq)

    def end(self, seq: int) -> None:
        """The request publishes its pages, and ends."""
        self.running.remove(seq)
        self.adapter.free(seq)
        self.adapter.forget(seq)

    def close(self) -> None:
        """End every request."""
        for seq in list(self.running):
            self.end(seq)
