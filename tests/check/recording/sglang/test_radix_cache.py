"""SGLang's pool and prefix cache are recorded and judged, each release in a process of its own."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine
Record = Callable[..., Any]


@pytest.mark.parametrize("release", ["0.5.9", "0.5.17", "0.5.23"])
def test_a_released_cache_is_consistent(release: str, record_engine: Record) -> None:
    found, num_lines, witnesses = record_engine(release, "sglang", {"caching": True}, 6, package="sglang")
    assert found == []
    assert num_lines > 2_000
    expected = {"hit", "evict", "evict beside a load", "two loads of a key", "a page of which the tree has another copy"}
    assert expected <= {name for name, number in witnesses.items() if number}


def test_a_pool_without_a_tree_is_consistent(record_engine: Record) -> None:
    found, num_lines, _ = record_engine("0.5.23", "sglang", {"caching": False}, 4, package="sglang")
    assert found == []
    assert num_lines > 100


CACHE, TREE = "unified_radix_cache.UnifiedRadixCache", "unified_cache.unified_tree_core.UnifiedTreeCore"
FULL = "unified_cache.components.full_component.FullComponent"
TWICE = "lambda self, *all, **more: (before(self, *all, **more), before(self, *all, **more))[1]"
FORGETS = """
def changed(self, req, **options):
    rows = self.req_to_token_pool.req_to_token
    row = rows[req.kv.req_pool_idx].clone()
    before(self, req, **options)
    rows[req.kv.req_pool_idx] = row
"""
FAULTS = {
    "a request gives its pages back twice": (CACHE, "free_kv_row", f"changed = {TWICE}", {"no-double-free"}),
    "a request keeps its last pages": (
        CACHE,
        "free_kv_row",
        "changed = lambda self, *all: None",
        {"no-leak-at-rest"},
    ),
    "a locked leaf is evicted": (
        FULL,
        "acquire_component_lock",
        "changed = lambda self, *, node, result: result\nkind.release_component_lock = lambda self, **all: None",
        {"evict-unreferenced"},
    ),
    "pages that a request has are free again": (
        "allocator.PagedTokenToKVPoolAllocator",
        "alloc_decode",
        "def changed(self, *all):\n    pages = self.free_pages\n    answer = before(self, *all)\n"
        "    self.free_pages = pages\n    return answer",
        {"conservation", "no-use-after-free"},
    ),
    "the row of a request keeps the pages that it gave back": (
        CACHE,
        "checkpoint_into_tree",
        FORGETS,
        {"arrived-whole", "no-use-after-free"},
    ),
    "a request gets the pages of its prefix in another order": (
        CACHE,
        "path_device_indices",
        "changed = lambda self, node: before(self, node).flip(0)",
        {"arrived-whole"},
    ),
    "duplicates of an insert are not given back": (
        CACHE,
        "_apply_cache_action",
        "changed = lambda self, action: (\n"
        "    type(action).__name__ == 'FreeDeviceKV' and self._within or before(self, action))\n"
        "kind._within = True",
        {"no-leak-at-rest"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_a_release_is_found(name: str, record_engine: Record) -> None:
    where, method, code, properties = FAULTS[name]
    module, kind = where.rsplit(".", 1)
    fault = (
        f"make()\nkind = sys.modules['sglang.srt.mem_cache.{module}'].{kind}\n"
        f"before = kind.{method}\n{code}\nkind.{method} = changed"
    )
    fixed = {"caching": True, "keys": 1}
    found, _, _ = record_engine("0.5.23", "sglang", fixed, 6, fault, package="sglang")
    findings = {finding[0] for finding, _, _ in found if finding}
    assert findings & properties, found
