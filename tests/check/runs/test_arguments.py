"""What `--fix` accepts: the fields of the level of the subject."""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.oracle.level import MANAGER, SCHEDULER
from kvproof.check.runs.arguments import Narrowed, agrees, fixed_fields, require_fields_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.strategies import STORES
from kvproof.check.subjects.builtin.manager import BuiltIn


def test_a_field_of_a_scheduler_can_be_fixed_for_a_scheduler_only() -> None:
    fixed = fixed_fields(["max_num_seqs=2", "block_size=1"])
    assert fixed == {"max_num_seqs": 2, "block_size": 1}
    require_fields_of(SCHEDULER.config, fixed)
    with pytest.raises(UsageError, match="--fix: a configuration has no field 'max_num_seqs'; it has block_size,"):
        require_fields_of(MANAGER.config, fixed)


def test_a_field_of_no_level_cannot_be_fixed() -> None:
    with pytest.raises(UsageError, match="--fix: a configuration has no field 'blocksize'"):
        fixed_fields(["blocksize=1"])


def test_the_scopes_of_a_store_are_those_of_its_own_fields() -> None:
    def agreeing(fixed: dict[str, object]) -> set[str]:
        searched = STORES.exhaustive
        return {name for name, scope in searched.hunted.items() if agrees(searched.config_of(scope), fixed)}

    assert agreeing({"lease_seconds": 1, "lazy_stores": False}) == set(STORES.exhaustive.hunted)
    assert agreeing({"lazy_stores": True}) == set()
    assert agreeing({"num_gpu_blocks": 1}) == {"slots-1x2x2"}


def test_fixed_kv_groups_leave_only_the_witnesses_that_they_can_reach() -> None:
    subject = BuiltIn()
    subject.capabilities = replace(subject.capabilities, kv_groups=True, block_sizes=True, states=True)

    def expected(*groups: str) -> tuple[bool, bool]:
        witnesses = MANAGER.expected_witnesses(Narrowed(subject, {"kv_groups": groups}).capabilities)
        return witnesses["hit of a state"], witnesses["hit in blocks of different sizes"]

    assert expected("full", "window") == (False, False)
    assert expected("full", "state") == (True, False)
    assert expected("full:4", "window:2") == (False, True)
    assert expected("full:4", "state:2") == (True, True)


def test_fixed_fields_leave_only_the_witnesses_that_runs_with_them_can_reach() -> None:
    names = ("slide", "hit", "eviction with a choice", "cross-attention table")
    subject = BuiltIn()
    subject.capabilities = replace(subject.capabilities, cross=True)

    def expected(**fixed: object) -> list[str]:
        level = SCHEDULER if fixed.get("cross") else MANAGER
        witnesses = level.expected_witnesses(Narrowed(subject, fixed).capabilities, fixed)
        return [name for name in names if witnesses.get(name)]

    assert expected(caching=False) == ["slide"]
    assert expected(caching=True) == ["hit", "eviction with a choice"]
    assert expected(window=4) == ["slide"]
    assert expected(window=4, caching=True) == ["slide", "hit", "eviction with a choice"]
    assert expected(cross=True) == ["cross-attention table"]
    subject.capabilities = replace(subject.capabilities, window_with_caching=True)
    assert expected(caching=True) == ["slide", "hit", "eviction with a choice"]
    assert expected(window=4) == ["slide", "hit", "eviction with a choice"]


def test_what_needs_transfers_is_not_expected_without_them() -> None:
    capabilities = replace(BuiltIn.capabilities, transfers=True, async_steps=1)

    def expected(**fixed: int) -> tuple[bool, bool]:
        witnesses = SCHEDULER.expected_witnesses(capabilities, fixed)
        return witnesses["send"], witnesses["scheduled while another is under way"]

    assert expected(transfers=False) == (False, True)
    assert expected(async_steps=0, transfers=True) == (True, False)


@pytest.mark.parametrize(
    ("fixed", "kinds"),
    [
        ({}, {"load", "store"}),
        ({"connector": ""}, {"load"}),
        ({"connector": "", "transfers": False}, set()),
        ({"transfers": True}, {"load"}),
        ({"transfers": False}, {"store"}),
        ({"connector": "offloading"}, {"store"}),
        ({"window": 4}, {"load"}),
        ({"num_host_blocks": 0}, {"load", "store"}),
    ],
)
def test_what_needs_a_connector_is_not_expected_where_no_run_has_one(fixed: dict[str, Any], kinds: set[str]) -> None:
    subject = BuiltIn()
    subject.capabilities = replace(subject.capabilities, transfers=True, connectors=("offloading",))
    witnesses = SCHEDULER.expected_witnesses(Narrowed(subject, fixed).capabilities, fixed)
    names = {"load": ("load", "loaded in vain", "send"), "store": ("store to host memory", "load from host memory")}
    assert {kind for kind in names if all(witnesses[name] for name in names[kind])} == kinds
    assert {kind for kind in names if any(witnesses[name] for name in names[kind])} == kinds
