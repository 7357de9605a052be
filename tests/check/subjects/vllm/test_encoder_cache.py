"""vLLM's cache of encoder outputs, each release in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

HUNT = [str(Path(sys.executable).with_name("kvproof")), "hunt", "--seed", "1", "--effort", "10000"]


def hunted(release: str, folder: Path, *options: str) -> tuple[int, set[str]]:
    """The exit code, and the properties that are refuted."""
    download.add(f"vllm=={release}")
    command = [*HUNT, "--subject", f"vllm-encoder-cache=={release}", "--out", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    checks = json.loads((folder / "result.json").read_text())["checks"]
    return done.returncode, {check["property"] for check in checks if check["verdict"] == "refuted"}


@pytest.mark.parametrize("release", ["0.11.0", "0.27.1"])
def test_the_report_of_what_is_computed_again_is_found(release: str, tmp_path: Path) -> None:  # vLLM PR 52482, 54284
    assert hunted(release, tmp_path) == (1, {"events-agree", "refcount-exact"})


def test_the_image_that_is_released_at_its_first_place_is_found(tmp_path: Path) -> None:  # vLLM PR 54284
    assert hunted("0.28.0", tmp_path) == (1, {"refcount-exact"})


@pytest.mark.parametrize("release", ["0.29.0", "0.33.0"])
def test_the_cache_that_was_repaired_is_not_refuted(release: str, tmp_path: Path) -> None:
    assert hunted(release, tmp_path) == (0, set())
