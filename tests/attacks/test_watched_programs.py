"""A program that is recorded or watched does odd things: what was not judged is never called consistent.

Each row is what the program does between its first calls and its last ones, the exit code of `kvproof watch`, and of
`kvproof record`. The default suite has some of the rows.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.spec.verdict import Exit

PROGRAM = """
import multiprocessing, os, signal, sys
from pathlib import Path
from kvproof.impl import BlockManager, Sequence, SequenceGroup
live = Path(os.environ["KVPROOF_RECORD"]).parent

def work(manager):
    for number in range(20):
        group = SequenceGroup(str(number), [Sequence(number, [1, 2, 3], 4)])
        manager.allocate(group)
        manager.free(group.seqs[0])

def managed():
    manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    work(manager)
    return manager

def made_of(module):
    return __import__(module, fromlist=["x"])

def end_the_judge():
    for child in Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split():
        if b"recording.watcher" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)

def in_a_child(then):
    child = multiprocessing.get_context("fork").Process(target=lambda: (managed(), then()))
    child.start()
    child.join()

manager = managed()
"""
AT_ITS_END = """
work(manager)
Path("done").touch()
"""
OTHER = 'made_of("sglang.srt.mem_cache.radix_cache").RadixCache().answer()'
WHOLE, CUT, NONE = Exit.OK, Exit.INCONCLUSIVE, Exit.NOTHING_CHECKED
ROWS: dict[str, tuple[str, Exit, Exit]] = {
    "nothing": ("pass", WHOLE, WHOLE),
    "closes its descriptors": ("os.closerange(3, 200)", CUT, CUT),
    "ends by itself": ("Path('done').touch(); os._exit(0)", CUT, CUT),
    "has a child": ("in_a_child(lambda: None)", WHOLE, WHOLE),
    "has a child that is killed": ("in_a_child(lambda: os.kill(os.getpid(), 9))", CUT, CUT),
    "has a manager that is refused": (OTHER, CUT, CUT),
    "kills the judge": ("end_the_judge()", CUT, WHOLE),
    "makes a pipe": ("os.mkfifo(live / 'recording-9.jsonl')", CUT, CUT),
    "makes a link": ("os.symlink('/dev/zero', live / 'recording-9.jsonl')", CUT, CUT),
    "makes a link as a segment": ("os.symlink('/dev/zero', live / 'recording.jsonl.1')", CUT, WHOLE),
    "makes a folder": ("(live / 'recording-9.jsonl').mkdir()", CUT, CUT),
    "makes an empty file": ("(live / 'recording-9.jsonl').touch()", CUT, CUT),
    "makes a file without an end": ("os.truncate(os.open(live / 'recording-9.jsonl', 66), 1 << 40)", CUT, CUT),
    "makes files": ("[(live / f'recording-{n}.jsonl').write_text('{}') for n in range(100, 3000)]", CUT, CUT),
}
CHEAP = {"closes its descriptors", "has a manager that is refused", "makes a pipe", "kills the judge"}
CLASSES = {
    "has other names": "class RadixCache:",
    "has no attributes": "class RadixCache:\n    __slots__ = ()",
    "raises for each attribute": "class RadixCache:\n    def __getattr__(self, name): return 1 / 0",
    "cannot be changed": (
        "class Frozen(type):\n    def __setattr__(self, name, value): raise TypeError('frozen')\n"
        "class RadixCache(metaclass=Frozen):"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    write_engine(tmp_path, CLASSES["has other names"])
    yield tmp_path
    for path in tmp_path.rglob("live-*"):
        pytest.fail(f"{path} is left")


def write_engine(folder: Path, text: str) -> None:
    """A stand-in of an engine, whose class is not as the recorder knows it."""
    package = folder / "sglang" / "srt" / "mem_cache"
    package.mkdir(parents=True, exist_ok=True)
    for path in (package, package.parent, package.parent.parent):
        (path / "__init__.py").touch()
    (package / "radix_cache.py").write_text(f"{text}\n    def answer(self): return 5\n")


def done_by(does: str, *words: str) -> tuple[int, str]:
    """The exit code and the messages of a command about a program."""
    Path("program.py").write_text(f"{PROGRAM}\n{does}\n{AT_ITS_END}")
    Path("done").unlink(missing_ok=True)
    done = CliRunner().invoke(app, [*words, "--", sys.executable, "program.py"])
    assert Path("done").exists(), done.output  # the program goes on
    return done.exit_code, done.output


@pytest.mark.parametrize("row", [row if row in CHEAP else pytest.param(row, marks=pytest.mark.long) for row in ROWS])
def test_what_was_not_judged_is_not_called_consistent(
    row: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    does, watched, _ = ROWS[row]
    code, text = done_by(does, "watch", "--out", "out")
    assert (code, "consistent" in text) == (watched, watched is WHOLE), text
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "row", [row if row in CHEAP else pytest.param(row, marks=pytest.mark.long) for row in ROWS if row != "makes files"]
)
def test_what_was_not_recorded_to_its_end_is_named(row: str, folder: Path) -> None:
    does, _, recorded = ROWS[row]
    code, text = done_by(does, "record", "--out", "out/recording.jsonl")
    assert code == recorded, text
    if code == CUT:
        assert "not recorded" in text


@pytest.mark.long
@pytest.mark.parametrize("text", CLASSES.values(), ids=CLASSES)
def test_a_class_that_is_not_recorded_answers_as_it_does_and_its_engine_is_named(
    text: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_engine(folder, text)
    Path("program.py").write_text(f"{PROGRAM.partition('manager = managed()')[0]}\nassert {OTHER} == 5\n")
    done = CliRunner().invoke(app, ["record", "--", sys.executable, "program.py"])
    assert (done.exit_code, "recorded: " in done.output) == (NONE, False), done.output
    said = capfd.readouterr().err
    assert "RadixCache" in said
    assert "vLLM" not in said
    assert "fault of kvproof" not in said
    done = CliRunner().invoke(app, ["watch", "--", sys.executable, "program.py"])
    assert (done.exit_code, "consistent" in done.output) == (NONE, False)
