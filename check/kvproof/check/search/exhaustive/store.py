"""The small scopes of a store: which operations are enabled in a state, and which states are the same.

A scope of a store has so many slots, one request, at most `num_seqs` transfers under way, and `num_tokens` keys, of
which a call names at most two. Two states are the same if they agree in the entries with their slots and counts, the
transfers under way, the order in which the store shows its entries and free slots, and the order in which the keys were
last used.
"""

from collections.abc import Hashable, Iterator
from itertools import permutations

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.manager import Assumption, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.protocol.store import StoreConfig, StoreSubject, path_to
from kvproof.spec.trace import Operation

SHOWN_ORDER = Assumption(
    "order-of-use",
    "What a store does next depends on its entries and transfers, the order in which it shows them, and the order in "
    "which the keys were last used.",
)
REQUEST = 1
KEYS_MAX = 2  # of one operation

# Slots x transfers x keys.
GATE_SCOPES = {
    "slots-1x2x2": Scope(num_gpu_blocks=1, num_seqs=2, num_tokens=2),
    "slots-2x1x2": Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=2),
}
HUNTED_SCOPES = GATE_SCOPES | {
    "slots-2x2x2": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2),
    "slots-2x1x3": Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=3),
}
DEFAULT_SCOPE = "slots-2x1x2"
SHORT_SCOPES = {"slots": Scope(num_gpu_blocks=1, num_seqs=2, num_tokens=2)}  # for the seconds of a test


def config_of(scope: Scope) -> StoreConfig:
    """The configuration that a scope is explored in."""
    return StoreConfig(num_gpu_blocks=scope.num_gpu_blocks, lease_seconds=1)


class EnabledStoreOperations:
    """The operations of a scope, and which of them a state has."""

    def __init__(self, scope: Scope, subject: StoreSubject) -> None:
        self.scope = scope
        can = capabilities_of(subject)
        self.waits, self.clears, self.evicts = can.leases, can.reset, can.evicts_on_call
        keys = range(scope.num_tokens)
        self.lists = [one for number in range(1, KEYS_MAX + 1) for one in permutations(keys, number)]
        if can.paths:
            self.lists = [one for one in self.lists if one == path_to(one[-1])]

    def enabled(self, judge: StoreJudge) -> Iterator[Operation]:
        """Every concrete operation."""
        for keys in self.lists:
            yield "look_up", REQUEST, keys
            yield "touch", REQUEST, keys
        if len(judge.transfers) < self.scope.num_seqs:
            new = min(set(range(1, len(judge.transfers) + 2)) - judge.transfers.keys())
            loadable = set(judge.loadable())
            for keys in self.lists:
                yield "begin_store", new, REQUEST, keys
                if loadable.issuperset(keys):
                    yield "begin_load", new, REQUEST, keys
        for transfer in judge.moving():
            one = judge.transfers[transfer]
            yield "land", transfer
            if not one.is_load:
                places = range(len(one.keys))
                yield from (("land", transfer, failed) for failed in [(place,) for place in places])
                if len(places) > 1:
                    yield "land", transfer, tuple(places)
        for transfer in judge.landed():
            yield "report", transfer
        for transfer in judge.store.done():
            yield from (("notice", transfer, part) for part in range(judge.config.num_parts))
        if judge.requests:
            yield "finish", REQUEST
        if self.waits:
            yield "wait", 1
        if self.evicts:
            yield from (("evict", keys) for keys in self.lists)
        if self.clears:
            yield ("clear",)


def state_key(judge: StoreJudge) -> Hashable:
    """The key of a state: equal for states that differ in the names of transfers only."""
    shown = judge.observed
    transfers = sorted(
        (
            one.is_load,
            tuple(one.keys),
            tuple(one.slots),
            one.has_landed,
            one.has_lapsed,
            one.failed,
            one.is_asking,
            one.is_void,
            tuple(judge.explained.state.noticed[one.owner]),
            tuple(sorted({*one.named})),
        )
        for one in judge.transfers.values()
    )
    copies = [tuple(one.keys) for one in judge.transfers.values() if one.from_device]
    used = tuple(tuple(dict.fromkeys(reversed(keys))) for keys in judge.store.named.values())
    return (
        tuple(shown.entries.items()),
        tuple(sorted((shown.refs or {}).items())),
        tuple(shown.free_ids or ()),
        tuple(transfers),
        tuple(copies),
        judge.recency.order(),
        used,
        tuple(judge.explained.leases()),
    )


def check_scope(subject: StoreSubject, scope: Scope) -> None:
    """Raise Unsupported unless the store can be searched in this scope."""
    if scope.caching or scope.window or scope.swap or scope.lookahead or scope.num_flights:
        raise Unsupported("a store has slots, transfers and keys: no window, host, lookahead or flight")
