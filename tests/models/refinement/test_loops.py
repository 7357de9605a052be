"""Loops of any length: what goes from one iteration to the next is noticed, however it goes."""

import textwrap
from typing import Any

import pytest
import z3

from kvproof.audit.faults.planting import faulty
from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.models.refinement import device_steps
from kvproof.models.refinement.abstraction import Code
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import NEXT, NO_STATE, Path, explore

LOOP = "        refcounts = self.refcounts\n        for block_id in block_ids:\n            refcounts[block_id] += 1\n"
NO_FOR = "blocks of any number are gone over by something else than one for statement"


def paths(body: str) -> list[Path]:
    """The paths of `share` with another body, over any number of blocks in use."""
    text = textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", "        ")
    code = Code(device=DeviceBlocks if text == LOOP else faulty(DeviceBlocks, LOOP, text))
    simulation = next(one for one in device_steps.simulations(Setting(code=code)) if ".share" in one.subject)
    return list(explore(simulation))


def endings(body: str) -> set[str]:
    """How its paths end, except in errors, which have an obligation of their own."""
    return {one.ending for one in paths(body) if not one.ending.startswith("raises IndexError")}


def goals(body: str) -> dict[str, Any]:
    """What must be true where the loop asks for the next block."""
    return {sentence: goal for one in paths(body) if one.ending == NEXT for sentence, _, goal in one.agreements}


def test_a_loop_asks_for_the_next_block_or_has_none() -> None:
    assert endings(LOOP) == {NEXT, "returns"}
    assert z3.is_true(goals(LOOP)["no local goes from one iteration to the next"])
    assert z3.is_true(z3.simplify(goals(LOOP)["nothing else has changed"]))


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        (
            """
            for block_id in block_ids:
                if block_id:
                    break
                self.refcounts[block_id] += 1
            """,
            "leaves the loop early",
        ),
        (
            """
            for block_id in block_ids:
                self.refcounts[block_id] += 1
                return
            """,
            "leaves the loop early",
        ),
        (
            """
            first, counts = None, self.refcounts
            for block_id in block_ids:
                if first is None:
                    counts[block_id] += 1
                first = block_id
            """,
            "carries first from one iteration to the next",
        ),
        (
            """
            self.refcounts[0] = 1
            for block_id in block_ids:
                self.refcounts[block_id] += 1
            """,
            "is refused: something is changed before the loop",
        ),
        (
            """
            seen = []
            for block_id in block_ids:
                seen.append(block_id)
                self.refcounts[block_id] += len(seen)
            """,
            "is refused: in seen something could go from one iteration of the loop to the next",
        ),
        (
            """
            earlier = self.refcounts.copy()
            for block_id in block_ids:
                self.refcounts[block_id] = earlier[block_id] + 1
            """,
            "is refused: in earlier something could go from one iteration of the loop to the next",
        ),
        (
            "self.num_kept = len([1 for block_id in block_ids])",
            "is refused: in collected something could go from one iteration of the loop to the next",
        ),
        ("for block_id in list(block_ids):\n    self.refcounts[block_id] += 1", f"is refused: {NO_FOR}"),
        ("for n, block_id in enumerate(block_ids):\n    self.refcounts[block_id] += n < 5", f"is refused: {NO_FOR}"),
        ("for block_id in iter(block_ids):\n    self.refcounts[block_id] += 1", f"is refused: {NO_FOR}"),
        ("first, *others = block_ids", f"is refused: {NO_FOR}"),
        (
            """
            for block_id in block_ids:
                pass
            for block_id in block_ids:
                self.refcounts[block_id] += 1
            """,
            f"is refused: {NO_FOR}",
        ),
        (
            """
            def ids():
                for block_id in block_ids:
                    yield block_id
            for block_id in ids():
                self.refcounts[block_id] += 1
            """,
            f"is refused: {NO_FOR}",
        ),
        ("if block_ids:\n    self.num_kept += 1", "is refused: whether there is an item is asked outside of the loop"),
    ],
)
def test_a_loop_that_proofs_cannot_follow_is_not_followed(body: str, ending: str) -> None:
    found = [one for one in paths(body) if one.ending.startswith(ending)]
    assert found
    for one in found:
        assert [sentence for sentence, _, _ in one.agreements] == [NO_STATE]
        assert all(z3.is_false(goal) for _, _, goal in one.agreements)


def test_a_number_that_goes_on_must_stay_the_same() -> None:
    body = """
    number = self.num_kept
    for block_id in block_ids:
        self.refcounts[block_id] += 1
        number = number + 0 * block_id
    """
    assert endings(body) == {NEXT, "returns"}
    assert not z3.is_true(goals(body)["no local goes from one iteration to the next"])
    assert z3.is_true(z3.simplify(goals(body)["no local goes from one iteration to the next"]))
    body = body.replace("0 *", "1 *")
    assert not z3.is_true(z3.simplify(goals(body)["no local goes from one iteration to the next"]))


def test_a_field_that_changes_is_noticed() -> None:
    body = "for block_id in block_ids:\n    self.num_kept = block_id"
    assert not z3.is_true(z3.simplify(goals(body)["nothing else has changed"]))
    body = "for block_id in block_ids:\n    self.refcounts = self.refcounts.copy()"
    assert z3.is_false(goals(body)["DeviceBlocks.refcounts is as it was"])
    body = "for block_id in block_ids:\n    self.last_shared = block_id"
    assert z3.is_false(goals(body)["DeviceBlocks.last_shared is as it was"])


def test_what_is_read_before_the_loop_is_of_an_earlier_state() -> None:
    """Otherwise block 0 would always have as many holders as before the loop, and be counted each time."""
    body = """
    first = self.refcounts[0]
    for block_id in block_ids:
        if block_id or self.refcounts[0] == first:
            self.refcounts[block_id] += 1
    """
    at_the_end = [one for one in paths(body) if one.ending == NEXT]
    solver = z3.Solver()
    block = z3.Int("given_block")
    for one in at_the_end:
        for sentence, _, goal in one.agreements:
            if sentence == "the refcounts are those of the rule":
                solver.push()
                solver.add(one.condition, block == 0, z3.Int("some_block") == 0, z3.Not(goal))
                if solver.check() == z3.sat:
                    return
                solver.pop()
    pytest.fail("a block that is counted once only is not noticed")
