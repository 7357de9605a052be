"""What an admission or a growth must give: slots for every token, and copies between blocks that exist."""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.adapter_check import check_pairs
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text.mapping import is_block_of


def require_slots(oracle: Oracle, seq: ExpectedSequence, stop: int, num_beyond: int, context: str) -> None:
    """Raise Finding unless the tables have slots up to position `stop`, and `num_beyond` further ones."""
    have_slots = oracle.explainer.machine.function("have_slots")
    for part in seq.parts:
        beyond = 0 if part.layout.is_state else num_beyond
        num_slots = part.layout.slots(stop + beyond)
        if not have_slots(len(part.observed_table), num_slots, 0):
            raise Finding(
                "admission-sound",
                f"$observed slots for {stop} tokens and {beyond} beyond",
                call=context,
                expected=stop + beyond,
                observed=len(part.observed_table) * part.layout.num_tokens,
                sequence=part.name,
            )


def check_copies(oracle: Oracle, answer: str, copies: Sequence[Pair], context: str) -> None:
    """Raise Finding unless every pair is of blocks that exist, and AdapterError unless it is a pair."""
    check_pairs(answer, copies)
    num_blocks = oracle.explainer.num_blocks
    for pair in copies:
        if not all(is_block_of(block, num_blocks) for block in pair):
            sentence = "copy $observed is outside $expected blocks"
            raise Finding("cow-copied", sentence, call=context, expected=num_blocks, observed=pair, blocks=pair)
    oracle.reply.text = "copy " + ", ".join(f"{source} -> {target}" for source, target in copies)


def chunk_end(oracle: Oracle, seq: ExpectedSequence, start: int, num_tokens: int) -> int:
    """Where the chunk that begins at `start` ends: with the prompt, at a block boundary, or anywhere."""
    stop = start + max(1, num_tokens)
    if oracle.config.caching and (oracle.capabilities.block_aligned_chunks or oracle.has_states):
        stop = oracle.explainer.blocks_for(stop) * oracle.config.block_size
    return min(seq.num_prompt, stop)
