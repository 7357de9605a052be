"""A fault that is found is reported with judge, property and operations; one that is not, with its reason."""

from dataclasses import replace

import pytest
from tests.audit.faults.altering import altered

from kvproof.audit.faults import judging
from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.judging import (
    BYTES,
    EQUIVALENT,
    NOBODY,
    NOT_JUDGED,
    WALK,
    JudgingEffort,
    is_as_stated,
    judged,
)
from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.protocol.finding import AdapterError

SHORT = JudgingEffort(walk=1000, rounds=0)
TWICE = Fault(
    "kvproof-pool/counted-twice",
    (
        Edit(
            "DeviceBlocks.take",
            "refcounts[block_id] = 1",
            "refcounts[block_id] = 2",
            "impl/kvproof/impl/device_blocks.py",
        ),
    ),
    "kvproof-pool",
    "double count",
    "kvproof-pool",
    "A block that is handed out has two references.",
)
HARMLESS = altered(TWICE, old="popleft() for _", new="popleft() for _unused")


def test_a_fault_that_the_walk_finds_is_reported_with_its_property() -> None:
    found = judged(TWICE, SHORT)
    assert (found.by, found.property_id) == (WALK, "refcount-exact")
    assert 0 < found.num_operations <= SHORT.walk
    assert is_as_stated(found)
    in_spite_of_its_reason = replace(found, fault=replace(TWICE, blind_spot="some-row"))
    assert not is_as_stated(in_spite_of_its_reason)


@pytest.mark.long
def test_a_fault_of_what_moves_bytes_is_found_by_comparing_them() -> None:
    swapped = Fault(
        "kv-store/exchanged",
        (
            Edit(
                "DeviceBlocks.load",
                "copies.append((key, slot, block))",
                "copies.append((key, block, slot))",
                "impl/kvproof/impl/kv_store/device.py",
            ),
        ),
        "kv-store",
        "swap mapping",
        "kv-store",
        "The number of a block is taken for that of a slot.",
    )
    found = judged(swapped)
    assert (found.by, is_as_stated(found)) == (BYTES, True)
    assert found.property_id in ("wrong bytes", "raised")
    broken = altered(
        swapped, function="DeviceBlocks", old="class DeviceBlocks:", new="raise OSError\nclass DeviceBlocks:"
    )
    assert (judged(broken).by, judged(broken).text) == (NOT_JUDGED, "kv-store: OSError")


def test_a_fault_that_is_not_found_has_a_reason_or_nobody() -> None:
    alive = judged(HARMLESS, SHORT)
    assert (alive.by, alive.property_id, is_as_stated(alive)) == (NOBODY, "", False)
    assert alive.num_operations > SHORT.walk  # the small scopes are searched as well
    named = replace(alive, fault=replace(HARMLESS, equivalent="nobody reads the name"), by=EQUIVALENT)
    assert is_as_stated(named)


def test_a_copy_that_cannot_be_imported_is_not_judged() -> None:
    broken = altered(
        TWICE, function="DeviceBlocks", old="class DeviceBlocks:", new="raise ImportError\nclass DeviceBlocks:"
    )
    assert judged(broken, SHORT).by == NOT_JUDGED


def test_a_fault_of_kvproof_itself_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fault: Fault) -> None:
        raise StandInError("an adapter of kvproof failed")

    monkeypatch.setattr(judging, "planted", failing)
    found = judged(TWICE, SHORT)
    assert (found.by, found.text) == (NOT_JUDGED, "an adapter of kvproof failed")


def test_a_text_that_is_not_there_is_not_judged() -> None:
    absent = judged(altered(TWICE, old="no such text"), SHORT)
    assert (absent.by, is_as_stated(absent)) == (NOT_JUDGED, False)
    assert "0 times" in absent.text


def test_a_fault_that_breaks_the_protocol_is_not_judged_and_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object) -> bool:
        raise AdapterError("three slots for two keys")

    monkeypatch.setattr(judging.Judging, "walk", ends)
    found = judged(TWICE, SHORT)
    assert (found.by, found.text) == (NOT_JUDGED, "it breaks the protocol: three slots for two keys")
