"""vLLM's offloading managers are recorded and judged, each release in a process of its own."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine
Record = Callable[..., Any]


@pytest.mark.parametrize("release", ["0.20.0", "0.30.0", "0.33.0"])
def test_a_released_manager_is_consistent(release: str, record_engine: Record) -> None:
    found, num_lines, witnesses = record_engine(release, "vllm-offload", {"replacement": "lru"}, 12)
    assert found == []
    assert num_lines > 2_000
    assert {"hit", "evict", "refused", "abort", "two loads of a key"} <= set(witnesses)


def test_a_store_that_evicts_a_key_of_its_call_diverges_at_its_line(record_engine: Record) -> None:
    found, _, _ = record_engine("0.16.0", "vllm-offload", {"replacement": "lru"}, 12)
    assert found
    assert {(*finding, walked) for finding, _, walked in found} == {
        ("evict-unreferenced", "prepare_store", "evict-unreferenced")
    }


FAULTS = {
    "a failed store is found": ("complete_store", "lambda self, keys, *more: before(self, keys, *more[:-1], True)"),
    "a load ends twice": ("complete_load", "lambda self, *all: (before(self, *all), before(self, *all))[0]"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_a_manager_diverges_at_a_later_line_at_most(name: str, record_engine: Record) -> None:
    method, code = FAULTS[name]
    fault = (
        "make()\nkind = sys.modules['vllm.v1.kv_offload.cpu.manager'].CPUOffloadingManager\n"
        f"before = kind.{method}\nkind.{method} = {code}"
    )
    found, _, _ = record_engine("0.33.0", "vllm-offload", {"replacement": "lru"}, 6, fault)
    assert found
    assert all(finding or reason for finding, reason, _ in found)
