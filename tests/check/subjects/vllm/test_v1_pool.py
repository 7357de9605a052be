"""vLLM's V1 block pool at pool level, each release in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

HUNT = [str(Path(sys.executable).with_name("kvproof")), "hunt", "--stop-at-first", "--seed", "1", "--budget"]


def hunted(release: str, seconds: int, folder: Path) -> tuple[int, str]:
    download.add(f"vllm=={release}")
    command = [*HUNT, str(seconds), "--subject", f"vllm-v1-pool=={release}", "--out", str(folder)]
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
    code, output = hunted(release, 10, tmp_path)
    assert code == 0, output
    assert "a block twice in one call" in output
