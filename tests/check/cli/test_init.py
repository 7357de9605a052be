"""`kvproof init`, and the way from it to a green run: nothing is read but what is printed and what is written."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden_files import Command
from typer.testing import CliRunner, Result

from kvproof.check import run_conformance
from kvproof.check.cli.app import app
from kvproof.check.protocol.reference import page

Start = Callable[..., Path]
ALL = ("fork", "caching", "swap", "reset", "cross", "window", "lookahead")
# What the author of the manager writes for each call of the skeleton.
LINES = {
    "make": "return BlockManager(config.num_gpu_blocks, config.block_size)",
    "can_allocate": "return self.manager.can_allocate(len(tokens))",
    "allocate": "self.manager.allocate(seq, len(tokens))\n        return 0",
    "can_append": "return self.manager.can_append(len(self.groups[group]))",
    "append": "return self.manager.append(seq)",
    "release": "self.manager.free(seq)",
    "share": "self.manager.fork(parent, child)",
    "tables": "return self.manager.tables",
    "num_free": "return len(self.manager.free_blocks)",
    "refcounts": "return self.manager.refcounts",
    "free_ids": "return self.manager.free_blocks",
}
# Each fault: a text of the manager, what stands there instead, and the method that the first three lines name.
FAULTS = [
    ("            self.refcounts[block] += 1\n", "            pass\n", "fork"),
    ("                self.free_blocks.append(block)\n", "                pass\n", "free"),
    ("            return [(shared, table[index])]\n", "            return []\n", "append"),
    ("in self.tables.pop(seq):", "in self.tables[seq]:", "free"),
    ("<= len(self.free_blocks)\n\n    def allocate", "< len(self.free_blocks)\n\n    def allocate", "can_allocate"),
    ("        self.num_tokens[child] = self.num_tokens[parent]\n", "", "append"),
    ("return num_seqs <= len(self.free_blocks)", "return True", "can_append"),
    ("return -(-num_tokens // self.block_size) <= len(self.free_blocks)", "return True", "can_allocate"),
]


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Runs `kvproof init` in an empty folder, which becomes the working folder."""
    monkeypatch.chdir(tmp_path)

    def start(*arguments: str) -> Path:
        done = kvproof("init", "--name", "mine", "--yes", *arguments)
        assert done.exit_code == 0, done.output
        return tmp_path

    return start


def written(folder: Path, example_source: str, old: str = "", new: str = "") -> str:
    """The subject, after its author wrote the manager, with a fault in it, and every call of the skeleton."""
    manager = example_source[example_source.index("class BlockManager") : example_source.index("class Adapter")]
    assert old in manager
    (folder / "my_manager.py").write_text(manager.replace(old, new, 1) if old else manager)
    path = folder / "kvproof_adapter.py"
    parts = re.split(r"\n    def (\w+)", path.read_text())
    calls = zip(parts[1::2], parts[2::2], strict=True)
    body = [f"\n    def {name}{text.replace('raise NotImplementedError', LINES[name])}" for name, text in calls]
    path.write_text(
        parts[0].replace("\nclass Adapter", "from my_manager import BlockManager\n\n\nclass Adapter") + "".join(body)
    )
    return f"{path}:Adapter"


@pytest.mark.parametrize("capabilities", [(), ALL[:5], ALL], ids=["none", "some", "all"])
def test_what_is_written_in_python_passes_ruff(start: Start, capabilities: tuple[str, ...]) -> None:
    folder = start(*(word for one in capabilities for word in ("--capability", one)))
    for command in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "--isolated", str(folder)], check=True)
    defined = re.findall(r"    def (\w+)", (folder / "kvproof_adapter.py").read_text())
    assert ({"hits", "computed", "swap_in", "reset_cache", "new_encoder"} <= set(defined)) == bool(capabilities)
    used = re.findall(r"uses: (\S+)", (folder / ".github/workflows/kvproof.yml").read_text())
    assert len(used) == 3
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one) for one in used)


@pytest.mark.long
def test_what_is_written_in_python_passes_mypy_in_strict_mode(start: Start) -> None:
    folder = start(*(word for one in ALL for word in ("--capability", one)))
    subprocess.run([sys.executable, "-m", "mypy", "--strict", str(folder)], check=True, cwd=folder)


def test_the_untouched_skeleton_says_what_is_not_written_yet_and_where(start: Start, command: Command) -> None:
    start()
    assert command("hunt", "--effort", "quick", "--seed", "1").exit_code == 2


def test_nothing_is_written_through_a_link_that_leads_out_of_the_folder(tmp_path: Path, command: Command) -> None:
    (folder := tmp_path / "project").mkdir()
    for link, target in (("kvproof.toml", tmp_path / "written.toml"), (".github", tmp_path)):
        (folder / link).symlink_to(target)
        assert command("init", folder, "--yes", "--force").exit_code == 2
        (folder / link).unlink()
        assert list(tmp_path.rglob("*")) == [folder]


def test_nothing_is_overwritten_unless_that_is_wanted(start: Start, command: Command) -> None:
    folder = start()
    (folder / "kvproof.toml").write_text("seed = 3\n")
    (folder / "test_kvproof.py").unlink()
    assert command("init", "--yes").exit_code == 2
    assert (folder / "kvproof.toml").read_text() == "seed = 3\n"
    assert not (folder / "test_kvproof.py").exists()
    assert command("init", "--yes", "--force").exit_code == 0
    assert "subject" in (folder / "kvproof.toml").read_text()


def test_a_program_in_javascript_says_what_is_not_written_yet(start: Start) -> None:
    folder = start("--language", "javascript", "--capability", "caching")
    text = (folder / "kvproof_manager.js").read_text()
    assert re.findall(r"^  (\w+)\(call\)", text, re.MULTILINE)[:2] == ["open", "can_allocate"]
    assert "  computed(call)" in text
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    done = kvproof("hunt", "--effort", "quick")
    assert done.exit_code == 2
    assert "open is not written yet" in done.output


@pytest.mark.long
def test_from_init_to_a_green_run(start: Start, example_source: str) -> None:
    written(start("--capability", "fork"), example_source)
    done = kvproof("hunt", "--effort", "quick", "--seed", "1")
    assert done.exit_code == 0, done.output
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], check=True)


def refuted(subject: str, **options: Any) -> list[str]:
    """The first three lines of the refutation."""
    with pytest.raises(AssertionError) as found:
        run_conformance(subject, **options)
    return str(found.value).splitlines()[:3]


@pytest.mark.parametrize(
    ("old", "new", "method"),
    [pytest.param(*fault, marks=[pytest.mark.long] if place else []) for place, fault in enumerate(FAULTS)],
)
def test_a_planted_fault_names_the_method_in_the_first_three_lines(
    start: Start, example_source: str, old: str, new: str, method: str
) -> None:
    folder = start("--capability", "fork")
    subject = written(folder, example_source, old, new)
    lines = refuted(subject)
    line = next(
        i for i, text in enumerate((folder / "my_manager.py").read_text().splitlines(), 1) if f"def {method}(" in text
    )
    assert f"BlockManager.{method} of my_manager.py:{line}" in "\n".join(lines), lines


def test_the_reference_of_adapters_is_printed_without_a_file() -> None:
    done = CliRunner().invoke(app, ["init", "--reference"])
    assert (done.exit_code, done.output) == (0, page())
