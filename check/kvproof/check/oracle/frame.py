"""A frame of a replay: the state of the specification beside what the subject shows, cell by cell.

The judge holds both equal after every step that it explains, so only the frame of a finding can differ. Its cells are
compared once more, one by one, with what the subject last showed: tables, refcounts, lists, counters, and the KV in
each block if the finding is about KV. Where the judge stopped half-way through an explanation, what it had not come to
is a difference as well.
"""

from collections.abc import Iterable, Iterator, Sequence

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.lockstep import LockstepJudge
from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Config
from kvproof.reports.frames import Block, EntryFrame, Lane, PoolFrame, StepFrame
from kvproof.spec.text.state import EVICTABLE, FREE, NONE, RESERVED, USED

LISTS = {FREE: "free", USED: "used", EVICTABLE: "evictable", RESERVED: "reserved"}
DEVICES = ("GPU", "host")
NUM_BLOCKS_SHOWN = 64  # of a larger pool, only those that are not plainly free
ABOUT_CONTENT = frozenset({"read-back", "cow-copied", "mapping-hazard-free"})


def frame_of(judge: LockstepJudge, finding: Finding | None) -> StepFrame:
    """The frame of a judge whose subject has sequences and tables; `finding` is what it found, if it is the last."""
    wrong = _wrong_blocks(judge, finding)
    return _frame(judge, _lanes(judge, finding is not None, wrong), finding, wrong)


def frame_of_pool(judge: PoolJudge, finding: Finding | None) -> StepFrame:
    """The frame of the judge of a pool, with one lane for each holder."""
    wrong = _wrong_blocks(judge, finding)
    lanes = (
        Lane(f"holder {one}", "", tuple(_entries(judge, slot, None, wrong))) for one, slot in judge.holders.items()
    )
    return _frame(judge, lanes, finding, wrong)


def _frame(judge: LockstepJudge, lanes: Iterable[Lane], finding: Finding | None, wrong: frozenset[int]) -> StepFrame:
    return StepFrame("", tuple(lanes), tuple(_blocks(judge, finding, wrong)), tuple(_pools(judge, finding)))


def _lanes(judge: LockstepJudge, compares: bool, wrong: frozenset[int]) -> Iterator[Lane]:
    observed = judge.explainer.observed.tables if compares else {}
    for seq in judge.seqs.values():
        for part in seq.parts:
            status = f"{seq.status.value}{', encoder' if seq.is_encoder else ''}"
            theirs = None
            if compares:
                theirs = part.without_left_out(_observed_table(observed.get(seq.id), part, judge))
            yield Lane(part.name, status, tuple(_entries(judge, part.slot, theirs, wrong)))
    for seq_id, tables in observed.items():
        if seq_id not in judge.seqs and any(tables):
            entries = (EntryFrame(None, 0, 0, _name(block, judge.config)) for table in tables for block in table)
            yield Lane(f"sequence {seq_id}", "over, and still shown", tuple(entries))


def _entries(
    judge: LockstepJudge, slot: int, theirs: Sequence[int] | None, wrong: frozenset[int]
) -> Iterator[EntryFrame]:
    """The entries of a table of the specification; `theirs` is the one that the subject shows, if compared."""
    state, size, null = judge.state, judge.config.block_size, judge.explainer.machine.null
    ours = [] if slot == NONE else state.table[slot][: state.num_blocks[slot]]
    theirs = ours if theirs is None else theirs
    for index in range(max(len(ours), len(theirs))):
        block = ours[index] if index < len(ours) else None
        other = theirs[index] if index < len(theirs) else None
        shown = "" if block == other else "no entry" if other is None else _name(other, judge.config, null)
        if block is None or block == null:
            yield EntryFrame(None, 0, 0, shown)
            continue
        known = _in_entry(index, state.num_full[slot], state.num_filled[slot], size)
        done = _in_entry(index, state.done_full[slot], state.done_filled[slot], size)
        yield EntryFrame(block, known, done, shown, block in wrong and done > 0)


def _blocks(judge: LockstepJudge, finding: Finding | None, wrong: frozenset[int]) -> Iterator[Block]:
    state, num_blocks = judge.state, judge.explainer.num_blocks
    named = set[int]() if finding is None else set(finding.blocks)
    for block in range(num_blocks):
        differences = tuple(_differences(judge, block, wrong)) if finding is not None else ()
        is_plain = state.status[block] == FREE and not differences and block not in named
        if is_plain and num_blocks > NUM_BLOCKS_SHOWN:
            continue
        yield Block(
            block,
            state.refcount[block],
            LISTS[state.status[block]],
            state.cached[block],
            state.num_written[block],
            state.pins[block],
            differences,
            block in named,
        )


def _in_entry(index: int, num_full: int, num_filled: int, size: int) -> int:
    """How many of its slots count, in a table of which so many entries are full and the next is filled so far."""
    return size if index < num_full else num_filled if index == num_full else 0


def _observed_table(tables: Sequence[Sequence[int]] | None, part: ExpectedSequence, judge: LockstepJudge) -> list[int]:
    if not tables or part.kv_group >= len(tables):
        return []
    return [judge.explainer.machine.null if block == NULL_BLOCK else block for block in tables[part.kv_group]]


def _name(block: int, config: Config, null: int = NULL_BLOCK) -> str:
    if block in (null, NULL_BLOCK):
        return "null"
    first_host = config.num_gpu_blocks
    return f"host {block - first_host}" if config.num_host_blocks and block >= first_host else f"block {block}"


def _wrong_blocks(judge: LockstepJudge, finding: Finding | None) -> frozenset[int]:
    """Blocks that do not hold what the specification says, if the finding is about that.

    Otherwise the specification may be ahead of the worker, which gets copies and writes only when a call is explained
    completely, and makes them at the end of the step.
    """
    if finding is None or finding.property not in ABOUT_CONTENT or judge.worker.is_pending:
        return frozenset()
    return frozenset(judge.worker.wrong_blocks(judge.state.memory, judge.state.num_written))


def _differences(judge: LockstepJudge, block: int, wrong: frozenset[int]) -> Iterator[str]:
    state, observed = judge.state, judge.explainer.observed
    if observed.refs is not None:
        refcount = observed.refs[block] if block < len(observed.refs) else None
        if refcount is None or not state.refcount[block] <= refcount <= state.refcount[block] + state.pins[block]:
            yield f"the subject: refcount {'missing' if refcount is None else refcount}"
    if observed.free_ids is not None:
        count = observed.free_ids.count(block)
        expected = int(state.status[block] in (FREE, EVICTABLE))
        if count != expected:
            yield f"the subject: {('not free', 'free')[count] if count < 2 else f'free {count} times'}"
    if block in wrong:
        yield "holds other KV"


def _pools(judge: LockstepJudge, finding: Finding | None) -> Iterator[PoolFrame]:
    for pool, name in enumerate(DEVICES):
        unused = judge.state.count[pool][FREE] + judge.state.count[pool][EVICTABLE]
        free = judge.explainer.observed.free[pool]
        yield PoolFrame(name, unused, free if finding is not None and free != unused else None)
