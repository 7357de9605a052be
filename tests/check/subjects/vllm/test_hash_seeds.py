"""vLLM's managers give the same answers for every seed of their hashes: one run, drawn once, under several seeds."""

import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kvproof.check.oracle.level import SCHEDULER, level_of
from kvproof.check.search import configurations
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.search.scheduler_operations import SchedulerOperations
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
OF_SCHEDULERS = {
    "block_size": 2,
    "num_gpu_blocks": 16,
    "kv_groups": ("full",),
    "max_model_len": 4,
    "max_num_batched_tokens": 16,
    "preemption": "recompute",
    "partial_prefills": 1,
}


def seen(name: str, number: int, hash_seed: int) -> Any:
    """The operations of a run, and what the subject shows after the last of them."""
    subject: Any = find(name)()
    random, fixed = Random(number), {"caching": True, "keys": 1}
    operations: list[Any] = []
    driver: ManagerOperations | SchedulerOperations
    if level_of(subject) is SCHEDULER:
        plain = configurations.draw_for_scheduler(random, subject.capabilities, fixed | OF_SCHEDULERS)
        driver = SchedulerOperations(subject, random, replace(plain, hash_seed=hash_seed))
    else:
        config = configurations.draw(random, subject.capabilities, fixed)
        driver = ManagerOperations(subject, random, replace(config, hash_seed=hash_seed))
    driver.run(operations, 200)
    return operations, subject.observe()


def num_that_differ(name: str) -> int:
    """Of three runs, how many are not the same under every seed."""
    return sum(
        any(seen(name, number, hash_seed) != seen(name, number, 0) for hash_seed in (1, 2, 1 << 31))
        for number in (2, 5, 7)
    )


@pytest.mark.parametrize("name", ["vllm-v1==0.33.0", "vllm-v1-scheduler==0.12.0", "vllm-v0-scheduler==0.9.2"])
def test_a_run_does_not_depend_on_the_seed_of_the_hashes(name: str) -> None:
    download.add(f"vllm=={name.partition('==')[2]}")
    program = "import runpy, sys; print(runpy.run_path(sys.argv[1])['num_that_differ'](sys.argv[2]))"
    command = [sys.executable, "-c", program, __file__, name]  # each release needs a process of its own
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "0"
