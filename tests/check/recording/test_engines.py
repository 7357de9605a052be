"""Real schedulers with their real managers, recorded and judged, each release in a process of its own."""

import json
import subprocess
import sys
from typing import Any

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

RECORD = """
import json, sys, tempfile
from pathlib import Path
from kvproof.check.recording.example_run import record_run
from kvproof.check.recording.validate import validate
from kvproof.check.subjects.registry import find

name, fixed, num_runs, fault = json.loads(sys.argv[1])
make, path = find(name), Path(tempfile.mkdtemp()) / "recording.jsonl"
if fault:
    exec(fault)
found, witnesses, num_lines = [], {}, 0
for seed in range(1, num_runs + 1):
    run = record_run(make, seed, 300, path, fixed, shows_pool=not fault and seed % 2 == 0)
    done = validate(path)
    num_lines += done.num_calls
    for witness, count in done.witnesses.items():
        witnesses[witness] = witnesses.get(witness, 0) + count
    finding = done.finding and [done.finding.property, json.loads(path.read_text().splitlines()[done.line - 1])["call"]]
    if finding or done.reason or run.finding:
        found.append([finding, done.reason, run.finding and run.finding.property])
print(json.dumps([found, num_lines, witnesses]))
"""


def recorded(release: str, subject: str, fixed: dict[str, Any], num_runs: int, fault: str = "") -> Any:
    download.add(f"vllm=={release}")
    arguments = json.dumps([f"{subject}=={release}", fixed, num_runs, fault])
    done = subprocess.run(
        [sys.executable, "-c", RECORD, arguments], capture_output=True, text=True, check=True, timeout=280
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("caching", [False, True])
def test_the_v0_scheduler_with_its_manager_is_consistent(caching: bool) -> None:
    fixed = {"caching": caching, "window": None, "chunked": False}
    found, num_lines, witnesses = recorded("0.9.2", "vllm-v0-scheduler", fixed, 12)
    assert found == []
    assert num_lines > 4_000
    wanted = {"hit", "share", "evict", "three holders"} if caching else {"append refused", "admission LATER"}
    assert wanted <= set(witnesses)


@pytest.mark.parametrize(("release", "async_steps"), [("0.12.0", 0), ("0.33.0", 0), ("0.33.0", 1)])
def test_the_v1_scheduler_with_its_manager_is_consistent(release: str, async_steps: int) -> None:
    fixed = {"transfers": False, "async_steps": async_steps} if release == "0.33.0" else {"keys": 1}
    found, num_lines, witnesses = recorded(release, "vllm-v1-scheduler", fixed, 12)
    assert found == []
    assert num_lines > 2_000
    assert {"hit", "evict", "window left an entry"} <= set(witnesses)


def test_the_v1_manager_with_every_key_is_consistent() -> None:
    found, num_lines, witnesses = recorded("0.33.0", "vllm-v1", {"caching": True}, 15)
    assert found == []
    assert num_lines > 1_000
    assert {"hit", "reset"} <= set(witnesses)


V1_FAULTS = {
    "a request leaks its first block": (
        "free = pool.free_blocks\npool.free_blocks = lambda self, blocks, *more: free(self, list(blocks)[:-1], *more)",
        {"no-leak-at-rest", "conservation"},
        {"free"},
    ),
    "a block that is hit stays in the free queue": (
        "def touch(self, blocks):\n    for block in blocks: block.ref_cnt += 1\npool.touch = touch",
        {"conservation", "admission-sound"},
        {"allocate_slots"},
    ),
    "a block keeps its hash when it is taken": (
        "pool._maybe_evict_cached_block = lambda self, block: False",
        {"admission-sound"},
        {"allocate_slots"},
    ),
}


@pytest.mark.parametrize("name", V1_FAULTS)
def test_a_fault_planted_in_the_v1_manager_diverges_at_its_line(name: str) -> None:
    code, properties, calls = V1_FAULTS[name]
    fault = f"make()\npool = sys.modules['vllm.v1.core.block_pool'].BlockPool\n{code}"
    fixed = {"transfers": False, "async_steps": 0, "caching": True, "window": None, "keys": 1}
    found, _, _ = recorded("0.33.0", "vllm-v1-scheduler", fixed, 3, fault)
    assert found
    assert {finding[0] for finding, _, _ in found if finding} <= properties
    assert {finding[1] for finding, _, _ in found if finding} == calls
