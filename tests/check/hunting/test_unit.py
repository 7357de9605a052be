"""A unit is done again when somebody has killed the process of its subject."""

from collections.abc import Callable

import pytest

from kvproof.check.hosts.fork_client import ENDED_SERVER
from kvproof.check.hosts.program import how_it_ended
from kvproof.check.hunting.unit import unless_killed
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.search.result import SearchResult
from kvproof.check.subjects import UnknownSubject

KILLED, ABORTED = how_it_ended(-9), how_it_ended(-6)


def found(how: str, cause: str) -> SearchResult:
    """The result of a search that ends with this finding."""
    return SearchResult(Counterexample(Config(), [], Finding("total-calls", how, cause)))


def gives(*tries: SearchResult | Exception) -> Callable[[], SearchResult]:
    """A search with these results, one after the other."""
    left = iter(tries)

    def search() -> SearchResult:
        result = next(left)
        if isinstance(result, Exception):
            raise result
        return result

    return search


def test_a_search_is_done_again_if_anybody_may_have_killed_the_process() -> None:
    clean, again = SearchResult(), found(KILLED, "free crash")
    assert unless_killed(gives(clean)) is clean
    assert unless_killed(gives(found(f"in free(1) the process {KILLED}", "crash"), clean)) is clean
    assert unless_killed(gives(found(ENDED_SERVER, "crash"), UnknownSubject(KILLED), clean)) is clean
    assert unless_killed(gives(found(KILLED, "free crash"), again)) is again  # the subject kills itself
    three = [found(KILLED, cause) for cause in ("a crash", "b crash", "c crash")]
    assert unless_killed(gives(*three)) is three[2]
    aborted = found(ABORTED, "free crash")
    assert unless_killed(gives(aborted)) is aborted
    with pytest.raises(UnknownSubject, match=ABORTED.replace("(", r"\(").replace(")", r"\)")):
        unless_killed(gives(UnknownSubject(ABORTED)))
