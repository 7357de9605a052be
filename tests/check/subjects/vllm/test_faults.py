"""Faults of released vLLM managers: found in a release that has them, their shortest run silent in one that has not.

Numbers are those of the issues and pull requests of vLLM. Each release runs in a process of its own.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

HUNT = """
import json, sys
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.registry import find

name, fixed, property, cause = json.loads(sys.argv[1])
make = find(name)
for seed in range(1, 400):
    done = walk(MANAGERS, make(), seed, max_operations=200_000, seconds=60, fixed=fixed)
    if done.finding is not None and (done.finding.property, done.finding.cause) == (property, cause):
        short = shrink(make(), done.counterexample, 20)
        print(json.dumps([short.config.as_dict(), short.operations, short.finding.property]))
        break
"""
REPLAY = """
import json, sys
from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.registry import find

name, config, operations = json.loads(sys.argv[1])
finding = finding_of(find(name)(), Config(**config), [tuple(one) for one in operations])
print(json.dumps(finding and [finding.property, finding.text]))
"""
PLAIN = {"keys": 1, "chunked": False, "lookahead": 0, "images": False, "group_size": 1}


def in_a_process(script: str, *arguments: Any) -> Any:
    command = [sys.executable, "-c", script, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout or "null")


@pytest.mark.parametrize(
    ("faulty", "repaired", "fixed", "property", "cause", "num_operations_max"),
    [
        pytest.param(
            "vllm-v0==0.3.3",
            "vllm-v0-generation1==0.4.0",
            PLAIN | {"num_host_blocks": 0},
            "refcount-exact",
            "",
            12,
            id="1556",
        ),
        pytest.param(
            "vllm-v0==0.4.2",
            "vllm-v0==0.4.3",
            PLAIN | {"caching": True, "num_host_blocks": 0},
            "no-use-after-free",
            "",
            36,
            id="4764",
        ),
        pytest.param(
            "vllm-v0==0.5.4",
            "vllm-v0==0.5.5",
            PLAIN | {"caching": True, "window": None, "num_host_blocks": 8},
            "admission-sound",
            "swap_in NoFreeBlocksError",
            16,
            id="6849",
        ),
        pytest.param(
            "vllm-v0==0.6.4.post1",
            "vllm-v0==0.6.5",
            PLAIN | {"caching": True, "keys": 2, "num_host_blocks": 0},
            "sharing-equal",
            "",
            8,
            id="8240",
        ),
        pytest.param(
            "vllm-v0-generation1==0.5.5",
            "vllm-v0-generation1==0.6.0",
            PLAIN | {"caching": True, "chunked": True, "num_host_blocks": 0},
            "hit-computed",
            "",
            8,
            id="7753",
        ),
        pytest.param(
            "vllm-v1==0.6.6.post1",
            "vllm-v1==0.7.0",
            PLAIN | {"caching": True},
            "failed-call-changes-nothing",
            "",
            8,
            id="11565",
        ),
        pytest.param(
            "vllm-v1==0.30.0",
            "vllm-v1==0.31.0",
            PLAIN | {"caching": True, "keys": 2},
            "sharing-equal",
            "",
            8,
            id="30931",
        ),
    ],
)
def test_a_known_fault_is_found_in_its_release_and_its_run_is_silent_in_the_repaired_one(
    faulty: str, repaired: str, fixed: dict[str, Any], property: str, cause: str, num_operations_max: int
) -> None:
    for name in (faulty, repaired):
        download.add(f"vllm=={name.partition('==')[2]}")
    config, operations, found = in_a_process(HUNT, faulty, fixed, property, cause)
    assert found == property
    assert len(operations) <= num_operations_max
    assert in_a_process(REPLAY, repaired, config, operations) is None


@pytest.mark.parametrize("release", ["0.4.3", "0.6.0", "0.10.2"])
def test_a_prompt_beyond_its_window_is_let_in_and_then_finds_no_blocks_in_every_release_since_0_4_3(
    release: str,
) -> None:
    download.add(f"vllm=={release}")
    fixed = PLAIN | {"window": 2, "caching": False, "num_host_blocks": 0}
    _, operations, _ = in_a_process(HUNT, f"vllm-v0=={release}", fixed, "admission-sound", "admit NoFreeBlocksError")
    assert [operation[0] for operation in operations] == ["new", "admit"]


# These releases have findings with what is left out: docs/findings.md.
NO_IMAGES = {"images": False}
NO_WINDOW = {"window": None}
NO_DRAFTS = {"drafting": False}


@pytest.mark.parametrize(
    ("release", "fixed"),
    [
        ("0.7.0", NO_IMAGES),
        ("0.8.5", NO_IMAGES | NO_WINDOW),
        ("0.9.2", NO_IMAGES | NO_WINDOW),
        ("0.31.0", NO_DRAFTS),
        ("0.33.0", NO_DRAFTS),
    ],
)
def test_a_v1_manager_believed_good_is_not_refuted(release: str, fixed: dict[str, Any]) -> None:
    script = """
import json, sys
from kvproof.check.subjects.registry import find
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

name, fixed = json.loads(sys.argv[1])
done = walk(MANAGERS, find(name)(), 1, max_operations=30_000, seconds=120, fixed=fixed)
print(json.dumps([done.finding and done.finding.text, done.num_operations, done.coverage["hit"] > 0]))
"""
    download.add(f"vllm=={release}")
    assert in_a_process(script, f"vllm-v1=={release}", fixed) == [None, 30_000, True]
