"""transformers' paged cache is recorded and judged, each release in a process of its own, with no model."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine
Record = Callable[..., Any]
FIXED = {"num_host_blocks": 0, "async_steps": 0}


@pytest.mark.parametrize("release", ["5.20.0", "5.23.0"])
def test_a_released_cache_is_consistent(release: str, record_engine: Record) -> None:
    found, num_lines, witnesses = record_engine(release, "transformers", FIXED, 12, package="transformers")
    assert found == []
    assert num_lines > 4_000
    assert {"hit", "forked by itself", "exchange after a step", "append refused"} <= set(witnesses)
