"""What the scripts of SGLang's scheduler share: a part of the engine that is not there is named when it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine
SCRIPTS = Path(__file__).parents[4] / "examples" / "reproductions"


def run(script: str, subject: str) -> subprocess.CompletedProcess[str]:
    """Run a script on what the adapter of a subject finds of a release."""
    download.add(f"sglang=={subject.partition('==')[2]}")
    command = [sys.executable, "-m", "kvproof.check.hunting.corpus.run_script", subject, str(SCRIPTS / script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


ASKS_A_STUB = """
from on_sglang_modules import import_modules

import_modules([])
from sglang.srt.managers import schedule_batch

schedule_batch.Req
"""


def test_a_part_that_is_not_there_is_named_when_it_is_used(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(SCRIPTS)!r})\n{ASKS_A_STUB}")
    done = run(str(script), "sglang==0.5.23")
    assert done.returncode == 3
    assert done.stderr.endswith(
        "LookupError: the engine uses sglang.srt.managers.schedule_batch.Req, which this script does not stand in for\n"
    )
