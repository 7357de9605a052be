"""Explain a swap: sequences move to the blocks of the other device, along the pairs that the subject emitted."""

from collections.abc import Sequence
from itertools import chain, pairwise
from operator import itemgetter

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.refinement import Explainer
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Pair
from kvproof.spec.text import mapping, operations


def explain_swap(
    explainer: Explainer,
    seqs: Sequence[ExpectedSequence],
    pairs: Sequence[Pair],
    is_out: bool,
    context: str,
    hits_in_step: bool,
) -> list[Pair]:
    """Explain that sequences moved to the other device along `pairs`, which are returned with absolute ids.

    hits_in_step: a swap may copy into a block of equal content that its holders have not computed yet.
    """
    sizes = (explainer.config.num_gpu_blocks, explainer.config.num_host_blocks)
    sources, targets = sizes if is_out else sizes[::-1]
    bases = (0, sizes[0]) if is_out else (sizes[0], 0)
    for source, target in pairs:
        if not (mapping.is_block_of(source, sources) and mapping.is_block_of(target, targets)):
            sentence = f"pair $observed is outside {sources} x {targets} blocks"
            raise Finding("swap-mapping", sentence, call=context, observed=(source, target))
    moved = {source + bases[0]: target + bases[1] for source, target in pairs}
    if not _are_one_to_one(pairs):
        sentence = "the pairs are not one-to-one: $observed"
        raise Finding("swap-mapping", sentence, call=context, observed=sorted(set(pairs)))
    tables = {}
    parts = [part for seq in seqs for part in seq.parts]
    for seq in parts:
        old = seq.observed_table
        if (prefix := seq.prefix) is not None:
            num_entries = prefix.num_slots // explainer.block_size
            old = [NULL_BLOCK] * num_entries + old[num_entries:]
            if is_out:
                explainer.end_prefix(prefix, context)
            else:
                explainer.begin_prefix(seq, prefix, num_entries, context, False)
        tables[seq.slot] = _moved_table(explainer, seq, old, context)
        for index, (before, after) in enumerate(zip(old, seq.observed_table, strict=True)):
            if before != NULL_BLOCK and moved.get(before) != after:
                if is_out and before == after and before not in moved:
                    _require_unshared(explainer, before, parts, context)
                raise _wrong_entry(seq, index, (before, after), moved.get(before), context)
    slots = [part.slot for part in parts]
    if hits_in_step:
        for slot in slots:
            _fill_twins(explainer, slot, tables[slot], context)
    program = operations.swap_group(explainer.state, explainer.block_size, slots, lambda s, i: tables[s][i])
    explainer.run(program, context)
    if explainer.config.caching:
        for slot in slots:
            explainer.run(operations.register_entries(explainer.state, explainer.block_size, slot), context)
    for part in parts:
        explainer.compare_table(part, tables[part.slot], context)
    return [(source + bases[0], target + bases[1]) for source, target in pairs]


def _moved_table(explainer: Explainer, seq: ExpectedSequence, old: list[int], context: str) -> list[int]:
    """The table that the subject shows after the swap, which has as many entries as before. Raises Finding."""
    table = explainer.table_of(seq, context)
    if len(table) != len(old):
        raise Finding(
            "swap-mapping",
            "the table of $sequence went $expected -> $observed",
            call=context,
            expected=old,
            observed=seq.observed_table,
            sequence=seq.name,
        )
    return table


def _wrong_entry(seq: ExpectedSequence, index: int, went: Pair, expected: int | None, context: str) -> Finding:
    """The finding that an entry did not go where the pairs say. expected: None if no pair moves it."""
    pairs_say = "no pair moves it" if expected is None else f"the pairs map {went[0]} to $expected"
    return Finding(
        "swap-mapping",
        f"entry {index} of $sequence went {went[0]} -> $observed, but {pairs_say} (absolute ids)",
        call=context,
        expected=expected,
        observed=went[1],
        blocks=went,
        sequence=seq.name,
    )


def _require_unshared(explainer: Explainer, block: int, parts: Sequence[ExpectedSequence], context: str) -> None:
    """Raise AdapterError if a swap-out left a block on the GPU that other sequences hold too.

    The table is then of blocks of both devices, which the specification cannot say of a sequence; nothing is lost,
    as long as the manager still counts the references of the sequences that were swapped.
    """
    own = sum(block in part.observed_table for part in parts)
    refs = explainer.observed.refs
    if explainer.state.refcount[block] > own and (refs is None or refs[block] == explainer.state.refcount[block]):
        raise AdapterError(
            f"{context} left block {block}, which other sequences hold too, on the GPU; a swap moves all blocks of "
            "a group, and one that leaves shared blocks is not judged: declare no swap, or let make raise "
            "Unsupported for a configuration with swap in which blocks can be shared"
        )


def _fill_twins(explainer: Explainer, slot: int, table: list[int], context: str) -> None:
    """Explain copies into blocks of equal content that are behind, as if their holders computed them now.

    When a holder computes, it writes the same content again, so it notices nothing.
    Source: vLLM 0.10.2, `PrefixCachingBlockAllocator.swap_in` in vllm/core/block/prefix_caching_block.py.
    """
    state, size = explainer.state, explainer.block_size
    num_full = state.done_full[slot]
    for index in range(state.first[slot], state.num_full[slot]):
        twin = table[index]
        num_copied = size if index < num_full else state.done_filled[slot] if index == num_full else 0
        if num_copied <= state.num_written[twin] or not operations.is_rehit(state, size, slot, index, twin):
            continue
        has_entry = (state.first[seq] <= index < state.num_blocks[seq] for seq in range(len(state.table)))
        holders = [seq for seq, has in enumerate(has_entry) if has and state.table[seq][index] == twin]
        holder = max(holders, key=state.done_full.__getitem__)
        first = state.done_full[holder]
        if all(state.num_written[block] == size for block in state.table[holder][first:index]):
            num_tokens = (index - first) * size - state.done_filled[holder]
            explainer.run(operations.catch_up(state, size, holder, num_tokens), context)
            num_done = state.done_filled[holder]
            explainer.run(operations.compute_tokens(state, size, holder, num_copied - num_done), context)
            explainer.coverage["swap into a block that is behind"] += 1


def _are_one_to_one(pairs: Sequence[Pair]) -> bool:
    """Whether every two pairs are one-to-one. Neighbours by source and by target are enough."""
    by_source, by_target = sorted(pairs), sorted(pairs, key=itemgetter(1))
    neighbours = chain(pairwise(by_source), pairwise(by_target))
    return all(mapping.are_one_to_one(*one, *other) for one, other in neighbours)
