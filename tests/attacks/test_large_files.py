"""Files with very many values: each is accepted or refused with one message, in little time and memory.

A short text can take much memory when it is read: an empty list has three bytes in JSON, one in MessagePack, and 64 in
memory. Each file is read in a process of its own, whose memory before the reading is that of the modules.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.attacks.test_files import MEGABYTES_MAX, SECONDS_MAX, result_of_a_run

from kvproof.check.hunting import store as hunts
from kvproof.check.hunting.resume import PLAN, HuntPlan
from kvproof.check.runs import history
from kvproof.check.runs.store import RESULT, StoreError
from kvproof.models.solvers.answer_cache import AnswerCache
from kvproof.models.solvers.solving import Settings
from kvproof.reports.document import encode
from kvproof.reports.result import Check, Result

READ = """
import resource, sys, time
from pathlib import Path
from tests.attacks import test_files
peak, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    getattr(test_files, sys.argv[1])(Path(sys.argv[2]))
    print("accepted")
except test_files.REFUSED as error:
    print(error)
print(time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024)
"""
ROOT = Path(__file__).parents[2]


def result_with(change: Callable[[Result], Result]) -> bytes:
    return encode(change(result_of_a_run()))


def checks_of(sample: Check, number: int) -> list[Check]:
    return [replace(sample, id=f"{sample.id}/{index}") for index in range(number)]


FILES: dict[str, tuple[str, str, Callable[[], bytes], str]] = {
    "empty lists": (
        "read_trace",
        "t.json",
        lambda: b'{"a":[' + b"[]," * 5_000_000 + b"[]]}",
        "about 10,000,003 values",
    ),
    "the same finding": (
        "report_of",
        RESULT,
        lambda: result_with(lambda one: replace(one, checks=checks_of(one.checks[0], 1_000))),
        "accepted",
    ),
    "many findings": (
        "report_of",
        RESULT,
        lambda: result_with(lambda one: replace(one, checks=checks_of(one.checks[0], 1_001))),
        "1,001 findings, and a report has at most 1,000",
    ),
    "many checks": (
        "report_of",
        RESULT,
        lambda: result_with(lambda one: replace(one, checks=checks_of(one.checks[1], 20_001))),
        "20,001 checks, and a report has at most 20,000",
    ),
    "many messages": (
        "report_of",
        RESULT,
        lambda: result_with(lambda one: replace(one, messages=["m"] * 20_001)),
        "20,001 messages, and a report has at most 20,000",
    ),
    "tables of TOML": (
        "read_settings",
        "kvproof.toml",
        lambda: b"".join(b"[a%d.b.c.d]\n" % index for index in range(60_000)),
        "more than 60,000 tables and dots",
    ),
}


def cost_of(read: str, path: Path) -> tuple[str, float, float]:
    """The message about a file, and the seconds and megabytes that reading it takes."""
    child = subprocess.run(
        [sys.executable, "-c", READ, read, path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    *message, numbers = child.stdout.splitlines()
    seconds, megabytes = map(float, numbers.split())
    return "\n".join(message), seconds, megabytes


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_many_values_costs_little(name: str, tmp_path: Path) -> None:
    read, file, data, says = FILES[name]
    (tmp_path / file).write_bytes(data())
    message, seconds, megabytes = cost_of(read, tmp_path / file)
    assert says in message
    assert (seconds < SECONDS_MAX, megabytes < MEGABYTES_MAX) == (True, True), (seconds, megabytes)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (bytes([0xDD, 0, 0x50, 0, 0]) + b"\x90" * 0x500000, "a result has about 5,242,880 lists and maps"),
        (b"\xc4" * (7 << 20), "a result has at most 6,291,456 bytes"),
        (bytes([0xDC, 0x40, 0]) + b"\x90" * 0x4000, "is damaged ("),
    ],
)
def test_a_result_of_a_hunt_of_many_values_costs_little(value: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / hunts.HUNT
    plan = msgspec.msgpack.encode(msgspec.to_builtins(HuntPlan("kvproof", 1, "quick", [], {}, [])))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(hunts.TABLE)
        database.execute(f"PRAGMA application_id = {hunts.APPLICATION_ID}")
        database.executemany("INSERT INTO results VALUES (?, 'w', 1.0, ?)", [(PLAN, plan), ("a", value)])
    message, seconds, megabytes = cost_of("read_hunt", path)
    assert says in message
    assert len(message) < 1_000
    assert (seconds < SECONDS_MAX, megabytes < MEGABYTES_MAX) == (True, True), (seconds, megabytes)


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_pipe_in_place_of_a_journal_is_refused(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    history.record(file, result_of_a_run(), 1)
    os.mkfifo(f"{file}{suffix}")
    with pytest.raises(history.HistoryError, match=f"its journal .*h.sqlite{suffix} is no regular file; remove it"):
        history.recorded_runs(file)
    with pytest.raises(history.HistoryError, match="is no regular file"):
        history.record(file, result_of_a_run(), 1)
    os.mkfifo(f"{tmp_path / hunts.HUNT}{suffix}")
    with pytest.raises(StoreError, match="is no regular file"):
        hunts.ResultStore(tmp_path / hunts.HUNT)
    os.mkfifo(f"{tmp_path / 'a.sqlite'}{suffix}")
    with pytest.raises(sqlite3.OperationalError, match="is no regular file"):
        AnswerCache(tmp_path / "a.sqlite", "z3", Settings())


def test_the_journal_of_a_link_is_that_of_the_file(tmp_path: Path) -> None:
    file, link = tmp_path / "h.sqlite", tmp_path / "link.sqlite"
    history.record(file, result_of_a_run(), 1)
    link.symlink_to(file)
    os.mkfifo(f"{file}-journal")
    with pytest.raises(history.HistoryError, match="is no regular file"):
        history.recorded_runs(link)
