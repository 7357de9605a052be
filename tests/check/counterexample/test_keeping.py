"""What is saved of a finding does not say where the files of its user lie."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.counterexample.keeping import KeptFinding, without_home
from kvproof.check.counterexample.store import path_of_test
from kvproof.check.oracle.method_called import Blame
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, Unsupported
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading.download import CACHE
from kvproof.spec.trace import CodePlace, EnteredCode


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/mine/engines/vllm-0.9.2/vllm/core/block_manager.py", "vllm-0.9.2/vllm/core/block_manager.py"),
        ("/mine/venv/site-packages/own/manager.py", "own/manager.py"),
        ("/mine/venv/elsewhere/manager.py", "/mine/venv/elsewhere/manager.py"),
        ("examples/forty_lines.py", "examples/forty_lines.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_file_is_named_from_where_it_was_imported(file: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, "/mine/engines")
    monkeypatch.setattr(sys, "path", ["", "/mine/venv/site-packages", "/mine/venv/site-packages/own/deeper"])
    assert without_home(CodePlace("Manager.fork", file, 7)) == CodePlace("Manager.fork", shown, 7)


def test_a_saved_trace_and_its_test_have_no_path_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(BuiltIn):
        def observe(self) -> Any:
            return super().observe()._replace(refs=[7])

    monkeypatch.setenv(CACHE, str(tmp_path / "engines"))
    inside = CodePlace("BlockManager.fork", str(tmp_path / "engines" / "vllm-0.9.2" / "block_manager.py"), 110)
    finding = Finding("refcount-exact", "it is wrong")
    kept = KeptFinding(Counterexample(Config(block_size=1, num_gpu_blocks=1), [], finding))
    kept.keep(
        tmp_path / "crashes",
        "vllm-v0==0.9.2",
        "walker",
        1,
        make=Wrong,
        shorten=lambda found: found,
        locate=lambda found: Blame(inside, [inside], entered=[EnteredCode("Pool.take", inside.file, 3, 7)]),
    )
    assert kept.path is not None
    for path in (kept.path, path_of_test(kept.path)):
        text = path.read_text()
        assert "vllm-0.9.2/block_manager.py" in text
        assert str(tmp_path / "engines") not in text


def test_a_subject_that_refuses_the_configuration_of_its_finding_later_is_no_fault_of_kvproof(tmp_path: Path) -> None:
    def refuses() -> BuiltIn:
        raise Unsupported("sometimes")

    found = Counterexample(Config(block_size=1, num_gpu_blocks=1), [("reset",)], Finding("refcount-exact", "wrong"))
    kept = KeptFinding(found)
    kept.keep(tmp_path, "own", "walker", 1, make=refuses, shorten=lambda found: found, locate=lambda found: Blame())
    assert kept.tracebacks == []
    assert "the replay could not be done: the subject refused the configuration now: sometimes" in kept.problems
