"""Managers behind a pipe: the example in C, and programs that break the protocol in every way."""

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation.factory import factory_for
from kvproof.check.isolation.remote_search import shortest
from kvproof.check.oracle.repetition import confirm
from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Admitted, Config, Unsupported
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects import UnknownSubject
from kvproof.spec.text.identity import Key

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "pipe_manager.c"
HELLO = '{"kvproof":1,"name":"p","capabilities":{"caching":true}}'
# Answers `open`, then does what its argument says with the next call.
PROGRAM = """
import os, sys, time
print(sys.argv[1], flush=True)
sys.stdin.readline()
print('{"answer":null}', flush=True)
sys.stdin.readline()
exec(sys.argv[2])
sys.stdout.flush()
sys.stdin.readline()
"""

Compile = Callable[..., str]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles the example; gives the name of the subject."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler `cc` here")
    folder = tmp_path_factory.mktemp("pipe")

    def compile(name: str, *flags: str) -> str:
        command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", *flags, "-o", str(folder / name), str(EXAMPLE)]
        subprocess.run(command, check=True)
        return f"pipe:{folder / name}"

    return compile


@pytest.fixture
def odd(tmp_path: Path) -> Callable[..., str]:
    """The name of a program that answers its second call by running a line of Python."""
    (tmp_path / "odd.py").write_text(PROGRAM)

    def name(line: str, hello: str = HELLO) -> str:
        return f"pipe:{sys.executable} {tmp_path / 'odd.py'} '{hello}' '{line}'"

    return name


def test_the_standard_error_of_a_program_is_printed_without_commands_for_the_terminal(
    odd: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    subject = factory_for(odd('os.write(2, b"\\x1b[2J\\n::error::x\\n"); print("null")'))()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0], Key(), ())
    with pytest.raises(AdapterError):
        subject.hits(1)
    assert capfd.readouterr().err.splitlines() == [r"\x1b[2J", ": :error::x"]


def test_the_example_is_short_enough_to_read() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 200


def test_the_manager_in_c_is_not_refuted(compiled: Compile) -> None:
    done = walk(MANAGERS, factory_for(compiled("manager"))(), 1, max_operations=2_000, seconds=100)
    assert done.finding is None
    assert done.num_operations == 2_000
    assert done.coverage["copy-on-write"]
    assert done.coverage["pool full"]


@pytest.mark.long
def test_the_manager_in_c_is_not_refuted_by_a_hundred_thousand_operations(compiled: Compile) -> None:
    done = walk(MANAGERS, factory_for(compiled("manager"))(), 1, max_operations=100_000, seconds=1000)
    assert (done.finding, done.num_operations) == (None, 100_000)


def test_a_fork_that_is_not_counted_is_refuted_by_its_shortest_run(compiled: Compile) -> None:
    make = factory_for(compiled("broken", "-DFORGET_TO_COUNT"))
    done = walk(MANAGERS, make(), 1, max_operations=10_000, seconds=100)
    assert done.counterexample is not None
    found = confirm(make, done.counterexample)
    assert found.finding.property == "refcount-exact"
    short = shortest(MANAGERS, make, found, seconds=20.0, seed=1, walks=0)
    assert [operation[0] for operation in short.operations] == ["new", "admit", "run", "fork"]


