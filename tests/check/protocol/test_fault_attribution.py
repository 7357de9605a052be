"""An exception that an adapter or a stand-in of kvproof causes is no finding about the engine."""

import errno
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation import remote_subject
from kvproof.check.oracle.level import MANAGER
from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.adapter_fault import require_fault_of_manager
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.fault_attribution import OPTIONS_LEFT_OUT, StandInError, is_fault_of_kvproof, lack_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading.partial_import import StandInModule
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options

STAND_INS = """
class TextOnly:
    def limit(self, config): return {}[config]

def no_tokens(one): return one

def failing(*arguments): raise EngineFailure("the pool is full")
"""
ENGINE = """
class Own: pass

def own(one): return one
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], BaseException]:
    """Runs a line of the engine, which has the stand-ins' names, and returns what it raises."""
    ours = types.ModuleType("kvproof.check.subjects.fake")
    engine = types.ModuleType("fake_engine")
    exec("from kvproof.check.protocol.fault_attribution import EngineFailure" + STAND_INS, vars(ours))
    exec(ENGINE, vars(engine))
    vars(engine).update({name: value for name, value in vars(ours).items() if not name.startswith("__")})
    vars(engine)["stand_ins"] = StandInModule("fake_package")
    monkeypatch.setitem(sys.modules, "fake_package", vars(engine)["stand_ins"])
    monkeypatch.setitem(sys.modules, ours.__name__, ours)

    def run(line: str) -> BaseException:
        with pytest.raises(BaseException) as caught:  # noqa: PT011  (it is the subject of the tests)
            exec(line, vars(engine))
        return caught.value

    return run


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("TextOnly().limit('a')", id="innermost frame"),
        pytest.param("TextOnly().get_length()", id="attribute of an object"),
        pytest.param("TextOnly.of_model", id="attribute of a type"),
        pytest.param("stand_ins.__version__", id="attribute of a module"),
        pytest.param("import fake_package.more", id="submodule"),
        pytest.param("no_tokens(1, 2)", id="arguments of a function"),
        pytest.param("TextOnly().limit()", id="arguments of a method"),
        pytest.param("len(TextOnly())", id="length"),
        pytest.param("TextOnly() < 1", id="comparison"),
        pytest.param("for each in TextOnly(): pass", id="iteration"),
        pytest.param("try: TextOnly().x\nexcept AttributeError as e: raise RuntimeError('no x') from e", id="cause"),
        pytest.param("try: TextOnly().x\nexcept AttributeError: raise RuntimeError('no x')", id="context"),
    ],
)
def test_what_a_stand_in_lacks_is_a_fault_of_kvproof(run: Callable[[str], BaseException], line: str) -> None:
    assert is_fault_of_kvproof(run(line))


@pytest.mark.parametrize(
    "line",
    [
        "raise RuntimeError('no blocks')",
        "Own().missing",
        "{}['key']",
        "own(1, 2)",
        "len(Own())",
        "None + 1",
        "undefined",
        "import fake_engine_part",
        "failing()",
        "raise MemoryError",
    ],
)
def test_what_the_engine_itself_does_wrong_is_a_fault_of_the_engine(
    run: Callable[[str], BaseException], line: str
) -> None:
    assert not is_fault_of_kvproof(run(line))


def test_an_error_about_none_is_ours_if_its_line_reads_an_option_that_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.check.protocol.fault_attribution.OPTIONS_LEFT_OUT", OPTIONS_LEFT_OUT)
    source = tmp_path / "engine.py"
    source.write_text("def ours(config): return config.num_slots_by_model + 1\n\ndef own(): return None + 1\n")
    engine: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), engine)
    for call, is_ours in ((lambda: engine["ours"](Options(block_size=1)), True), (engine["own"], False)):
        with pytest.raises(TypeError) as caught:
            call()
        assert is_fault_of_kvproof(caught.value) is is_ours


class WithStandIn(BuiltIn):
    """The built-in manager, which asks what `part` is for something when it frees."""

    part: Any

    def free(self, seq: int) -> None:
        self.part.get_length()


def judged(part: Any) -> None:
    subject = WithStandIn()
    subject.part = part
    judge = MANAGER.open(subject, Config(num_gpu_blocks=4))
    judge.apply(("new", 1, (1,), (0,)))
    judge.apply(("free", 1))


def test_the_judge_refutes_nothing_when_a_stand_in_fails() -> None:
    with pytest.raises(StandInError, match=r"free\(1\): an adapter or stand-in .* has no attribute 'get_length'"):
        judged(Options.__new__(type("TextOnly", (), {"__module__": "kvproof.check.subjects.fake"})))


def test_the_judge_refutes_when_the_subject_itself_fails() -> None:
    with pytest.raises(Finding, match="'int' object has no attribute 'get_length'"):
        judged(1)


def test_a_ring_of_exceptions_is_followed_once() -> None:
    ring = [ValueError("a"), KeyError("b"), TypeError("c")]
    for error, before in zip(ring, [*ring[1:], ring[0]], strict=True):
        error.__context__ = before
    assert not is_fault_of_kvproof(ring[0])
    require_fault_of_manager(ring[0], "free(1)", BuiltIn())


def test_what_the_machine_lacks_is_no_fault_of_the_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = SimpleNamespace(
        name="x", capabilities=Capabilities(), assumptions=(), level=MANAGER.name, limits=Limits()
    )
    monkeypatch.setattr(remote_subject, "new_fork", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(StandInError) as lacking:
        finding_of(remote_subject.RemoteSubject(server), Config(), [])
    assert lack_of(lacking.value).startswith("too many files are open in this process")


def test_a_full_disk_is_what_the_machine_lacks_and_no_fault_of_kvproof() -> None:
    assert lack_of(OSError(errno.ENOSPC, "No space left on device")) == "no space is left on a disk; free some space"
    assert lack_of(OSError(errno.EFBIG, "File too large")).startswith("a file would be larger than the limit")
    assert lack_of(OSError(errno.EACCES, "Permission denied")) == ""
