"""Faults of LMCache that others reported: a script shows each in a bad release, and not in a repaired one."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

SCRIPTS = Path(__file__).parents[3] / "examples" / "reproductions"


@pytest.mark.engine
@pytest.mark.parametrize(("release", "code"), [("0.5.5", 1), ("0.5.6", 0)])
def test_what_a_failed_load_leaves_is_a_hit_until_it_is_repaired(release: str, code: int) -> None:
    download.add(f"lmcache=={release}")
    script = SCRIPTS / "lmcache_failed_load_is_a_hit.py"
    module = "kvproof.check.hunting.corpus.run_script"
    command = [sys.executable, "-m", module, f"lmcache-l1=={release}", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
