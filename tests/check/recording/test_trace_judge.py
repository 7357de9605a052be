"""The judge's memory does not grow with a recording, and what it forgets it needs no more."""

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kvproof.check.recording import trace_judge
from kvproof.check.recording.format import VLLM_V1, Header
from kvproof.check.recording.reader import NUM_BLOCKS_MAX
from kvproof.check.recording.trace_judge import BoundedIdentities
from kvproof.check.recording.validate import validate
from kvproof.check.recording.vllm_v1.judge import V1Judge
from kvproof.spec import native
from kvproof.spec.text.identity import Identities, Key

Serve = Callable[..., Path]


def row(identities: Identities, tokens: str) -> list[int]:
    at, numbers = identities.root(Key()), []
    for token in tokens:
        at = identities.after(at, ord(token))
        numbers.append(at)
    return numbers


def test_an_identity_in_use_keeps_its_number_and_so_do_its_predecessors() -> None:
    identities = BoundedIdentities()
    kept, lost = row(identities, "abc"), row(identities, "abx")
    identities.keep_only([kept[-1]])
    assert row(identities, "abc") == kept
    assert row(identities, "abx")[-1] not in (*kept, *lost)
    assert identities.describe(kept[-1]) == "tokens [97, 98, 99]"


def test_a_recording_is_explained_alike_when_names_are_forgotten_all_the_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = serve(1, 100, enable_caching=True)
    remembered = validate(path)
    swept: list[int] = []
    keep_only = BoundedIdentities.keep_only

    def counted(self: BoundedIdentities, used: Iterable[int]) -> None:
        swept.append(1)
        keep_only(self, used)

    monkeypatch.setattr(trace_judge, "NUM_NAMES_MIN", 1)
    monkeypatch.setattr(BoundedIdentities, "keep_only", counted)
    monkeypatch.setattr(BoundedIdentities, "is_full", True)
    done = validate(path)
    assert len(swept) == done.num_calls > 500
    assert (done.finding, done.reason, done.witnesses) == (None, "", remembered.witnesses)
    assert done.witnesses["hit"] > 10


def test_a_recording_is_explained_alike_with_sparse_rows(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    path = serve(1, 60, enable_caching=True)
    dense = validate(path)
    monkeypatch.setattr(native, "SPARSE_MIN", 1)
    done = validate(path)
    assert (done.finding, done.reason, done.witnesses) == (None, "", dense.witnesses)
    assert done.witnesses["hit"] > 5


def test_a_pool_of_a_million_blocks_takes_less_than_a_hundred_megabytes() -> None:
    header = Header(1, VLLM_V1, "m", 16, NUM_BLOCKS_MAX, (NUM_BLOCKS_MAX - 1, 0), True, caching=True, reserved=[0])
    tracemalloc.start()
    try:
        V1Judge(header)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
