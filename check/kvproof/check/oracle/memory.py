"""Whether every block holds what was written there: the memory of the worker beside that of the specification."""

from collections.abc import Sequence

from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text.state import GPU


def compare_memory(oracle: Oracle, others: Sequence[tuple[str, Worker]]) -> None:
    """After a step every block holds what was written there, also in the workers that took another order.

    others: these workers, each with its order as text.
    """
    memory, written = oracle.state.memory, oracle.state.num_written
    wrong = oracle.worker.wrong_blocks(memory, written, oracle.is_sparse)
    if wrong:
        raise _wrong_content(oracle, wrong[0], oracle.worker.slots, "read-back", "")
    for name in {order.partition(" ")[0] for order, _ in others}:
        oracle.coverage[f"{name} that touch each other"] += 1
    for order, other in others:
        wrong = other.wrong_blocks(memory, written, oracle.is_sparse)
        if wrong:
            raise _wrong_content(oracle, wrong[0], other.slots, "mapping-hazard-free", order)
    if not oracle.is_sparse and max(oracle.state.refcount) >= 3:
        oracle.coverage["three holders"] += 1
    if oracle.explainer.observed.free[GPU] == 0:
        oracle.coverage["pool full"] += 1


def _wrong_content(oracle: Oracle, block: int, slots: list[list[int]], property: str, call: str) -> Finding:
    """Who reads the wrong block, at which position, and what is there instead."""
    expected, found = oracle.state.memory[block], slots[block]
    slot = next(o for o in range(oracle.state.num_written[block]) if expected[o] != found[o])
    parts = [part for seq in oracle.seqs.values() for part in (*seq.parts, seq.prefix) if part and part.slot >= 0]
    reader = next((part for part in parts if oracle.state.position[part.slot][block] >= 0), None)
    where = f"block {block}, slot {slot}"
    if reader is None:
        who = f"the prefix cache holds {where} for $expected"
        property = "cache-content" if property == "read-back" else property
    else:
        position = oracle.state.position[reader.slot][block] * reader.layout.num_tokens + slot
        who = f"$sequence reads position {position} ({where})"
    there = {-1: "nothing was written there", -2: "there is junk of a lookahead slot"}.get(found[slot])
    return Finding(
        property,
        f"{who}: {there or 'there is the KV of $observed'}",
        call=call,
        expected=oracle.identities.describe(expected[slot]),
        observed=there or oracle.identities.describe(found[slot]),
        blocks=[block],
        sequence=reader.name if reader else "",
    )
