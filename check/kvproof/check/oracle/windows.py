"""Whether a sequence holds at most the blocks that its window needs."""

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text import operations


def judge_window(oracle: Oracle, seq: ExpectedSequence, num_done: int, context: str) -> None:
    """After a growth a part with a window holds at most the blocks that its window needs.

    num_done: tokens that are computed; the next step reads back from there.
    """
    if not oracle.leaves_entries:
        return
    state, entries_in_window = oracle.state, oracle.explainer.machine.function("entries_in_window")
    for part in seq.parts:
        if not part.window:
            continue
        slot = part.slot
        held = state.num_blocks[slot] - state.first[slot]
        done = part.at(num_done)
        bound = entries_in_window(done, state.num_blocks[slot] * oracle.config.block_size, part.window)
        if oracle.capabilities.ring_window:
            bound = min(bound, oracle.explainer.machine.function("blocks_of_ring")(part.window))
        if (slack := oracle.capabilities.window_slack) is not None:
            first = operations.first_entry_read(oracle.config.block_size, done, part.window)
            bound = min(bound, state.num_blocks[slot] - first + slack)
        if held > bound:
            reach = oracle.config.windows[part.kv_group]
            kind = f"a window of {reach}" if reach > 0 else f"attention in chunks of {-reach}"
            sentence = f"$sequence holds $observed blocks, {kind} $expected"
            raise Finding("window-kept", sentence, call=context, expected=bound, observed=held, sequence=part.name)
