"""`run_conformance` survives its subject: a crash, a hang or unlimited use of memory is a finding with its run."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kvproof.check import run_conformance
from kvproof.check.hosts.time_limit import Limits
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.strategies import MANAGERS, STRATEGIES
from kvproof.check.subjects.own import own
from kvproof.check.subjects.registry import find

ENDS = """
import os, time
from kvproof.check.subjects.builtin.manager import BuiltIn

class Exits(BuiltIn):
    def fork(self, parent, child):
        os._exit(0)

class Hangs(BuiltIn):
    def fork(self, parent, child):
        self.stand()
    def stand(self):
        time.sleep(1000)

class Grows(BuiltIn):
    def fork(self, parent, child):
        hoard = []
        while True:
            hoard.append("x" * (1 << 25))

class Right(BuiltIn):
    def open(self, config):
        super().open(config)
        with open(os.environ["TEST_PIDS"], "a") as file:
            file.write(f"{os.getpid()} ")

class Odd:
    pass
"""
SHORT = ["new", "admit", "run", "fork"]


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the subjects. A call may take half a second, memory 256 MiB, and the explored scope is tiny."""
    tiny = Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=2, block_size=2)
    short = replace(MANAGERS.exhaustive, short={"tiny": tiny})
    monkeypatch.setitem(STRATEGIES, "manager", replace(MANAGERS, _exhaustive=short))
    small = Limits(call_seconds=0.5, memory_bytes=1 << 28)
    monkeypatch.setattr(Limits, "within", staticmethod(lambda seconds: small))
    monkeypatch.setenv("TEST_PIDS", str(tmp_path / "pids"))
    path = tmp_path / "ends.py"
    path.write_text(ENDS)
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Exits", r"fork\(sequence 1, into 2\) ended its process, which ended with exit code 0"),
        (
            "Hangs",
            r"fork\(sequence 1, into 2\) gave no answer within 0.5 s.*"
            r"while calling fork of \S*ends.py:11.*stood in stand of \S*ends.py:13",
        ),
        (
            "Grows",
            r"fork\(sequence 1, into 2\) (raised MemoryError|gave no answer within 0.5 s)",
        ),  # whichever limit comes first
    ],
)
def test_what_ends_or_stops_or_fills_the_process_is_a_finding(name: str, message: str, ends: Path) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)total-calls is refuted for {ends}:{name} at step 4.*{message}"):
        run_conformance(own(f"{ends}:{name}"), seconds=60, crashes=ends.parent / "crashes")
    (trace,) = (ends.parent / "crashes").glob("*.json")
    assert [operation[0] for operation in json.loads(trace.read_text())["operations"]] == SHORT


@pytest.mark.parametrize("isolation", [None, True, False])
def test_what_has_a_name_is_judged_in_another_process_unless_it_shall_not(ends: Path, isolation: bool | None) -> None:
    run_conformance(own(f"{ends}:Right"), operations=100, isolation=isolation, crashes=ends.parent)
    pids = set((ends.parent / "pids").read_text().split())
    assert (str(os.getpid()) in pids) is (isolation is False)


def test_what_has_no_name_is_judged_here_and_not_isolated_by_force(ends: Path) -> None:
    right = own(f"{ends}:Right")
    run_conformance(lambda: right(), operations=100, crashes=ends.parent)
    assert set((ends.parent / "pids").read_text().split()) == {str(os.getpid())}
    with pytest.raises(ValueError, match="the factory of the subject has no name"):
        run_conformance(find("kvproof"), isolation=True)


def test_a_subject_that_cannot_be_made_there_is_the_adapters_fault_and_the_way_out_is_reported(ends: Path) -> None:
    with pytest.raises(AdapterError, match="isolation=False"):
        run_conformance(own(f"{ends}:Odd"), crashes=ends.parent)


def test_a_file_that_runs_kvproof_when_it_is_imported_is_refused_and_starts_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "runs_itself.py"
    text = (Path(__file__).parents[3] / "examples" / "forty_lines.py").read_text()
    file.write_text(text.partition("if __name__")[0] + "\nrun_conformance(Adapter, operations=100)\n")
    with pytest.raises(
        AdapterError, match='runs kvproof when it is imported; put that under `if __name__ == "__main__"'
    ):
        run_conformance(f"{file}:Adapter", crashes=tmp_path)
