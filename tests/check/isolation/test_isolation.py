"""Subjects in a process of their own: what ends that process, or stops it, is a finding with its run."""

import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kvproof.check.hosts import time_limit
from kvproof.check.hosts.channel import Connection
from kvproof.check.hosts.program import module
from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation import remote_search
from kvproof.check.isolation.factory import factory_for, is_foreign
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import Foreign, pack, unpack
from kvproof.check.isolation.remote_subject import FORK_SERVER, Raised, RemoteFactory
from kvproof.check.oracle.repetition import confirm
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admission, Config, Observation, Refused, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search import random_walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects import SubjectNotReady, UnknownSubject
from kvproof.check.subjects.builtin import manager
from kvproof.spec.text.identity import Key

ENDS = """
import ctypes, os, sys, time
from pathlib import Path
from kvproof.check.subjects.builtin.manager import BuiltIn

HERE = Path(__file__).parent

class Exits(BuiltIn):
    def open(self, config):
        print("written to standard output")
        os.write(1, b"written to descriptor 1")
        super().open(config)
    def fork(self, parent, child):
        os._exit(0)

class Ends(BuiltIn):
    def preempt(self, group):
        ctypes.string_at(0)
    def free(self, seq):
        time.sleep(1000)
    def reset_cache(self):
        hoard = []
        while True:
            hoard.append("x" * (1 << 25))
    def hits(self, group):
        return object()
    def fork(self, parent, child):
        raise KeyError("no such parent")

class Once(BuiltIn):
    def fork(self, parent, child):
        if (HERE / "once").exists():
            (HERE / "once").unlink()
            os._exit(7)
        super().fork(parent, child)

def dies():
    os._exit(5)
"""
CONFIG = Config(num_gpu_blocks=4, block_size=2)
RUNNING = [("new", 1, (1,), (0,), (None, 0, None), ()), ("admit", 1, 1), ("run", 0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the file with the subjects."""
    folder = tmp_path_factory.mktemp("ends")
    (folder / "ends.py").write_text(ENDS)
    return folder


@pytest.fixture(scope="module")
def ends(folder: Path) -> Iterator[RemoteFactory]:
    """A subject that ends its process, or stops it, in a way for each call."""
    factory = RemoteFactory(f"{folder / 'ends.py'}:Ends", Limits(call_seconds=0.5, memory_bytes=1 << 28))
    yield factory
    factory.close()


@pytest.fixture(scope="module")
def own() -> Iterator[RemoteFactory]:
    """kvproof's own manager, isolated."""
    factory = RemoteFactory("kvproof")
    yield factory
    factory.close()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, -1],
        [True, None, "text", 1.5],
        {3: [[0, 1]], 4: []},
        (1, (2, "x")),
        Observation({1: [[0, -1]]}, (3, 0), (), [1, 0], None),
        Refused("no room"),
        Admission.LATER,
        Key("X", 1, None),
        Config(block_size=2, window=3),
        Scope(3, num_seqs=2),
    ],
)
def test_a_value_arrives_as_it_was_sent_with_its_type(value: object) -> None:
    data = json.loads(json.dumps(pack(value)))
    assert unpack(data) == value
    assert type(unpack(data)) is type(value)


def test_what_no_protocol_knows_arrives_as_of_no_right_type() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    there = unpack(pack([Odd(), 2**70]))
    assert [type(item) for item in there] == [Foreign, Foreign]
    assert repr(there[0]) == "<Odd whose repr raises ValueError>"
    assert repr(there[1]) == f"{2**70} (beyond 64 bits)"


def test_the_journal_has_the_last_run_up_to_the_operation_that_did_not_end() -> None:
    journal = Journal()
    other = Journal(os.dup(journal.descriptor))
    journal.begin(CONFIG).append(("new", 1, (1,), (0,)))
    operations = journal.begin(CONFIG)
    for operation in RUNNING:
        operations.append(operation)
    operations.pop()
    assert operations == RUNNING[:-1]
    assert other.look() == (2, 4)
    assert other.last_run() == (CONFIG, RUNNING)
    journal.close()
    other.close()


def test_an_isolated_walk_is_the_walk_of_one_process(own: RemoteFactory) -> None:
    there = remote_search.walk(MANAGERS, own(), 3, max_operations=500, seconds=100)
    here = random_walk.walk(MANAGERS, manager.BuiltIn(), 3, max_operations=500, seconds=100)
    by_calls = random_walk.walk(MANAGERS, own(), 3, max_operations=200, seconds=100)
    assert there.finding is None
    assert (there.num_operations, there.kinds, there.coverage) == (here.num_operations, here.kinds, here.coverage)
    assert by_calls.num_operations == 200
    assert by_calls.kinds == random_walk.walk(MANAGERS, manager.BuiltIn(), 3, max_operations=200, seconds=100).kinds


