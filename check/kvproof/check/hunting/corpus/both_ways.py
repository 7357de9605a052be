"""A record shown both ways: its script and its saved run show the fault in a bad release, and not in a good one.

Each of them is run in processes of its own, because a process imports one release of an engine. What could not be run
is *unknown*, with the reason; it is neither shown nor gone.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.counterexample.store import load
from kvproof.check.hosts.program import finished, how_it_ended, module
from kvproof.check.hunting.corpus.factories import factories
from kvproof.check.hunting.corpus.record import FaultRecord
from kvproof.check.hunting.corpus.run_script import NEITHER
from kvproof.check.hunting.corpus.validation import script_of, trace_of
from kvproof.check.runs.replay import replay
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.loading import EngineError, download

SCRIPT_SECONDS = 600.0


class Outcome(StrEnum):
    """What a script or a saved run says of a release."""

    SHOWN = "shown"
    GONE = "gone"
    UNKNOWN = "unknown"


SCRIPT, SAVED_RUN = "script", "saved run"


@dataclass(frozen=True)
class Showing:
    """A unit: one record, by its script or its saved run, in one release.

    examples: the folder of both. checkout: of an engine without releases, at the commit `release`.
    """

    fault: FaultRecord
    by: str
    release: str
    examples: Path
    checkout: Path | None = None

    @property
    def expected(self) -> Outcome:
        """What the record says."""
        return Outcome.SHOWN if self.release in self.fault.bad else Outcome.GONE


@dataclass(frozen=True)
class Shown:
    """The result of a unit. text: one line, why."""

    outcome: Outcome
    text: str


def showings(fault: FaultRecord, examples: Path, every_release: bool, checkout: Path | None = None) -> list[Showing]:
    """What shows a record both ways: in the newest bad release and in one without the fault, or in every release.

    A saved run is shown in the release in which it was found.
    """
    found: list[Showing] = []
    for by, path in ((SCRIPT, script_of(fault, examples)), (SAVED_RUN, trace_of(fault, examples))):
        if path is not None:
            bad = fault.bad[-1] if by == SCRIPT else load(path).subject.partition("==")[2] or fault.bad[-1]
            releases = [*fault.bad, *fault.good] if every_release else [bad, *filter(None, [fault.without])]
            found += [Showing(fault, by, release, examples, checkout) for release in releases]
    return found


def shown(one: Showing) -> Shown:
    """Do a unit, in this process; the release is downloaded if it is not here."""
    if one.fault.has_releases:
        try:
            download.add(f"{one.fault.engine}=={one.release}")
        except EngineError as error:
            return Shown(Outcome.UNKNOWN, str(error))
    elif one.checkout is None:
        return Shown(Outcome.UNKNOWN, f"needs --checkout, a checkout of {one.fault.engine} at {one.release}")
    return _by_script(one) if one.by == SCRIPT else _by_saved_run(one)


def _by_script(one: Showing) -> Shown:
    path = script_of(one.fault, one.examples)
    assert path is not None
    arguments = [f"{one.fault.loaded_by or one.fault.subject}=={one.release}", str(path)]
    if one.checkout is not None:
        arguments = ["", str(path), str(one.checkout.absolute())]
    try:
        done = finished(module("kvproof.check.hunting.corpus.run_script", *arguments), SCRIPT_SECONDS)
    except TimeoutError as error:
        return Shown(Outcome.UNKNOWN, str(error))
    last = (done.output.strip() or done.errors.strip()).rpartition("\n")[2]
    if done.code in (0, 1):
        return Shown(Outcome.SHOWN if done.code else Outcome.GONE, last)
    reason = done.errors.strip().rpartition("\n")[2]
    return Shown(Outcome.UNKNOWN, reason if done.code == NEITHER else f"it {how_it_ended(done.code)}: {reason}")


def _by_saved_run(one: Showing) -> Shown:
    path = trace_of(one.fault, one.examples)
    assert path is not None
    try:
        with factories() as makes:
            done = replay(path, makes(f"{one.fault.subject}=={one.release}"))
    except UnknownSubject as error:
        return Shown(Outcome.UNKNOWN, str(error))
    first = done.text.partition("\n")[0]
    if done.status is ReplayStatus.ERROR:
        return Shown(Outcome.UNKNOWN, first)
    if done.finding is None:
        return Shown(Outcome.GONE, first)
    if done.finding.property != one.fault.property_id:
        return Shown(Outcome.UNKNOWN, f"it breaks {done.finding.property} instead")
    return Shown(Outcome.SHOWN, str(done.finding.text).partition("\n")[0])
