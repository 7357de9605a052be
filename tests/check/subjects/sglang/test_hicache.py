"""SGLang's HiCache: what a run of the host pool, the controller and the tree shows."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.store import PAGES_BEFORE, StoreConfig, path_to
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

FETCHED = (("begin_store", 1, 1, (0, 1, 2, 3)), ("land", 1, (1,)), ("report", 1))
LOST = (("begin_store", 2, 1, (0, 1, 2, 3)), ("land", 2, (2,)), ("report", 2))


def test_a_page_names_those_before_it_and_the_next_tree_has_the_same_shape() -> None:
    size = len(PAGES_BEFORE)
    assert [path_to(key) for key in (0, 3, 5, 7)] == [(0,), (0, 1, 2, 3), (0, 1, 4, 5), (6, 7)]
    assert path_to(size + 5) == tuple(key + size for key in path_to(5))


def judged(release: str, *operations: tuple[Any, ...], num_slots: int = 4) -> Any:
    """The judge of a run, and which of its operations were possible. Raises Finding."""
    download.add(f"sglang=={release}")
    subject: Any = find(f"sglang-hicache=={release}")()
    judge = StoreJudge(subject, StoreConfig(num_gpu_blocks=num_slots))
    return judge, [judge.apply(operation) for operation in operations]


@pytest.mark.engine
def test_what_was_fetched_is_found_loaded_and_evicted() -> None:
    run = (*FETCHED, ("look_up", 1, (0, 1)), ("begin_load", 2, 1, (0,)), ("land", 2), ("report", 2))
    judge, done = judged("0.5.6", *run)
    assert all(done)
    assert (judge.memory, judge.observed.free) == ({0: 0}, 3)
    assert judge.apply(("begin_store", 3, 1, (8, 9, 10, 11)))
    assert judge.answer == "writes keys 8, 9, 10, 11 to slots 1, 2, 3, 0, evicted key 0"


@pytest.mark.engine
def test_a_list_of_pages_that_is_no_path_is_not_possible() -> None:
    _, done = judged("0.5.6", ("look_up", 1, (1,)), ("look_up", 1, (0, 2)), ("look_up", 1, (0, 1)))
    assert done == [False, False, True]


@pytest.mark.engine
def test_pages_that_a_storage_does_not_give_come_back_once() -> None:
    judge, done = judged("0.5.6", *LOST)
    assert all(done)
    assert (judge.observed.entries, judge.observed.free_ids) == ({0: 0, 1: 1}, [3, 2])


SCRIPT = Path(__file__).parents[4] / "examples" / "reproductions" / "sglang_prefetch_gives_pages_back_twice.py"
RUN = """
import runpy, sys
from kvproof.check.subjects.registry import find

find(sys.argv[1])()
runpy.run_path(sys.argv[2])
"""


@pytest.mark.engine
@pytest.mark.parametrize(("release", "code"), [("0.5.5", 1), ("0.5.6", 0)])
def test_the_script_fails_on_the_faulty_release_and_passes_on_the_repaired_one(release: str, code: int) -> None:
    download.add(f"sglang=={release}")
    command = [sys.executable, "-c", RUN, f"sglang-hicache=={release}", str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code
