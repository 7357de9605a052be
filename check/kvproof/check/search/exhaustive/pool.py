"""The small scopes of a pool: which operations are enabled in a state, and which states are the same.

A scope of a pool has so many blocks, at most `num_seqs` holders at once, and lists of at most `num_tokens` pages,
each of two values. Two states are the same if they agree in which blocks are held together, what is cached where, the
order in which blocks of the same content were cached, and the order in which free blocks will be given out: as the
pool shows it, or else the order in which they were given up. Scopes are so small that every block has its own name:
nothing is assumed of a pool that prefers one.
"""

from collections.abc import Hashable, Iterator
from itertools import permutations, product

from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.manager import Assumption, Unsupported
from kvproof.check.protocol.pool import PoolConfig, PoolSubject
from kvproof.check.protocol.scopes import Scope
from kvproof.spec.trace import Operation

SHOWN_ORDER = Assumption(
    "shown-order",
    "What a pool does next depends on what is held and cached, and on the order of free blocks that it shows, or in "
    "which they were given up.",
)
PAGES = (0, 1)
GIVING_MAX = 3  # holders that give up in one call

# Blocks x holders, and with a cache x pages.
GATE_SCOPES = {
    "blocks-3x3": Scope(num_gpu_blocks=3, num_seqs=3, num_tokens=1),
    "pages-2x2x2": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, caching=True),
}
HUNTED_SCOPES = GATE_SCOPES | {
    "pages-3x2x1": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=1, caching=True),
    "blocks-4x3": Scope(num_gpu_blocks=4, num_seqs=3, num_tokens=1),
    "pages-3x3x1": Scope(num_gpu_blocks=3, num_seqs=3, num_tokens=1, caching=True),
    "pages-3x2x2": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=2, caching=True),
    "pages-4x3x2": Scope(num_gpu_blocks=4, num_seqs=3, num_tokens=2, caching=True),
}
SHORT_SCOPES = {  # for the seconds of a test
    "blocks": Scope(num_gpu_blocks=3, num_seqs=3, num_tokens=1),
    "pages": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, caching=True),
}


def config_of(scope: Scope) -> PoolConfig:
    """The configuration that a scope is explored in."""
    return PoolConfig(num_gpu_blocks=scope.num_gpu_blocks, caching=scope.caching)


class EnabledPoolOperations:
    """The operations of a scope, and which of them a state has."""

    def __init__(self, scope: Scope, subject: PoolSubject) -> None:
        self.scope = scope
        self.shares = scope.fork and capabilities_of(subject).fork
        self.gives_again = capabilities_of(subject).ignores_double_free
        self.forgets = scope.caching and capabilities_of(subject).reset
        lengths = range(1, scope.num_tokens + 1)
        self.lists = [pages for length in lengths for pages in product(PAGES, repeat=length)] if scope.caching else []

    def enabled(self, judge: PoolJudge) -> Iterator[Operation]:
        """Every concrete operation."""
        holders = list(judge.holders)
        if len(holders) < self.scope.num_seqs:
            new = min(set(range(1, len(holders) + 2)) - judge.holders.keys())
            for num_blocks in range(1, self.scope.num_gpu_blocks + 2):
                yield "take", new, num_blocks
            for pages in self.lists:
                yield "store", new, pages
                yield "reuse", new, pages
            if self.shares:
                yield from (("share", parent, new) for parent in holders)
        else:
            yield from (("find", pages) for pages in self.lists)
        for count in range(1, min(GIVING_MAX, len(holders)) + 1):
            for first, *others in permutations(holders, count):
                yield ("give", first, tuple(others)) if others else ("give", first)
        if self.gives_again and judge.can_give_again():
            yield ("give_again",)
        if self.forgets:
            yield ("forget",)


def state_key(judge: PoolJudge) -> Hashable:
    """The key of a state: equal for states that differ in the names of holders only."""
    explainer, state = judge.explainer, judge.state
    every = range(explainer.num_blocks)
    free = explainer.observed.free_ids
    if free is None:
        free = [*(block for block in every if block not in judge.given_up), *judge.given_up]
    known = [
        (block, tuple(state.content[block]), state.cached[block]) for block in judge.stored if state.computed[block]
    ]
    has_copies = len({content for _, content, _ in known}) < len(known)
    return (
        tuple(sorted(tuple(judge.blocks_of(holder)) for holder in judge.holders)),
        tuple(block for block in free if not state.refcount[block]),
        tuple(known if has_copies else sorted(known)),
        explainer.num_reserved,
        tuple(judge.last_given) if judge.capabilities.ignores_double_free else (),
    )


def check_scope(subject: PoolSubject, scope: Scope) -> None:
    """Raise Unsupported unless the pool can be searched in this scope."""
    if scope.caching and not capabilities_of(subject).caching:
        raise Unsupported(f"{subject.name} has no prefix cache")
    if scope.window or scope.swap or scope.lookahead or scope.num_flights:
        raise Unsupported("a pool has blocks, holders and pages: no window, host, lookahead or flight")
