"""The judge of recorded offloading managers: what each line may say."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.check.recording.format import ENDED, SCHEMA_VERSION, VLLM_OFFLOAD, Header, RecordedCall
from kvproof.check.recording.validate import Validation, unjudged_properties, validate

Calls = tuple[tuple[str, int, dict[str, Any]], ...]
NUM_SLOTS = 2
STORED: Calls = (("prepare_store", 1, {"keys": [1], "taken": [1], "slots": [0], "answer": True}),)
WRITTEN: Calls = (*STORED, ("complete_store", 1, {"keys": [1], "answer": True}))
LOADED: Calls = (*WRITTEN, ("prepare_load", 1, {"keys": [1], "slots": [0]}))


def judged(tmp_path: Path, *calls: tuple[str, int, dict[str, Any]], **options: Any) -> Validation:
    """The verdict on a recording of these calls: the name, the free slots after it, and the other fields."""
    header = Header(SCHEMA_VERSION, VLLM_OFFLOAD, "Manager", 1, NUM_SLOTS, (NUM_SLOTS, 0), True, **options)
    lines: list[Header | RecordedCall] = [header]
    for number, (name, num_free, fields) in enumerate(calls, 1):
        lines.append(RecordedCall(number, name, (num_free, 0), **fields))
    lines.append(RecordedCall(len(lines), ENDED))
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return validate(path)


def test_a_key_is_pending_then_a_hit_and_its_store_may_fail(tmp_path: Path) -> None:
    done = judged(
        tmp_path,
        *STORED,
        ("lookup", 1, {"keys": [1], "found": ["pending"]}),
        ("complete_store", 1, {"keys": [1], "answer": True}),
        ("lookup", 1, {"keys": [1], "found": ["hit"]}),
        ("prepare_store", 0, {"keys": [1, 2], "taken": [2], "slots": [1], "answer": True}),
        ("complete_store", 1, {"keys": [2], "answer": False}),
        ("lookup", 1, {"keys": [2], "found": ["miss"]}),
        ("reset_cache", 2, {}),
        ("on_request_finished", 2, {"group": "request"}),
    )
    assert (done.finding, done.reason, done.num_calls) == (None, "", 9)


@pytest.mark.parametrize(
    ("property", "calls"),
    [
        ("hit-written", (*STORED, ("lookup", 1, {"keys": [1], "found": ["hit"]}))),
        ("hit-found", (*WRITTEN, ("lookup", 1, {"keys": [1], "found": ["miss"]}))),
        ("hit-written", (("prepare_load", 2, {"keys": [1], "slots": [0]}),)),
        ("arrived-whole", (*WRITTEN, ("prepare_load", 1, {"keys": [1], "slots": [1]}))),
        ("abort-unseen", (*STORED, ("complete_store", 1, {"keys": [1], "answer": False}))),
        ("refusal-needed", (*WRITTEN, ("prepare_store", 1, {"keys": [1, 2], "answer": False}))),
        ("evict-unreferenced", (*LOADED, ("prepare_store", 1, {"keys": [2], "taken": [2], "slots": [0],
                                                              "evicted": [1], "answer": True}))),
        ("no-use-after-free", (*LOADED, ("prepare_store", 1, {"keys": [2], "taken": [2], "slots": [0],
                                                             "answer": True}))),
        ("no-leak-at-rest", (*WRITTEN, ("reset_cache", 1, {}))),
        ("total-calls", (*STORED, ("touch", 1, {"keys": [1], "raised": "KeyError: 1"}))),
    ],
)  # fmt: skip
def test_the_last_line_diverges(property: str, calls: tuple[Any, ...], tmp_path: Path) -> None:
    done = judged(tmp_path, *calls)
    assert done.finding is not None, done.reason
    assert (done.finding.property, done.line) == (property, len(calls) + 1)


def test_entries_are_compared_if_the_recorder_stored_them(tmp_path: Path) -> None:
    shown: list[dict[str, Any]] = [{"entries": [(1, 0, count)], "refs": [], "free_ids": [1]} for count in (-1, 0, 2)]
    calls = [(name, free, fields | more) for (name, free, fields), more in zip(LOADED, shown, strict=True)]
    done = judged(tmp_path, *calls, refs=[], free_ids=[0, 1])
    assert done.finding is not None, done.reason
    assert (done.finding.property, done.line) == ("refcount-exact", 4)


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ((*WRITTEN, ("complete_load", 1, {"keys": [1]})), "which no earlier line began"),
        ((("prepare_load", 2, {"keys": [1], "raised": "AssertionError: not found"}),), "a key that no look-up finds"),
    ],
)
def test_what_the_program_may_not_do_is_not_judged(calls: Any, reason: str, tmp_path: Path) -> None:
    done = judged(tmp_path, *calls)
    assert done.finding is None
    assert reason in done.reason


def test_a_store_that_leaves_keys_out_may_do_so_and_its_refusals_are_not_judged(tmp_path: Path) -> None:
    calls = (("prepare_store", 2, {"keys": [1], "answer": True}), ("prepare_store", 2, {"keys": [1], "answer": False}))
    done = judged(tmp_path, *calls, refuses_exactly=False)
    assert (done.finding, done.reason) == (None, "")
    assert "refusal-needed" in unjudged_properties(done.header)
    assert "refusal-needed" not in unjudged_properties(judged(tmp_path).header)


def test_many_keys_pass_through_few_slots(tmp_path: Path) -> None:
    calls: list[tuple[str, int, dict[str, Any]]] = []
    for key in range(300):
        evicted = [key - NUM_SLOTS] if key >= NUM_SLOTS else []
        fields = {"keys": [key], "taken": [key], "slots": [key % NUM_SLOTS], "evicted": evicted, "answer": True}
        num_free = max(0, NUM_SLOTS - key - 1)
        calls += [("prepare_store", num_free, fields), ("complete_store", num_free, {"keys": [key], "answer": True})]
    calls.append(("lookup", 0, {"keys": [299], "found": ["hit"]}))
    done = judged(tmp_path, *calls)
    assert (done.finding, done.reason, done.num_calls) == (None, "", 601)
