"""Turn wrong rows into a finding: classify each row, and describe it in a sentence.

Of very many wrong rows only an evenly spread sample is diagnosed; the number of wrong rows is always exact.

A row is classified by where its words come from. They are compared with what the row must hold and with what it held
before the step. A wrong word that decodes to a label thereby gives the place where it was written. A wrong word that
does not may come from another offset of the same block, which is tested with the row keys of that block. Otherwise the
bytes are compared.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvproof.check.data_plane.memory.layouts import Geometry, Strip
from kvproof.check.data_plane.memory.pattern import (
    Kind,
    Origin,
    Part,
    Words,
    fields_of,
    labels_of,
    row_keys,
    unpack,
    word_keys,
)
from kvproof.check.data_plane.memory.world import Arena, World
from kvproof.check.data_plane.run.results import DataFinding, FindingKind, WrongClass, WrongRow
from kvproof.check.data_plane.steps.moves import PoolId

# Of newly computed words one byte in 256 is right by chance; above this percentage it is not chance.
_RIGHT_BYTES_PERCENT = 3
_SHIFT_SAMPLES = 8

ROWS_MAX = 256  # rows of each pool that are diagnosed
SHOWN_MAX = 16
PARTS = {Part.KEY: "key", Part.VALUE: "value", Part.JOINT: "latent KV"}
_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Classified:
    """The diagnosis of one row.

    label: the label that most wrong words come from; None if they decode to none. num_words: number of wrong words.
    shift_words: distance from the right offset, in words; only for WrongClass.SHIFTED.
    """

    wrong_class: WrongClass
    label: int | None
    num_words: int
    shift_words: int | None = None


def classify(
    words: Words,
    expected: int,
    previous: int,
    neighbours: Words,
    own_index: int,
    is_label: NDArray[np.bool_],
    labels: Words,
) -> Classified:
    """Classify one wrong row.

    words: the content of the row. expected, previous: the labels that the row must hold and held before the step.
    neighbours: the labels expected in the same part of the block; own_index: the index of the row among them.
    labels: the label that each word decodes to. is_label: which of these labels name an existing place.
    """
    columns = word_keys(len(words))
    keys = row_keys(np.array([expected, previous], np.uint64))
    right, before = keys[0] ^ columns, keys[1] ^ columns
    is_wrong = words != right
    num_wrong = int(is_wrong.sum())
    is_unmoved = is_wrong & (words == before)
    if is_unmoved.sum() == num_wrong:
        kind = WrongClass.UNMOVED if num_wrong == len(words) else WrongClass.TORN
        return Classified(kind, previous, num_wrong)
    other = is_wrong & ~is_unmoved
    num_other = int(other.sum())
    decoded = other & is_label
    if 2 * decoded.sum() >= num_other:
        found = _most_frequent(labels[decoded])
        return Classified(_class_of_label(found, expected), found, num_wrong)
    if 2 * (other & (words == 0)).sum() >= num_other:
        return Classified(WrongClass.ZERO, None, num_wrong)
    if shifted := _shifted(words, np.flatnonzero(other & ~is_label), columns, neighbours, own_index):
        return Classified(WrongClass.SHIFTED, shifted[0], num_wrong, shifted[1])
    return Classified(_by_bytes(words[other], right[other], before[other]), None, num_wrong)


def decode(memory: Words) -> Words:
    """The label that every word decodes to. memory and result: `[rows, words]`."""
    return labels_of(memory, word_keys(memory.shape[1]))


def _class_of_label(found: int, expected: int) -> WrongClass:
    origin, right = unpack(found), unpack(expected)
    if origin.kind == Kind.POISON:
        return WrongClass.POISON
    is_same_place = origin._replace(generation=0) == right._replace(generation=0)
    return WrongClass.STALE if is_same_place else WrongClass.MOVED


def _most_frequent(labels: Words) -> int:
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])


def _shifted(
    words: Words, wrong: NDArray[np.intp], columns: Words, neighbours: Words, own_index: int
) -> tuple[int, int] | None:
    """The label and the distance in words of most sampled words, if most come from another offset of the block."""
    sampled = wrong[:: max(1, len(wrong) // _SHIFT_SAMPLES)][:_SHIFT_SAMPLES]
    if not len(sampled):
        return None
    order = columns.argsort()
    needed = words[sampled][:, None] ^ row_keys(neighbours)  # the column key of the word in each row of the block
    at = np.minimum(np.searchsorted(columns[order], needed), len(columns) - 1)
    hits = columns[order[at]] == needed
    places = [(int(row), int(order[at[i, row]]) - int(sampled[i])) for i, row in zip(*hits.nonzero(), strict=True)]
    if 2 * len(places) < len(sampled):
        return None
    row, distance = max(places, key=places.count)
    return int(neighbours[row]), (own_index - row) * len(columns) - distance


def _by_bytes(found: Words, right: Words, before: Words) -> WrongClass:
    """The class of words that decode to no place."""
    bytes_found, bytes_right, bytes_before = (np.ascontiguousarray(w).view(np.uint8) for w in (found, right, before))
    is_right = bytes_found == bytes_right
    if bool((is_right | (bytes_found == bytes_before)).all()):
        return WrongClass.MIXED
    is_altered = is_right.sum() >= 2 and 100 * is_right.sum() >= _RIGHT_BYTES_PERCENT * is_right.size
    return WrongClass.ALTERED if is_altered else WrongClass.UNKNOWN


def finding_of(world: World, wrong: dict[PoolId, NDArray[np.int64]], step: int) -> DataFinding:
    """The finding about the rows that `world.wrong()` returned in a step."""
    return finding_about(diagnose(world, wrong), sum(map(len, wrong.values())), step)


def finding_about(rows: list[WrongRow], num_rows: int, step: int) -> DataFinding:
    """The finding about diagnosed rows. Rows that an executor changed come before rows that it did not.

    rows: the diagnosed rows, at least one. num_rows: the number of all wrong rows.
    """
    first = next((row for row in rows if row.wrong_class is not WrongClass.UNMOVED), rows[0])
    more = f" ({count_text(num_rows, 'row')} in all)" if num_rows > 1 else ""
    return DataFinding(
        FindingKind.WRONG_BYTES,
        f"after step {step}, {first.text}{more}",
        step,
        tuple(sorted(rows, key=lambda row: row is not first)[:SHOWN_MAX]),
        num_rows,
        sum(row.num_words for row in rows),
        dict(Counter(row.wrong_class.value for row in rows)),
    )


def diagnose(world: World, wrong: dict[PoolId, NDArray[np.int64]], rows_max: int = ROWS_MAX) -> list[WrongRow]:
    """Diagnose the rows that are wrong after `world.expect` and a move, at most `rows_max` of each pool."""
    found = []
    for pool, rows in wrong.items():
        step = -(-len(rows) // rows_max)
        found += _of_pool(world, pool, rows[::step])
    return found


def _of_pool(world: World, pool: PoolId, rows: NDArray[np.int64]) -> list[WrongRow]:
    arena = world.arenas[pool]
    memory = arena.memory[torch.from_numpy(np.ascontiguousarray(rows)).to(arena.device)].cpu().numpy().view(np.uint64)
    labels = decode(memory)
    is_label = _name_places(labels, world.geometry)
    found = []
    for index, arena_row in enumerate(rows.tolist()):
        at = _place_of(arena, arena_row)
        expected, previous = int(arena.labels[arena_row]), int(world.before[pool][arena_row])
        neighbours, own = arena.labels[arena_row : arena_row + 1], 0
        if at is not None:
            neighbours, own = arena.label_view(at[0])[at[1]], at[2]
        row = classify(memory[index], expected, previous, neighbours, own, is_label[index], labels[index])
        found.append(_wrong_row(world, pool, arena_row, at, row, expected))
    return found


def _name_places(labels: Words, geometry: Geometry) -> NDArray[np.bool_]:
    fields = fields_of(labels)
    is_guard = fields["kind"] == Kind.GUARD
    is_ours = (fields["kind"] == Kind.DATA) | (fields["kind"] == Kind.POISON)
    is_ours &= (fields["layer"] < geometry.num_layers) & np.isin(fields["part"], geometry.parts)
    num_rows, num_guarded = np.zeros_like(labels), np.zeros_like(labels)
    for pool in PoolId:
        is_here = fields["pool"] == pool
        num_rows[is_here] = geometry.num_blocks(pool) * geometry.rows_per_part
        num_guarded[is_here] = geometry.num_rows(pool)
    found: NDArray[np.bool_] = (is_ours & (fields["row"] < num_rows)) | (is_guard & (fields["row"] < num_guarded))
    return found


def _place_of(arena: Arena, arena_row: int) -> tuple[Strip, int, int] | None:
    """The strip, block and row in the block; None in a guard."""
    num_blocks, rows = arena.geometry.num_blocks(arena.pool), arena.geometry.rows_per_part
    for strip in arena.strips:
        block, row = divmod(arena_row - strip.first_row, strip.block_stride)
        if 0 <= block < num_blocks and row < rows:
            return strip, block, row
    return None


def _wrong_row(
    world: World, pool: PoolId, arena_row: int, at: tuple[Strip, int, int] | None, row: Classified, expected: int
) -> WrongRow:
    geometry = world.geometry
    layer, part, block, row_in_block = (at[0].layer, at[0].part, at[1], at[2]) if at else (-1, Part.JOINT, -1, -1)
    if at:
        place = place_text(geometry, pool, layer, part, block, row_in_block)
    else:
        place = _guard_text(world.arenas[pool], arena_row)
    origin = None if row.label is None else unpack(row.label)
    shift_bytes = None if row.shift_words is None else row.shift_words * 8
    return WrongRow(
        pool,
        arena_row,
        layer,
        part,
        block,
        row_in_block,
        row.wrong_class,
        origin,
        unpack(expected),
        row.num_words,
        shift_bytes,
        _sentence(world, place, row, origin, unpack(expected)),
    )


def _guard_text(arena: Arena, arena_row: int) -> str:
    """Describe a guard row by the block before it."""
    row = arena_row
    while row >= 0 and (at := _place_of(arena, row)) is None:
        row -= 1
    if row < 0:
        return f"the guard in front of the first block of {arena.pool}, guard row {arena_row}"
    assert at is not None
    return f"the guard {count_text(arena_row - row, 'row')} after block {at[1]} of {arena.pool}, layer {at[0].layer}"


def _sentence(world: World, place: str, row: Classified, origin: Origin | None, expected: Origin) -> str:
    source = "" if origin is None else origin_text(world.geometry, origin, _age(world, origin))
    due = f"it must hold {origin_text(world.geometry, expected, _age(world, expected))}"
    words = count_text(row.num_words, "word")
    match row.wrong_class:
        case WrongClass.UNMOVED:
            return f"{place} still holds what it held before the step, {source}; {due}"
        case WrongClass.TORN:
            return f"{place} still holds in {words} what it held before the step, {source}; the other words are right"
        case WrongClass.MOVED | WrongClass.STALE | WrongClass.POISON:
            is_whole = row.num_words == world.geometry.row_words
            return f"{place} holds {'' if is_whole else f'in {words} '}{source}; {due}"
        case WrongClass.SHIFTED:
            shift = 0 if row.shift_words is None else row.shift_words * 8
            return f"{place} holds {source}, shifted by {shift:+d} bytes; {due}"
        case WrongClass.MIXED:
            return f"{place} holds in {words} some right bytes, and the other bytes as before the step; {due}"
        case WrongClass.ZERO:
            return f"{place} holds zeros in {words}; {due}"
        case WrongClass.ALTERED:
            return f"{place} holds in {words} some right bits, and other bits that were never written; {due}"
        case WrongClass.UNKNOWN:
            return f"{place} holds in {words} values that were never written to either pool; {due}"


def _age(world: World, origin: Origin) -> int:
    """How many times the row has been written since the word was written."""
    if origin.kind != Kind.DATA:
        return 0
    block, row = divmod(origin.row, world.geometry.rows_per_part)
    return world.interpreter.generations[PoolId(origin.pool)][block][row] - origin.generation


def place_text(geometry: Geometry, pool: int, layer: int, part: int, block: int, row: int) -> str:
    """The place of a row, such as `block 17 of the GPU pool, layer 3, key, slot 5`."""
    return f"block {block} of {PoolId(pool)}, layer {layer}, {PARTS[Part(part)]}, {geometry.row_text(row)}"


def origin_text(geometry: Geometry, origin: Origin, num_generations_ago: int = 0) -> str:
    """A label as text, such as `the key of block 4 of the CPU pool, layer 3, slot 5, written one generation ago`."""
    if origin.kind == Kind.GUARD:
        return f"the content of guard row {origin.row} of {PoolId(origin.pool)}"
    block, row = divmod(origin.row, geometry.rows_per_part)
    place = f"block {block} of {PoolId(origin.pool)}, layer {origin.layer}, {geometry.row_text(row)}"
    if origin.kind == Kind.POISON:
        return f"the poison of {place}, {PARTS[Part(origin.part)]}, which was free"
    return f"the {PARTS[Part(origin.part)]} of {place}{_age_text(num_generations_ago)}"


def count_text(number: int, noun: str) -> str:
    """A count with its noun, such as `one word` or `12 words`."""
    return f"{_SMALL[number] if number < len(_SMALL) else number} {noun}{'' if number == 1 else 's'}"


def _age_text(num_generations: int) -> str:
    if num_generations <= 0:
        return ""
    return f", written {count_text(num_generations, 'generation')} ago"
