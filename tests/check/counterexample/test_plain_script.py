"""A counterexample as plain Python: it fails without kvproof, or says what is missing."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.counterexample.plain_script import PlainScript, plain_script
from kvproof.check.counterexample.store import raw_trace
from kvproof.check.oracle.plain_calls import PlainRun, plain_run
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.registry import find

FORTY_LINES = Path(__file__).parents[3] / "examples" / "forty_lines.py"
FORK: list[tuple[Any, ...]] = [("new", 1, [1], [0]), ("admit", 1, 1), ("run", 0), ("fork", 1, 2)]
ADMIT = FORK[:2]
ADAPTER = """
import forty_lines
from kvproof.check import Config
from my_manager import {names}

class Adapter(forty_lines.Adapter):
    def make(self, config: Config):
        return {make}
{more}
"""


def manager_of(*lines: str) -> str:
    """The manager of the example with a fork that forgets to count, and further lines in its class."""
    text = FORTY_LINES.read_text()
    manager = text[text.index("class BlockManager") : text.index("class Adapter")].rstrip()
    forgetful = manager.replace("            self.refcounts[block] += 1\n", "            pass\n")
    assert forgetful != manager
    return "\n".join([forgetful, *lines, ""])


def shown(
    folder: Path,
    manager: str,
    operations: list[tuple[Any, ...]] = FORK,
    *,
    names: str = "BlockManager",
    make: str = "BlockManager(config.num_gpu_blocks, config.block_size)",
    more: str = "",
    change: dict[str, str] | None = None,
) -> tuple[PlainRun, PlainScript]:
    """The run of a manager in one file, behind an adapter in another, and the script of it."""
    (folder / "my_manager.py").write_text(manager)
    (folder / "forty_lines.py").write_text(FORTY_LINES.read_text())
    (folder / "my_adapter.py").write_text(ADAPTER.format(names=names, make=make, more=more))
    return script_of(f"{folder}/my_adapter.py:Adapter", operations)


def script_of(subject: str, operations: list[tuple[Any, ...]]) -> tuple[PlainRun, PlainScript]:
    config = Config(block_size=1, num_gpu_blocks=2)
    finding = finding_of(find(subject)(), config, operations)
    assert finding is not None
    found = Counterexample(config, operations, finding)
    run = plain_run(find(subject)(), found)
    trace = replace(raw_trace(subject, found, "test", 1), subject=subject)
    return run, plain_script(trace, run, finding.text)


def ran(folder: Path, script: PlainScript) -> subprocess.CompletedProcess[str]:
    path = folder / "plain.py"
    path.write_text(script.text)
    return subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True)


@pytest.fixture(autouse=True)
def _modules_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("my_manager", "forty_lines"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_the_script_fails_until_the_manager_is_correct(tmp_path: Path) -> None:
    _, script = shown(tmp_path, manager_of())
    assert not script.missing
    assert "kvproof" not in script.text.partition('"""\n\n')[2]
    assert "manager.allocate(1, 1)\n" in script.text
    assert "assert manager.refcounts[1] == 2, " in script.text
    assert ran(tmp_path, script).stderr.rstrip().rpartition("\n")[2].startswith("AssertionError: fork(1, 2)")
    file = tmp_path / "my_manager.py"
    file.write_text(file.read_text().replace("            pass\n", "            self.refcounts[block] += 1\n"))
    assert ran(tmp_path, script).returncode == 0


def test_a_manager_beside_its_adapter_is_copied_without_what_needs_kvproof(tmp_path: Path) -> None:
    (tmp_path / "forty_lines.py").write_text(FORTY_LINES.read_text())
    broken = FORTY_LINES.with_name("forty_lines_broken.py").read_text()
    (tmp_path / "forty_lines_broken.py").write_text(broken)
    _, script = script_of(f"{tmp_path}/forty_lines_broken.py:Adapter", FORK)
    assert not script.missing
    assert "class Adapter" not in script.text
    assert "import kvproof" not in script.text
    assert "AssertionError" in ran(tmp_path, script).stderr


