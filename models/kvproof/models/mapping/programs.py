"""The moves of a step in the order in which the manager decided on them; the worker sorts them by kind.

The worker's order gives the same bytes as the manager's if every two moves that the sorting exchanges commute. There
are five ways in which two moves do not. By the theorems of `lists` about neighbours, this holds for steps of any
length. A list from one pool to the other needs distinct targets and nothing else.

Here both pools are one address space: host blocks are numbered after the GPU's, as in the manager.
"""

from collections.abc import Iterator

import z3

from kvproof.models.mapping.copies import Copy, Memory, agree, any_memory, apart, tag_memory
from kvproof.models.mapping.lists import mapping_obligation
from kvproof.models.mapping.phases import COPY, SWAP_IN, SWAP_OUT
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.terms import every

NUM_GPU_BLOCKS = z3.Int("num_gpu_blocks")
# Two moves in the order in which a manager decided on them; the worker runs them in the opposite order.
DECIDED = Copy(z3.Int("decided_source"), z3.Int("decided_target"))
THEN = Copy(z3.Int("then_source"), z3.Int("then_target"))


def is_kind(kind: str, copy: Copy) -> z3.BoolRef:
    """Source and target are in the pools of this kind of move; a copy within a pool is not a self copy."""
    from_gpu, to_gpu = copy.source < NUM_GPU_BLOCKS, copy.target < NUM_GPU_BLOCKS
    ids = z3.And(copy.source >= 0, copy.target >= 0, NUM_GPU_BLOCKS >= 0)
    if kind == SWAP_IN:
        return z3.And(ids, z3.Not(from_gpu), to_gpu)
    if kind == SWAP_OUT:
        return z3.And(ids, from_gpu, z3.Not(to_gpu))
    return z3.And(ids, from_gpu, to_gpu, copy.source != copy.target)


# For each pair of kinds that the worker exchanges: the ways in which their order matters.
INVERSIONS = {
    (SWAP_OUT, SWAP_IN): {
        "a block that was swapped out is swapped in again": DECIDED.target == THEN.source,
        "a block that was swapped out is refilled": DECIDED.source == THEN.target,
    },
    (COPY, SWAP_IN): {
        "the source of a copy is refilled": DECIDED.source == THEN.target,
        "the target of a copy is refilled": DECIDED.target == THEN.target,
    },
    (COPY, SWAP_OUT): {"the target of a copy is swapped out": DECIDED.target == THEN.source},
}


def obligations() -> Iterator[Obligation]:
    """The theorems about the moves of a step."""
    yield from programs()
    yield from two_pools()


def programs() -> Iterator[Obligation]:
    """When sorting the moves of a step by kind changes nothing, for each pair of kinds that it may exchange."""
    for (first, second), ways in INVERSIONS.items():
        subject = f"{first} decided before {second}"
        kinds = (Hypothesis(f"a {first}", is_kind(first, DECIDED)), Hypothesis(f"a {second}", is_kind(second, THEN)))
        excluded = tuple(Hypothesis(f"not: {way}", z3.Not(formula)) for way, formula in ways.items())

        def same(memory: Memory) -> z3.BoolRef:
            return agree(THEN.applied(DECIDED.applied(memory)), DECIDED.applied(THEN.applied(memory)))

        yield mapping_obligation(
            subject, "the order does not matter: enough", same(any_memory("memory")), *kinds, *excluded
        )
        agrees = Hypothesis("every block holds its own number, and the bytes agree", same(tag_memory))
        yield mapping_obligation(
            subject,
            "the order does not matter: needed",
            every(one.formula for one in excluded),
            *kinds,
            agrees,
        )


def two_pools() -> Iterator[Obligation]:
    """Lists that go from one pool to the other."""
    for kind in (SWAP_IN, SWAP_OUT):
        yield mapping_obligation(
            f"a list of {kind}s",
            "distinct targets are enough",
            apart(DECIDED, THEN),
            Hypothesis(f"two {kind}s", z3.And(is_kind(kind, DECIDED), is_kind(kind, THEN))),
            Hypothesis("distinct targets", DECIDED.target != THEN.target),
        )
