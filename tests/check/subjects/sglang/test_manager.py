"""SGLang's adapter, on releases that are brought in: these tests download."""

import subprocess
import sys

import pytest

from kvproof.check.subjects.loading import download

WALK = """
import sys
from kvproof.check.subjects.sglang.manager import SGLang
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

fixed = {"keys": 2}  # without callers' keys, of which one may be the id of an adapter (F21)
done = walk(MANAGERS, SGLang(sys.argv[1]), 1, max_operations=20_000, seconds=300, fixed=fixed)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.coverage))
"""

FORGETS = """
from kvproof.check.subjects.sglang.loader import import_release

cache = import_release(sys.argv[1]).unified.UnifiedRadixCache
publish = cache.checkpoint_into_tree


def forgets(self, req, **options):
    rows = self.req_to_token_pool.req_to_token
    row = rows[req.kv.req_pool_idx].clone()
    publish(self, req, **options)
    rows[req.kv.req_pool_idx] = row


cache.checkpoint_into_tree = forgets
"""


def walked(version: str, code: str = WALK) -> str:
    """What a walk says; in a process of its own, since modules of a release stay imported."""
    download.add(f"sglang=={version}")
    command = [sys.executable, "-c", code, version]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.13", "0.5.16", "0.5.20", "0.5.22", "0.5.23"])
def test_a_release_is_driven_and_not_refuted(version: str) -> None:
    output = walked(version)
    assert output.startswith("not refuted 20000")
    assert "hit on an evictable block" in output
    assert "exchange after a step" in output


@pytest.mark.engine
def test_a_tree_that_does_not_repoint_the_row_is_refuted() -> None:
    broken = WALK.replace("done =", FORGETS + "done =")
    assert not walked("0.5.23", broken).startswith("not refuted")
