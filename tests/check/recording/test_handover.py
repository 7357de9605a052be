"""Lines that a process beside the server writes: what arrives, and that no fault of it reaches the server."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from kvproof.check.recording import handover, ring
from kvproof.check.recording.format import ENDED, SGLANG, STOPPED, Header, KeyedDigests
from kvproof.check.recording.handover import Handover
from kvproof.check.recording.segments import SegmentReader, SegmentWriter, is_locked, lock, wait_until_written
from kvproof.check.recording.sglang.raw_lines import NEW, ONCE, PAGES, SLOTS, RadixCall, RadixLines
from kvproof.check.recording.sglang.recorder import RadixRecorder
from kvproof.check.recording.sglang.waiting_lines import WaitingLines
from kvproof.check.recording.validate import validate
from kvproof.check.recording.vllm_v0.recorder import V0Recorder
from kvproof.impl import AllocStatus, BlockManager, Sequence, SequenceGroup

SECONDS_MAX = 60.0


class HandingOver(V0Recorder):
    """A recorder of the built-in manager that has its lines written by a process beside it."""

    hands_over = True

    @property
    def process(self) -> Any:
        """The process."""
        assert isinstance(self._sink, Handover)
        return self._sink._process


def recorded(path: Path, segments: SegmentWriter | None = None) -> tuple[BlockManager, HandingOver]:
    manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    return manager, HandingOver(manager, path, None, False, segments)


def ask(manager: BlockManager) -> None:
    assert manager.can_allocate(SequenceGroup("1", [Sequence(1, [5, 6], 4)])) is AllocStatus.OK


def ask_until(manager: BlockManager, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < until
        ask(manager)
        time.sleep(0.005)


def test_what_is_handed_over_is_written_by_the_end_and_locked_until_then(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    manager, recorder = recorded(path)
    with recorder, path.open("rb") as file:
        assert is_locked(file.fileno())
        for _ in range(20):
            ask(manager)
    with path.open("rb") as file:
        assert not is_locked(file.fileno())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    line = {"call": "can_allocate", "free": [8, 0], "group": "1", "answer": "OK", "num_tokens": 2, "num_seqs": 1}
    assert lines[1:] == [{"n": n, **line} for n in range(1, 21)] + [{"n": 21, "call": ENDED}]
    assert path.stat().st_mode & 0o777 == 0o600
    assert "can_allocate" not in vars(manager)


def test_a_disk_that_is_full_ends_the_recording_and_the_server_hears_why() -> None:
    manager, recorder = recorded(Path("/dev/full"))
    with recorder, pytest.warns(RuntimeWarning, match="kvproof stopped recording to /dev/full: .*No space left"):
        ask_until(manager, lambda: not recorder.is_on)
    ask(manager)


def test_a_process_that_is_killed_ends_the_recording_and_not_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "NUM_LINES_BETWEEN_LOOKS", 1)
    manager, recorder = recorded(tmp_path / "calls.jsonl")
    recorder.process.kill()
    with recorder, pytest.warns(RuntimeWarning, match=r"the process that writes the recording has ended \(code -9\)"):
        ask_until(manager, lambda: not recorder.is_on)


def test_a_process_that_stands_still_ends_the_recording_and_what_is_lost_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "RING_BYTES", 1 << 14)
    path = tmp_path / "calls.jsonl"
    manager, recorder = recorded(path)
    os.kill(recorder.process.pid, signal.SIGSTOP)
    with recorder, pytest.warns(RuntimeWarning, match="is 0 MB behind: the calls are faster"):
        ask_until(manager, lambda: not recorder.is_on)
    os.kill(recorder.process.pid, signal.SIGCONT)
    wait_until_written([path])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["n"] for line in lines[1:]] == list(range(1, recorder.num_lines + 2))
    assert lines[-1]["call"] == STOPPED
    assert "0 MB behind" in validate(path).reason


@pytest.mark.long  # three processes
def test_a_server_that_is_killed_has_written_every_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    program = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from tests.check.recording.test_handover import ask, recorded\n"
        "manager, recorder = recorded(Path(sys.argv[1]))\n"
        "for _ in range(2_000):\n    ask(manager)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))}
    done = subprocess.run([sys.executable, "-c", program, str(path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    wait_until_written([path])
    assert len(path.read_text().splitlines()) == 2_001


def test_a_judge_waits_for_a_process_that_still_writes(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    reader = SegmentReader(path)
    assert not reader.has_writer()
    lock(file)
    assert reader.has_writer()
    writer = SegmentWriter(path, 10, locks=True)
    file = writer.file_for(file, 8)
    second = writer.file_for(file, 8)
    assert second != file
    assert reader.has_writer()  # the first segment has no lock any more, and a second one is there
    os.close(second)
    assert not reader.has_line()
    assert not reader.has_writer()
    reader.close()


@pytest.mark.parametrize("tokens", [array("q", [1, 2, 3, 4]), [1, 2, 3, 4]])
@pytest.mark.parametrize("waits", [False, True])
def test_tokens_that_the_server_changes_after_its_call_are_recorded_as_they_were(waits: bool, tokens: Any) -> None:
    memory = ring.shared_file(1 << 12)
    writer, reader = ring.RingWriter(memory), ring.RingReader(memory)
    os.close(memory)
    encoder, tokens = msgspec.msgpack.Encoder(), tokens[:]
    lines = WaitingLines(lambda line, buffers: writer.put(encoder.encode(line), buffers))
    recorder: Any = object.__new__(RadixRecorder)
    recorder._page, recorder._lines = 2, lines
    for first in (1, 9, 1):
        tokens[0] = first
        call = recorder._call_of_prompt(SimpleNamespace(token_ids=tokens, extra_key=None), 2)
        call.call = "insert"
        if waits:
            lines._copy = Arriving()  # type: ignore[assignment]
        lines.add(call)
        tokens[0] = 7
        tokens.append(8)  # which an array refuses while somebody looks at its memory
    lines.write_all()
    before, changed, again = [keys_of(*taken) for taken in iter(reader.take, None)]
    assert before == again != changed


def test_a_child_of_the_process_and_threads_of_the_server_get_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    manager, recorder = recorded(path)
    with recorder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        threads = [threading.Thread(target=ask, args=(manager,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        num_lines = recorder.num_lines
        if not (child := os.fork()):
            ask(manager)
            os._exit(0 if recorder.num_lines == num_lines else 1)
        assert os.waitpid(child, 0)[1] == 0
        ask(manager)
        assert recorder.is_on
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["n"] for line in lines[1:]] == [*range(1, num_lines + 3)]
    assert lines[-1]["call"] == ENDED


class Arriving:
    """A copy of a tensor that is on its way."""

    def has_arrived(self) -> bool:
        return False

    def tensor(self) -> Any:
        return torch.tensor([2, 3])


def keys_of(first: bytes, data: bytes) -> list[int]:
    return radix_lines().completed(msgspec.msgpack.decode(first, type=RadixCall), data).keys


def radix_lines() -> RadixLines:
    return RadixLines(Header(1, SGLANG, "", 2, 8, (8, 0), True), KeyedDigests(b"key"))


def test_raw_page_ids_are_completed_to_pages() -> None:
    numbers = array("l", [4, 5, 8, 9])
    expected = {SLOTS: [1, 1, 3, 3], ONCE: [1, 3], NEW: [1, 3], PAGES: [3, 4, 7, 8]}
    for what, pages in expected.items():
        call = RadixCall(1, "free", form="l", what=what)
        assert radix_lines().completed(call, numbers.tobytes()).slots == pages


def test_a_lock_names_the_end_of_its_node_until_the_last_one_ends() -> None:
    lines, tokens = radix_lines(), array("q", [1, 2, 3, 4]).tobytes()
    keys = lines.completed(RadixCall(1, "insert", num_bytes=len(tokens), node=7), tokens).keys
    assert len(keys) == 2
    for call in ("inc_lock_ref", "inc_lock_ref", "dec_lock_ref", "dec_lock_ref", "inc_lock_ref"):
        assert lines.completed(RadixCall(1, call, node=7)).keys == keys[-1:]
    assert lines.completed(RadixCall(1, "inc_lock_ref")).keys == []
    with pytest.raises(LookupError, match="no look-up and no insert returned node 8"):
        lines.completed(RadixCall(1, "inc_lock_ref", node=8))
