"""Each subject of an engine can be made, opened and driven in its oldest and in its newest release."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import ROWS, Row
from kvproof.spec.verdict import Exit

BOUNDS = [(row, release) for row in ROWS for release in dict.fromkeys(chain(row.releases or ()))]


@pytest.mark.engine
@pytest.mark.parametrize(("row", "release"), BOUNDS, ids=[f"{row.name}=={release}" for row, release in BOUNDS])
def test_a_hunt_begins(row: Row, release: str, tmp_path: Path) -> None:
    """A process can import one release, so each has its own. What such a short hunt finds is no matter here."""
    download.add(f"{row.engine}=={release}")
    kvproof = str(Path(sys.executable).with_name("kvproof"))
    command = [kvproof, "hunt", "--subject", f"{row.name}=={release}", "--seed", "1", "--effort", "200"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode in (Exit.OK, Exit.REFUTED, Exit.INCONCLUSIVE), done.stderr
