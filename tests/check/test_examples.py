"""The example of the documentation: the manager of forty lines is accepted, and refuted with one line left out."""

from pathlib import Path
from typing import Any

import pytest

from kvproof.check import run_conformance
from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.runs.replay import Trust, replay
from kvproof.check.subjects.registry import find

TREE = Path(__file__).resolve().parents[2]

REFUTED = """\
refcount-exact is refuted for examples/forty_lines_broken.py:Adapter at step 4 (explorer).
  fork(sequence 1, into 2): refcount of block 0: the specification says 2, the subject 1
  while calling BlockManager.fork of examples/forty_lines_broken.py:14
  expected: 2   observed: 1
  A block's refcount is the number of block-table entries that name it.
  Repeat: kvproof replay {trace} --subject examples/forty_lines_broken.py:Adapter
  The steps, with block_size 1, num_gpu_blocks 1:
    1  new(group 1, sequence 1, 1 token: 0)
    2  admit(group 1)             admitted; sequence 1: block 0
    3  run()                      computes 1 token of sequence 1
    4  fork(sequence 1, into 2)   sequence 2: block 0
"""
SAVED = "refcount-exact-fa16.json"


def adapter(name: str) -> type[Any]:
    """The class itself, which is what a user gives to `run_conformance`."""
    return type(find(f"{TREE}/examples/{name}.py:Adapter")())


def test_the_manager_of_forty_lines_is_accepted(tmp_path: Path) -> None:
    run_conformance(
        adapter("forty_lines"),
        operations=5_000,
        expect=("copy-on-write", "three holders", "pool full", "admission LATER", "admission NEVER"),
        crashes=tmp_path,
    )

    assert list(tmp_path.iterdir()) == []


def test_one_line_left_out_is_refuted_in_four_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TREE)

    with pytest.raises(AssertionError) as refuted:
        run_conformance(adapter("forty_lines_broken"), crashes=tmp_path)

    text = str(refuted.value)
    (trace,) = tmp_path.glob("*.json")
    assert text[: text.index("  Saved: ")] == REFUTED.format(trace=trace)
    assert trace.name == SAVED
    assert replay(trace, trusted=Trust(is_total=True)).status is ReplayStatus.FAILED
    assert replay(trace, "examples/forty_lines.py:Adapter").status is ReplayStatus.FIXED


def test_the_documentation_shows_the_adapter_and_what_is_printed() -> None:
    shown = (TREE / "docs" / "own-manager.md").read_text()
    example = (TREE / "examples" / "forty_lines.py").read_text()
    written = example[example.index("class Adapter") : example.index("def test_")].rstrip()

    assert written in shown
    printed = REFUTED.format(trace=f".kvproof/crashes/{SAVED}")
    assert f"{printed}  Saved: .kvproof/crashes/{SAVED} · " in shown