def test_an_isolated_walk_uses_no_feature_that_is_disabled(own: RemoteFactory) -> None:
    options = random_walk.WalkOptions(disabled=frozenset({"preempt", "fork"}))
    there = remote_search.walk(MANAGERS, own(), 3, max_operations=500, seconds=100, options=options)
    assert there.num_operations == 500
    assert not {"preempt", "fork"} & there.kinds.keys()


def test_an_isolated_exploration_is_that_of_one_process(own: RemoteFactory) -> None:
    scope = Scope(2, num_seqs=1, num_tokens=2)
    there = remote_search.explore(MANAGERS, own(), scope, seconds=100)
    here = remote_search.explore(MANAGERS, manager.BuiltIn(), scope, seconds=100)
    assert there.is_exhausted
    assert (there.num_states, there.num_operations, there.coverage) == (
        here.num_states,
        here.num_operations,
        here.coverage,
    )


def test_an_exit_in_a_walk_is_a_finding_with_its_shortest_run(folder: Path) -> None:
    factory = RemoteFactory(f"{folder / 'ends.py'}:Exits")
    done = remote_search.walk(MANAGERS, factory(), 1, max_operations=10_000, seconds=100)
    assert done.finding is not None
    assert done.finding.kind == ("total-calls", "fork crash")
    assert done.finding.text.endswith("ended its process, which ended with exit code 0")
    assert done.counterexample is not None
    again = confirm(factory, done.counterexample)
    short = remote_search.shortest(MANAGERS, factory, again, seconds=20.0, seed=1, walks=0)
    factory.close()
    assert [operation[0] for operation in short.operations] == ["new", "admit", "run", "fork"]


def test_an_end_that_does_not_come_again_is_nondeterministic(folder: Path) -> None:
    (folder / "once").touch()
    factory = RemoteFactory(f"{folder / 'ends.py'}:Once")
    done = remote_search.walk(MANAGERS, factory(), 1, max_operations=10_000, seconds=100)
    factory.close()
    assert done.finding is not None
    assert done.finding.property == "nondeterministic"
    assert "the process ended with exit code 7" in done.finding.text


@pytest.mark.parametrize(
    ("call", "kind", "message", "frames"),
    [
        ("preempt", ("total-calls", "preempt crash"), "which was ended by signal 11 (SIGSEGV)", []),
        ("free", ("total-calls", "free hang"), "free(1) gave no answer within 0.5 s", ["free of ends.py"]),
    ],
)
def test_a_call_that_ends_or_stops_the_process_is_a_finding_and_the_next_open_works(
    ends: RemoteFactory, call: str, kind: tuple[str, str], message: str, frames: list[str]
) -> None:
    subject = ends()
    for _ in range(2):
        subject.open(CONFIG)
        with pytest.raises(Finding) as found:
            getattr(subject, call)(1)
        assert found.value.kind == kind
        assert message in found.value.text
        assert [f"{place.function} of {Path(place.file).name}" for place in found.value.frames] == frames


def test_memory_without_end_is_refused_at_the_limit(ends: RemoteFactory) -> None:
    subject = ends()
    subject.open(CONFIG)
    with pytest.raises((Raised, Finding)) as raised:
        subject.reset_cache()
    cause = raised.value.cause if isinstance(raised.value, Finding) else type(raised.value).__name__
    assert cause in ("MemoryError", "reset_cache hang")  # a slow machine needs longer than the call may take


def test_what_the_subject_raises_and_refuses_is_raised_here_under_its_name(ends: RemoteFactory) -> None:
    subject = ends()
    with pytest.raises(Unsupported, match="kvproof has no sliding window together with a prefix cache"):
        subject.open(Config(window=2, caching=True))
    subject.open(CONFIG)
    with pytest.raises(Exception, match="no such parent") as raised:
        subject.fork(1, 2)
    assert type(raised.value).__name__ == "KeyError"
    assert isinstance(subject.hits(1), Foreign)
    with pytest.raises(AttributeError):
        _ = subject.schedule


def test_a_subject_that_cannot_be_made_is_reported_in_one_line(folder: Path) -> None:
    for factory, message in (("dies", "its process ended with exit code 5"), ("none", "has no 'none'")):
        with pytest.raises(UnknownSubject, match=message):
            RemoteFactory(f"{folder / 'ends.py'}:{factory}")