def test_a_hunt_takes_the_command_with_its_arguments(
    compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = compiled("hunted", "-DFORGET_TO_COUNT") + " 'an argument'"
    done = CliRunner().invoke(app, ["hunt", "--subject", name, "--stop-at-first", "--budget", "5", "--seed", "1"])
    assert done.exit_code == 1, done.output
    assert f"refcount-exact is refuted for {name} at step 4" in done.output
    assert "while calling" not in done.output  # that would be code of kvproof: the program's own is not seen
    (saved,) = (tmp_path / ".kvproof" / "crashes").glob("*.json")
    again = CliRunner().invoke(app, ["replay", str(saved), "--subject", name])
    assert (again.exit_code, again.output.split()[0]) == (1, "FAILED")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('print("no JSON")', "hits(group 1, tokens [0]) was answered by a line that is not JSON"),
        ('print("[1]")', "was answered by '[1]', which is not a JSON object"),
        ('print("{\\"value\\":1}")', "was answered by an object with ['value']; it must have `answer`"),
        (
            'print("{\\"answer\\":\\"many\\"}")',
            "hits was answered by 'many', which is wrong: Expected `int`",
        ),
        (
            'print("debug\\n{\\"answer\\":2}\\nmore")',
            """was answered by more than one line: 'debug', then '{"answer":2}'""",
        ),
        ('print("{\\"answer\\":1,\\"seen\\":{\\"free\\":1}}")', "Object missing required field `tables`"),
        ('print("[" * 5000)', "hits(group 1, tokens [0]) was answered by a line that is not JSON"),
        (
            'print("{\\"error\\":\\"x\\",\\"type\\":\\"a\\\\u0000b\\"}")',
            "hits was answered by an error of the type 'a\\x00b', which is no name of a type",
        ),
    ],
)
def test_a_line_that_is_not_right_is_the_fault_of_the_program(odd: Callable[..., str], line: str, message: str) -> None:
    subject = factory_for(odd(line))()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0], Key(), ())
    with pytest.raises(AdapterError) as refused:
        subject.hits(1)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "admitted"),
    [("null", Admitted()), ("4", Admitted(4)), ("[5,[[1,0]]]", Admitted(5, [(1, 0)])), ("[4,[]]", Admitted(4, []))],
)
def test_an_admission_may_name_a_hit_and_what_is_copied_for_it(
    odd: Callable[..., str], answer: str, admitted: Admitted
) -> None:
    subject = factory_for(odd(f'print("{{\\"answer\\":{answer}}}")'))()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0] * 6, Key(), ())
    assert subject.admit(1, 6) == admitted


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("os._exit(3)", "hits crash", "hits(group 1, tokens [0]) ended the program, which ended with exit code 3"),
        ("os.kill(os.getpid(), 11)", "hits crash", "was ended by signal 11 (SIGSEGV)"),
        ("time.sleep(100)", "hits hang", "hits(group 1, tokens [0]) gave no answer within 0.5 s"),
        (
            "x = bytearray(100_000_000); time.sleep(100)",
            "hits crash",
            "hits(group 1, tokens [0]) made the program use more than 67,108,864 bytes of memory",
        ),
    ],
)
def test_a_program_that_ends_or_hangs_is_refuted_and_started_again(
    odd: Callable[..., str], line: str, kind: str, message: str
) -> None:
    subject = factory_for(odd(line), limits=Limits(call_seconds=0.5, memory_bytes=1 << 26))()
    for _ in range(2):
        subject.open(Config(caching=True))
        subject.new(1, [1], [0], Key(), ())
        with pytest.raises(Finding) as found:
            subject.hits(1)
        assert found.value.kind == ("total-calls", kind)
        assert message in found.value.text


def test_a_line_that_comes_after_the_answer_is_the_fault_of_the_program(odd: Callable[..., str]) -> None:
    line = 'print("{\\"answer\\":1}", flush=True); time.sleep(0.05); print("{\\"answer\\":2}")'
    subject = factory_for(odd(line))()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0], Key(), ())
    assert subject.hits(1) == 1
    time.sleep(0.2)
    with pytest.raises(AdapterError, match=r"the call before hits.* was answered by more than one line, late"):
        subject.hits(1)


def test_a_second_answer_that_is_read_as_the_next_one_is_the_fault_of_the_program(odd: Callable[..., str]) -> None:
    """It comes with the next call, so only what is left over at the end of the input shows it."""
    late = 'print("{\\"answer\\":[]}", flush=True); time.sleep(0.2); print("{\\"answer\\":1}")'
    subject = factory_for(odd(late))()
    for _ in range(2):  # it is started again
        subject.open(Config(caching=True))
        subject.new(1, [1], [0], Key(), ())
        with pytest.raises(AdapterError, match=r"more than one line; after .* there is still '\{\"answer\":1\}'"):
            subject.hits(1)


