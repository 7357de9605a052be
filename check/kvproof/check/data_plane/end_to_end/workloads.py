"""Workloads that make a scheduler use all its features.

Each workload names the events that must happen while it runs; if one does not, the workload proves nothing. The pools
are only a few blocks larger than one request, so that requests compete for blocks all the time.
"""

import random
from dataclasses import dataclass, field

from kvproof.impl import SchedulerConfig
from kvproof.impl.scheduler import PreemptionMode

MAX_MODEL_LEN = 64
NUM_SEQS = 12


@dataclass(frozen=True)
class Workload:
    """Requests and the sizes of the pools. Sizes in blocks and tokens.

    expected: events that must happen at least once. beam_width: number of sequences that a request forks into; later
    some are dropped and others forked in their place. shared_prefix: number of tokens that half of the prompts share.
    chunk: tokens per step.
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
    chunk: int = MAX_MODEL_LEN
    lookahead: int = 0
    preemption: PreemptionMode = PreemptionMode.RECOMPUTE

    def scheduler_config(self) -> SchedulerConfig:
        is_chunked = self.chunk < MAX_MODEL_LEN
        return SchedulerConfig(self.chunk, NUM_SEQS, MAX_MODEL_LEN, self.lookahead, is_chunked, self.preemption)


@dataclass
class GenerationRequest:
    """A request of a user. arrival: the step in which it arrives. num_outputs: tokens to generate.

    A greedy request takes the token with the greatest score; for the others a salt is drawn for each token.
    """

    name: str
    arrival: int
    prompt: list[int]
    num_outputs: int
    beam_width: int
    is_greedy: bool
    salts: random.Random = field(default_factory=random.Random)


SWAP = PreemptionMode.SWAP

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("recompute", ("preempted", "computed again")),
        Workload("swap", ("preempted", "swapped out", "swapped in"), num_cpu_blocks=16, preemption=SWAP),
        Workload(
            "beam",
            ("forked", "copied on write", "swapped out", "swapped in", "dropped"),
            num_gpu_blocks=22,
            num_cpu_blocks=40,
            num_requests=6,
            beam_width=3,
        ),
        Workload("chunked-prefill", ("chunk", "preempted", "computed again"), chunk=NUM_SEQS),
        Workload(
            "prefix-caching", ("hit", "preempted", "hit beside uncomputed tokens"), caching=True, shared_prefix=10
        ),
        Workload(
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


def requests(workload: Workload, seed: int, vocabulary_size: int) -> list[GenerationRequest]:
    """The requests of a workload, drawn from the seed, in the order in which they arrive."""
    drawn = random.Random(f"{workload.name} {seed}")
    prefix = [drawn.randrange(vocabulary_size) for _ in range(workload.shared_prefix)]
    made = []
    for number in range(workload.num_requests):
        own = [drawn.randrange(vocabulary_size) for _ in range(drawn.randint(3, 14))]
        prompt = [*prefix, *own] if prefix and number % 2 == 0 else own
        made.append(
            GenerationRequest(
                f"request {number}",
                arrival=number // 2 * 2,
                prompt=prompt,
                num_outputs=drawn.randint(8, 18),
                beam_width=workload.beam_width if number % 3 != 2 else 1,
                is_greedy=workload.beam_width == 1 and number % 2 == 1,
                salts=random.Random(drawn.random()),
            )
        )
    return made
