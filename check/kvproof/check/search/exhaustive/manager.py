"""The small scopes of a block manager: which operations are enabled in a state, and which states are the same.

The operations are those of the random walk, every concrete one that the scope allows. Two states are the same if they
agree in what the judge knows (sequences, tables, what is written and cached, the step under way) and what the subject
shows of its future choices (the order of its free and evictable blocks). Blocks are renamed by first occurrence,
because no rule prefers one; that the subject does not either, but for the order it shows, is the assumption `block-
symmetry`.
"""

from collections.abc import Hashable, Iterator
from typing import Any

from kvproof.check.oracle.expected import Group, Status
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.manager.judge import SearchLimits
from kvproof.check.protocol import features
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.manager import Assumption, ManagerSubject, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.spec.text.state import NONE
from kvproof.spec.trace import Operation

BLOCK_SYMMETRY = Assumption(
    "block-symmetry", "The manager treats all blocks alike, except for the order of the free blocks that it reports."
)

# A subject is run again for each transition, so its scopes are smaller than those of the specification. A gate searches
# each feature in at least one of them.
GATE_SCOPES = {
    "tables-3x2x3": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3),
    "lookahead-3x2x3": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, lookahead=2),
    "window-3x2x3": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, block_size=1, window=2),
    "swap-2+2x2x2": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=2, swap=True),
    "cache-2x2x2": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, block_size=1, caching=True),
}
# A hunt begins with one sequence: a fault that needs no more has its shortest run there.
ALONE_SCOPES = {
    "window-3x1x3": Scope(num_gpu_blocks=3, num_seqs=1, num_tokens=3, window=2),
    "swap-2+2x1x3": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=1, num_tokens=3, swap=True),
    "cache-2x1x3": Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=3, caching=True),
}
HUNTED_SCOPES = (
    ALONE_SCOPES
    | GATE_SCOPES
    | {
        "kv-groups-5x2x2": Scope(5, num_tokens=2, block_size=1, window=1, fork=False, kv_groups=("full", "window")),
        "kv-groups-and-cache-6x1x3": Scope(
            6, num_seqs=1, num_tokens=3, block_size=1, caching=True, window=2, fork=False, kv_groups=("full", "window")
        ),
        "kv-groups-of-two-sizes-6x1x3": Scope(
            6, num_seqs=1, num_tokens=3, caching=True, window=2, fork=False, kv_groups=("full", "window:1")
        ),
        "states-5x1x4": Scope(5, num_seqs=1, block_size=1, caching=True, fork=False, kv_groups=("full", "state")),
        "local-attention-4x1x4": Scope(4, num_seqs=1, num_tokens=4, block_size=1, caching=True, window=-2),
        "tables-3x2x4": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=4),
        "cache-2x2x3": Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=3, caching=True),
        "swap-2+2x2x3": Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=3, swap=True),
        "cache-and-swap-2+2x2x3": Scope(2, 2, num_seqs=2, num_tokens=3, caching=True, swap=True),
    }
)
SHORT_SCOPES = {  # for the seconds of a test
    "tables": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, block_size=2),
    "cache": Scope(num_gpu_blocks=3, num_seqs=2, num_tokens=3, block_size=2, caching=True),
    "swap": Scope(num_gpu_blocks=3, num_host_blocks=2, num_seqs=2, num_tokens=3, block_size=2, swap=True),
}


