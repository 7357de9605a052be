"""Whether a finding is believed: only if the same calls give it again."""

import itertools
from collections.abc import Callable
from typing import Any

from kvproof.check.oracle.replay import Counterexample, confirm, difference, replay
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
    assert "call 2, observe(), answered" in doubted.text
    assert "usual causes: state kept from an earlier open" in doubted.text


def test_two_runs_of_a_subject_that_repeats_do_not_differ(altered: Altered) -> None:
    one, other = replay(altered(), CONFIG, RUN), replay(altered(), CONFIG, RUN)

    assert difference(one, other) is None
    assert (one.num_enabled, one.finding) == (4, None)


def test_tables_are_kept_as_they_were_observed(altered: Altered) -> None:
    shown: dict[int, list[list[int]]] = {}

    def observe(self: Any) -> Observation:
        shown.clear()
        shown.update({seq: [table] for seq, table in self.manager.tables.items()})
        return Observation(shown, (self.num_free(), 0))

    done = replay(altered(observe=observe), CONFIG, RUN[:2])

    assert done.opening[-1].answer.tables == {}
    assert done.steps[-1].calls[-1].answer.tables == {1: [[1]]}
