"""A slow subject is not wrong: each call has a limit, a run has the end of its budget, and nothing else ends it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.hosts.time_limit import GRACE_SECONDS, Limits, OutOfTime, calls_end_at, search_ends_after
from kvproof.check.hunting import hypothesis_stage
from kvproof.check.isolation import remote_search
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle import replay as replays
from kvproof.check.oracle.repetition import confirm
from kvproof.check.oracle.replay import Counterexample, finding_of, replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.result import SearchResult
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.manager import BuiltIn

SLOW = """
import os, signal, time
from pathlib import Path
from kvproof.check.subjects.builtin.manager import BuiltIn

MADE = Path(__file__).with_name("made")

def hangs_when_made_again():
    if MADE.exists():
        time.sleep(1000)
    MADE.touch()
    return BuiltIn()

def stalls_when_made():
    stalls = Path(__file__).with_name("stalls")
    if stalls.exists():
        stalls.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
    return BuiltIn()

class Slow(BuiltIn):
    def can_append(self, *arguments):
        time.sleep(0.3)
        return super().can_append(*arguments)

class Hangs(BuiltIn):
    def can_append(self, *arguments):
        time.sleep(1000)

class StallsOnce(BuiltIn):
    num_admitted = 0
    def admit(self, *arguments):
        self.num_admitted += 1
        stalls = Path(__file__).with_name("stalls")
        if self.num_admitted == 20 and stalls.exists():
            stalls.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().admit(*arguments)

class SlowAndStops(Slow):
    def free(self, *arguments):
        os.kill(os.getpid(), signal.SIGSTOP)
"""
NEW = ("new", 1, (1,), (1, 2), (None, 0, None), ())
APPENDS = [NEW, ("admit", 1, 9), ("run", 1), *[("sample", 1, (7,)), ("append", 1), ("run", 1)] * 3]
CALL_SECONDS = 0.6


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], RemoteFactory]]:
    path, factories = tmp_path / "slow.py", list[RemoteFactory]()
    path.write_text(SLOW)

    def made(name: str) -> RemoteFactory:
        factories.append(RemoteFactory(f"{path}:{name}", Limits(call_seconds=CALL_SECONDS)))
        return factories[-1]

    yield made
    for factory in factories:
        factory.close()


def test_a_replay_is_not_watched_as_a_whole(
    make: Callable[[str], RemoteFactory], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECONDS_MAX", "HANG_SECONDS_MAX"):
        monkeypatch.setattr(replays, name, 0.1)
    done = replay(make("Slow"), Config(), APPENDS)
    assert (done.finding, done.is_out_of_time, done.num_enabled) == (None, False, len(APPENDS))


def test_searches_of_a_slow_subject_end_with_their_time_and_find_nothing(make: Callable[[str], RemoteFactory]) -> None:
    subject, began = make("Slow")(), time.monotonic()
    with search_ends_after(0.5):
        done = remote_search.walk(MANAGERS, subject, 1, max_operations=10_000, seconds=0.5)
    assert 0.5 <= time.monotonic() - began < 0.5 + GRACE_SECONDS + 1.5
    assert done.finding is None
    assert 0 < done.num_operations < 200
    with calls_end_at(time.monotonic() + 0.7):
        driven = drive(subject, 1, examples=50, steps=50)
        assert driven.finding is None
        with pytest.raises(OutOfTime):
            finding_of(subject, Config(), APPENDS)
    assert time.monotonic() - began < 6


def test_what_was_reached_before_a_call_that_did_not_end_in_time_is_kept(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    factory = RemoteFactory(f"{tmp_path / 'slow.py'}:Hangs", Limits(call_seconds=60.0))
    with search_ends_after(0.5):
        done = remote_search.walk(MANAGERS, factory(), 1, max_operations=10_000, seconds=0.5)
    factory.close()
    assert done.finding is None
    assert done.coverage
    assert 0 < sum(done.kinds.values()) == done.num_operations


@pytest.mark.parametrize(
    "search",
    [
        lambda subject: remote_search.walk(MANAGERS, subject, 1, max_operations=1_000, seconds=60),
        lambda subject: remote_search.explore(MANAGERS, subject, Scope(2, num_seqs=2, num_tokens=2), seconds=60),
        lambda subject: hypothesis_stage.driven(subject, 1),
    ],
    ids=["walk", "explore", "hypothesis"],
)
def test_a_process_that_was_stopped_once_changes_nothing_in_the_result(
    make: Callable[[str], RemoteFactory],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    search: Callable[[Any], SearchResult],
) -> None:
    monkeypatch.setattr(hypothesis_stage, "NUM_EXAMPLES", 20)
    factory, marker = make("StallsOnce"), tmp_path / "stalls"
    usual = search(factory())
    marker.touch()
    stalled = search(factory())
    assert not marker.exists()
    assert usual.num_operations > 150
    assert replace(stalled, seconds=0.0) == replace(usual, seconds=0.0)


def test_a_process_that_was_stopped_before_its_first_run_is_not_refuted(
    make: Callable[[str], RemoteFactory], tmp_path: Path
) -> None:
    factory, marker = make("stalls_when_made"), tmp_path / "stalls"
    marker.touch()
    done = remote_search.explore(MANAGERS, factory(), Scope(2, num_seqs=2, num_tokens=2), seconds=60)
    assert not marker.exists()
    assert (done.finding, done.is_exhausted) == (None, True)


class LateOnce(BuiltIn):
    """As a program behind a pipe, whose calls have limits; it gives no answer to one call."""

    limits_its_calls = True
    num_left = 0

    def admit(self, group: int, num_tokens: int) -> Any:
        self.num_left -= 1
        if not self.num_left:
            raise Finding("total-calls", "no answer", "admit hang")
        return super().admit(group, num_tokens)


def test_a_program_that_was_late_once_changes_nothing_in_the_walk() -> None:
    subject = LateOnce()
    usual = remote_search.walk(MANAGERS, subject, 1, max_operations=1_000, seconds=60)
    subject.num_left = 60
    late = remote_search.walk(MANAGERS, subject, 1, max_operations=1_000, seconds=60)
    assert subject.num_left < 0
    assert replace(late, seconds=0.0) == replace(usual, seconds=0.0)


def test_a_finding_for_whose_replays_no_time_is_left_is_kept_as_it_is(make: Callable[[str], RemoteFactory]) -> None:
    factory, finding = make("Slow"), Finding("table-size", "as found")
    found = Counterexample(Config(), APPENDS, finding)
    with calls_end_at(time.monotonic() + 0.4):
        assert confirm(factory, found) is found
        assert shrink(factory(), found, 60.0) is found


def test_a_subject_that_is_made_again_has_what_is_left_of_the_run(make: Callable[[str], RemoteFactory]) -> None:
    factory = make("hangs_when_made_again")
    factory.server.server.process.kill()
    factory.server.server.process.wait(10)
    began = time.monotonic()
    with calls_end_at(began + 0.4), pytest.raises(OutOfTime):
        factory().open(Config())
    assert time.monotonic() - began < 5


@pytest.mark.long
def test_a_stopped_process_repeats_itself(make: Callable[[str], RemoteFactory]) -> None:
    factory = make("SlowAndStops")
    run = [*APPENDS, ("free", 1)]
    finding = finding_of(factory(), Config(), run)
    assert finding is not None
    assert finding.kind == ("total-calls", "free hang")
    text_of_another_clock = Finding("total-calls", "no answer within 20 s", "hang")
    assert confirm(factory, Counterexample(Config(), run, text_of_another_clock)).finding is text_of_another_clock
