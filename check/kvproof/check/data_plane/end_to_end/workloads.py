"""Loads that make a scheduler do everything it can: each storm with what it must have met, or it proves nothing.

Pools are a few blocks larger than one request, so that requests are in each other's way all the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kvproof.impl import SchedulerConfig
from kvproof.impl.scheduler import PreemptionMode

MAX_MODEL_LEN = 64
NUM_SEQS = 12


@dataclass(frozen=True)
class Storm:
    """One load. Sizes in blocks and tokens.

    beam_width: sequences a request forks into, some of which are dropped for forks of others as it goes on.
    shared_prefix: tokens with which half of the prompts begin. expected: what must happen at least once.
    """

    name: str
    expected: tuple[str, ...]
    num_gpu_blocks: int = 14
    num_cpu_blocks: int = 0
    block_size: int = 4
    num_requests: int = 8
    beam_width: int = 1
    caching: bool = False
    shared_prefix: int = 0
    chunk: int = MAX_MODEL_LEN  # tokens of a step
    lookahead: int = 0
    preemption: PreemptionMode = PreemptionMode.RECOMPUTE

    def scheduler_config(self) -> SchedulerConfig:
        """As the scheduler wants it."""
        is_chunked = self.chunk < MAX_MODEL_LEN
        return SchedulerConfig(self.chunk, NUM_SEQS, MAX_MODEL_LEN, self.lookahead, is_chunked, self.preemption)


@dataclass
class Request:
    """What a user asks: a prompt, so many tokens, and when. Greedy, or drawn from salts."""

    name: str
    arrival: int
    prompt: list[int]
    num_outputs: int
    beam_width: int
    is_greedy: bool
    salts: random.Random = field(default_factory=random.Random)


SWAP = PreemptionMode.SWAP

STORMS: dict[str, Storm] = {
    storm.name: storm
    for storm in (
        Storm("recompute", ("preempted", "computed again")),
        Storm("swap", ("preempted", "swapped out", "swapped in"), num_cpu_blocks=16, preemption=SWAP),
        Storm(
            "beam",
            ("forked", "copied on write", "swapped out", "swapped in", "dropped"),
            num_gpu_blocks=22,
            num_cpu_blocks=40,
            num_requests=6,
            beam_width=3,
        ),
        Storm("chunked-prefill", ("chunk", "preempted", "computed again"), chunk=NUM_SEQS),
        Storm("prefix-caching", ("hit", "preempted", "hit beside uncomputed tokens"), caching=True, shared_prefix=10),
        Storm(
            "everything",
            ("forked", "copied on write", "swapped out", "swapped in", "chunk", "hit", "lookahead"),
            num_gpu_blocks=24,
            num_cpu_blocks=40,
            beam_width=2,
            caching=True,
            shared_prefix=9,
            chunk=14,
            lookahead=2,
            preemption=SWAP,
        ),
    )
}


def requests(storm: Storm, seed: int, vocabulary_size: int) -> list[Request]:
    """The requests of a storm, drawn from the seed, in the order in which they arrive."""
    drawn = random.Random(f"{storm.name} {seed}")
    prefix = [drawn.randrange(vocabulary_size) for _ in range(storm.shared_prefix)]
    asked = []
    for number in range(storm.num_requests):
        own = [drawn.randrange(vocabulary_size) for _ in range(drawn.randint(3, 14))]
        prompt = [*prefix, *own] if prefix and number % 2 == 0 else own
        asked.append(
            Request(
                f"request {number}",
                arrival=number // 2 * 2,
                prompt=prompt,
                num_outputs=drawn.randint(8, 18),
                beam_width=storm.beam_width if number % 3 != 2 else 1,
                is_greedy=storm.beam_width == 1 and number % 2 == 1,
                salts=random.Random(drawn.random()),
            )
        )
    return asked