class EnabledOperations:
    """The operations of a scope, and which of them a state has."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        full = scope.num_tokens
        values = ((0,) * full, (*(0,) * (full - 1), 1)) if scope.caching else ((0,) * full,)
        lengths = sorted({1, scope.block_size, full - 1, full} - {0})
        too_long = (0,) * (scope.num_gpu_blocks * scope.block_size + 1)
        self.prompts = [*sorted({value[:length] for value in values for length in lengths} | {values[-1]}), too_long]

    def enabled(self, judge: ManagerJudge) -> Iterator[Operation]:
        """Every concrete operation that is enabled and within the scope."""
        groups = judge.groups
        num_seqs = sum(len(group.members) for group in groups.values())
        judge.limits = SearchLimits(num_tokens=self.scope.num_tokens, num_unseen=1)
        for kind, about in judge.enabled().items():
            match kind:
                case "new":
                    if num_seqs < self.scope.num_seqs and not any(g.all_are(Status.WAITING) for g in groups.values()):
                        unused = _unused(judge)
                        yield from (("new", unused, (unused,), prompt, (None, 0, None), ()) for prompt in self.prompts)
                case "run":
                    yield "run", 1
                case "reset" | "fail":
                    yield (kind,)
                case "admit":
                    yield from (("admit", gid, len(groups[gid].members[0].tokens)) for gid in about)
                case "sample":
                    yield from (("sample", gid, (0, 1, 0, 1)) for gid in about)
                case "fork":
                    if self.scope.fork and num_seqs < self.scope.num_seqs:
                        yield from (("fork", seq_id, _unused(judge)) for seq_id in about)
                case "append" | "free" | "preempt" | "swap_in" | "swap_out":
                    yield from ((kind, one) for one in about)


def _unused(judge: ManagerJudge) -> int:
    """The lowest number that names neither a sequence nor a group."""
    number = 1
    while number in judge.seqs or number in judge.groups:
        number += 1
    return number


def state_key(judge: ManagerJudge) -> Hashable:
    """The key of a state: equal for states that differ only in the names of blocks and sequences."""
    explainer, state = judge.explainer, judge.state
    names: dict[int, int] = {NONE: NONE, explainer.machine.null: NONE}

    def named(block: int) -> int:
        return names.setdefault(block, len(names))

    order: dict[int, int] = {}
    sequences: list[Any] = []
    groups = sorted(judge.groups.values(), key=_signature)
    for group in groups:
        for seq in group.members:
            order[seq.id] = len(order)
            known: tuple[Any, ...] = (
                seq.status.value,
                tuple(seq.whole),
                seq.computed,
                seq.num_prompt,
                seq.is_busy,
            )
            tables: list[tuple[int, ...]] = []
            for part in seq.parts:
                if (slot := part.slot) < 0:
                    continue
                entries = state.table[slot][: state.num_blocks[slot]]
                tables.append(tuple(NONE if b == explainer.machine.null else named(b) for b in entries))
                known += (state.num_full[slot], state.num_filled[slot], state.done_full[slot], *part.left_out)
            sequences.append((known, tables, seq is group.members[-1]))
    free = explainer.observed.free_ids
    unused = range(explainer.num_blocks) if free is None else free
    kept = [tuple(state.content[b]) if state.computed[b] else None for b in unused if not state.refcount[b]]
    if free is None:
        kept.sort(key=str)
    worker = judge.worker
    used = sorted((named(b), b) for b in range(explainer.num_blocks) if state.refcount[b])
    blocks = [(n, state.num_written[b], state.cached[b], state.computed[b]) for n, b in used]
    step = (
        [(named(s), named(t)) for s, t in worker.swap_in],
        [(named(s), named(t)) for s, t in worker.swap_out],
        [(named(s), named(t)) for s, t in worker.copies],
        [(order.get(seq.id, NONE), start, stop) for seq, start, stop in worker.writes],
    )
    return repr((sequences, kept, blocks, step, judge.step.has_preempted, explainer.num_reserved))


def _signature(group: Group) -> Any:
    return [
        (seq.status.value, seq.whole, seq.computed, [len(table) for table in seq.tables]) for seq in group.members
    ], group.id


def check_scope(subject: ManagerSubject, scope: Scope) -> None:
    """Raise Unsupported unless the subject can be searched in this scope."""
    if lacking := features.missing(scope.config, capabilities_of(subject)):
        raise Unsupported(f"the scope needs what {subject.name} does not have: {', '.join(lacking)}")
    if scope.num_flights:
        raise Unsupported("flights are explored on the specification alone; leave --subject out")
