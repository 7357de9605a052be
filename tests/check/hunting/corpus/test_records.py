"""Every record is shown both ways: by its script and its saved run, in a bad release and in one without the fault.

`kvproof corpus reproduce` does the same. Each is a test of its own, and needs the releases of the engine.
"""

import pytest
from tests.check.hunting.corpus.conftest import EXAMPLES

from kvproof.check.hunting.corpus.both_ways import Outcome, Showing, showings, shown
from kvproof.check.hunting.corpus.record import read_all

SHOWINGS = [
    one for fault in read_all(EXAMPLES / "corpus") if fault.has_releases for one in showings(fault, EXAMPLES, False)
]
SCRIPT, RUN = "script", "saved run"
UNKNOWN = {  # what cannot be decided, and why; the other way shows the record, or a script that the fault is gone
    ("vllm-named-prefix-keeps-the-pool", RUN, "0.4.0"): "has no named prefixes",
    ("vllm-block-is-cached-after-a-chunk-that-is-left", RUN, "0.10.1"): "the subject is not asked before a call",
    ("vllm-block-is-cached-after-one-that-the-window-left", RUN, "0.10.1"): "the subject is not asked before a call",
    ("sglang-page-below-one-that-is-not-written-is-lost", RUN, "0.5.12"): "(land) is not possible here",
    # These need LMCache as it is installed, with its native locks.
    ("lmcache-late-reader-takes-the-lock-of-another", SCRIPT, "0.5.6"): "does not stand in for",
    ("lmcache-late-writer-ends-a-write-after-an-eviction", SCRIPT, "0.5.6"): "does not stand in for",
}


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("one", SHOWINGS, ids=lambda one: f"{one.fault.id} {one.by} {one.release}")
def test_a_record_is_shown_both_ways(one: Showing) -> None:
    done = shown(one)
    if (reason := UNKNOWN.get((one.fault.id, one.by, one.release))) is not None:
        assert (done.outcome, reason in done.text) == (Outcome.UNKNOWN, True), done.text
    else:
        assert (done.outcome, done.text) == (one.expected, done.text)
