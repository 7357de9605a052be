"""mini-sglang's adapter, on a checkout that KVPROOF_MINI_SGLANG names; and what it says without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.loading.stub_modules import WithoutPinning
from kvproof.check.subjects.mini_sglang import import_checkout, num_equal

WALK = """
import sys
from kvproof.check.subjects.mini_sglang import MiniSGLang
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

fixed = {"caching": sys.argv[2] == "caching"}
done = walk(MANAGERS, MiniSGLang(sys.argv[1]), 1, max_operations=20_000, seconds=200, fixed=fixed)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.coverage))
"""


def walked(caching: str) -> str:
    """What a walk says; in a process of its own, since modules of a checkout stay imported."""
    path = os.environ.get("KVPROOF_MINI_SGLANG")
    if not path:
        pytest.skip("KVPROOF_MINI_SGLANG names no checkout of mini-sglang")
    command = [sys.executable, "-c", WALK, str(Path(path).absolute()), caching]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=True).stdout


def test_a_folder_without_mini_sglang_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not a checkout of mini-sglang: it has no python/minisgl"):
        import_checkout(str(tmp_path))


@pytest.mark.parametrize(
    ("one", "other", "common"), [([1, 2, 3], [1, 2, 4, 5], 2), ([1, 2], [1, 2, 3], 2), ([1], [2], 0), ([], [1], 0)]
)
def test_two_rows_of_tokens_are_compared_from_their_beginning(one: list[int], other: list[int], common: int) -> None:
    assert num_equal(torch.tensor(one), torch.tensor(other)) == common


def test_memory_is_made_as_asked_but_not_pinned() -> None:
    made = WithoutPinning(torch).empty(3, dtype=torch.int64, pin_memory=True)
    assert (made.shape, made.dtype, made.is_pinned()) == ((3,), torch.int64, False)


@pytest.mark.engine
def test_mini_sglang_without_its_cache_is_not_refuted() -> None:
    assert walked("naive").startswith("not refuted 20000")


@pytest.mark.engine
def test_mini_sglang_reads_pages_that_it_gave_back() -> None:
    """A page computed again although it is cached is freed while the row names it (its pull request 142)."""
    assert walked("caching").split()[0] in ("conservation", "no-use-after-free", "lists-agree", "read-back")
