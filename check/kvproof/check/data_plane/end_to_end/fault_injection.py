"""Faults of one line each, in one mapping, table or slot list between the block manager and the bytes.

Each fault is planted in a workload that uses the list it breaks. It must change the tokens of some sequence, or a check
must refuse it before bytes move. A fault that does neither is missed; a fault that never had a list to change was not
reached. Where nothing checks ids, faulty ids stay inside the pool: the tokens must reveal a fault, not a crash.
"""

from collections.abc import Callable
from typing import Any

from kvproof.check.data_plane.end_to_end.workloads import Workload
from kvproof.check.protocol.planted_fault import PlantedFault

Change = Callable[[list[Any], Workload], list[Any]]


# plant: gets a copy of a list. kind: which list it changes. subject: the workload in which it is planted.
Fault = PlantedFault[Change]


def _fault(name: str, place: str, workload: str, change: Change) -> Fault:
    return Fault(name, change, workload, place)


def _exchange_first_two(items: list[Any], workload: Workload) -> list[Any]:
    return [*items[1::-1], *items[2:]]


def _exchange_sources(pairs: list[Any], workload: Workload) -> list[Any]:
    sources = _exchange_first_two([source for source, _ in pairs], workload)
    return [(source, target) for source, (_, target) in zip(sources, pairs, strict=True)]


def _sources_shifted(by: int) -> Change:
    return lambda pairs, workload: [((source + by) % workload.num_gpu_blocks, target) for source, target in pairs]


def _backwards(pairs: list[Any], workload: Workload) -> list[Any]:
    return [(target, source) for source, target in pairs]


def _one_target_for_all(pairs: list[Any], workload: Workload) -> list[Any]:
    return [(source, pairs[0][1]) for source, _ in pairs]


def _next_slot(slots: list[Any], workload: Workload) -> list[Any]:
    return [(slot + 1) % (workload.num_gpu_blocks * workload.block_size) for slot in slots]


def _next_block(table: list[Any], workload: Workload) -> list[Any]:
    return [*table[:-1], (table[-1] + 1) % workload.num_gpu_blocks]


FAULTS: tuple[Fault, ...] = (
    _fault("the last pair of a swap-out is dropped", "swap out", "swap", lambda pairs, _: pairs[:-1]),
    _fault("a swap-out exchanges the sources of two pairs", "swap out", "swap", _exchange_sources),
    _fault("a swap-out takes the next block", "swap out", "swap", _sources_shifted(1)),
    _fault(
        "a swap-out numbers host blocks from the GPU's on",
        "swap out",
        "swap",
        lambda pairs, workload: [(source, target + workload.num_gpu_blocks) for source, target in pairs],
    ),
    _fault("a swap-out has one target for all", "swap out", "beam", _one_target_for_all),
    _fault("the first pair of a swap-in is dropped", "swap in", "swap", lambda pairs, _: pairs[1:]),
    _fault("a swap-in exchanges the sources of two pairs", "swap in", "beam", _exchange_sources),
    _fault("a swap-in reads each pair backwards", "swap in", "swap", _backwards),
    _fault(
        "a swap-in takes the next host block",
        "swap in",
        "swap",
        lambda pairs, workload: [((source + 1) % workload.num_cpu_blocks, target) for source, target in pairs],
    ),
    _fault("the last copy is dropped", "copy", "beam", lambda pairs, _: pairs[:-1]),
    _fault("a copy reads each pair backwards", "copy", "beam", _backwards),
    _fault("a copy takes the block before", "copy", "beam", _sources_shifted(-1)),
    _fault("a table names the next block last, when written", "write table", "recompute", _next_block),
    _fault("a table names the next block last, when read", "read table", "chunked-prefill", _next_block),
    _fault("two entries of a table change places, when read", "read table", "prefix-caching", _exchange_first_two),
    _fault("keys and values are written one slot too far", "write slots", "recompute", _next_slot),
    _fault("keys and values are read one slot too far", "read slots", "beam", _next_slot),
    _fault(
        "one block too much counts as hit",
        "hit",
        "prefix-caching",
        lambda hits, workload: [hits[0] + workload.block_size if hits[0] else 0],
    ),
)
