"""Where a process stands that gives no answer, from what it wrote to its journal."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import kvproof.check
from kvproof.check.isolation.journal import FRAMES_AT, FRAMES_BYTES, Journal, places_of_stuck

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the signal and the shared file are those of Linux")
CHECK = Path(kvproof.check.__file__ or "").parent
OF_USER = '  File "/m/manager.py", line 7 in take\n  File "/m/manager.py", line 3 in allocate\n'


@pytest.fixture
def journal() -> Iterator[Journal]:
    with closing(Journal()) as made:
        yield made


def places(journal: Journal, written: bytes) -> list[str]:
    os.pwrite(journal.descriptor, written, FRAMES_AT)
    with subprocess.Popen(["sleep", "100"]) as process:  # it does not expect the signal, and ends by it
        return [str(place) for place in places_of_stuck(process.pid, journal.descriptor)]


def test_a_process_that_writes_nothing_stands_nowhere(journal: Journal) -> None:
    assert places(journal, b"") == []


def test_the_frames_of_the_subject_are_those_that_are_not_kvproofs_or_pythons(journal: Journal) -> None:
    written = (
        f'Current thread 0x1 (most recent call first):\n  File "{os.__file__}", line 1 in sleep\n{OF_USER}'
        f'  File "{CHECK}/subjects/vllm/v0.py", line 2 in admit\n  File "{CHECK}/oracle/oracle.py", line 9 in call\n'
        '  File "<string>", line 5 in <module>\n'
    )
    expected = ["admit", "allocate", "take"]
    assert [place.partition(" of ")[0] for place in places(journal, written.encode())] == expected


@pytest.mark.parametrize(
    "written",
    [
        b'  File "/m/manager.py", line ' + b"9" * 10_000 + b" in take\n",
        b'  File "' + b"m" * 10_000 + b'", line 7 in take\n',
        b"\xff\x00\x1b[2J" * 10_000,
        b"\n" * FRAMES_BYTES,
    ],
)
def test_what_is_no_traceback_names_no_place(journal: Journal, written: bytes) -> None:
    assert places(journal, written) == []
