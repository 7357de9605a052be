"""A subject that attacks its own process: it neither ends the run nor passes for a fault of kvproof."""

import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.check.hosts.channel import HEADER, MESSAGE_BYTES_MAX, ChannelError, Connection
from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation import remote_search, search_process
from kvproof.check.isolation.journal import SIZE_BYTES, Journal
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.remote_subject import RemoteFactory, answered
from kvproof.check.oracle.repetition import confirm
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import SCOPES
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import MANAGERS

HOSTILE = """
import mmap, os, signal, stat
from pathlib import Path
from kvproof.check.oracle.firing import SpecRunner
from kvproof.check.protocol.finding import Finding
from kvproof.check.hosts.time_limit import OutOfTime
from kvproof.check.subjects.builtin.manager import BuiltIn

HERE = Path(__file__).parent
DESCRIPTORS = range(3, 40)

def to_all(act):
    for descriptor in DESCRIPTORS:
        try:
            act(descriptor)
        except (OSError, ValueError):
            pass

def to_sockets(data):
    def write(descriptor):  # the journal stays whole
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.write(descriptor, data)
    to_all(write)

class Garbage(BuiltIn):
    def fork(self, parent, child):
        to_sockets(b"\\xff\\xff\\xff\\xffgarbage")

class Forged(BuiltIn):
    def fork(self, parent, child):
        to_sockets(b"\\0\\0\\0\\x07\\x92\\xa4done\\xc0")
        super().fork(parent, child)

class Shrinks(BuiltIn):
    def fork(self, parent, child):
        to_all(lambda descriptor: os.ftruncate(descriptor, 0))
        os._exit(0)

class Smashes(BuiltIn):
    def fork(self, parent, child):
        def smash(descriptor):
            with mmap.mmap(descriptor, 1 << 16) as memory:
                memory[:16] = b"\\xff" * 16  # the counts
                memory[24:] = b"\\xc1" * ((1 << 16) - 24)
        to_all(smash)
        os._exit(0)

class EndsItsParent(BuiltIn):
    def fork(self, parent, child):
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)

class Daemons(BuiltIn):
    def fork(self, parent, child):
        super().fork(parent, child)
        pid = os.fork()
        if not pid:
            os.setsid()
            if not os.fork():
                with (HERE / "daemons").open("a") as file:
                    file.write(f"{os.getpid()}\\n")
                while True:
                    signal.pause()
            os._exit(0)
        os.waitpid(pid, 0)

class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no text")

class RaisesUnreadable(BuiltIn):
    def fork(self, parent, child):
        raise Unreadable()

class RaisesAFinding(BuiltIn):
    def fork(self, parent, child):
        raise Finding("no-such-property", "I say so")

class BreaksTheJudge(BuiltIn):
    def fork(self, parent, child):
        SpecRunner.run = None

class RaisesOutOfTime(BuiltIn):
    def fork(self, parent, child):
        raise OutOfTime("a text")

class Deep(BuiltIn):
    def observe(self):
        table = []
        for _ in range(100_000):
            table = [table]
        return super().observe()._replace(tables={1: table})

def once():
    if (HERE / "made").exists():
        raise RuntimeError("port 80 is in use")
    (HERE / "made").touch()
    return BuiltIn()

def once_and_ends():
    if (HERE / "made").exists():
        os._exit(3)
    (HERE / "made").touch()
    return BuiltIn()
"""


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], RemoteFactory]:
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE)
    return lambda name: RemoteFactory(f"{path}:{name}", Limits(call_seconds=1.0))


def walked(factory: RemoteFactory) -> SearchResult:
    """A short walk in the process of the subject."""
    return remote_search.walk(MANAGERS, factory(), 3, max_operations=4_000, seconds=60)


@pytest.mark.parametrize(
    ("name", "property", "text"),
    [
        ("Garbage", "total-calls", "wrote to descriptors of its process that are not its own"),
        ("Shrinks", "total-calls", "ended its process, which ended with exit code 0"),
        ("Smashes", "total-calls", "left no run that can be repeated"),
        ("RaisesUnreadable", "total-calls", "raised Unreadable: <its text cannot be read: ValueError>"),
        ("once", "nondeterministic", "the subject was made once and cannot be made again"),
        ("once_and_ends", "total-calls", "ended its process, which ended with exit code 3"),
    ],
)
def test_an_attack_on_its_process_is_a_finding_with_a_run(
    make: Callable[[str], RemoteFactory], name: str, property: str, text: str
) -> None:
    factory = make(name)
    result = walked(factory)
    found = result.counterexample
    assert found is not None
    assert max(result.num_operations, result.num_runs, result.num_drawn) <= 4_000
    assert (found.finding.property, text in found.finding.text) == (property, True), found.finding.text
    if property == "total-calls" and name != "Smashes":
        again = confirm(factory, found)
        assert again.finding.property == property
    factory.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("RaisesAFinding", "fork raised a Finding of 'no-such-property', which is no property"),
        ("Deep", "it is a list whose repr raises RecursionError"),
    ],
)
def test_what_is_no_answer_of_the_protocol_is_the_adapters_fault(
    make: Callable[[str], RemoteFactory], name: str, text: str
) -> None:
    factory = make(name)
    with pytest.raises(AdapterError, match=text):
        walked(factory)
    factory.close()


def test_a_forged_answer_is_no_result_of_a_search_and_blames_the_adapter(make: Callable[[str], RemoteFactory]) -> None:
    factory = make("Forged")
    with pytest.raises(AdapterError, match="observe must return Observation; it returned None"):
        walked(factory)
    factory.close()