@pytest.mark.parametrize("isolation", [True, False])
def test_a_factory_that_returns_no_subject_is_one_clear_error(folder: Path, isolation: bool) -> None:
    (folder / "none.py").write_text("def make(): return None\n")
    with pytest.raises(UnknownSubject, match=r"what the factory returned is not a subject: NoneType is not a manager "):
        factory_for(f"{folder / 'none.py'}:make", isolation)()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10**30, f"{10**30} (beyond 64 bits)"),
        (defaultdict(int), "defaultdict(<class 'int'>, {}) (of the type defaultdict)"),
        ([1, 10**30], f"[1, {10**30} (beyond 64 bits)]"),
        ([-(2**63) - 1], f"[{-(2**63) - 1} (beyond 64 bits)]"),
        ("a\ud800", r"'a\\ud800'"),
    ],
)
def test_values_that_no_message_can_carry_arrive_as_their_text(value: object, text: str) -> None:
    assert repr(unpack(msgspec.msgpack.decode(msgspec.msgpack.encode(pack(value))))) == text


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("kvproof", False),
        ("kvproof-scheduler", False),
        ("vllm-v0==0.9.2", True),
        ("a.py:make", True),
        ("pipe:x", False),
    ],
)
def test_only_foreign_subjects_are_isolated_by_default(name: str, foreign: bool) -> None:
    assert is_foreign(name) is foreign


def test_a_hunt_outlives_its_subject_and_keeps_its_document_clean(folder: Path) -> None:
    command = [sys.executable, "-m", "kvproof.check.cli.app", "hunt", "--subject", "ends.py:Exits"]
    options = ["--seed", "1", "--budget", "20", "--stop-at-first", "--json", "-"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    (found,) = [check for check in document["checks"] if check["verdict"] == "refuted"]
    assert found["property"] == "total-calls"
    assert "written to standard output" in done.stderr
    assert "written to descriptor 1" in done.stderr


def test_no_process_is_left_when_a_factory_is_closed() -> None:
    factory = RemoteFactory("kvproof")
    subject = factory()
    subject.open(CONFIG)
    pid = subject._fork.pid
    factory.close()
    wait_until(lambda: not is_alive(pid))


def test_a_subject_that_hangs_while_it_is_made_ends_after_a_run_that_was_killed(tmp_path: Path) -> None:
    file, number = tmp_path / "hangs.py", tmp_path / "pid"
    file.write_text(
        "import os, pathlib, time\n"
        f"partial = pathlib.Path({str(number)!r} + '.part')\n"
        "partial.write_text(str(os.getpid()))\n"
        f"partial.rename({str(number)!r})\n"
        "time.sleep(60)\n"
    )
    made = f"from kvproof.check.isolation.remote_subject import RemoteFactory as F; F({f'{file}:Adapter'!r})()"
    with subprocess.Popen([sys.executable, "-c", made]) as run:
        wait_until(number.exists)
        run.kill()
    wait_until(lambda: not is_alive(int(number.read_text())))


@pytest.fixture
def slow_import(tmp_path: Path) -> str:
    """A subject that is ready after more than a second, in a process that begins in less than that."""
    file = tmp_path / "slow.py"
    text = "import time\ntime.sleep(1.5)\nfrom kvproof.check.subjects.builtin.manager import BuiltIn as Adapter\n"
    file.write_text(text)
    return f"{file}:Adapter"


def test_a_subject_that_is_not_ready_in_time_is_reported(slow_import: str) -> None:
    with pytest.raises(SubjectNotReady, match=r"the subject was not ready within 0\.5 s"):
        RemoteFactory(slow_import, Limits(start_seconds=0.5))


def test_the_time_in_which_a_subject_waits_for_a_processor_while_it_is_made_does_not_count(
    slow_import: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "_wait_of", lambda pid: time.monotonic())
    factory = RemoteFactory(slow_import, Limits(start_seconds=0.5))
    factory.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(400):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 20 s")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_process_of_a_subject_ends_silently_if_its_parent_has_ended_before_it_answers() -> None:
    here, there = socket.socketpair()
    Connection(here).send(["kvproof", sys.path, None, os.getpid()])
    here.close()
    assert _served(there) == (0, "")


def test_the_process_of_a_subject_ends_if_its_parent_ended_before_it_began(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(100)\n")
    here, there = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with here:
        Connection(here).send([f"{tmp_path / 'hangs.py'}:Subject", sys.path, None, gone.pid])
        assert _served(there) == (0, "")


def _served(there: socket.socket) -> tuple[int, str]:
    """How the process of a subject ends with this end of its connection, and what it prints."""
    with there:
        command = [*module(FORK_SERVER), str(there.fileno())]
        ended = subprocess.run(command, pass_fds=[there.fileno()], capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stderr


def test_a_file_whose_name_is_no_text_is_refused_by_one_sentence() -> None:
    with pytest.raises(UnknownSubject, match=r"^sub\\udcff\.py:Adapter: the name is no text"):
        factory_for("sub\udcff.py:Adapter")
