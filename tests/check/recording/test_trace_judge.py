"""The judge's memory does not grow with a recording, and what it forgets it needs no more."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kvproof.check.recording import trace_judge
from kvproof.check.recording.trace_judge import BoundedIdentities
from kvproof.check.recording.validate import validate
from kvproof.spec.text.identity import Identities, Key

Serve = Callable[..., Path]


def row(identities: Identities, tokens: str) -> list[int]:
    at, numbers = identities.root(Key()), []
    for token in tokens:
        at = identities.after(at, (ord(token), None, 0))
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