def test_a_judge_that_the_subject_broke_judges_the_run_again_in_another_process(
    make: Callable[[str], RemoteFactory],
) -> None:
    factory = make("BreaksTheJudge")
    done = walked(factory)
    assert done.counterexample is not None
    assert done.counterexample.operations[-1][0] == "fork"
    assert done.counterexample.finding.property == "frame-kept"
    factory.close()


def test_a_judge_that_fails_without_a_run_that_can_be_repeated_judges_the_walk_here(
    make: Callable[[str], RemoteFactory], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(strategy: object, subject: object, stuck: search_process.Stuck) -> SearchResult:
        raise stuck

    monkeypatch.setattr(remote_search, "refuted_by_run_of", fail)
    factory = make("BreaksTheJudge")
    options = WalkOptions(disabled=frozenset({"swap"}))
    done = remote_search.walk(MANAGERS, factory(), 3, max_operations=4_000, seconds=60, options=options)
    assert done.counterexample is not None
    assert done.counterexample.operations[-1][0] == "fork"
    assert done.counterexample.finding.property == "frame-kept"
    factory.close()


def test_a_subject_that_raises_the_end_of_time_is_refuted_by_the_explorer(make: Callable[[str], RemoteFactory]) -> None:
    factory = make("RaisesOutOfTime")
    done = remote_search.explore(MANAGERS, factory(), SCOPES["tables-4x3x6"], seconds=60)
    assert done.counterexample is not None
    assert done.counterexample.finding.property == "total-calls"
    factory.close()


def test_a_server_that_the_subject_ended_is_started_again(make: Callable[[str], RemoteFactory]) -> None:
    factory = make("EndsItsParent")
    done = walked(factory)
    assert done.counterexample is not None
    assert "ended the process that it was forked from" in done.counterexample.finding.text
    subject = factory()
    subject.open(Config())
    assert subject.observe().free == (8, 0)
    factory.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt its descendants")
@pytest.mark.parametrize("is_killed", [False, True])
def test_no_daemon_of_a_subject_outlives_its_run(
    make: Callable[[str], RemoteFactory], tmp_path: Path, is_killed: bool
) -> None:
    factory = make("Daemons")
    remote_search.walk(MANAGERS, factory(), 3, max_operations=300, seconds=60)
    pids = [int(line) for line in (tmp_path / "daemons").read_text().split()]
    assert pids
    if is_killed:
        factory().open(Config())  # a fork that lives when the run is killed
        factory.server.server.control.close()  # what a killed run leaves: nobody holds the other end
        factory.server.server.process.wait(10)
    else:
        factory.close()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_a_result_that_counts_more_than_its_time_allows_is_refused() -> None:
    journal = Journal()
    for result in (SearchResult(num_operations=1 << 60), SearchResult(num_runs=1 << 60), SearchResult(depth=1 << 60)):
        with pytest.raises(ChannelError, match="no search does that in its time"):
            search_process.require_possible(result, SearchResult, 10, journal.count_max)
    search_process.require_possible(SearchResult(num_states=1_000_000), SearchResult, 10, journal.count_max)
    journal.close()


@pytest.mark.parametrize("lists", [[], [[0, 1], []], [[0, 1], [], [2]]], ids=["no lists", "two lists", "half a pair"])
def test_a_result_whose_steps_have_no_pairs_is_refused(lists: list[list[int]]) -> None:
    search_process.require_possible(SearchResult(moved={"": [[[0, 1], [], [2, 3]]]}), SearchResult)
    with pytest.raises(ChannelError, match="are no pairs"):
        search_process.require_possible(SearchResult(moved={"": [lists]}), SearchResult)


def test_the_journal_cannot_be_made_smaller_by_who_has_its_descriptor() -> None:
    journal = Journal()
    with pytest.raises(PermissionError):
        os.ftruncate(journal.descriptor, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(journal.descriptor, 2 * SIZE_BYTES)
    journal.close()


@pytest.mark.parametrize("place", [0, 8, 16, 24, 28, 60])
@pytest.mark.parametrize("content", [b"\xff" * 8, b"\xc1" * 40, b"\0" * 64, b"\x93\x01\x02\x03" * 9])
def test_a_journal_that_was_written_over_has_no_run(place: int, content: bytes) -> None:
    journal = Journal()
    journal.begin(Config()).append(("new", 1, (1,), (0,), (None, 0, None), ()))
    with mmap.mmap(journal.descriptor, SIZE_BYTES) as memory:
        memory[place : place + len(content)] = content
    run = journal.last_run()
    assert run is None or run[0] == Config()
    journal.close()


@pytest.mark.parametrize(
    "data",
    [
        [],
        [3, "Nobody", []],
        [6, "Nobody", []],
        [6, "Config", [["no_field", 1]]],
        [7, "SOON"],
        [4, [[[0, [1]], 2]]],
        [99],
    ],
)
def test_data_that_no_value_packs_to_is_refused(data: list[object]) -> None:
    with pytest.raises(ChannelError):
        unpack(data)


@pytest.mark.parametrize(
    "answer",
    [None, 7, {"nope": 1}, ["done"], ["raised", "a\0b", "text", ""], ["finding", 3], ["contract", 1, 2], ["made"]],
)
def test_a_message_that_is_no_answer_is_refused(answer: object) -> None:
    with pytest.raises(ChannelError):
        answered(answer, "kvproof")


def test_a_message_longer_than_any_is_refused_before_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(HEADER.pack(MESSAGE_BYTES_MAX + 1))
    with pytest.raises(ChannelError, match="was announced"):
        Connection(ours).receive()
    theirs.sendall(HEADER.pack(3) + b"\xc1\xc1\xc1")
    with pytest.raises(ChannelError, match="3 bytes arrived that are no message"):
        Connection(ours).receive()
    assert unpack(pack([1, (2, None)])) == [1, (2, None)]
    ours.close()
    theirs.close()
