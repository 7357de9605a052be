"""The three lists of one step: swap-ins (host to GPU), swap-outs (GPU to host), copies (GPU to GPU).

The worker runs swap-ins, then swap-outs, then copies, each list as a whole (`lists` says when that is well-defined).
Here a list of any length is a function from a target block to the source of its content, or -1.

*Equivalent orders.* Two adjacent lists may be exchanged exactly if neither writes a block that the other reads or
writes; under the three pairwise conditions all six orders are equivalent. Without a condition, none of the other five
orders is equivalent to the worker's: `tests/models/mapping/test_hazards.py` has an example of each.

*The purpose of the worker's order.* It gives the intended bytes: a block that is swapped in gets what the host block
held before the step, even if a swap-out of the step uses that host block again; a block that is swapped out saves what
it held before the step, even if it is the target of a copy; a copy of a block that is swapped in gets the new content.
One condition remains: no swap-in writes a block that is swapped out in the same step.

*The order of a manager.* The worker sorts the moves of a step by kind. Its order gives the same bytes as that in which
the manager decided on them if every two moves that the sorting exchanges commute. There are five ways in which two
moves do not. By the theorems of `lists` about neighbours, this holds for steps of any length. A list from one pool to
the other needs distinct targets and nothing else. Here both pools are one address space: host blocks are numbered after
the GPU's, as in the manager.

Source: vLLM 0.6, worker/worker.py, execute_worker.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import z3

from kvproof.models.mapping.copies import CONTENT, INTEGER, Copy, Memory, agree, any_memory, apart, tag_memory
from kvproof.models.mapping.lists import mapping_obligation
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.terms import every
from kvproof.spec.text import mapping

SWAP_IN, SWAP_OUT, COPY = WORKER_ORDER = tuple(name.replace("_", "-") for name in mapping.WORKER_ORDER)
OTHER_ORDERS = [order for order in permutations(WORKER_ORDER) if order != WORKER_ORDER]

X, Y = z3.Ints("x y")

Origin = Callable[[z3.ArithRef], z3.ArithRef]  # from a target to its source, or -1

NUM_GPU_BLOCKS = z3.Int("num_gpu_blocks")
# Two moves in the order in which a manager decided on them; the worker runs them in the opposite order.
DECIDED = Copy(z3.Int("decided_source"), z3.Int("decided_target"))
THEN = Copy(z3.Int("then_source"), z3.Int("then_target"))


class Pools(NamedTuple):
    """The memories of both pools; the blocks of each are numbered from 0."""

    gpu: Memory
    host: Memory


START = Pools(z3.Function("gpu", INTEGER, CONTENT), z3.Function("host", INTEGER, CONTENT))
TAGS = Pools(tag_memory, lambda block: -1 - block)


def filled(memory: Memory, origin: Origin, source: Memory) -> Memory:
    """The memory after a whole list, whose reads see `source` as it was before the list."""
    return lambda x: z3.If(origin(x) >= 0, source(origin(x)), memory(x))


@dataclass(frozen=True)
class Step:
    """The three lists of a step."""

    swap_in: Origin
    swap_out: Origin
    copy: Origin

    def run(self, order: tuple[str, ...], start: Pools) -> Pools:
        """The memories after the lists have run in this order."""
        gpu, host = start
        for kind in order:
            if kind == SWAP_IN:
                gpu = filled(gpu, self.swap_in, host)
            elif kind == SWAP_OUT:
                host = filled(host, self.swap_out, gpu)
            else:
                gpu = filled(gpu, self.copy, gpu)
        return Pools(gpu, host)


MOVES = Step(*(z3.Function(f"{name}_origin", INTEGER, INTEGER) for name in ("swap_in", "swap_out", "copy")))


def both_agree(one: Pools, other: Pools) -> z3.BoolRef:
    return z3.And(agree(one.gpu, other.gpu), agree(one.host, other.host))


def never(*conditions: z3.BoolRef) -> z3.BoolRef:
    return z3.ForAll([X, Y], z3.Not(every(conditions)))


def landing_is_not_swapped_out(moves: Step) -> Hypothesis:
    return Hypothesis(
        "no swap-in writes a block that is swapped out",
        never(moves.swap_out(X) >= 0, moves.swap_in(moves.swap_out(X)) >= 0),
    )


IS_IN, IS_OUT, IS_COPIED = MOVES.swap_in(X) >= 0, MOVES.swap_out(X) >= 0, MOVES.copy(X) >= 0

HOST_BLOCK_IS_NOT_REUSED = Hypothesis(
    "no swap-out writes a host block that is swapped in", never(IS_IN, MOVES.swap_out(MOVES.swap_in(X)) >= 0)
)
TARGETS_DIFFER = Hypothesis("no block is swapped in and copied to", never(IS_IN, IS_COPIED))
LANDING_IS_NOT_COPIED = Hypothesis(
    "no block that is swapped in is copied", never(IS_COPIED, MOVES.swap_in(MOVES.copy(X)) >= 0)
)
TARGET_IS_NOT_SWAPPED_OUT = Hypothesis(
    "no copy writes a block that is swapped out", never(IS_OUT, MOVES.copy(MOVES.swap_out(X)) >= 0)
)
NO_SELF_COPY = Hypothesis("no block is copied to itself", never(IS_COPIED, MOVES.copy(X) == X))
ONE_TO_ONE = Hypothesis(
    "each host block is swapped in once",
    z3.ForAll([X, Y], z3.Implies(z3.And(IS_IN, MOVES.swap_in(X) == MOVES.swap_in(Y)), X == Y)),
)

# For two kinds in the worker's order: the condition for exchanging the lists, and what else makes it a necessary one.
EXCHANGES = {
    (SWAP_IN, SWAP_OUT): ((landing_is_not_swapped_out(MOVES), HOST_BLOCK_IS_NOT_REUSED), ()),
    (SWAP_IN, COPY): ((TARGETS_DIFFER, LANDING_IS_NOT_COPIED), (NO_SELF_COPY, ONE_TO_ONE)),
    (SWAP_OUT, COPY): ((TARGET_IS_NOT_SWAPPED_OUT,), (NO_SELF_COPY,)),
}


def exchanged(order: tuple[str, ...]) -> list[tuple[str, str]]:
    """The pairs of kinds that are not in the worker's order."""
    return [pair for pair in EXCHANGES if order.index(pair[0]) > order.index(pair[1])]


