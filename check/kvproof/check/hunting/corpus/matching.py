"""Which record of the corpus a run shows.

A release often has several faults that break one property, so a run counts for a record only if

1. it breaks the property of the record, on the release that is hunted, when it is replayed;
2. it breaks the property as the saved run of the record does there (`Finding.key`);
3. it breaks nothing, or something else, on the release of the record without the fault, if there is one (a run with an
   operation that is not possible there decides nothing).

A record without a saved run is found by no run: another fault of its release may break the same property, and be
repaired in the same one.

A run counts for one record at most. If several fit, it is the one whose saved run uses the same features; if these are
alike too, the first one. So one fault is never counted as two.
"""

from dataclasses import dataclass
from pathlib import Path

from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.hunting.corpus.factories import Factories
from kvproof.check.oracle.repetition import replay_twice
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.runs.replay import replay
from kvproof.check.search.suppression import Features, features_of
from kvproof.check.subjects import UnknownSubject

Key = tuple[str, str]  # property and mechanism


@dataclass(frozen=True)
class Wanted:
    """A record that is looked for in one release of a subject. good: the same subject in a release without the fault.

    It is empty if none is known. trace: the file of its saved run.
    """

    id: str
    property: str
    trace: str
    good: str = ""


@dataclass(frozen=True)
class Broken:
    """How a run breaks on a subject."""

    key: Key
    features: Features


def broken(path: Path, subject: str, makes: Factories) -> Broken | None:
    """How the run of a file breaks on this subject; None if it does not, or cannot be run there."""
    try:
        trace = load(path)
        config, operations = config_of(trace, path), operations_of(trace, path)
        done, parted = replay_twice(makes(subject), config, operations)
    except (CounterexampleError, UnknownSubject, Unsupported, AdapterError):
        return None
    if done.finding is None or parted is not None:
        return None
    ran = operations[: len(done.steps)]
    return Broken(done.finding.key(ran), features_of(config, ran))


class Matching:
    """The records that are still looked for in a subject with its release."""

    def __init__(self, subject: str, wanted: list[Wanted], makes: Factories) -> None:
        self.subject, self.left, self.makes = subject, list(wanted), makes
        self._shown_by: dict[str, Broken] = {}
        for one in wanted:
            shown = broken(Path(one.trace), subject, makes)
            if shown is not None and shown.key[0] == one.property:
                self._shown_by[one.id] = shown

    @property
    def silent(self) -> list[str]:
        """The records whose saved run does not break their property here, so that no run can be compared with it."""
        return [one.id for one in self.left if one.id not in self._shown_by]

    def take(self, path: Path) -> str | None:
        """The id of the record that the run shows, which is no longer looked for; None if it shows none."""
        if (run := broken(path, self.subject, self.makes)) is None:
            return None
        fitting = [one for one in self.left if self._fits(one, run, path)]
        if not fitting:
            return None
        alike = [one for one in fitting if self._shown_by[one.id] == run]
        chosen = (alike or fitting)[0]
        self.left.remove(chosen)
        return chosen.id

    def _fits(self, one: Wanted, run: Broken, path: Path) -> bool:
        saved = self._shown_by.get(one.id)
        if saved is None or saved.key != run.key:
            return False
        if not one.good:
            return True
        there = replay(path, self.makes(one.good))
        return there.finding is None or there.finding.property != one.property
