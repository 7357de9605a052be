"""A fault that is found is reported with judge, property and operations; one that is not, with its reason."""

from dataclasses import replace

import pytest

from kvproof.check.faults import judging
from kvproof.check.faults.judging import EQUIVALENT, NOBODY, NOT_JUDGED, WALK, Effort, judged
from kvproof.check.faults.planting import Fault
from kvproof.check.protocol.fault_attribution import StandInError

SHORT = Effort(walk=300, rounds=0)
LEAK = Fault(
    "leak",
    "kvproof-pool",
    "leak",
    "device_blocks.py",
    "DeviceBlocks.release",
    "free_ids.appendleft(block_id)",
    "pass",
    "Blocks that are released do not become free.",
)
HARMLESS = replace(LEAK, function="DeviceBlocks.take", old="popleft() for _", new="popleft() for _unused")


def test_a_fault_that_the_walk_finds_is_reported_with_its_property() -> None:
    found = judged(LEAK, SHORT)
    assert (found.by, found.property_id) == (WALK, "no-leak-at-rest")
    assert 0 < found.num_operations <= SHORT.walk
    assert found.is_as_stated
    in_spite_of_its_reason = replace(found, fault=replace(LEAK, blind_spot="some-row"))
    assert not in_spite_of_its_reason.is_as_stated


def test_a_fault_that_is_not_found_has_a_reason_or_nobody() -> None:
    alive = judged(HARMLESS, SHORT)
    assert (alive.by, alive.property_id, alive.is_as_stated) == (NOBODY, "", False)
    assert alive.num_operations > SHORT.walk  # the small scopes are searched as well
    named = replace(alive, fault=replace(HARMLESS, equivalent="nobody reads the name"), by=EQUIVALENT)
    assert named.is_as_stated


def test_a_copy_that_cannot_be_imported_is_not_judged() -> None:
    broken = replace(
        LEAK, function="DeviceBlocks", old="class DeviceBlocks:", new="raise ImportError\nclass DeviceBlocks:"
    )
    assert judged(broken, SHORT).by == NOT_JUDGED


def test_a_fault_of_kvproof_itself_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fault: Fault) -> None:
        raise StandInError("an adapter of kvproof failed")

    monkeypatch.setattr(judging, "planted", failing)
    found = judged(LEAK, SHORT)
    assert (found.by, found.text) == (NOT_JUDGED, "an adapter of kvproof failed")


def test_a_text_that_is_not_there_is_not_judged() -> None:
    absent = judged(replace(LEAK, old="no such text"), SHORT)
    assert (absent.by, absent.is_as_stated) == (NOT_JUDGED, False)
    assert "0 times" in absent.text
