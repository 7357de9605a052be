"""vLLM's V0 scheduler and manager are recorded and judged, in a process of their own."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine
Record = Callable[..., Any]


@pytest.mark.parametrize("caching", [False, True])
def test_the_v0_scheduler_with_its_manager_is_consistent(caching: bool, record_engine: Record) -> None:
    """A recording does not say what an encoder computes. With a cache, two swap-ins may land on one block (a fault)."""
    fixed: dict[str, object] = {"caching": caching, "window": None, "chunked": False, "cross": False}
    fixed |= {"num_host_blocks": 0} if caching else {}
    found, num_lines, witnesses = record_engine("0.9.2", "vllm-v0-scheduler", fixed, 12)
    assert found == []
    assert num_lines > 4_000
    wanted = {"hit", "share", "evict", "three holders"} if caching else {"append refused", "admission LATER"}
    assert wanted <= set(witnesses)
