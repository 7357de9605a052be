"""Which record of the corpus a run shows.

A release often has several faults that break one property, so a run counts for a record only if

1. it breaks the property of the record, on the release that is hunted, when it is replayed;
2. it breaks nothing, or something else, on the good release of the record, if the record has one (a run with an
   operation that is not possible there decides nothing, and then point 3 must hold by a saved run);
3. it breaks the property as the saved run of the record does (`Finding.key`), if the record has one; without one, it
   needs the good release of point 2, and must not break the property as the saved run of another record does.

A run counts for one record at most. If several fit, it is the one whose saved run uses the same features; if these are
alike too, the first one. So one fault is never counted as two.
"""

from dataclasses import dataclass
from pathlib import Path

from kvproof.check.counterexample.replay import ReplayStatus
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

    trace: the file of its saved run. Both may be empty.
    """

    id: str
    property: str
    good: str = ""
    trace: str = ""


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
        runs = {one.id: broken(Path(one.trace), subject, makes) for one in wanted if one.trace}
        self._shown_by: dict[str, Broken] = {id: one for id, one in runs.items() if one is not None}

    def take(self, path: Path) -> str | None:
        """The id of the record that the run shows, which is no longer looked for; None if it shows none."""
        if (run := broken(path, self.subject, self.makes)) is None:
            return None
        fitting = [one for one in self.left if self._fits(one, run, path)]
        if not fitting:
            return None
        alike = [one for one in fitting if one.id in self._shown_by and self._shown_by[one.id] == run]
        chosen = (alike or fitting)[0]
        self.left.remove(chosen)
        return chosen.id

    def _fits(self, one: Wanted, run: Broken, path: Path) -> bool:
        if run.key[0] != one.property:
            return False
        saved = self._shown_by.get(one.id)
        if saved is not None and saved.key != run.key:
            return False
        others = [shown for id, shown in self._shown_by.items() if id != one.id]
        if saved is None and (not one.good or any(shown.key == run.key for shown in others)):
            return False
        if not one.good:
            return True
        there = replay(path, self.makes(one.good))
        if there.status is ReplayStatus.ERROR:
            return saved is not None
        return there.finding is None or there.finding.property != one.property
