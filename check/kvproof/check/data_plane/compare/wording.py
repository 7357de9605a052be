"""Places and origins in words."""

from __future__ import annotations

from kvproof.check.data_plane.memory.layouts import Geometry
from kvproof.check.data_plane.memory.pattern import Kind, Origin, Part
from kvproof.check.data_plane.steps.moves import PoolId

PARTS = {Part.KEY: "key", Part.VALUE: "value", Part.JOINT: "latent KV"}
_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def place_text(geometry: Geometry, pool: int, layer: int, part: int, block: int, row: int) -> str:
    """A row as the reader finds it: `block 17 of the GPU pool, layer 3, key, slot 5`."""
    return f"block {block} of {PoolId(pool)}, layer {layer}, {PARTS[Part(part)]}, {geometry.row_text(row)}"


def origin_text(geometry: Geometry, origin: Origin, num_generations_ago: int = 0) -> str:
    """What a label says: `the key of block 4 of the CPU pool, layer 3, slot 5, written one generation ago`."""
    if origin.kind == Kind.GUARD:
        return f"what belongs to guard row {origin.row} of {PoolId(origin.pool)}"
    block, row = divmod(origin.row, geometry.rows_per_part)
    place = f"block {block} of {PoolId(origin.pool)}, layer {origin.layer}, {geometry.row_text(row)}"
    if origin.kind == Kind.POISON:
        return f"the poison of {place}, {PARTS[Part(origin.part)]}, which was free"
    return f"the {PARTS[Part(origin.part)]} of {place}{_age(num_generations_ago)}"


def count_text(number: int, noun: str) -> str:
    """`one word`, `12 words`."""
    return f"{_SMALL[number] if number < len(_SMALL) else number} {noun}{'' if number == 1 else 's'}"


def _age(num_generations: int) -> str:
    if num_generations <= 0:
        return ""
    return f", written {count_text(num_generations, 'generation')} ago"
