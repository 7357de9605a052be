"""One run for every report: a refutation with its trace, and one check of each other verdict."""

from pathlib import Path

import pytest

from kvproof.reports.document import write
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Verdict

TRACE = Trace(
    subject="vllm-v0==0.2.7",
    property="refcount-exact",
    text="refcount of block 1: the specification says 1, the subject 2",
    config={"num_gpu_blocks": 3, "window": 8},
    operations=[["new", 0, [0], [5]], ["fork", 0, 1]],
    judge="walker",
    seed=7,
    steps=['new("p", 10 tokens)', 'fork("p", "c")'],
    version="0.1.0",
)


@pytest.fixture
def refuted(tmp_path: Path) -> Result:
    """A refuted run whose trace lies in tmp_path."""
    (tmp_path / "crashes").mkdir()
    write(tmp_path / "crashes" / "one.json", TRACE)
    result = Result(Run("0.1.0", "verify", "vllm-v0==0.2.7", 7, {"python": "3.11"}, "2026-01-02T03:04:05Z", 2.5))
    text = TRACE.text
    done = {"operations": 1_000_000, "runs": 40}
    result.checks = [
        Check("explorer/read-back/tiny", "explorer", "read-back", Verdict.EXHAUSTED, 1.0, {"states": 288}),
        Check("explorer/read-back/small", "explorer", "read-back", Verdict.UNKNOWN, 1.0, {"states": 900}, "no time"),
        Check(
            "walker/refcount-exact", "walker", "refcount-exact", Verdict.REFUTED, 1.0, done, text, "crashes/one.json"
        ),
        Check("walker/read-back", "walker", "read-back", Verdict.NOT_REFUTED, 1.0, done),
        Check("walker/swap-mapping", "walker", "swap-mapping", Verdict.UNSUPPORTED, text="the subject cannot swap"),
    ]
    result.witnesses = [
        WitnessCount("pool-full", "walker", 1200),
        WitnessCount("three-holders", "walker", 0),
        WitnessCount("reset", "walker", 0, is_expected=False),
    ]
    result.run.is_complete = True
    result.count_totals()
    return result


@pytest.fixture
def passed() -> Result:
    """A run that found nothing, and left nothing open."""
    result = Result(Run("0.1.0", "verify", "kvproof", 7, seconds=2.5, is_complete=True))
    result.checks = [
        Check("explorer/read-back/tiny", "explorer", "read-back", Verdict.EXHAUSTED, 1.0, {"states": 288}),
        Check("explorer/read-back/small", "explorer", "read-back", Verdict.EXHAUSTED, 1.0, {"states": 1000}),
        Check("explorer/frame-kept/small", "explorer", "frame-kept", Verdict.EXHAUSTED, 1.0, {"states": 1000}),
        Check("walker/read-back", "walker", "read-back", Verdict.NOT_REFUTED, 1.0, {"operations": 5000}),
        Check("walker/swap-mapping", "walker", "swap-mapping", Verdict.UNSUPPORTED),
    ]
    result.count_totals()
    return result
