"""The recorder stands in nobody's way: answers and exceptions pass, and what fails in it stops it and nothing else."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.check.recording import Recorder, RecordingRefused, record
from kvproof.check.recording.format import ENDED, STOPPED
from kvproof.check.recording.handover import Directly
from kvproof.check.recording.recording_file import RecordingFile
from kvproof.check.recording.validate import validate
from kvproof.impl import AllocStatus, BlockManager, Sequence, SequenceGroup, SequenceStatus, UnknownSequenceError

Serve = Callable[..., Path]


def manager_of(num_gpu_blocks: int = 8, **options: Any) -> BlockManager:
    return BlockManager(block_size=4, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=0, **options)


def group_of(seq_id: int, tokens: list[int]) -> SequenceGroup:
    return SequenceGroup(str(seq_id), [Sequence(seq_id, tokens, 4)])


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def file_of(recorder: Recorder) -> RecordingFile:
    assert isinstance(recorder._sink, Directly)
    return recorder._sink.file


def test_each_call_leaves_a_line_before_its_answer_is_given(tmp_path: Path) -> None:
    path, manager = tmp_path / "calls.jsonl", manager_of()
    recorder = record(manager, path)
    assert manager.can_allocate(group_of(1, [5, 6, 7, 8, 9])) is AllocStatus.OK
    assert lines_of(path)[1:] == [
        {"n": 1, "call": "can_allocate", "free": [8, 0], "group": "1", "answer": "OK", "num_tokens": 5, "num_seqs": 1}
    ]
    manager.allocate(group_of(1, [5, 6, 7, 8, 9]))
    recorded = {"seq": 1, "tokens": [5, 6, 7, 8, 9], "is_prefill": True, "tables": [[0, [0, 1]]]}
    assert lines_of(path)[2:] == [{"n": 2, "call": "allocate", "free": [6, 0], "group": "1", "seqs": [recorded]}]
    recorder.close()
    assert lines_of(path)[-1] == {"n": 3, "call": ENDED}
    assert "can_allocate" not in vars(manager)


def test_of_what_grows_only_the_new_part_is_stored(serve: Serve) -> None:
    prompts = 0
    for line in lines_of(serve(1, 60, forks=False))[1:]:
        for recorded in line.get("seqs", []):
            if line["call"] == "append_slots" and recorded.get("tokens"):
                assert recorded["start"] > 0
                assert len(recorded["tokens"]) == 1
            prompts += line["call"] == "allocate"
    assert prompts > 5


def test_an_exception_passes_and_is_reported(tmp_path: Path) -> None:
    path, manager = tmp_path / "raised.jsonl", manager_of()
    with record(manager, path), pytest.raises(UnknownSequenceError):
        manager.append_slots(group_of(1, [1]).seqs[0], 0)
    assert lines_of(path)[1]["raised"].startswith("UnknownSequenceError: ")
    assert validate(path).reason == "no earlier line gave blocks to sequence 1"


def test_what_fails_in_the_recorder_stops_the_recording_and_not_the_server(tmp_path: Path) -> None:
    path, manager = tmp_path / "stopped.jsonl", manager_of()
    group = group_of(1, [1, 2, 3])
    with record(manager, path) as recorder:
        recorder.free = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
        with pytest.warns(RuntimeWarning, match="kvproof stopped recording"):
            assert manager.can_allocate(group) is AllocStatus.OK
        manager.allocate(group)
    assert [line.get("call") for line in lines_of(path)[1:]] == [STOPPED]
    assert validate(path).reason.startswith("the recorder stopped here: can_allocate: ZeroDivisionError")


class Unspeakable(Exception):
    """An exception that does not say what it is."""

    def __str__(self) -> str:
        raise ValueError("no text")


class NoName:
    """A name of a request that has no text."""

    def __str__(self) -> str:
        raise Unspeakable


@pytest.mark.parametrize("error", [Unspeakable(), ValueError("\ud800")])
def test_an_exception_of_the_server_without_a_text_passes(error: Exception, tmp_path: Path) -> None:
    path, manager = tmp_path / "raised.jsonl", manager_of()

    def fails(*arguments: Any) -> None:
        raise error

    manager.can_allocate = fails  # type: ignore[method-assign, assignment]
    with record(manager, path) as recorder:
        with pytest.raises(type(error)) as caught:
            manager.can_allocate(group_of(1, [1]))
        assert caught.value is error
        assert recorder.is_on
    assert lines_of(path)[1]["raised"] in ("Unspeakable", "ValueError: ?")


@pytest.mark.parametrize("problem", ["a name without a text", "tokens without a length"])
def test_an_argument_that_cannot_be_read_stops_the_recording_and_not_the_server(problem: str, tmp_path: Path) -> None:
    path, manager, group = tmp_path / "stopped.jsonl", manager_of(), group_of(1, [1, 2, 3])
    with record(manager, path) as recorder:
        if problem == "a name without a text":
            group.request_id = NoName()  # type: ignore[assignment]
        else:
            without = SimpleNamespace(get_token_ids=lambda: None)
            recorder._members = lambda *of: [without]  # type: ignore[attr-defined]
        with pytest.warns(RuntimeWarning, match="kvproof stopped recording"):
            assert manager.can_allocate(group) is AllocStatus.OK
        manager.allocate(group_of(2, [1]))
    assert [line.get("call") for line in lines_of(path)[1:]] == [STOPPED]


def test_a_full_disk_stops_the_recording_and_not_the_server(tmp_path: Path) -> None:
    path, manager = tmp_path / "full.jsonl", manager_of()
    with record(manager, path) as recorder:
        full, file = os.open("/dev/full", os.O_WRONLY), file_of(recorder)
        os.dup2(full, file.file)
        file.identity = os.fstat(full)
        os.close(full)
        with pytest.warns(RuntimeWarning, match="No space left"):
            assert manager.can_allocate(group_of(1, [1])) is AllocStatus.OK
        assert not recorder.is_on
    assert len(lines_of(path)) == 1


@pytest.mark.parametrize("opens_another", [False, True])
def test_a_program_that_closes_every_file_keeps_its_answers_and_its_files(opens_another: bool, tmp_path: Path) -> None:
    other, manager = tmp_path / "other", manager_of()
    other.touch()
    recorder = record(manager, tmp_path / "calls.jsonl")
    descriptor = file_of(recorder).file
    os.close(descriptor)
    if opens_another:
        assert os.open(other, os.O_WRONLY) == descriptor
    with pytest.warns(RuntimeWarning, match="the program has closed its file"):
        assert manager.can_allocate(group_of(1, [1])) is AllocStatus.OK
    recorder.close()
    assert other.read_text() == ""
    if opens_another:
        os.close(descriptor)


def test_digests_hide_tokens_and_keep_their_equality(tmp_path: Path) -> None:
    recorded = []
    for key in (b"one", b"two"):
        path, manager = tmp_path / "digests.jsonl", manager_of()
        with record(manager, path, digest_key=key):
            for seq_id, tokens in enumerate([[7, 7, 8], [7, 7, 9], [8, 7]], 1):
                manager.allocate(group_of(seq_id, tokens))
        recorded.append([line["seqs"][0]["tokens"] for line in lines_of(path)[1:-1]])
        assert lines_of(path)[0]["tokens"] == "digests"
    first, second, third = recorded[0]
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert len({*first, *second, *third, 7, 8, 9}) == 9  # position by position, so that no token is met twice
    assert recorded[0] != recorded[1]


def test_a_recording_may_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "private.jsonl"
    record(manager_of(), path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_child_of_the_process_leaves_the_recording_to_its_parent(tmp_path: Path) -> None:
    path, manager = tmp_path / "forked.jsonl", manager_of()
    with record(manager, path), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        if not (child := os.fork()):
            manager.can_allocate(group_of(1, [1]))
            os._exit(0)
        os.waitpid(child, 0)
    assert [line.get("call") for line in lines_of(path)] == [None, ENDED]


def test_a_manager_that_is_in_use_is_not_called_fresh(tmp_path: Path) -> None:
    manager, group = manager_of(enable_caching=True), group_of(1, [1, 2, 3, 4, 5])
    manager.allocate(group)
    path = tmp_path / "late.jsonl"
    record(manager, path).close()
    assert not lines_of(path)[0]["is_fresh"]
    group.seqs[0].status = SequenceStatus.RUNNING
    manager.mark_blocks_as_computed(group, 5)
    manager.free(group.seqs[0])
    record(manager, path).close()
    assert not lines_of(path)[0]["is_fresh"]  # a block is cached
    manager.reset_prefix_cache()
    record(manager, path).close()
    assert lines_of(path)[0]["is_fresh"]


def test_an_object_that_is_no_manager_and_an_unwritable_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingRefused, match="dict does not have vLLM's V0 interface: it has no allocate"):
        record({}, tmp_path / "none")
    with pytest.raises(RecordingRefused, match="No such file or directory"):
        record(manager_of(), tmp_path / "none" / "below")
    assert "allocate" not in vars(manager_of())
