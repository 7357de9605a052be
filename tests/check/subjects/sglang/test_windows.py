"""What the adapter shows of the window of SGLang's requests, and runs of releases with it (these tests download)."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.check.subjects.sglang.test_scheduler import WALK, ran

from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import NULL_BLOCK, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.sglang.windows import WindowTables, lock_of, shares_of

NULL = NULL_BLOCK
GROUPS: dict[str, Any] = {"kv_groups": ("full", "window"), "window": 3}
CONFIG = SchedulerConfig(2, 20, max_model_len=8, **GROUPS)
MODULE = "srt.mem_cache.unified_cache.components"
RELEASE: Any = SimpleNamespace(of={MODULE: SimpleNamespace(ComponentType=SimpleNamespace(SWA="swa"))})
ROOT = SimpleNamespace()


def node(parent: Any, length: int, has_value: bool = True, uuid: int | None = None) -> Any:
    """A node of the tree with so many tokens."""
    part = SimpleNamespace(value=[0] if has_value else None, metadata={"uuid": uuid})
    return SimpleNamespace(key=range(length), parent=parent, component_data={"swa": part})


def shown(places: list[int], last: Any = None, end: int | None = None, is_released: bool = False) -> Any:
    """The table of a request whose slots 2, 3, … have these places in the window, and what it keeps.

    last: the last node of its prefix, where its lock begins. end: where the lock ends.
    """
    mapping = torch.tensor([0, 0, *places, -1])
    core = SimpleNamespace(root_node=ROOT, node_by_id=lambda one: one)
    scheduler = SimpleNamespace(
        token_to_kv_pool_allocator=SimpleNamespace(full_to_swa_index_mapping=mapping),
        tree_cache=SimpleNamespace(tree_core=core),
    )
    request = SimpleNamespace(last_node=last, swa_uuid_for_lock=end, swa_prefix_lock_released=is_released)
    row = torch.arange(2, 2 + len(places)).numpy()
    return WindowTables(RELEASE, CONFIG, scheduler).of(request, row, 1)


def test_the_pools_share_the_blocks_and_each_holds_the_longest_sequence() -> None:
    assert shares_of(SchedulerConfig(2, 20)) == (20, 0)
    assert shares_of(CONFIG) == (11, 9)
    assert shares_of(SchedulerConfig(2, 20, max_model_len=8, **(GROUPS | {"window": 6}))) == (10, 10)
    with pytest.raises(Unsupported, match="does not fit its pool"):
        shares_of(SchedulerConfig(2, 11, max_model_len=8, **GROUPS))
    with pytest.raises(Unsupported, match="one pool"):
        shares_of(SchedulerConfig(2, 20, max_model_len=8, window=3))
    with pytest.raises(Unsupported, match="token before"):
        shares_of(SchedulerConfig(2, 20, max_model_len=8, **(GROUPS | {"window": 1})))


def test_the_table_of_the_window_is_what_the_map_says_of_the_row() -> None:
    assert shown([4, 5, 2, 3, 8]) == ([12, 11, 14], [])
    assert shown([0, 0, 2, 3]) == ([NULL, 11], [])


def test_slots_of_a_page_that_lie_elsewhere_in_the_window_are_a_failure_of_the_engine() -> None:
    with pytest.raises(EngineFailure, match="not in their pages"):
        shown([4, 3])
    with pytest.raises(EngineFailure, match="not in their pages"):
        shown([4, 0])


def test_of_a_prefix_in_the_tree_a_request_has_what_its_lock_holds() -> None:
    last = node(node(node(ROOT, 2), 2, uuid=7), 2)
    places = [2, 3, 4, 5, 6, 7, 8, 9]

    assert shown(places, last) == ([11, 12, 13, 14], [])
    assert shown(places, last, end=7) == ([NULL, 12, 13, 14], [])
    assert shown(places, last, is_released=True) == ([NULL, NULL, NULL, 14], [])
    assert shown(places, node(node(ROOT, 2, has_value=False), 2)) == ([NULL, 12, 13, 14], [])


def test_what_a_lock_holds_before_an_entry_that_was_given_up_is_kept() -> None:
    assert shown([2, 3, 0, 0, 6, 7], node(ROOT, 2)) == ([NULL, NULL, 13], [11])


def test_a_lock_is_found_where_each_release_keeps_it() -> None:
    uuids = SimpleNamespace(component_lock_uuids={"swa": 7})
    held = SimpleNamespace(lock=SimpleNamespace(node=1, receipt=uuids, swa_released=True))
    assert lock_of(held, "swa") == (1, 7, True)
    assert lock_of(SimpleNamespace(lock=None), "swa") == (None, None, False)
    assert lock_of(SimpleNamespace(last_node=1, lock_receipt=uuids), "swa") == (1, 7, False)
    older = SimpleNamespace(swa_uuid_for_lock=7)
    assert lock_of(SimpleNamespace(last_node=1, lock_receipt=older), "swa") == (1, 7, False)
    assert lock_of(SimpleNamespace(last_node=1, swa_uuid_for_lock=7), "swa") == (1, 7, False)


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.15.post1", "0.5.18", "0.5.20", "0.5.21", "0.5.23"])
def test_a_release_is_driven_with_a_window_and_not_refuted(version: str) -> None:
    fixed = 'fixed = {"policy": "fcfs", "unpublished": False, "keys": 2, "kv_groups": ("full", "window")}'
    output = ran(WALK.replace('fixed = {"keys": 2}', fixed).replace("4_000", "2_000"), version)

    assert output.startswith("not refuted")
    assert all(what in output for what in ("window left an entry", "hit past a window", "exchange after a step"))
