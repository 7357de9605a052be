"""Where a process is that gives no answer: on a signal it writes its Python frames to its journal, also from C code.

What a process writes is the word of the subject: it is shown to people and decides nothing.
"""

import faulthandler
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from kvproof.check.isolation.journal import FRAMES_AT, FRAMES_BYTES
from kvproof.check.protocol.adapter_fault import NUM_FRAMES, STANDARD_LIBRARY, shown
from kvproof.check.subjects.own import OUR_CODE
from kvproof.spec.trace import CodePlace

WAIT_SECONDS_MAX, LOOK_SECONDS = 0.5, 0.01
FRAME = re.compile(rb'^  File "(.{1,500})", line (\d{1,9}) in (.{1,200})$', re.MULTILINE)


def write_frames_on_signal(descriptor: int) -> None:
    """In the process of a subject: write the frames of its main thread to this journal when it gets the signal."""
    if sys.platform == "linux":
        os.lseek(descriptor, FRAMES_AT, os.SEEK_SET)
        faulthandler.register(signal.SIGUSR2, file=descriptor, all_threads=False)


def places_of_stuck(pid: int, descriptor: int) -> list[CodePlace]:
    """The last frames of the subject's code in the process, innermost last; empty if they cannot be known.

    A process that does not expect the signal may end by it.
    """
    if sys.platform != "linux":
        return []
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGUSR2)
    deadline, written = time.monotonic() + WAIT_SECONDS_MAX, b""
    while time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        before, written = written, os.pread(descriptor, FRAMES_BYTES, FRAMES_AT).rstrip(b"\0")
        if written and written == before:
            break
    return _places(written)


def _places(written: bytes) -> list[CodePlace]:
    """The places in a traceback of `faulthandler`, which begins with the innermost frame."""
    places = []
    for file, line, function in FRAME.findall(written):
        path = file.decode(errors="backslashreplace")
        is_judge = Path(path).is_relative_to(OUR_CODE) and not Path(path).is_relative_to(OUR_CODE / "subjects")
        if not is_judge and not path.startswith(("<", STANDARD_LIBRARY)):
            places.append(CodePlace(function.decode(errors="backslashreplace"), shown(path), int(line)))
    return places[:NUM_FRAMES][::-1]
