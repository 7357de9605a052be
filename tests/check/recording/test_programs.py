"""Programs that use an engine and do not know kvproof's recorder are recorded, and watched, by the commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.recording.validate import validate
from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine
SGLANG = """
from random import Random
from kvproof.check.protocol.manager import Config
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.sglang.manager import SGLang

config = Config(num_gpu_blocks=16, caching=True, chunked=True)
ManagerOperations(SGLang("0.5.23"), Random(1), config).run([], 200)
"""
LMCACHE = """
from typing import NamedTuple
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.subjects.lmcache import LMCacheL1


class Key(NamedTuple):
    chunk_hash: bytes
    model_name: str = "model"
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


subject = LMCacheL1("0.5.6")
subject.open(StoreConfig(num_gpu_blocks=8))
manager = subject._manager
for number in range(50):
    keys = [Key(b"%d" % (number % 12))]
    manager.delete([Key(b"%d" % ((number + 4) % 12))])
    manager.reserve_write(keys, [False], None, tag="program")
    manager.finish_write(keys, "program")
    manager.reserve_read(keys)
    manager.finish_read(keys)
"""
PROGRAMS = {"sglang==0.5.23": (SGLANG, "UnifiedRadixCache", 200), "lmcache==0.5.6": (LMCACHE, "L1Manager", 250)}
COMMAND = "from kvproof.check.cli.app import main; main()"


def run_in(folder: Path, *arguments: str) -> str:
    """What a command of kvproof prints about the program in this folder. It must succeed."""
    command = [sys.executable, "-c", COMMAND, *arguments, "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("release", PROGRAMS)
def test_a_program_is_recorded_and_watched_without_a_change(release: str, tmp_path: Path) -> None:
    download.add(release)
    program, manager, num_lines = PROGRAMS[release]
    (tmp_path / "program.py").write_text(program)
    run_in(tmp_path, "record", "--out", "live.jsonl")
    done = validate(tmp_path / "live.jsonl")
    assert (done.finding, done.reason) == (None, "")
    assert done.header.manager.endswith(f".{manager}")
    assert done.num_calls >= num_lines
    assert f"{done.num_calls} lines of 1 manager were judged: consistent" in run_in(tmp_path, "watch")
