"""The scripts for managers without releases, on a checkout that KVPROOF_OTHER_MANAGERS has; and without one.

The variable names a folder with checkouts, each named OWNER+NAME, at the commits of the records.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.hunting.corpus.record import FaultRecord, read_all

EXAMPLES = Path(__file__).parents[3] / "examples"
RECORDS = [one for one in read_all(EXAMPLES / "corpus") if not one.has_releases and one.script]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / "reproductions" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("script", sorted({one.script for one in RECORDS}))
def test_a_script_without_a_checkout_says_how_it_is_called(script: str) -> None:
    done = run(script)
    assert (done.returncode, done.stderr) == (2, f"usage: python {script} CHECKOUT\n")


@pytest.mark.engine
@pytest.mark.parametrize("record", RECORDS, ids=[one.id for one in RECORDS])
def test_a_script_shows_the_fault_in_a_checkout(record: FaultRecord) -> None:
    folder = os.environ.get("KVPROOF_OTHER_MANAGERS")
    if not folder:
        pytest.skip("KVPROOF_OTHER_MANAGERS names no folder with checkouts")
    pytest.importorskip("xxhash")  # most of these projects import it
    done = run(record.script, str(Path(folder, record.engine.replace("/", "+"))))
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
