"""The judge of transformers' paged cache: what each line may say."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.check.recording.format import ENDED, SCHEMA_VERSION, TRANSFORMERS, Header, RecordedCall, RecordedSequence
from kvproof.check.recording.format import Table as Changed
from kvproof.check.recording.validate import Validation, unjudged_properties, validate

Calls = tuple[tuple[str, int, dict[str, Any]], ...]
NUM_BLOCKS = 4
CAN_STORE, EXTEND, MARK = "can_store_request_tokens", "extend_read_and_write_indices", "mark_complete_blocks"


def seq(number: int, *tables: tuple[int, list[int]], **fields: Any) -> dict[str, Any]:
    """One sequence; of its table, how many entries are kept and those that follow."""
    return {"seqs": [RecordedSequence(number, tables=[Changed(*one) for one in tables], **fields)]}


def step(number: int, start: int, num_tokens: int, slots: list[int]) -> dict[str, Any]:
    return {"seqs": [RecordedSequence(number, num_computed=start)], "num_tokens": num_tokens, "slots": slots}


# A prompt of five tokens in blocks 3 and 2 is computed; its first block is full.
ADMITTED: Calls = ((CAN_STORE, 2, {"group": "a", "answer": True, "num_tokens": 5,
                                   **seq(1, (0, [3, 2]), tokens=[7, 8, 9, 6, 5])}),)  # fmt: skip
COMPUTED: Calls = (
    *ADMITTED,
    (EXTEND, 2, step(1, 0, 5, [12, 8])),
    (MARK, 2, {"group": "a", **seq(1, (2, []), start=5)}),
)
FOUND: Calls = (
    *COMPUTED,
    ("search_prefix_match", 2, {"group": "b", "answer": 4, **seq(2, (0, [3]), tokens=[7, 8, 9, 6, 1])}),
)
FORKED: Calls = (
    *COMPUTED,
    ("prepare_fork_request", 1, {"group": "a", "seqs": [
        *seq(1, (2, []), start=5)["seqs"], *seq(3, (0, [3, 1]), tokens=[7, 8, 9, 6, 5])["seqs"]]}),
)  # fmt: skip
COPIED: Calls = (*FORKED, ("perform_cache_copy", 1, {"answer": [(2, 1)]}))


def judged(tmp_path: Path, calls: Calls, **options: Any) -> Validation:
    """The verdict on a recording of these calls: the name, the free blocks after it, and the other fields."""
    header = Header(
        SCHEMA_VERSION, TRANSFORMERS, "Cache", 4, NUM_BLOCKS, (NUM_BLOCKS, 0), True, caching=True, **options
    )
    lines: list[Header | RecordedCall] = [header]
    for number, (name, num_free, fields) in enumerate(calls, 1):
        lines.append(RecordedCall(number, name, (num_free, 0), **fields))
    lines.append(RecordedCall(len(lines), ENDED))
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return validate(path)


def test_requests_are_computed_found_forked_replaced_and_released(tmp_path: Path) -> None:
    done = judged(
        tmp_path,
        (
            *COPIED,
            ("free_blocks", 2, {"group": "child", **seq(3)}),
            ("free_blocks", 4, {"group": "a", **seq(1)}),
            ("search_prefix_match", 3, FOUND[-1][2]),
            (CAN_STORE, 3, {"group": "c", "answer": False, **seq(4)}),
            ("evict_cached_blocks", 3, {"answer": False}),
            ("reset", 4, seq(2)),
        ),
    )
    assert (done.finding, done.reason, done.num_calls) == (None, "", 11)
    assert (done.witnesses["hit"], done.witnesses["forked by itself"]) == (2, 1)


@pytest.mark.parametrize(
    ("property", "calls"),
    [
        ("conservation", ((CAN_STORE, 3, ADMITTED[0][2]),)),
        ("no-leak-at-rest", (*COMPUTED, ("free_blocks", 3, {"group": "a", **seq(1)}))),
        ("admission-sound", ((CAN_STORE, 3, {**ADMITTED[0][2], **seq(1, (0, [3]), tokens=[7, 8, 9, 6, 5])}),)),
        ("admission-sound", ((CAN_STORE, 2, {**ADMITTED[0][2], "num_tokens": 9}),)),  # four are not known yet
        ("read-back", (*ADMITTED, (EXTEND, 2, step(1, 0, 5, [12, 4])))),
        ("read-back", (*ADMITTED, (EXTEND, 2, step(1, 1, 4, [13, 8])))),
        ("hit-computed", (*ADMITTED, FOUND[-1])),
        ("hit-computed", (*COMPUTED, ("evict_cached_blocks", 2, {}), ("free_blocks", 4, {"group": "a", **seq(1)}),
                          ("evict_cached_blocks", 4, {"answer": True}), ("search_prefix_match", 3, FOUND[-1][2]))),
        ("frame-kept", (*COMPUTED, (MARK, 2, {"group": "a", **seq(1, (1, []), start=5)}))),
        ("cow-copied", (*FORKED, ("perform_cache_copy", 1, {"answer": [(1, 2)]}))),
        ("cow-copied", (*FORKED, (EXTEND, 1, step(3, 5, 1, [5])))),
        ("failed-call-changes-nothing", (*COMPUTED, ("search_prefix_match", 1, {"group": "b", "answer": 0}))),
        ("total-calls", (*ADMITTED, (MARK, 2, {"group": "b", **seq(2), "raised": "KeyError: 'b'"}))),
    ],
)  # fmt: skip
def test_the_last_line_diverges(property: str, calls: Calls, tmp_path: Path) -> None:
    done = judged(tmp_path, calls)
    assert done.finding is not None, done.reason
    assert (done.finding.property, done.line) == (property, len(calls) + 1)


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ((EXTEND, 4, step(1, 0, 1, [0])), "no earlier line gave blocks to sequence 1"),
        ((CAN_STORE, 2, {**ADMITTED[0][2], "unjudged": ["KV that returns from host memory"]}), "returns from host"),
    ],
)
def test_what_cannot_be_known_is_not_judged(calls: Any, reason: str, tmp_path: Path) -> None:
    done = judged(tmp_path, (calls,))
    assert done.finding is None
    assert reason in done.reason


def test_layers_of_sliding_attention_are_not_judged(tmp_path: Path) -> None:
    done = judged(tmp_path, (), kv_groups=("full", "sliding_attention"))
    assert "sliding_attention" in done.reason
    assert {"swap-mapping", "admission-final"} <= unjudged_properties(done.header).keys()
    assert "cow-copied" not in unjudged_properties(done.header)
