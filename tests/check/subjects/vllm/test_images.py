"""vLLM's V1 scheduler with images, each release in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

RUN = """
import sys
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.registry import find

config = SchedulerConfig(
    2, 9, chunked=True, images=True, max_num_batched_tokens=7, max_num_seqs=2, max_model_len=14, policy="priority",
    long_prefill_threshold=3,
)
STEP = [("schedule",), ("launch",), ("complete", (0,))]
PLAIN = (None, 0, None)
OPERATIONS = [
    ("add", 1, (1,), (0,) * 14, 1, PLAIN, (("Q", 12, 2),), None, (0, False), 9), *STEP,
    ("add", 2, (2,), (0, 0), 2, PLAIN, (), None, (0, False), 0), *STEP, *STEP, *STEP, *STEP, *STEP, *STEP,
]
judge = SchedulerJudge(find(sys.argv[1])(), config)
try:
    for operation in OPERATIONS:
        judge.apply(operation)
except Finding as finding:
    print(finding.property, finding.text)
print(judge.coverage["image computed"], judge.coverage["image read"])
"""
LACKING = "hit-written schedule(): a step computes tokens of image Q of sequence 1, and the worker has no output of it"


def ran(release: str) -> list[str]:
    download.add(f"vllm=={release}")
    command = [sys.executable, "-c", RUN, f"vllm-v1-images=={release}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_an_image_of_a_request_that_is_preempted_in_its_step_is_never_computed() -> None:
    assert ran("0.33.0") == [LACKING, "0 1"]


@pytest.mark.parametrize("release", ["0.12.0", "0.14.0", "0.23.0"])
def test_an_image_is_computed_before_its_tokens(release: str) -> None:
    (counts,) = ran(release)
    num_computed, num_read = map(int, counts.split())
    assert num_computed
    assert num_read >= num_computed


def test_a_short_hunt_with_images_refutes_nothing(tmp_path: Path) -> None:
    download.add("vllm==0.33.0")
    command = [str(Path(sys.executable).with_name("kvproof")), "hunt", "--subject", "vllm-v1-images==0.33.0"]
    command += ["--seed", "1", "--effort", "20000", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