@pytest.mark.parametrize(("more", "is_refuted"), [("", True), ('; time.sleep(0.2); print("{}")', False)])
def test_a_finding_of_a_program_that_answered_twice_is_not_told(
    odd: Callable[..., str], more: str, is_refuted: bool
) -> None:
    lost = 'print("{\\"answer\\":{\\"tables\\":{},\\"num_free\\":0}}", flush=True)'
    with nullcontext() if is_refuted else pytest.raises(AdapterError, match="more than one line"):
        assert replay(factory_for(odd(lost + more)), Config(), []).finding is not None


def test_a_program_that_does_not_read_is_refuted(odd: Callable[..., str]) -> None:
    subject = factory_for(
        odd('print("{\\"answer\\":1}", flush=True); time.sleep(100)'), limits=Limits(call_seconds=0.5)
    )()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0] * 100_000, Key(), ())
    subject.hits(1)
    with pytest.raises(Finding, match="was not read by the program"):
        subject.hits(1)


def test_a_program_that_maps_terabytes_and_uses_little_is_judged(odd: Callable[..., str]) -> None:
    line = 'import mmap; x = mmap.mmap(-1, 1 << 42, flags=0x4022); print("{\\"answer\\":1}")'  # without reservation
    subject = factory_for(odd(line))()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0], Key(), ())
    assert subject.hits(1) == 1


def test_errors_and_configurations_refused_have_their_own_answers(odd: Callable[..., str]) -> None:
    subject = factory_for(odd('print("{\\"error\\":\\"lost\\",\\"type\\":\\"KeyError\\"}")'))()
    subject.open(Config(caching=True))
    subject.new(1, [1], [0], Key(), ())
    with pytest.raises(Exception, match="lost") as raised:
        subject.hits(1)
    assert type(raised.value).__name__ == "KeyError"
    subject = factory_for(odd('print("{\\"unsupported\\":\\"too small\\"}")'))()
    subject.open(Config())
    with pytest.raises(Unsupported, match="too small"):
        subject.open(Config())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe:", "pipe: names no program"),
        ("pipe:./nowhere", "./nowhere cannot be started: No such file or directory"),
        ("pipe:sh 'open", "not a valid command line: No closing quotation"),
        (
            "pipe:true",
            "describes it: the handshake ended the program, which ended with exit code 0",
        ),
        ("pipe:echo hello", "the handshake was answered by a line that is not JSON"),
        ("""pipe:echo '{"kvproof":2,"name":"x"}'""", "it uses protocol 2; kvproof supports 1"),
        ("""pipe:echo '{"kvproof":1}'""", "its first line is wrong: Object missing required field `name`"),
        (
            """pipe:echo '{"kvproof":1,"name":"x","capabilities":{"forks":true}}'""",
            "there is no capability 'forks'; choose from has_admission_query, swap, fork",
        ),
    ],
)
def test_a_program_that_is_no_manager_is_reported_in_one_line(name: str, message: str) -> None:
    with pytest.raises(UnknownSubject) as refused:
        factory_for(name)()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_feature_that_is_not_declared_is_refused_before_the_program_is_called(odd: Callable[..., str]) -> None:
    subject = factory_for(odd("pass"))()
    assert subject.capabilities == Capabilities(caching=True)
    with pytest.raises(Unsupported, match="p has no swapping"):
        subject.open(Config(num_host_blocks=2))


def test_a_program_that_waits_in_silence_is_reported_soon_and_one_that_works_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvproof.check.isolation.pipe.process.SILENT_SECONDS_MAX", 0.5)
    began = time.monotonic()
    with pytest.raises(UnknownSubject, match=r"it has written nothing and done nothing for 0\.5 s"):
        factory_for("pipe:cat")()
    assert time.monotonic() - began < 5
    works = f"import time\nwhile time.process_time() < 1: pass\nprint({HELLO!r}, flush=True)\ninput()"
    assert factory_for(f"pipe:{sys.executable} -c {shlex.quote(works)}")().name == "p"
