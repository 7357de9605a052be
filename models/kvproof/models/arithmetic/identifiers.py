"""Block ids: the manager numbers the blocks of both devices together, a worker those of each device from 0 on.

For the manager, GPU blocks are 0 to G - 1 and host blocks G to G + C - 1. Swaps are passed to the worker as pairs of
its own ids, source first.
"""

from collections.abc import Iterator

import z3

from kvproof.models.arithmetic.sources import Sources, Subject, returned_pair
from kvproof.models.obligation import Hypothesis, Obligation

GPU_BLOCKS, HOST_BLOCKS = z3.Ints("NUM_GPU_BLOCKS num_host_blocks")
GPU, HOST, OTHER_GPU, OTHER_HOST = z3.Ints("gpu_block host_block other_gpu_block other_host_block")
WORKERS = z3.Int("worker_block")


def obligations(sources: Sources) -> Iterator[Obligation]:
    """The obligations about the ids in swap pairs."""
    on_gpu = Hypothesis(
        "blocks of the GPU", z3.And([z3.And(0 <= block, block < GPU_BLOCKS) for block in (GPU, OTHER_GPU)])
    )
    on_host = Hypothesis(
        "blocks of the host",
        z3.And([z3.And(GPU_BLOCKS <= block, block < GPU_BLOCKS + HOST_BLOCKS) for block in (HOST, OTHER_HOST)]),
    )
    subject = Subject("ids in swap pairs", sources, "swap-mapping", on_gpu, on_host)

    def worker_pair(function: str, source: z3.ArithRef, target: z3.ArithRef) -> tuple[z3.ArithRef, z3.ArithRef]:
        """The pair that is passed to the worker, for two ids of the manager."""
        names = {"source": source, "target": target, "self.num_total_gpu_blocks": GPU_BLOCKS}
        names["base"] = subject.local(function, "base", names)
        one, other = returned_pair(sources.functions[function])
        return subject.expression(function, one, names), subject.expression(function, other, names)

    came_from, landed = worker_pair("SelfAttnBlockSpaceManager.swap_in", HOST, GPU)
    left, went_to = worker_pair("SelfAttnBlockSpaceManager.swap_out", GPU, HOST)
    other_from, other_landed = worker_pair("SelfAttnBlockSpaceManager.swap_in", OTHER_HOST, OTHER_GPU)
    other_left, other_to = worker_pair("SelfAttnBlockSpaceManager.swap_out", OTHER_GPU, OTHER_HOST)
    for name, host, gpu in (("a swap-in", came_from, landed), ("a swap-out", went_to, left)):
        yield subject.claim(f"{name} names a host block from 0 on", z3.And(0 <= host, host < HOST_BLOCKS))
        yield subject.claim(f"{name} names a GPU block from 0 on", z3.And(0 <= gpu, gpu < GPU_BLOCKS))
    yield subject.claim(
        "two host blocks have two names",
        z3.And((came_from == other_from) == (HOST == OTHER_HOST), (went_to == other_to) == (HOST == OTHER_HOST)),
    )
    yield subject.claim(
        "two GPU blocks have two names",
        z3.And((landed == other_landed) == (GPU == OTHER_GPU), (left == other_left) == (GPU == OTHER_GPU)),
    )
    yield subject.claim(
        "a block is swapped in by the name it was swapped out to", z3.And(came_from == went_to, landed == left)
    )
    yield subject.claim(
        "every host block that the worker has is named by some block of the manager",
        z3.Exists([HOST], z3.And(GPU_BLOCKS <= HOST, HOST < GPU_BLOCKS + HOST_BLOCKS, came_from == WORKERS)),
        Hypothesis("a block that the worker has", z3.And(0 <= WORKERS, WORKERS < HOST_BLOCKS)),
    )
    yield subject.claim(
        "the specification takes the same blocks for the GPU's",
        z3.And(
            subject.spec_function("pool_of", GPU) != subject.spec_function("pool_of", HOST),
            subject.spec_function("pool_of", GPU) == subject.spec_function("pool_of", OTHER_GPU),
        ),
    )
    yield from subject.well_defined()
