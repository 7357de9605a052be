"""Scenarios for tests: `DeviceBlocks.take`, `null_block` and counts of one device of four blocks, with any counts.

They are small, so tests of the machinery use them; these methods are proved for every size (`refinement.take_steps`).

The device has the ids 1 to 4 of six, so that a write outside of the device is noticed. The invariant: the free list
has each block at most once, and exactly those with refcount 0; no refcount is negative; the null block, once it is
taken, stays held. A shape states how many ids are free; which ones, and their order, is arbitrary.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.impl.device_blocks import NO_NULL_BLOCK, DeviceBlocks
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.models.concolic.frame import Frame
from kvproof.models.concolic.scenario import Claim, Inputs, Outcome, Scenario, Step
from kvproof.models.concolic.swap_step import CONTENTS, is_sound
from kvproof.models.concolic.symbolic import both, count_of, equal, negated, same_truth

IDS = range(1, 5)
NUM_COUNTS = 6


@dataclass
class Device:
    """A device in any state that satisfies the invariant, with its counts and free ids before a call."""

    blocks: Any
    counts: list[Any]
    free: list[Any]
    frame: Frame

    @property
    def is_kept(self) -> Claim:
        """The claim that nothing else of the device has changed."""
        return Claim("nothing else has changed", self.frame.holds())


def _device(inputs: Inputs, subject: Any, num_free: int, has_null: bool | None = None) -> Device:
    """A device with so many free ids. has_null: whether it has a null block; None if it may have one."""
    counts = [inputs.count(f"count_{block}") for block in range(NUM_COUNTS)]
    free = [inputs.integer(f"free_{place}") for place in range(num_free)]
    blocks = subject("the device", IDS, counts)
    blocks.free_ids.clear()
    blocks.free_ids.extend(free)
    blocks.num_kept = inputs.count("kept")
    if has_null is not False:
        blocks.null_id = inputs.integer("null")
    if has_null:
        inputs.assume(lambda: negated(blocks.null_id == NO_NULL_BLOCK))
    inputs.assume(lambda: is_sound(blocks))
    return Device(blocks, list(counts), free, Frame(blocks, changes=CONTENTS))


def _changed_by(device: Device, change: int, blocks: Iterable[Any]) -> Any:
    """Whether each count has changed by `change` times the number of its block's occurrences in `blocks`."""
    changed = list(blocks)
    after = device.blocks.refcounts
    return both(after[block] == device.counts[block] + change * count_of(block, changed) for block in range(NUM_COUNTS))


def _unchanged(device: Device) -> Claim:
    same = equal(device.blocks.refcounts, device.counts), equal(list(device.blocks.free_ids), device.free)
    return Claim("a refused call changes nothing", both((*same, device.frame.holds())))


def _taking(device: Device, taken: list[Any], num_blocks: int) -> Iterator[Claim]:
    """The claims after taking the blocks `taken`."""
    yield Claim("as many are taken as were asked for", len(taken) == num_blocks)
    yield Claim("those freed last are taken first", equal(taken, device.free[:num_blocks]))
    yield Claim("the others stay free, in their order", equal(list(device.blocks.free_ids), device.free[num_blocks:]))
    yield Claim("each has one reference, no other count changes", _changed_by(device, 1, taken))
    yield Claim("the free list stays exact", is_sound(device.blocks))
    yield device.is_kept


def _take(inputs: Inputs, subject: Any, num_free: int, num_blocks: int) -> Step:
    device = _device(inputs, subject, num_free)

    def claims(outcome: Outcome) -> Iterator[Claim]:
        yield Claim("it refuses exactly if too few are free", (outcome.error is not None) == (num_blocks > num_free))
        yield from [_unchanged(device)] if outcome.error else _taking(device, outcome.value, num_blocks)

    return Step(lambda: device.blocks.take(num_blocks), claims, (NoFreeBlocksError,))


def _null_block(inputs: Inputs, subject: Any, num_free: int, has_null: bool) -> Step:
    device = _device(inputs, subject, num_free, has_null)
    null_before = device.blocks.null_id
    device.frame = Frame(device.blocks, changes=CONTENTS, replaced=("DeviceBlocks.null_id",))

    def claims(outcome: Outcome) -> Iterator[Claim]:
        is_refused = not has_null and num_free == 0
        yield Claim("it refuses exactly if it has none and none is free", (outcome.error is not None) == is_refused)
        if has_null or outcome.error:
            yield _unchanged(device)
            yield Claim("the null block stays the same", equal(device.blocks.null_id, null_before))
        else:
            yield from _taking(device, [outcome.value], 1)
        if outcome.error is None:
            yield Claim("the null block is given", equal(outcome.value, device.blocks.null_id))

    return Step(device.blocks.null_block, claims, (NoFreeBlocksError,))


def _numbers(inputs: Inputs, subject: Any, num_free: int, has_null: bool) -> Step:
    device = _device(inputs, subject, num_free, has_null)
    blocks = device.blocks
    inputs.assume(lambda: blocks.num_kept <= len(IDS) - num_free - has_null)

    def claims(outcome: Outcome) -> Iterator[Claim]:
        free, usable, is_idle, free_ids = outcome.value
        yield Claim("the free ids are counted", free == num_free)
        yield Claim("the free ids are listed in their order", equal(free_ids, device.free))
        yield Claim(
            "all but the blocks kept and the null block are usable", usable == len(IDS) - blocks.num_kept - has_null
        )
        yield Claim("it is idle exactly if every usable block is free", same_truth(is_idle, usable == num_free))
        yield _unchanged(device)

    return Step(lambda: (blocks.num_free, blocks.num_usable, blocks.is_idle, blocks.all_free_ids()), claims)


_NULL_SHAPES = {
    f"{num_free} free, {'a null block' if has_null else 'no null block'}": (num_free, has_null)
    for has_null in (False, True)
    for num_free in range(len(IDS) + 1 - has_null)
}

SCENARIOS = (
    Scenario(
        "DeviceBlocks.take",
        "no-use-after-free",
        DeviceBlocks,
        _take,
        {
            f"{num_blocks} of {num_free} free": (num_free, num_blocks)
            for num_free in range(len(IDS) + 1)
            for num_blocks in sorted({0, 1, num_free, num_free + 1})
        },
    ),
    Scenario("DeviceBlocks.null_block", "frame-kept", DeviceBlocks, _null_block, _NULL_SHAPES),
    Scenario("DeviceBlocks counts", "conservation", DeviceBlocks, _numbers, _NULL_SHAPES),
)
