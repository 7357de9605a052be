"""vLLM's own schedulers under the judge of the loop, each release in a process of its own."""

import json
import subprocess
import sys
from typing import Any

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

WALK = """
import json, sys
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.registry import find

name, fixed, num_operations, property = json.loads(sys.argv[1])
make = find(name)
for seed in range(1, 40):
    done = walk(SCHEDULERS, make(), seed, max_operations=num_operations, seconds=120, fixed=fixed)
    found = done.finding and [done.finding.property, done.finding.cause]
    if property is None or found and found[0] == property:
        break
print(json.dumps([found, done.num_operations, done.coverage]))
"""


def walked(release: str, subject: str, fixed: dict[str, Any], num_operations: int, property: str | None = None) -> Any:
    download.add(f"vllm=={release}")
    arguments = json.dumps([f"{subject}=={release}", fixed, num_operations, property])
    command = [sys.executable, "-c", WALK, arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("release", "others"), [("0.6.5", {"cross": False}), ("0.9.2", {}), ("0.10.2", {})])
def test_the_v0_scheduler_without_cache_window_and_chunks_is_not_refuted(release: str, others: dict[str, Any]) -> None:
    fixed = {"caching": False, "window": None, "chunked": False} | others
    found, num_operations, witnesses = walked(release, "vllm-v0-scheduler", fixed, 30_000)
    assert found is None
    assert num_operations >= 30_000
    wanted = {"preempted", "swap_in", "swap_out", "aborted in flight", "aborted while running", "pool full"}
    assert wanted <= set(witnesses)


@pytest.mark.parametrize(
    ("fixed", "property"),
    [
        ({"caching": False, "window": 2, "chunked": False, "keys": 1}, "total-calls"),
        ({"caching": False, "window": None, "chunked": True, "keys": 1, "lookahead": 0}, "progress"),
        ({"caching": True, "chunked": True, "keys": 1}, "hit-computed"),
    ],
    ids=["a-prompt-beyond-its-window", "a-prompt-that-fills-the-pool-in-chunks", "a-chunk-that-was-not-computed"],
)
def test_what_the_v0_scheduler_is_known_to_do_wrong_is_found(fixed: dict[str, Any], property: str) -> None:
    found, _, _ = walked("0.9.2", "vllm-v0-scheduler", fixed, 60_000, property)
    assert found is not None
    assert found[0] == property


SWAPPED_OUT_TOGETHER = """
import sys
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.registry import find

sizes = {"block_size": 1, "num_gpu_blocks": 3, "num_host_blocks": 9, "max_num_seqs": 3, "max_model_len": 3}
config = SchedulerConfig(caching=True, preemption="swap", max_num_batched_tokens=120, **sizes)
judge = SchedulerJudge(find(sys.argv[1])(), config)
for number in (1, 2, 3):
    judge.apply(("add", number, (number,), (min(1, number - 1),), 2, (), (), None))
for operation in (("schedule",), ("launch",), ("complete", (0,)), ("schedule",)):
    judge.apply(operation)
print(judge.answer)
"""


