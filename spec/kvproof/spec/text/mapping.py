"""The mapping of a step: pairs (source, target) of blocks whose content a worker copies.

A step has three lists of pairs, and a worker executes them in `WORKER_ORDER`. Each list may be executed pair by pair,
or read as a whole before it is written, or by a kernel whose threads read and write in any order. The predicates say
when two pairs give the same bytes in all these ways; a list does if every two of its pairs do. Where the pairs of a
list go from one pool to the other, the ids are those of one numbering of both pools.

A load of KV from elsewhere writes its blocks at any time while the step runs: it is a pair whose source is `ELSEWHERE`,
which no other pair writes, and must be apart from every pair of the step.

Source: vLLM 0.6, worker/worker.py, execute_worker.
"""

from kvproof.spec.language import predicate

SWAP_IN, SWAP_OUT, COPY = WORKER_ORDER = "swap_in", "swap_out", "copy"
ELSEWHERE = -1  # in place of the source of a load: it is in neither pool


@predicate
def is_block_of(block: int, num_blocks: int) -> bool:
    """The id names one of so many blocks."""
    return 0 <= block and block < num_blocks


@predicate
def are_one_to_one(source: int, target: int, other_source: int, other_target: int) -> bool:
    """Two pairs of a swap: they have the same source exactly when they have the same target."""
    return (source == other_source) == (target == other_target)


@predicate
def is_self_copy(source: int, target: int) -> bool:
    """The pair copies a block onto itself, which changes nothing."""
    return source == target


@predicate
def are_same(source: int, target: int, other_source: int, other_target: int) -> bool:
    """Both pairs copy the same block to the same block."""
    return source == other_source and target == other_target


@predicate
def write_one_block(target: int, other_target: int) -> bool:
    """Two pairs with these targets write the same block."""
    return target == other_target


@predicate
def reads_what_was_written(target: int, other_source: int) -> bool:
    """A later pair reads the block that a pair with this target writes."""
    return target == other_source


@predicate
def are_apart(source: int, target: int, other_source: int, other_target: int) -> bool:
    """Neither pair writes what the other reads or writes."""
    return not (
        write_one_block(target, other_target)
        or reads_what_was_written(target, other_source)
        or reads_what_was_written(other_target, source)
    )


@predicate
def commute(source: int, target: int, other_source: int, other_target: int) -> bool:
    """Both orders of the pairs give the same bytes, for any contents of the memory."""
    return (
        is_self_copy(source, target)
        or is_self_copy(other_source, other_target)
        or are_same(source, target, other_source, other_target)
        or are_apart(source, target, other_source, other_target)
    )


@predicate
def is_forward_free(source: int, target: int, other_source: int) -> bool:
    """The other pair, which comes later, does not read the block that this one wrote, so both may read first."""
    return not reads_what_was_written(target, other_source) or is_self_copy(source, target)


@predicate
def is_race_free(source: int, target: int, other_source: int, other_target: int) -> bool:
    """The reads and writes of both pairs may be interleaved in any way."""
    return are_same(source, target, other_source, other_target) or (
        not write_one_block(target, other_target)
        and is_forward_free(source, target, other_source)
        and is_forward_free(other_source, other_target, source)
    )
