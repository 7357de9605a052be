"""Recordings of what is right are consistent, with everything on that a manager can do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.oracle.firing import NUM_ENTRIES_MAX, NUM_SEQS_MAX
from kvproof.check.recording.example_run import record_run
from kvproof.check.recording.reader import RecordingReader
from kvproof.check.recording.validate import validate
from kvproof.check.subjects.builtin import manager, scheduler
from kvproof.impl.scheduler import PreemptionMode

Serve = Callable[..., Path]
SERVERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "naive": ({}, {"copy-on-write", "pool full", "append refused", "admission LATER"}),
    "caching": ({"enable_caching": True}, {"hit", "share", "evict", "hit on an evictable block", "three holders"}),
    "window": ({"sliding_window": 6}, {"window left an entry", "copy-on-write"}),
    "swap": ({"preemption": PreemptionMode.SWAP}, {"swap_out", "swap_in"}),
    "recompute": ({"forks": False}, {"append refused"}),
    "caching and swap": ({"enable_caching": True, "preemption": PreemptionMode.SWAP}, {"swap_in", "hit"}),
    "lookahead": ({"lookahead": 3}, {"reserve", "drop_last"}),
    "digests": ({"enable_caching": True, "digest_key": b"a key"}, {"hit", "evict"}),
    "whole pool": ({"enable_caching": True, "shows_pool": True}, {"hit", "copy-on-write"}),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_with_the_built_in_manager_is_consistent(name: str, serve: Serve) -> None:
    options, wanted = SERVERS[name]
    reached: set[str] = set()
    for seed in (1, 2, 3):
        done = validate(serve(seed, **options))
        assert (done.finding, done.reason) == (None, "")
        assert done.num_calls > 900
        reached |= {name for name, count in done.witnesses.items() if count}
    assert wanted <= reached


@pytest.mark.parametrize("make", [manager.BuiltIn, scheduler.BuiltInScheduler], ids=["manager", "scheduler"])
def test_a_walk_of_a_subject_is_consistent(make: Callable[[], Any], tmp_path: Path) -> None:
    path = tmp_path / "walk.jsonl"
    for seed in range(1, 13):
        run = record_run(make, seed, 150, path, {"cross": False}, shows_pool=seed % 2 == 0)
        assert run.finding is None
        done = validate(path)
        assert (done.finding, done.reason, done.num_calls) == (None, "", run.num_lines)


def test_more_sequences_and_longer_tables_than_the_specification_first_has_room_for(serve: Serve) -> None:
    path = serve(1, 60, block_size=1, num_gpu_blocks=900, lookahead=16, max_batched=200, max_seqs=60, max_waiting=60)
    done = validate(path)
    assert (done.finding, done.reason) == (None, "")
    live: set[int] = set()
    num_live = num_entries = 0
    with RecordingReader(path) as reading:
        for recorded in (recorded for call in reading.calls() for recorded in call.seqs if recorded.tables is not None):
            (live.add if recorded.tables else live.discard)(recorded.seq)
            num_live = max(num_live, len(live))
            num_entries = max([num_entries, *(table.kept + len(table.rest) for table in recorded.tables or ())])
    assert num_live > NUM_SEQS_MAX
    assert num_entries > NUM_ENTRIES_MAX


def test_a_recording_that_is_not_judged_says_why(serve: Serve, tmp_path: Path) -> None:
    lines = serve(1, 20).read_text().splitlines()
    begun = tmp_path / "begun.jsonl"
    begun.write_text("\n".join([lines[0].replace('"is_fresh":true', '"is_fresh":false'), *lines[1:]]) + "\n")
    done = validate(begun)
    assert done.finding is None
    assert "starts when the manager is already in use" in done.reason