def obligations() -> Iterator[Obligation]:
    """The theorems about the three lists of a step, and about its moves."""
    yield from orders()
    yield from intended()
    yield from programs()
    yield from two_pools()


def orders() -> Iterator[Obligation]:
    """The conditions under which lists may be exchanged."""
    for pair, (conditions, regular) in EXCHANGES.items():
        subject = f"{pair[0]} and {pair[1]}"
        yield mapping_obligation(
            subject,
            "either order: enough",
            both_agree(MOVES.run(pair, START), MOVES.run(pair[::-1], START)),
            *conditions,
        )
        yield mapping_obligation(
            subject,
            "either order: needed",
            every(condition.formula for condition in conditions),
            *regular,
            Hypothesis(
                "every block holds its own number, and the bytes agree",
                both_agree(MOVES.run(pair, TAGS), MOVES.run(pair[::-1], TAGS)),
            ),
        )
    for order in OTHER_ORDERS:
        conditions = tuple(one for pair in exchanged(order) for one in EXCHANGES[pair][0])
        yield mapping_obligation(
            "order of the lists",
            f"{', '.join(order)}: the same as the worker's",
            both_agree(MOVES.run(WORKER_ORDER, START), MOVES.run(order, START)),
            *conditions,
        )


def intended() -> Iterator[Obligation]:
    """The worker's order gives the bytes that the manager intends."""
    subject = "the worker's order gives the intended bytes"
    for claim, goal, hypotheses in intentions(MOVES, WORKER_ORDER, START):
        yield mapping_obligation(subject, claim, goal, *hypotheses)


def intentions(
    moves: Step, order: tuple[str, ...], start: Pools
) -> list[tuple[str, z3.BoolRef, tuple[Hypothesis, ...]]]:
    """The intentions of a manager: claims about the memories after the lists ran in this order, with hypotheses."""
    after = moves.run(order, start)
    is_in, is_out, is_copied = moves.swap_in(X) >= 0, moves.swap_out(X) >= 0, moves.copy(X) >= 0
    came_in, source = moves.swap_in(X), moves.copy(X)
    from_in = moves.swap_in(source) >= 0
    return [
        (
            "what is swapped in is what the host held before the step",
            z3.ForAll([X], z3.Implies(z3.And(is_in, z3.Not(is_copied)), after.gpu(X) == start.host(came_in))),
            (),
        ),
        (
            "what is swapped out is what the block held before the step",
            z3.ForAll([X], z3.Implies(is_out, after.host(X) == start.gpu(moves.swap_out(X)))),
            (landing_is_not_swapped_out(moves),),
        ),
        (
            "a copy of a block swapped in is what came in",
            z3.ForAll([X], z3.Implies(z3.And(is_copied, from_in), after.gpu(X) == start.host(moves.swap_in(source)))),
            (),
        ),
        (
            "any other copy is what its source held before the step",
            z3.ForAll([X], z3.Implies(z3.And(is_copied, z3.Not(from_in)), after.gpu(X) == start.gpu(source))),
            (),
        ),
        (
            "a block that no list writes keeps its bytes",
            z3.ForAll(
                [X],
                z3.And(
                    z3.Implies(z3.Not(z3.Or(is_in, is_copied)), after.gpu(X) == start.gpu(X)),
                    z3.Implies(z3.Not(is_out), after.host(X) == start.host(X)),
                ),
            ),
            (),
        ),
    ]


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