def test_a_call_that_raises_is_asserted_not_to(tmp_path: Path) -> None:
    raising = "        raise KeyError(seq)\n"
    manager = manager_of().replace("        self.num_tokens[seq] = num_tokens\n", raising)
    _, script = shown(tmp_path, manager, ADMIT)
    assert not script.missing
    assert "try:\n    manager.allocate(1, 1)\nexcept Exception as error:\n" in script.text
    assert "KeyError: 1" in ran(tmp_path, script).stderr


def test_what_the_adapter_sets_and_passes_on_is_written(tmp_path: Path) -> None:
    manager = manager_of(
        "    def take_for(self, request, *, times=1):",
        "        for _ in range(times * request.wanted):",
        "            self.allocate(request.seq, 1)",
        "",
        "class Request:",
        "    def __init__(self, seq):",
        "        self.seq, self.wanted = seq, 0",
    )
    more = """
    def allocate(self, seq, tokens):
        request = Request(seq)
        request.wanted = 1
        self.manager.take_for(request, times=len(tokens))
"""
    _, script = shown(tmp_path, manager, names="BlockManager, Request", more=more)
    assert not script.missing
    assert "request = Request(1)\nrequest.wanted = 1\nmanager.take_for(request)\n" in script.text


def test_an_answer_that_is_an_object_has_a_name(tmp_path: Path) -> None:
    manager = manager_of(
        "    def table_of(self, seq):",
        "        return Table(self, seq)",
        "",
        "class Table:",
        "    def __init__(self, manager, seq):",
        "        self.manager, self.seq = manager, seq",
        "    def share(self, child):",
        "        self.manager.fork(self.seq, child)",
    )
    more = """
    def share(self, parent, child):
        self.manager.table_of(parent).share(child)
"""
    _, script = shown(tmp_path, manager, more=more)
    assert not script.missing
    assert "of = manager.table_of(1)\nof.share(2)\n" in script.text


def test_what_cannot_be_written_is_named_and_the_script_does_not_run(tmp_path: Path) -> None:
    manager = manager_of().replace("list(range(num_blocks))", "num_blocks()").replace("[0] * num_blocks", "[0, 0]")
    make = "BlockManager(lambda: [0, 1], config.block_size)"
    run, script = shown(tmp_path, manager, make=make)
    assert run.missing
    assert script.missing == run.missing[0]
    done = ran(tmp_path, script)
    assert done.returncode == 1
    assert done.stderr.startswith("not complete: BlockManager.__init__ gets ")


def test_a_script_that_does_not_fail_alone_is_not_called_complete(tmp_path: Path) -> None:
    manager = f"import sys\n\n\n{manager_of()}".replace(
        "            pass\n", "            self.refcounts[block] += 'kvproof.check' not in sys.modules\n"
    )
    _, script = shown(tmp_path, manager)
    assert script.missing == "without kvproof its assertion holds"


def test_without_a_known_comparison_the_state_that_was_refuted_is_asserted(tmp_path: Path) -> None:
    manager = manager_of().replace("list(self.tables[parent])", "[]").replace("self.tables[parent].copy()", "[]")
    _, script = shown(tmp_path, manager)
    assert not script.missing
    assert "    manager.tables == {1: [1], 2: []} and\n" in script.text
    assert "assert not is_as_refuted, " in script.text


def test_what_the_adapter_keeps_itself_is_not_asserted(tmp_path: Path) -> None:
    more = """
    def refcounts(self):
        return self.kept

    def share(self, parent, child):
        self.manager.fork(parent, child)
        self.kept = list(self.manager.refcounts)

    def allocate(self, seq, tokens):
        self.manager.allocate(seq, len(tokens))
        self.kept = list(self.manager.refcounts)

    def make(self, config):
        self.kept = [0] * config.num_gpu_blocks
        return BlockManager(config.num_gpu_blocks, config.block_size)
"""
    _, script = shown(tmp_path, manager_of(), more=more)
    assert script.missing == "the adapter does not read refs of the manager in one expression each"
