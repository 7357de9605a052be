"""vLLM's scheduler with its own OffloadingConnector: what a step stores, waits for and loads, and two known faults."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
RELEASE = "0.33.0"
CONFIG = SchedulerConfig(
    num_gpu_blocks=5, block_size=2, max_model_len=7, max_num_seqs=1, connector="offloading", host_slots=3
)
NEXT = (("schedule",), ("launch",), ("complete", (1,)))
LOADING = ("complete", (1,), (), (), (), ())  # a step completes, and no copy is over
FIRST = (("add", 1, (1,), (0, 1, 2, 3), 1), *NEXT)


def judged(config: SchedulerConfig, *operations: tuple[Any, ...]) -> SchedulerJudge:
    """The judge after this run. Raises Finding."""
    download.add(f"vllm=={RELEASE}")
    subject: Any = find(f"vllm-v1-scheduler=={RELEASE}")()
    judge = SchedulerJudge(subject, config)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def test_what_a_request_computed_is_stored_with_the_next_step_and_loaded_by_a_later_request() -> None:
    second = (("add", 2, (2,), (0, 1, 2, 3, 4), 1), ("schedule",))
    judge = judged(CONFIG, *FIRST, ("schedule",), ("launch",), ("complete", (1,), (), (), (), (0,)), *second)
    assert judge.host is not None
    assert [*judge.host.slots] == [0, 1]
    assert judge.answer.startswith("sequence 2: loads 0 to 4 (copy 1: 0 -> ")
    last = (("launch",), ("complete", (1,), (), (), (), (0,)), *NEXT)
    assert all(judge.apply(operation) for operation in last)
    assert (judge.coverage["load from host memory"], judge.is_done()) == (1, True)


def test_a_step_waits_for_the_store_of_a_block_that_it_gives_away() -> None:
    other = (("add", 2, (2,), (7, 7, 7, 7, 7, 7, 7), 1), ("schedule",))
    judge = judged(CONFIG, *FIRST, *other)
    assert "waits for copy 0" in judge.answer
    assert all(judge.apply(operation) for operation in (("launch",), ("complete", (1,))))
    assert judge.host is not None
    assert not judge.host.copies


def test_a_load_begins_only_if_the_whole_prompt_fits_beside_another_load() -> None:
    """As by default (`scheduler_reserve_full_isl`): else two requests would hold what the other one needs."""
    config = SchedulerConfig(
        num_gpu_blocks=4, block_size=2, max_model_len=5, connector="offloading", host_slots=1, policy="priority"
    )
    stored = (("add", 1, (1,), (0, 1), 1), *NEXT, ("add", 2, (2,), (0,), 1), ("schedule",), ("launch",))
    short = (
        ("complete", (1,), (), (), (), (0,)),
        ("add", 3, (3,), (0, 1), 1, (None, 0, None), (), None, (0, False), 1),
    )
    judge = judged(config, *stored, *short, ("schedule",))
    assert judge.answer.startswith("sequence 3: loads 0 to 2")
    prompt = ("add", 4, (4,), (0, 1, 1, 0, 1), 1)
    assert all(judge.apply(operation) for operation in (prompt, ("launch",), LOADING, ("drain", (1,))))
    assert judge.is_done()


def test_two_resets_between_two_steps_raise_while_a_copy_is_under_way() -> None:
    with pytest.raises(Finding, match=r"reset_caches.* raised AssertionError"):
        judged(CONFIG, *FIRST[:2], ("launch",), ("complete", (1,)), ("reset_caches", False), ("reset_caches", False))


def test_after_the_last_request_no_reset_preempts_what_runs() -> None:
    config = replace(CONFIG, chunked=True, max_num_batched_tokens=1)
    judge = judged(config, ("add", 1, (1,), (0, 1, 2, 3), 1), *NEXT, ("reset_caches", True), *NEXT, ("stop",))
    assert not judge.apply(("reset_caches", True))
    assert judge.apply(("reset_caches", False))
    assert judge.apply(("drain", (1,)))
    assert judge.is_done()


def test_a_prompt_of_one_token_in_one_block_is_loaded_again_and_again() -> None:
    config = SchedulerConfig(num_gpu_blocks=4, block_size=1, max_model_len=2, max_num_seqs=1, connector="offloading")
    add = ("add", 1, (1,), (0,), 1)
    stored = judged(config, add, *NEXT, ("schedule",), ("launch",), ("complete", (1,), (), (), (), (0,)))
    loaded = (("add", 2, (2,), (0,), 1), ("schedule",), ("launch",), ("complete", (1,), (), (), (), (0,)))
    assert all(stored.apply(operation) for operation in loaded)
    with pytest.raises(Finding, match="is of no sequence that waits"):
        stored.apply(("schedule",))


def test_the_window_of_a_second_group_is_stored_and_loaded() -> None:
    config = replace(CONFIG, num_gpu_blocks=10, host_slots=6, kv_groups=("full", "window"), window=2)
    stored = (*FIRST, ("schedule",), ("launch",), ("complete", (1,), (), (), (), (0,)))
    second = (("add", 2, (2,), (0, 1, 2, 3, 4), 1), ("schedule",), ("launch",), ("complete", (1,), (), (), (), (0,)))
    judge = judged(config, *stored, *second, *NEXT)
    assert (judge.coverage["load from host memory"], judge.is_done()) == (1, True)


WALK = """
import sys
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.registry import find

fixed = {"async_steps": 0, "keys": 1, "policy": "fcfs", "kv_groups": ["full", "window"]}
subject, effort = find("vllm-offloading==" + sys.argv[1])(), int(sys.argv[2])
done = walk(SCHEDULERS, subject, 1, max_operations=effort, seconds=120, fixed=fixed)
print(done.finding, done.coverage["load from host memory"] > 10)
"""


def walked(release: str, effort: int = 2_000) -> subprocess.CompletedProcess[str]:
    """What a walk of a release printed, in a process of its own."""
    download.add(f"vllm=={release}")
    return subprocess.run(
        [sys.executable, "-c", WALK, release, str(effort)], capture_output=True, text=True, timeout=200
    )


def test_a_connector_with_a_window_beside_full_attention_is_not_refuted() -> None:
    assert walked("0.33.0").stdout == "None True\n"


def test_the_oldest_connector_gives_away_what_a_store_reads_when_a_reset_preempts() -> None:
    assert walked("0.21.0", 20_000).stdout.startswith("('source-held', 'launch(): block ")


def test_a_connector_whose_worker_reports_requests_is_not_driven() -> None:
    assert "no connector that can be driven; the first release is 0.21.0" in walked("0.20.2").stderr
