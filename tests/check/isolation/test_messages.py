"""What two processes send each other: a value arrives as it was, and what is no value is refused in one way."""

from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.attacks.damage import damaged
from tests.check.drawn_runs import Run, cheaply, runs_of_any_level

from kvproof.check.hosts.channel import ChannelError
from kvproof.check.isolation.messages import TUPLES, pack, unpack
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Config
from kvproof.check.search.result import SearchResult

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
PLAIN = st.one_of(st.none(), st.booleans(), WHOLE, st.floats(allow_nan=False), TEXT, st.sampled_from(Admission))
KEYS = st.one_of(WHOLE, TEXT, st.tuples(WHOLE, TEXT))
COUNTERS = st.dictionaries(TEXT, st.integers(0, 1 << 40), max_size=3).map(Counter)


def inside(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The values that hold others; a named tuple of the protocol as an operation of its class answers it."""
    named = st.sampled_from(sorted(TUPLES)).flatmap(
        lambda name: st.tuples(*[values] * len(TUPLES[name]._fields)).map(lambda items: TUPLES[name](*items))
    )
    lists = st.lists(values, max_size=4)
    return st.one_of(lists, lists.map(tuple), st.dictionaries(KEYS, values, max_size=3), named, COUNTERS)


VALUES = st.recursive(PLAIN, inside, max_leaves=12)


@st.composite
def results(draw: st.DrawFn) -> SearchResult:
    """A result of a search that has found something."""
    texts: dict[str, Any] = {name: draw(TEXT) for name in ("sentence", "cause", "call", "sequence", "promise")}
    finding = Finding(
        "no-leak", **texts, expected=draw(VALUES), observed=draw(VALUES), blocks=(draw(st.integers(0, 9)),)
    )
    run: Run = draw(runs_of_any_level())
    counts: dict[str, Any] = {
        name: draw(st.integers(0, 1 << 40)) for name in ("num_operations", "num_runs", "num_states")
    }
    return SearchResult(Counterexample(*run, finding), coverage=draw(COUNTERS), **counts)


def sent(value: Any) -> Any:
    """The value as the other process gets it."""
    return unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(pack(value))))


def shown(value: Any) -> str:
    """The value with its types: 1, True and 1.0 are three values."""
    return repr(value)


@cheaply(150)
@given(VALUES)
def test_a_value_of_the_protocol_arrives_with_its_types(value: Any) -> None:
    assert shown(sent(value)) == shown(value)


@cheaply(40)
@given(results())
def test_the_result_of_a_search_arrives_with_its_run_and_its_finding(result: SearchResult) -> None:
    arrived = sent(result)
    found, before = arrived.counterexample, result.counterexample
    assert before is not None
    assert (found.config, found.operations, found.kind) == (before.config, before.operations, before.kind)
    assert shown((found.finding.expected, found.finding.observed)) == shown(
        (before.finding.expected, before.finding.observed)
    )
    assert str(found.finding.text) == str(before.finding.text)
    assert (arrived.num_operations, arrived.coverage) == (result.num_operations, result.coverage)


EXAMPLES = [
    pack(one)
    for one in (
        Capabilities(fork=True),
        SearchResult(Counterexample(Config(), [("run", 0)], Finding("no-leak", "x")), num_operations=3),
        [Admission.OK, {1: (2, None)}, Counter(a=1)],
        Finding("no-leak", "$expected blocks", "cause", expected=3, observed=[1]),
    )
]


@cheaply(200)
@given(st.one_of(damaged(EXAMPLES), VALUES, st.lists(st.one_of(st.integers(0, 11), VALUES), max_size=5)))
def test_what_no_process_of_kvproof_sends_is_refused_in_one_way_or_is_a_value(data: Any) -> None:
    with suppress(ChannelError):  # everything else that it raises fails the test
        pack(unpack(data))