def test_two_requests_of_v0_that_share_a_block_are_swapped_out_in_one_step() -> None:
    download.add("vllm==0.10.2")
    command = [sys.executable, "-c", SWAPPED_OUT_TOGETHER, "vllm-v0-scheduler==0.10.2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert "swap out [(1, 0), (1, 0)]" in done.stdout


STEP_OF_TWO_PROMPTS = """
import sys
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.registry import find

sizes = {"block_size": 2, "num_gpu_blocks": 12, "max_num_batched_tokens": 8, "max_model_len": 12, "max_num_seqs": 4}
judge = SchedulerJudge(find(sys.argv[1])(), SchedulerConfig(chunked=True, partial_prefills=int(sys.argv[2]), **sizes))
for number in (1, 2):
    judge.apply(("add", number, (number,), (0,) * 6, 1, (), (), None))
judge.apply(("schedule",))
print(judge.answer)
"""


@pytest.mark.parametrize(
    ("partial_prefills", "chunks"),
    [
        (1, "sequence 1: 0 to 6; sequence 2: 0 to 2"),
        (2, "sequence 1: 0 to 4; sequence 2: 0 to 4"),
    ],
)
def test_prompts_that_are_computed_in_part_share_a_step_of_v0(partial_prefills: int, chunks: str) -> None:
    download.add("vllm==0.10.2")
    command = [sys.executable, "-c", STEP_OF_TWO_PROMPTS, "vllm-v0-scheduler==0.10.2", str(partial_prefills)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.startswith(chunks)


@pytest.mark.parametrize(
    ("release", "fixed"),
    [
        ("0.11.0", {"transfers": False, "policy": "fcfs", "chunked": True, "max_loras": 0, "speculative_tokens": 0}),
        ("0.31.0", {"transfers": False, "connector": "", "policy": "fcfs", "events": 0, "max_loras": 0}),
        ("0.33.0", {"transfers": False, "connector": "", "events": 0}),
    ],
)
def test_a_v1_scheduler_without_what_it_is_known_to_do_wrong_is_not_refuted(
    release: str, fixed: dict[str, Any]
) -> None:
    """What is left out has findings of docs/findings.md: connectors, events (F20), priorities (F19), drafts (F23)."""
    found, num_operations, witnesses = walked(release, "vllm-v1-scheduler", fixed, 20_000)
    assert found is None
    assert num_operations >= 20_000
    wanted = {"preempted", "prompt in chunks", "hit", "slide", "aborted in flight", "aborted within its prompt"}
    assert wanted <= set(witnesses)


def test_two_adapters_of_one_name_share_blocks_in_the_v1_scheduler_of_0_30() -> None:
    fixed = {"caching": True, "keys": 2, "chunked": False}
    found, _, _ = walked("0.30.0", "vllm-v1-scheduler", fixed, 60_000, "sharing-equal")
    assert found == ["sharing-equal", ""]


@pytest.mark.parametrize(
    ("release", "fixed"),
    [
        ("0.28.0", {"keys": 1, "transfers": False, "events": 0, "policy": "fcfs", "kv_groups": ["full", "window"]}),
        ("0.33.0", {"keys": 3, "transfers": False, "events": 0}),
    ],
)
def test_a_v1_scheduler_that_goes_on_while_a_step_is_under_way_is_not_refuted(
    release: str, fixed: dict[str, Any]
) -> None:
    """What is left out has findings of docs/findings.md: connectors, events (F20), and in 0.28.0 states, priorities."""
    fixed = {"async_steps": 1, "connector": "", "sends_aborted": False, **fixed}
    found, num_operations, witnesses = walked(release, "vllm-v1-scheduler", fixed, 20_000)
    assert found is None
    assert num_operations >= 20_000
    wanted = {"scheduled while another is under way", "preempted", "hit", "slide", "aborted in flight"}
    assert wanted <= set(witnesses)


@pytest.mark.parametrize("release", ["0.12.0", "0.33.0"])
def test_the_v1_scheduler_keeps_what_chunks_of_local_attention_read(release: str) -> None:
    """What is left out has findings of docs/findings.md: F19, F20 (events), F23 (drafts, steps ahead)."""
    fixed = {"local_chunk": 4, "block_size": 2, "kv_groups": ["full", "local"], "keys": 1, "transfers": False}
    fixed |= {"policy": "fcfs", "speculative_tokens": 0, "async_steps": 0, "events": 0}
    found, num_operations, witnesses = walked(release, "vllm-v1-scheduler", fixed, 4_000)
    assert found is None
    assert num_operations >= 4_000
    assert {"hit", "local attention left an entry", "preempted"} <= set(witnesses)


@pytest.mark.parametrize(("release", "has_connector"), [("0.23.0", False), ("0.25.1", False), ("0.26.0", True)])
def test_a_v1_scheduler_has_its_connector_where_the_adapter_can_make_it(release: str, has_connector: bool) -> None:
    """Before 0.26 the connector is made from other arguments, and a walk with it ended with a fault of kvproof."""
    download.add(f"vllm=={release}")
    program = """
import sys
from kvproof.check.subjects.registry import find

print(find(sys.argv[1])().capabilities.connectors)
"""
    command = [sys.executable, "-c", program, f"vllm-v1-scheduler=={release}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert ("offloading" in done.stdout) is has_connector
    if has_connector:
        assert walked(release, "vllm-v1-scheduler", {"connector": "offloading"}, 200)[1] > 0
