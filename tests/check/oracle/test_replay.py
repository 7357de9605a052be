"""Whether a finding is believed: only if the same calls give it again."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvproof.check.oracle.repetition import confirm, difference, is_same_failure
from kvproof.check.oracle.replay import Counterexample, replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Observation
from kvproof.spec.trace import Operation

Altered = Callable[..., Callable[[], ManagerSubject]]

CONFIG = Config(block_size=1, num_gpu_blocks=2)
RUN: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("free", 1)]


def keep_it(self: Any, seq: int) -> None:
    self.manager.tables.pop(seq)


def test_a_finding_that_repeats_is_believed(altered: Altered) -> None:
    make = altered(release=keep_it)
    found = replay(make, CONFIG, RUN).finding

    assert found is not None
    assert confirm(make, Counterexample(CONFIG, RUN, found)).finding is found


def test_a_finding_that_does_not_occur_again_is_nondeterministic(altered: Altered) -> None:
    doubted = confirm(altered(), Counterexample(CONFIG, RUN, Finding("read-back", "wrong bytes"))).finding

    assert doubted.property == "nondeterministic"
    assert "first read-back: wrong bytes, then, on a fresh subject, nothing was refuted" in doubted.text


def test_another_kind_of_finding_the_next_time_is_nondeterministic(altered: Altered) -> None:
    make = altered(release=keep_it)

    assert (
        confirm(make, Counterexample(CONFIG, RUN, Finding("read-back", "wrong bytes"))).finding.property
        == "nondeterministic"
    )


def test_answers_that_differ_are_named_by_their_call(altered: Altered) -> None:
    count = itertools.count()
    make = altered(refcounts=lambda self: [next(count), 0])

    doubted = confirm(make, Counterexample(CONFIG, RUN, Finding("refcount-exact", "wrong"))).finding

    assert doubted.property == "nondeterministic"
    assert "call 2, observe(); it answered refs [0, 0], then refs [2, 0]\n" in doubted.text
    assert "usual causes: state kept from an earlier open" in doubted.text


@pytest.mark.parametrize(
    ("turns", "length"),
    [
        pytest.param(itertools.cycle([True, False]), 2, id="each time"),
        pytest.param(itertools.chain([True], itertools.repeat(False)), len(RUN), id="once"),
    ],
)
def test_a_run_ends_with_the_operation_of_the_call_that_differs_if_it_differs_again(
    altered: Altered, turns: Iterator[bool], length: int
) -> None:
    def allocate(self: Any, seq: int, tokens: list[int]) -> None:
        if next(turns):
            self.manager.free_blocks.reverse()
        self.manager.allocate(seq, len(tokens))

    doubted = confirm(altered(allocate=allocate), Counterexample(CONFIG, RUN, Finding("refcount-exact", "wrong")))

    assert "call 7, observe(); it answered tables {1: [[0]]}, refs [1, 0], then " in doubted.finding.text
    assert doubted.operations == RUN[:length]


def test_a_run_that_differs_when_the_subject_is_opened_needs_no_operation(altered: Altered) -> None:
    count = itertools.count()
    make = altered(refcounts=lambda self: [next(count), 0])

    assert confirm(make, Counterexample(CONFIG, RUN, Finding("refcount-exact", "wrong"))).operations == []


def test_two_runs_of_a_subject_that_repeats_do_not_differ(altered: Altered) -> None:
    one, other = replay(altered(), CONFIG, RUN), replay(altered(), CONFIG, RUN)

    assert difference(one, other) is None
    assert (one.num_enabled, one.finding) == (4, None)


def test_a_record_compares_the_values_of_an_answer_and_not_its_objects(altered: Altered) -> None:
    kept, free = [0], (2, 0)
    one = altered(observe=lambda self: Observation({1: [kept]}, free, ()))
    same = altered(observe=lambda self: Observation({1: [[*kept]]}, free, ()))
    other = altered(observe=lambda self: Observation({1: [[1]]}, free, ()))

    calls = [replay(make, CONFIG, []).calls_of_open[-1] for make in (one, same, other)]

    assert calls[0].comparable == calls[1].comparable != calls[2].comparable
    assert [call.text for call in calls] == [f"([(1, [[{at}]])], (2, 0), (), None, None, ())" for at in (0, 0, 1)]


def test_a_record_keeps_the_text_of_an_answer_that_is_no_plain_data(altered: Altered) -> None:
    class Number(int):
        pass

    make = altered(tables=lambda self: {Number(seq): table for seq, table in self.manager.tables.items()})

    observed = [call for call in replay(make, CONFIG, RUN[:2]).calls() if call.name == "observe"]

    assert [type(call.comparable) for call in observed] == [bytes, bytes, str]
    assert observed[-1].text.startswith("([(1, [[")


def test_tables_are_kept_as_they_were_observed(altered: Altered) -> None:
    shown: dict[int, list[list[int]]] = {}

    def observe(self: Any) -> Observation:
        shown.clear()
        shown.update({seq: [table] for seq, table in self.manager.tables.items()})
        return Observation(shown, (self.num_free(), 0))

    done = replay(altered(observe=observe), CONFIG, RUN[:2])

    assert done.calls_of_open[-1].answer.tables == {}
    assert done.steps[-1].calls[-1].answer.tables == {1: [[1]]}


HANG = Finding("total-calls", "fork(1, 2) gave no answer within 3 s", "fork hang")


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param(Finding("total-calls", "no answer within 5 s", "hang"), True, id="the clock of the run"),
        pytest.param(Finding("total-calls", "fork(1, 2) raised MemoryError", "fork MemoryError"), True, id="memory"),
        pytest.param(Finding("total-calls", "free(1) raised MemoryError", "free MemoryError"), False, id="other call"),
        pytest.param(Finding("refcount-exact", "wrong"), False, id="other property"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_a_slow_call_is_the_same_failure_whichever_limit_ends_it(other: Finding | None, is_same: bool) -> None:
    assert is_same_failure(HANG, other) is is_same_failure(other, HANG) is is_same


def test_a_call_that_two_clocks_watch_repeats_itself(altered: Altered) -> None:
    ends = itertools.cycle([HANG, MemoryError()])

    def stuck(self: Any, parent: int, child: int) -> None:
        raise next(ends)

    run = [*RUN[:3], ("fork", 1, 2)]
    make = altered(fork=stuck)
    found = replay(make, CONFIG, run).finding
    assert found is HANG
    assert confirm(make, Counterexample(CONFIG, run, found)).finding is found


def test_a_call_that_hangs_once_while_a_finding_is_repeated_does_not_replace_the_finding(altered: Altered) -> None:
    hangs = itertools.chain([False, True], itertools.repeat(False))

    def release(self: Any, seq: int) -> None:
        if next(hangs):
            raise HANG
        keep_it(self, seq)

    make = altered(release=release)
    found = replay(make, CONFIG, RUN).finding
    assert found is not None
    assert confirm(make, Counterexample(CONFIG, RUN, found)).finding is found


def test_a_replay_that_a_slow_machine_cannot_end_in_time_does_not_replace_the_finding(
    altered: Altered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.check.oracle.replay.SECONDS_MAX", 0.05)
    make = altered(release=lambda self, seq: time.sleep(0.5))
    found = Counterexample(CONFIG, RUN, Finding("read-back", "wrong bytes"))
    assert confirm(make, found) is found
