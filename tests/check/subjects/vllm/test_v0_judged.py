"""vLLM 0.9.2's own block manager under the judge: silent where it is right, refuted where it is known to be wrong."""

import pytest

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
make = find("vllm-v0==0.9.2")
PLAIN = {"caching": False, "window": None, "num_host_blocks": 0, "chunked": False}


def test_without_caching_window_swap_and_chunks_it_is_not_refuted_by_200_000_operations() -> None:
    done = walk(MANAGERS, make(), 1, max_operations=200_000, seconds=300, fixed=PLAIN)
    assert done.finding is None
    assert done.num_operations == 200_000
    assert done.coverage["copy-on-write"]
    assert done.coverage["pool full"]
    assert done.coverage["three holders"]


def test_a_prompt_longer_than_its_window_is_let_in_and_then_finds_no_blocks() -> None:
    found = explore(MANAGERS, make(), Scope(3, num_seqs=2, num_tokens=4, window=2), seconds=30)
    assert found.counterexample is not None
    assert found.counterexample.finding.property == "admission-sound"
    assert "NoFreeBlocksError" in found.counterexample.finding.text
    assert [operation[0] for operation in found.counterexample.operations] == ["new", "admit"]


@pytest.mark.parametrize(
    ("fixed", "property"),
    [
        ({"caching": True, "chunked": True, "num_host_blocks": 0}, "hit-computed"),
        ({"caching": False, "window": None, "num_host_blocks": 8, "chunked": False, "lookahead": 0}, "swap-mapping"),
    ],
)
def test_what_it_is_known_to_do_wrong_is_found_and_shortened(fixed: dict[str, object], property: str) -> None:
    found = None
    for seed in range(1, 30):
        found = walk(MANAGERS, make(), seed, max_operations=50_000, seconds=30, fixed=fixed)
        if found.finding is not None and found.finding.property == property:
            break
    assert found is not None
    assert found.counterexample is not None
    short = shrink(make(), found.counterexample, 20)
    assert short.finding.property == property
    assert len(short.operations) <= 12


def test_the_last_chunk_of_a_prompt_needs_no_lookahead_slots_and_a_decode_does() -> None:
    config = Config(block_size=1, num_gpu_blocks=4, lookahead=1, chunked=True)
    judge = ManagerJudge(make(), config)
    for operation in [
        ("new", 1, (1,), (0, 0)),
        ("admit", 1, 1),
        ("run", 1),
        ("extend", 1, 1),
        ("run", 1),
        ("sample", 1, (0,)),
        ("append", 1),
    ]:
        assert judge.apply(operation)
    assert len(judge.seqs[1].observed_table) == 4  # three tokens, and one slot beyond


def test_a_swap_copies_into_a_block_of_equal_content_that_its_holder_has_not_computed() -> None:
    judge = ManagerJudge(make(), Config(2, 4, 2, caching=True, chunked=True))
    for operation in [
        *[("new", 1, (1,), (0, 0, 0, 0)), ("admit", 1, 1), ("new", 2, (2,), (0, 0, 0, 0)), ("admit", 2, 1), ("run", 0)],
        *[("extend", 2, 1), ("swap_out", 1), ("run", 0), ("swap_out", 2)],
    ]:
        assert judge.apply(operation)
    assert judge.seqs[1].observed_table == judge.seqs[2].observed_table == [4, 5]
    assert judge.apply(("run", 0))
    assert judge.coverage["swap into a block that is behind"] == 1
