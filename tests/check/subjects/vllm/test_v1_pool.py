"""vLLM's V1 block pool at pool level, each release in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

HUNT = [str(Path(sys.executable).with_name("kvproof")), "hunt", "--stop-at-first", "--seed", "1", "--budget"]


def hunted(release: str, seconds: int, folder: Path, *options: str) -> tuple[int, str]:
    download.add(f"vllm=={release}")
    command = [*HUNT, str(seconds), "--subject", f"vllm-v1-pool=={release}", "--out", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("release", ["0.10.2", "0.20.0", "0.23.0"])
def test_a_block_freed_twice_in_one_call_is_found(release: str, tmp_path: Path) -> None:  # vLLM issue 42571
    code, output = hunted(release, 60, tmp_path)
    assert code == 1, output
    assert f"lists-agree is refuted for vllm-v1-pool=={release}" in output
    (saved,) = (tmp_path / "crashes").glob("*.json")
    operations = json.loads(saved.read_text())["operations"]
    assert len(operations) <= 12
    name, _, others = operations[-1]
    assert (name, len(others)) == ("give", 1)


@pytest.mark.parametrize("release", ["0.24.0", "0.33.0"])
def test_the_pool_that_was_repaired_is_not_refuted(release: str, tmp_path: Path) -> None:
    code, output = hunted(release, 10, tmp_path, "--property", "lists-agree")  # F20 breaks events-agree
    assert code == 0, output
    witnesses = json.loads((tmp_path / "result.json").read_text())["witnesses"]
    assert any(one["name"] == "a block twice in one call" and one["count"] > 100 for one in witnesses)


RUNS = {  # a block without content is free, and the call evicts a cached one that was released earlier
    "vllm-v1-pool": (
        "PoolConfig(num_gpu_blocks=3, caching=True)",
        [("store", 1, (0,)), ("give", 1), ("take", 2, 1), ("give", 2), ("store", 3, (0,))],
    ),
    "vllm-v1": (
        "Config(2, 7, window=2, caching=True, lookahead=1, kv_groups=('window', 'full'))",
        [
            *(("new", 1, (1,), (0, 0), (None, 0, None), ()), ("admit", 1, 2), ("run", 0), ("free", 1)),
            *(("new", 2, (2,), (1, 1), (None, 0, None), ()), ("admit", 2, 2)),
        ],
    ),
}
JUDGED = """
import sys
from kvproof.check.oracle.level import level_of_config
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.subjects.registry import find

config = {config}
judge = level_of_config(config).open(find(sys.argv[1])(), config)
print(all([judge.apply(operation) for operation in {operations}]), judge.explainer.order.takes_empty_first)
"""


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("release", "takes_empty_first"), [("0.22.0", False), ("0.23.0", False), ("0.24.0", True)])
def test_blocks_without_content_go_first_from_0_24_on(name: str, release: str, takes_empty_first: bool) -> None:
    download.add(f"vllm=={release}")
    config, operations = RUNS[name]
    program = JUDGED.format(config=config, operations=operations)
    command = [sys.executable, "-c", program, f"{name}=={release}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == f"True {takes_empty_first}\n", done.stderr
