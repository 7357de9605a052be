"""A hunt finds each fault of a release with a short run, and the run passes where the fault is repaired.

The faults are those of docs/findings.md. Effort is counted in operations, so a busy machine changes no verdict. Two
faults need more than the others.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import engine_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
LONG = {
    "drafting": ("--budget", "120"),
    "36708": (
        "--effort",
        "100000",
        "--fix",
        "keys=1",
    ),  # adapters and salts have a fault of the same rule, not repaired
}
NUM_OPERATIONS_MAX = 12


def kvproof(*arguments: str) -> str:
    """The output of a command. Its exit code must say that it worked, whether or not it found something."""
    command = [str(Path(sys.executable).with_name("kvproof")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("faulty", "repaired", "property", "mechanism"),
    [
        pytest.param("vllm-v0==0.3.3", "vllm-v0==0.4.0", "refcount-exact", "fork: ", id="1556"),
        pytest.param("vllm-v0==0.4.2", "vllm-v0==0.4.3", "no-use-after-free", "admit: ", id="4764"),
        pytest.param("vllm-v0==0.5.4", "vllm-v0==0.5.5", "admission-sound", "swap_in NoFreeBlocksError: ", id="6849"),
        pytest.param("vllm-v0==0.10.2", None, "admission-sound", "admit NoFreeBlocksError: ", id="4545"),
        pytest.param("vllm-v0==0.6.4.post1", "vllm-v0==0.6.5", "sharing-equal", "admit: ", id="8240"),
        pytest.param("vllm-v0-generation1==0.5.5", "vllm-v0-generation1==0.6.0", "hit-computed", "run: ", id="7753"),
        pytest.param("vllm-v0==0.9.1", "vllm-v0==0.9.2", "hit-computed", "", id="18957"),
        pytest.param("vllm-v0-scheduler==0.6.6.post1", "vllm-v0-scheduler==0.7.0", "refcount-exact", "", id="10013"),
        pytest.param("vllm-v1==0.6.6.post1", "vllm-v1==0.7.0", "failed-call-changes-nothing", "admit: ", id="11565"),
        pytest.param("vllm-v1==0.7.0", "vllm-v1==0.7.1", "sharing-equal", "admit: ", id="image-in-the-chain"),
        pytest.param("vllm-v1-pool==0.23.0", "vllm-v1-pool==0.24.0", "lists-agree", "give: ", id="42571"),
        pytest.param("vllm-v1-pool==0.33.0", None, "events-agree", "", id="55092"),
        pytest.param("vllm-v1==0.30.0", "vllm-v1==0.31.0", "sharing-equal", "admit: ", id="30931"),
        pytest.param("vllm-v1-scheduler==0.13.0", "vllm-v1-scheduler==0.16.0", "in-flight-held", "abort: ", id="32255"),
        pytest.param("vllm-v1-scheduler==0.32.0", "vllm-v1-scheduler==0.33.0", "running-served", "", id="26765"),
        pytest.param("vllm-v1==0.8.5", "vllm-v1==0.9.0", "window-kept", "run: ", id="drafting"),
        pytest.param("vllm-v1==0.18.1", "vllm-v1==0.19.0", "sharing-equal", "admit: ", id="36708"),
        pytest.param("vllm-offload==0.16.0", "vllm-offload==0.18.1", "evict-unreferenced", "begin_store: ", id="35846"),
        pytest.param(
            "vllm-offload==0.18.1", "vllm-offload==0.19.1", "failed-call-changes-nothing", "begin_store: ", id="refused"
        ),
        pytest.param("lmcache-allocator==0.5.4", None, "no-double-free", "give_again: ", id="5005"),
        pytest.param("lmcache-allocator==0.5.6", None, "no-double-free", "give_again: ", id="5005-newest"),
        pytest.param("lmcache-l1==0.5.4", "lmcache-l1==0.5.6", "hit-written", "", id="4967"),
        pytest.param("lmcache-l1==0.5.5", "lmcache-l1==0.5.6", "hit-written", "", id="4967-too"),
        pytest.param("sglang==0.5.23", None, "hit-computed", "admit: ", id="24638"),
        pytest.param("sglang-hicache==0.5.5", "sglang-hicache==0.5.6", "no-double-free", "report: ", id="13483"),
        pytest.param("sglang-scheduler==0.5.21", "sglang-scheduler==0.5.22", "frame-kept", "schedule: ", id="36855"),
        pytest.param("vllm-offload==0.21.0", "vllm-offload==0.30.0", "refusal-needed", "begin_store: ", id="arc"),
    ],
)
def test_a_hunt_finds_the_fault_of_a_release_and_its_run_passes_once_it_is_repaired(
    faulty: str, repaired: str | None, property: str, mechanism: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for name in filter(None, (faulty, repaired)):
        download.add(f"{engine_of(name)}=={name.partition('==')[2]}")
    effort = LONG.get(request.node.callspec.id, ("--effort", "100000"))
    kvproof("hunt", "--subject", faulty, "--seed", "1", *effort, "--out", str(tmp_path))
    checks = json.loads((tmp_path / "result.json").read_text())["checks"]
    found = {
        tmp_path / check["trace"]
        for check in checks
        if check["property"] == property and check.get("trace") and check.get("signature", "").startswith(mechanism)
    }
    short = [path for path in found if len(json.loads(path.read_text())["operations"]) <= NUM_OPERATIONS_MAX]
    assert short
    assert all(kvproof("replay", str(path)).startswith("FAILED") for path in short)
    if repaired is not None:
        assert any(kvproof("replay", str(path), "--subject", repaired).startswith("FIXED") for path in short)
