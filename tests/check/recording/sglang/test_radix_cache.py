"""SGLang's pool and prefix cache are recorded and judged, each release in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine
Record = Callable[..., Any]


@pytest.mark.parametrize("release", ["0.5.9", "0.5.17", "0.5.23"])
def test_a_released_cache_is_consistent(release: str, record_engine: Record) -> None:
    found, num_lines, witnesses = record_engine(release, "sglang", {"caching": True}, 6, package="sglang")
    assert found == []
    assert num_lines > 2_000
    expected = {
        "hit",
        "evict",
        "evict beside a load",
        "two loads of a key",
        "a page of which the tree has another copy",
    }
    assert expected <= {name for name, number in witnesses.items() if number}


def test_a_pool_without_a_tree_is_consistent(record_engine: Record) -> None:
    found, num_lines, _ = record_engine("0.5.23", "sglang", {"caching": False}, 4, package="sglang")
    assert found == []
    assert num_lines > 100


CACHE, TREE = "unified_radix_cache.UnifiedRadixCache", "unified_cache.unified_tree_core.UnifiedTreeCore"
FULL = "unified_cache.components.full.FullComponent"
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
        "changed = lambda self, node, result, **all: result\nkind.release_component_lock = lambda self, **all: None",
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


PROGRAM = """
import json, sys, tempfile
from contextlib import suppress
from pathlib import Path
from benchmarks.sglang_server import Server
from kvproof.check.recording import record
from kvproof.check.recording.validate import validate

found, path = {}, Path(tempfile.mkdtemp()) / "recording.jsonl"
for name, (num_pages, module, kind, method, code) in ({"": (40, "", "", "", "")} | json.loads(sys.argv[1])).items():
    server = Server("0.5.23", 1, (4, num_pages, 5), 24)
    if module:
        kind = getattr(sys.modules[f"sglang.srt.mem_cache.{module}"], kind)
        saved = dict(vars(kind))
        names = {"kind": kind, "before": getattr(kind, method)}
        exec(code, names)
        setattr(kind, method, names["changed"])
    may_raise = Exception if module else ()
    with record(server.adapter.manager, path), suppress(may_raise):
        with suppress(may_raise):
            for _ in range(60):
                server.step()
        server.close()
    done = validate(path)
    found[name] = [done.finding.property if done.finding else "", done.reason]
    if module:
        for changed in [one for one in vars(kind) if vars(kind)[one] is not saved.get(one)]:
            setattr(kind, changed, saved[changed]) if changed in saved else delattr(kind, changed)
print(json.dumps(found))
"""


def test_faults_planted_in_a_release_are_found() -> None:
    download.add("sglang==0.5.23")
    given = {
        name: (40 if "evicted" in name else 100, *where.rsplit(".", 1), method, code)
        for name, (where, method, code, _) in FAULTS.items()
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    found = json.loads(done.stdout)
    assert found.pop("") == ["", ""]
    for name, (property, reason) in found.items():
        assert property in FAULTS[name][3], (name, property, reason)
