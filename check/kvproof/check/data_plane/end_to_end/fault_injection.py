"""Faults of one line, each in one mapping, table or slot list on the way from the block manager to the bytes.

Each is planted in a storm that uses what it breaks. It must change some sequence's tokens or be refused by a check
before bytes move; what does neither is missed, and what never found anything to change was not reached. Faulty ids stay
inside the pool where nothing checks them: a fault must be found by what is said, not by a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.check.data_plane.end_to_end.workloads import Storm

Change = Callable[[list[Any], Storm], list[Any]]


@dataclass(frozen=True)
class PlantedFault:
    """A fault: what it does, to which list, in which storm. `change` is given a list of its own."""

    name: str
    place: str
    storm: str
    change: Change


def _exchange_first_two(items: list[Any], storm: Storm) -> list[Any]:
    return [*items[1::-1], *items[2:]]


def _exchange_sources(pairs: list[Any], storm: Storm) -> list[Any]:
    sources = _exchange_first_two([source for source, _ in pairs], storm)
    return [(source, target) for source, (_, target) in zip(sources, pairs, strict=True)]


def _backwards(pairs: list[Any], storm: Storm) -> list[Any]:
    return [(target, source) for source, target in pairs]


def _one_target_for_all(pairs: list[Any], storm: Storm) -> list[Any]:
    return [(source, pairs[0][1]) for source, _ in pairs]


def _next_slot(slots: list[Any], storm: Storm) -> list[Any]:
    return [(slot + 1) % (storm.num_gpu_blocks * storm.block_size) for slot in slots]


def _next_block(table: list[Any], storm: Storm) -> list[Any]:
    return [*table[:-1], (table[-1] + 1) % storm.num_gpu_blocks]


FAULTS: tuple[PlantedFault, ...] = (
    PlantedFault("the last pair of a swap-out is dropped", "swap out", "swap", lambda pairs, _: pairs[:-1]),
    PlantedFault("a swap-out exchanges the sources of two pairs", "swap out", "swap", _exchange_sources),
    PlantedFault(
        "a swap-out takes the next block",
        "swap out",
        "swap",
        lambda pairs, storm: [((source + 1) % storm.num_gpu_blocks, target) for source, target in pairs],
    ),
    PlantedFault(
        "a swap-out numbers host blocks from the GPU's on",
        "swap out",
        "swap",
        lambda pairs, storm: [(source, target + storm.num_gpu_blocks) for source, target in pairs],
    ),
    PlantedFault("a swap-out has one target for all", "swap out", "beam", _one_target_for_all),
    PlantedFault("the first pair of a swap-in is dropped", "swap in", "swap", lambda pairs, _: pairs[1:]),
    PlantedFault("a swap-in exchanges the sources of two pairs", "swap in", "beam", _exchange_sources),
    PlantedFault("a swap-in reads each pair backwards", "swap in", "swap", _backwards),
    PlantedFault(
        "a swap-in takes the next host block",
        "swap in",
        "swap",
        lambda pairs, storm: [((source + 1) % storm.num_cpu_blocks, target) for source, target in pairs],
    ),
    PlantedFault("the last copy is dropped", "copy", "beam", lambda pairs, _: pairs[:-1]),
    PlantedFault(
        "a copy reads each pair backwards",
        "copy",
        "beam",
        lambda pairs, _: [(target, source) for source, target in pairs],
    ),
    PlantedFault(
        "a copy takes the block before",
        "copy",
        "beam",
        lambda pairs, storm: [((source - 1) % storm.num_gpu_blocks, target) for source, target in pairs],
    ),
    PlantedFault("a table names the next block last, when written", "write table", "recompute", _next_block),
    PlantedFault("a table names the next block last, when read", "read table", "chunked-prefill", _next_block),
    PlantedFault(
        "two entries of a table change places, when read", "read table", "prefix-caching", _exchange_first_two
    ),
    PlantedFault("keys and values are written one slot too far", "write slots", "recompute", _next_slot),
    PlantedFault("keys and values are read one slot too far", "read slots", "beam", _next_slot),
    PlantedFault(
        "one block too much counts as hit",
        "hit",
        "prefix-caching",
        lambda hits, storm: [hits[0] + storm.block_size if hits[0] else 0],
    ),
)
