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
REFUSED = {  # the release does not have what the saved run needs; the script shows that the fault is gone
    ("vllm-named-prefix-keeps-the-pool", "0.4.0"): "has no named prefixes",
}


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("one", SHOWINGS, ids=lambda one: f"{one.fault.id} {one.by} {one.release}")
def test_a_record_is_shown_both_ways(one: Showing) -> None:
    done = shown(one)
    if done.outcome is Outcome.UNKNOWN and (reason := REFUSED.get((one.fault.id, one.release))):
        assert reason in done.text
    else:
        assert (done.outcome, done.text) == (one.expected, done.text)
