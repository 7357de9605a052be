"""The replay of a counterexample as frames: after each step the state of the specification, and what the subject shows.

The judge holds both equal after every step that it explains, so only the last frame can differ. There the cells are
compared once more, one by one, with what the subject last showed: tables, refcounts, lists, counters, and the KV in
each block if the finding is about KV. Where the judge stopped half-way through an explanation, what it had not come to
is a difference as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kvproof.check.counterexample.steps import steps_of
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Config, ManagerSubject, Unsupported
from kvproof.reports.frames import Block, Entry, Frame, Lane, Pool, ReplayFrames
from kvproof.spec.text.state import EVICTABLE, FREE, NONE, RESERVED, USED
from kvproof.spec.trace import Trace

LISTS = {FREE: "free", USED: "used", EVICTABLE: "evictable", RESERVED: "reserved"}
DEVICES = ("GPU", "host")
NUM_BLOCKS_SHOWN = 64  # of a larger pool, only those that are not plainly free
ABOUT_CONTENT = frozenset({"read-back", "cow-copied", "mapping-hazard-free"})


def replay_frames(
    make: Callable[[], ManagerSubject], trace: Trace, path: Path, finding: Finding | None = None
) -> ReplayFrames:
    """Replay the trace on a fresh subject. finding: what is expected; a hang is not waited for as long again."""
    try:
        config, operations = config_of(trace, path), operations_of(trace, path)
        recorder = FrameRecorder(config)
        done = replay(make, config, operations, finding, recorder.take)
    except (CounterexampleError, Unsupported, AdapterError, AssertionError) as error:
        return ReplayFrames(problem=str(error))
    if not recorder.frames:
        return ReplayFrames(problem=done.finding.text if done.finding else "the subject did not open")
    outcome = "nothing is refuted."
    if done.finding is not None:
        recorder.mark(done.finding)
        outcome = f"{done.finding.property} is refuted at step {len(done.steps)}: {done.finding.text}"
    steps = ["open", *steps_of(done, config, operations[: len(done.steps)])]
    frames = [replace(frame, step=step) for frame, step in zip(recorder.frames, steps, strict=True)]
    return ReplayFrames(
        frames, outcome, done.finding is not None, "", config.num_gpu_blocks, config.num_host_blocks, config.block_size
    )


class FrameRecorder:
    """Takes a frame after each step."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.frames: list[Frame] = []
        self._judge: Oracle | None = None

    def take(self, judge: Oracle) -> None:
        """One frame of the judge as it is now."""
        self._judge = judge
        self.frames.append(self._frame(judge, None))

    def mark(self, finding: Finding) -> None:
        """In the last frame, compare with what the subject showed when the finding was made."""
        if self._judge is not None:
            self.frames[-1] = self._frame(self._judge, finding)

    def _frame(self, judge: Oracle, finding: Finding | None) -> Frame:
        wrong = frozenset() if finding is None else _wrong_blocks(judge, finding)
        lanes = tuple(self._lanes(judge, finding is not None, wrong))
        return Frame("", lanes, tuple(self._blocks(judge, finding, wrong)), tuple(_pools(judge, finding)))

    def _lanes(self, judge: Oracle, compares: bool, wrong: frozenset[int]) -> Iterator[Lane]:
        if isinstance(judge, PoolJudge):
            for holder, slot in judge.holders.items():
                yield Lane(f"holder {holder}", "", tuple(self._entries(judge, slot, None, wrong)))
            return
        observed = judge.explainer.observed.tables if compares else {}
        for seq in judge.seqs.values():
            for part in seq.parts:
                status = f"{seq.status.value}{', encoder' if seq.is_encoder else ''}"
                theirs = _observed_table(observed.get(seq.id), part, judge) if compares else None
                yield Lane(part.name, status, tuple(self._entries(judge, part.slot, theirs, wrong)))
        for seq_id, tables in observed.items():
            if seq_id not in judge.seqs and any(tables):
                entries = (Entry(None, 0, 0, _name(block, self.config)) for table in tables for block in table)
                yield Lane(f"sequence {seq_id}", "over, and still shown", tuple(entries))

    def _entries(
        self, judge: Oracle, slot: int, theirs: Sequence[int] | None, wrong: frozenset[int]
    ) -> Iterator[Entry]:
        """The entries of a table of the specification; `theirs` is the one that the subject shows, if compared."""
        state, size, null = judge.state, self.config.block_size, judge.explainer.machine.null
        ours = [] if slot == NONE else state.table[slot][: state.num_blocks[slot]]
        theirs = ours if theirs is None else theirs
        for index in range(max(len(ours), len(theirs))):
            block = ours[index] if index < len(ours) else None
            other = theirs[index] if index < len(theirs) else None
            shown = "" if block == other else "no entry" if other is None else _name(other, self.config, null)
            if block is None or block == null:
                yield Entry(None, 0, 0, shown)
                continue
            known = _in_entry(index, state.num_full[slot], state.num_filled[slot], size)
            done = _in_entry(index, state.done_full[slot], state.done_filled[slot], size)
            yield Entry(block, known, done, shown, block in wrong and done > 0)

    def _blocks(self, judge: Oracle, finding: Finding | None, wrong: frozenset[int]) -> Iterator[Block]:
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


def _observed_table(tables: Sequence[Sequence[int]] | None, part: ExpectedSequence, judge: Oracle) -> list[int]:
    if not tables or part.kv_group >= len(tables):
        return []
    return [judge.explainer.machine.null if block == NULL_BLOCK else block for block in tables[part.kv_group]]


def _name(block: int, config: Config, null: int = NULL_BLOCK) -> str:
    if block in (null, NULL_BLOCK):
        return "null"
    first_host = config.num_gpu_blocks
    return f"host {block - first_host}" if config.num_host_blocks and block >= first_host else f"block {block}"


def _wrong_blocks(judge: Oracle, finding: Finding) -> frozenset[int]:
    """Blocks that do not hold what the specification says, if the finding is about that.

    Otherwise the specification may be ahead of the worker, which gets copies and writes only when a call is explained
    completely, and makes them at the end of the step.
    """
    if finding.property not in ABOUT_CONTENT or judge.worker.is_pending:
        return frozenset()
    return frozenset(judge.worker.wrong_blocks(judge.state.memory, judge.state.num_written))


def _differences(judge: Oracle, block: int, wrong: frozenset[int]) -> Iterator[str]:
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


def _pools(judge: Oracle, finding: Finding | None) -> Iterator[Pool]:
    for pool, name in enumerate(DEVICES):
        unused = judge.state.count[pool][FREE] + judge.state.count[pool][EVICTABLE]
        free = judge.explainer.observed.free[pool]
        yield Pool(name, unused, free if finding is not None and free != unused else None)
