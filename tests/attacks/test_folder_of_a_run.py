"""A folder in which files are called as modules are: no process of kvproof imports one of them.

Each file notes its name when it runs. An adapter in such a folder imports its neighbours, and may itself be called as a
module is.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from kvproof.check.hosts.program import module
from kvproof.spec.verdict import Exit

EXAMPLES = Path(__file__).parents[2] / "examples"
ALSO = {"kvproof", "ray", "triton", "vllm", "sitecustomize", "usercustomize"}
INSTALLED = {name for name in packages_distributions() if name.isidentifier()}  # from 3.13 on also paths in packages
# Those of other systems are left out: what an adapter's Python lacks, it may find beside the adapter.
STANDARD = {name for name in sys.stdlib_module_names if find_spec(name) is not None}
NAMES = sorted((STANDARD | INSTALLED | ALSO) - {"tests"})
NOTE = "open({path!r}, 'a').write(__name__ + '\\n')\nraise ImportError('of the folder')\n"
SERVED = """
from kvproof.impl import BlockManager, Sequence, SequenceGroup
manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
group = SequenceGroup("1", [Sequence(1, [1, 2, 3], 4)])
manager.allocate(group)
manager.free(group.seqs[0])
"""
PLAN = """[[search]]
subjects = ["kvproof.py:Adapter"]
seeds = [1]
efforts = [50]
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working folder, with a file for each module that can be imported."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(NOTE.format(path=str(tmp_path / "was-run")))
    return folder


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    """Runs a command there, as the script does that an installation makes."""
    script = tmp_path / "bin" / "kvproof"
    script.parent.mkdir()
    script.write_text("from kvproof.check.cli import main\nmain()\n")
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "serve.py").write_text(SERVED)

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        places = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "KVPROOF_CACHE": str(tmp_path / "releases")}
        command = [sys.executable, str(script), *words]
        return subprocess.run(command, cwd=folder, env={**os.environ, **places}, capture_output=True, text=True)

    return done


def ran(tmp_path: Path) -> list[str]:
    """The files of the folder that were run."""
    note = tmp_path / "was-run"
    return note.read_text().split() if note.exists() else []


def with_an_adapter(folder: Path) -> None:
    """Write an adapter that is called as kvproof is, and its neighbour."""
    (folder / "neighbour.py").write_bytes((EXAMPLES / "forty_lines.py").read_bytes())
    (folder / "kvproof.py").write_text("from neighbour import Adapter\n")


def test_workers_and_the_process_of_a_subject_import_no_file_of_the_folder(
    folder: Path, run: Run, tmp_path: Path
) -> None:
    with_an_adapter(folder)
    done = run("hunt", "--subject", "kvproof.py:Adapter", "--effort", "50", "--seed", "1", "--workers", "1")
    assert (done.returncode, ran(tmp_path)) == (Exit.INCONCLUSIVE, []), done.stderr
    assert "50 operations" in done.stdout


def test_the_judge_and_the_writer_of_a_recording_import_no_file_of_the_folder(run: Run, tmp_path: Path) -> None:
    server = str(tmp_path / "server" / "serve.py")
    done = run("watch", "--", sys.executable, server)
    assert (done.returncode, ran(tmp_path)) == (Exit.OK, []), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("hunt", "--subject", "kvproof", "--isolation", "--effort", "50", "--seed", "1"),
        ("hunt", "--subject", "neighbour:Adapter", "--effort", "50", "--seed", "1", "--no-isolation"),
        ("hunt", "--subject", "neighbour:Adapter", "--effort", "50", "--seed", "1", "--workers", "2"),
        ("campaign", "plan.toml", "--workers", "2"),
        ("explore", "--workers", "2", "--effort", "quick"),
        ("verify", "--subject", "kvproof.py:Adapter", "--effort", "50", "--seed", "1"),
        ("prove", "--only", "mapping*", "--no-cache"),
        ("device", "--device", "cpu", "--executor", "own:move", "--budget", "20", "--seed", "1"),
        ("record", "--out", "r.jsonl", "--", sys.executable, "../server/serve.py"),
    ],
    ids=" ".join,
)
def test_no_command_imports_a_file_of_the_folder(
    words: tuple[str, ...], folder: Path, run: Run, tmp_path: Path
) -> None:
    with_an_adapter(folder)
    (folder / "plan.toml").write_text(PLAN)
    (folder / "own.py").write_text("import neighbour\ndef move(*pools, **moves):\n    raise RuntimeError\n")
    done = run(*words)
    assert done.returncode in (Exit.OK, Exit.REFUTED, Exit.INCONCLUSIVE), done.stderr
    assert ran(tmp_path) == []
    for read in (("report", ".kvproof"), ("validate", "r.jsonl"), ("history", "--history", "none")):
        assert run(*read).returncode != Exit.INTERNAL
    assert ran(tmp_path) == []


@pytest.mark.long
def test_a_counterexample_is_replayed_where_it_was_unpacked_and_no_file_beside_it_is_run(
    folder: Path, run: Run, tmp_path: Path
) -> None:
    broken = str(EXAMPLES / "forty_lines_broken.py") + ":Adapter"
    run("hunt", "--subject", broken, "--effort", "500", "--seed", "1", "--stop-at-first")
    (trace,) = (folder / ".kvproof" / "crashes").glob("*.json")
    unpacked = folder / "unpacked.json"
    unpacked.write_text(json.dumps({**json.loads(trace.read_text()), "subject": "kvproof"}))
    assert run("replay", "unpacked.json", "--isolation").returncode == Exit.OK
    assert run("replay", str(trace), "--subject", broken).returncode == Exit.REFUTED
    assert ran(tmp_path) == []


def test_a_module_of_kvproof_is_that_of_the_process_that_starts_it_whatever_is_on_its_path(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    done = subprocess.run(
        module("kvproof.check.subjects.probe_process", "fork:none", "1"), cwd=folder, capture_output=True, text=True
    )
    assert "fork:none" in done.stdout, done.stderr
    assert "kvproof" not in ran(tmp_path)


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_a_run_leaves_nothing_open_of_which_python_warns(tmp_path: Path, more: list[str]) -> None:
    subject = f"{EXAMPLES / 'forty_lines.py'}:Adapter"
    command = [sys.executable, "-m", "kvproof.check.cli.app", "hunt", "--subject", subject, "--effort", "200", *more]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode in (Exit.OK, Exit.INCONCLUSIVE), "Warning" in done.stderr) == (True, False), done.stderr
