"""Explain what a step computed: the blocks that its writes fill, and from which places on a hit may end there."""

from collections.abc import Container, Sequence

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.refinement import Explainer
from kvproof.spec.text import operations
from kvproof.spec.text.state import NONE


def explain_step(
    explainer: Explainer, writes: Sequence[tuple[ExpectedSequence, int, int]], loads: Container[tuple[int, int]] = ()
) -> None:
    """Explain a step that computed the tokens of each sequence from position `start` up to `stop`.

    A sequence may share a block that another one computes. That happens in the same step at the latest, since a
    step writes before it reads. loads: the writes, by sequence and start, that load KV from elsewhere.
    """
    behind = []
    for seq, start, stop in writes:
        num_loaded = _num_loaded(seq, stop) if (seq.id, start) in loads else 0
        for part in seq.parts if seq.prefix is None else (seq.prefix, seq):
            if explainer.num_done(part) < part.at(start):
                behind.append((part, start, stop, num_loaded))
            else:
                _computed(explainer, part, stop, _first_complete(explainer, part, start, stop), num_loaded)
    while behind:
        behind.sort(key=lambda write: not _can_catch_up(explainer, write[0], write[1]))
        seq, start, stop, num_loaded = behind.pop(0)
        program = operations.catch_up(
            explainer.state, explainer.block_size, seq.slot, seq.at(start) - explainer.num_done(seq)
        )
        explainer.run(program, f"run: sequence {seq.id}")
        _computed(explainer, seq, stop, num_loaded=num_loaded)


def _can_catch_up(explainer: Explainer, seq: ExpectedSequence, start: int) -> bool:
    state, size, num_slots = explainer.state, explainer.block_size, seq.at(start)
    return all(
        state.num_written[state.table[seq.slot][index]] >= min(size, num_slots - index * size)
        for index in range(state.done_full[seq.slot], explainer.blocks_for(num_slots))
    )


def _first_complete(explainer: Explainer, seq: ExpectedSequence, start: int, stop: int) -> int:
    """The first entry that a step may make complete."""
    return explainer.state.done_full[seq.slot] + seq.layout.passes_boundary(start, stop)


def explain_load(explainer: Explainer, seq: ExpectedSequence, start: int, stop: int) -> None:
    """Explain that a load has ended, of the tokens of a sequence from `start` up to `stop`."""
    for part in seq.parts:
        before, num_shared = explainer.state.done_full[part.slot], part.at(start) - explainer.num_done(part)
        program = operations.catch_up(explainer.state, explainer.block_size, part.slot, num_shared)
        explainer.run(program, f"load of sequence {seq.id}")
        _computed(explainer, part, stop, before, _num_loaded(seq, stop))


def _num_loaded(seq: ExpectedSequence, stop: int) -> int:
    """The tokens behind which a sequence begins to read, if its first `stop` tokens are hit or loaded.

    The last token of a prompt is computed even if all of it was loaded.
    """
    return min(stop, len(seq.tokens) - 1)


def _computed(explainer: Explainer, seq: ExpectedSequence, stop: int, before: int = NONE, num_loaded: int = 0) -> None:
    """before: the first entry that may be complete now, if it is not the next one. num_loaded: as `_num_loaded`."""
    state, size, context = explainer.state, explainer.block_size, f"run: sequence {seq.id}"
    before = state.done_full[seq.slot] if before == NONE else before
    if num_loaded:
        num_slots = seq.at(num_loaded) - explainer.num_done(seq)
        explainer.run(operations.compute_tokens(state, size, seq.slot, num_slots), context)
    explainer.widen(seq, "run")
    num_slots = seq.at(stop) - explainer.num_done(seq)
    explainer.run(operations.compute_tokens(state, size, seq.slot, num_slots), context)
    if before < state.done_full[seq.slot] and explainer.config.caching and not seq.is_encoder:
        new = operations.mark_computed(state, size, seq.slot, before)
        if explainer.config.forgets and seq.window > 0:
            new = _without_forgotten(explainer, seq, before, new)
        explainer.run(new, context)
        if seq.layout.num_tokens < seq.layout.num_slots:
            _note_unaligned(explainer, seq, stop)


def _without_forgotten(
    explainer: Explainer, seq: ExpectedSequence, before: int, new: operations.Program
) -> operations.Program:
    """Remember which of the blocks that the sequence is the first to compute it need not keep (`spec.text.retention`).

    Another sequence that shares one may have to keep it.
    """
    state, config, size = explainer.state, explainer.config, seq.layout.num_tokens
    functions, first = explainer.machine.function, seq.group.members[0]
    num_dropped = 0 if seq.layout.is_state else int(config.drafting)
    replay = functions("entries_found_again")(first.num_sent, 1, int(config.drafting)) * explainer.block_size
    interval, *boundaries = (n // size for n in (config.retention or 0, replay, first.junction))
    is_kept, marks = functions("is_kept"), [*new]
    explainer.forgotten.update(block for _, (block,) in marks)
    for index in range(max(before, state.first[seq.slot]), state.done_full[seq.slot]):
        if is_kept(seq.entry_at(index), seq.window, interval, *boundaries, num_dropped):
            explainer.forgotten.discard(state.table[seq.slot][index])
    yield from marks


def _note_unaligned(explainer: Explainer, seq: ExpectedSequence, stop: int) -> None:
    """Remember the computed blocks from which no hit of the sequence is made yet: a hit ends at a common boundary.

    A manager may cache them at once, or when the boundary is reached, so whether it finds them is not judged.
    """
    state, slot = explainer.state, seq.slot
    last = explainer.blocks_for(seq.at(stop // explainer.block_size * explainer.block_size))
    for index in range(state.first[slot], state.done_full[slot]):
        note = explainer.unaligned.discard if index < last else explainer.unaligned.add
        note(state.table[slot][index])
