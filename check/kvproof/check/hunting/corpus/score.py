"""The score of a tool: which faults of the corpus it finds, after how much work, and why it misses the others.

A tool hunts in the newest bad release of each record whose code some subject drives, once for each seed, from an empty
folder. Records of one release are looked for in one hunt, which ends when all of them are seen. A fault is *found* if
more than half of the seeds see it, *missed* if the others were hunted to their end, and *not hunted* if that could not
be done; this is no miss. A record that no hunt could find is missed, for the reason that it gives.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from kvproof.check.hosts.worker_process import ScratchFolder
from kvproof.check.hosts.workers import Handling, UnitLost, Workers
from kvproof.check.hunting.corpus.factories import factories
from kvproof.check.hunting.corpus.matching import Matching, Wanted
from kvproof.check.hunting.corpus.record import CLASSES, FaultRecord
from kvproof.check.hunting.corpus.score_document import Outcome
from kvproof.check.hunting.corpus.tools import NotHunted, Work, tool_of
from kvproof.check.hunting.corpus.validation import trace_of
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import Judged, key_of
from kvproof.check.runs.session import processor_seconds
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.registry import engine_of

FOUND: Final = "found"
MISSED: Final = "missed"
NOT_HUNTED: Final = "not hunted"
NO_REASON = "no reason is known yet"
INTERRUPTED = "interrupted; the same command goes on"
HUNT_SECONDS = 12 * 3600.0
IN_ORDER = Handling(seconds=HUNT_SECONDS, is_loss_a_result=True)


@dataclass(frozen=True)
class Hunt:
    """A unit: one hunt in one release of a subject, with one seed. tool: the command of a program; None for kvproof."""

    subject: str
    seed: int
    effort: str
    wanted: tuple[Wanted, ...]
    tool: str | None = None

    @property
    def need(self) -> str:
        """The subject that a worker must be able to make."""
        return self.subject

    @property
    def key(self) -> str:
        """Equal for hunts with equal results."""
        wanted = [(one.id, one.property, one.good, Path(one.trace).name) for one in self.wanted]
        return key_of("corpus", Judged(self.subject), self.seed, self.effort, self.tool, wanted)


class Sight(msgspec.Struct, frozen=True):
    """A record was seen by the search `by`, after so many operations and seconds of processor time of the hunt."""

    id: str
    by: str
    num_operations: int
    seconds: float


class HuntResult(msgspec.Struct, frozen=True):
    """What a hunt has seen and done. reason: why it could not be done to its end; else empty.

    silent: the records whose saved run shows nothing in the release, so that they were not looked for.
    """

    sights: list[Sight]
    num_operations: int
    seconds: float
    reason: str = ""
    silent: tuple[str, ...] = ()


def hunts(faults: list[FaultRecord], examples: Path, seeds: Iterable[int], effort: str, tool: str | None) -> list[Hunt]:
    """The hunts for these records, those of one release together."""
    wanted: dict[str, list[Wanted]] = {}
    for one in faults:
        if one.subject and one.property_id and one.has_releases and one.trace:
            path = trace_of(one, examples)
            good = f"{one.subject}=={one.without}" if one.without else ""
            wanted.setdefault(one.newest, []).append(Wanted(one.id, one.property_id, str(path), good))
    return [Hunt(name, seed, effort, tuple(each), tool) for seed in seeds for name, each in sorted(wanted.items())]


def hunted(hunt: Hunt) -> HuntResult:
    """Do a hunt, in this process; releases are downloaded if they are not here."""
    sights, work, matched, silent = [], Work(), 0.0, tuple[str, ...]()
    try:
        for name in {hunt.subject, *(one.good for one in hunt.wanted if one.good)}:
            download_for(name)
        with ScratchFolder("kvproof-score-") as folder, factories() as makes:
            matching = Matching(hunt.subject, list(hunt.wanted), makes)
            silent = tuple(matching.silent)
            for seen in tool_of(hunt.tool)(hunt.subject, hunt.seed, hunt.effort, Path(folder), work, makes):
                began = processor_seconds()
                if (id := matching.take(seen.file)) is not None:
                    sights.append(Sight(id, seen.by, seen.num_operations, round(seen.seconds - matched, 2)))
                if not matching.left:
                    break
                matched += processor_seconds() - began
    except (NotHunted, EngineError, UnknownSubject) as error:
        return HuntResult(sights, work.num_operations, work.seconds, str(error))
    return HuntResult(sights, work.num_operations, round(work.seconds - matched, 2), silent=silent)


def download_for(name: str) -> None:
    """Download the release of a subject, if it has one. Raises EngineError."""
    subject, _, release = name.partition("==")
    if release:
        download.add(f"{engine_of(subject)}=={release}")


@dataclass
class Score:
    """What is known of one record after the hunts. cause: of a miss, or why it was not hunted."""

    fault: FaultRecord
    outcome: Outcome = MISSED
    cause: str = ""
    sights: dict[int, Sight] = field(default_factory=dict)


def run(
    planned: list[Hunt], workers: Workers, store: ResultStore, report: Callable[[Hunt, HuntResult], None]
) -> dict[Hunt, HuntResult]:
    """Do the hunts that are not in the store, and keep each result as soon as it is there. report: called with each.

    If the user interrupts it, the hunts that are left have this as their reason.
    """
    results: dict[Hunt, HuntResult] = {}
    for one in planned:
        if (kept := store.find(one.key)) is not None:
            results[one] = _kept(store, kept)
    left = [one for one in planned if one not in results]
    try:
        for one, done in zip(left, workers.results(hunted, left, IN_ORDER), strict=True):
            result = HuntResult([], 0, 0.0, str(done)) if isinstance(done, UnitLost) else done
            if not result.reason:
                store.add(one.key, "", result.seconds, msgspec.to_builtins(result))
            results[one] = result
            report(one, result)
    except KeyboardInterrupt:
        results |= {one: HuntResult([], 0, 0.0, INTERRUPTED) for one in left if one not in results}
    return results


def _kept(store: ResultStore, found: object) -> HuntResult:
    try:
        return msgspec.convert(found, HuntResult)
    except msgspec.ValidationError as error:
        raise store.damaged(error) from error


def scores(faults: list[FaultRecord], results: dict[Hunt, HuntResult]) -> list[Score]:
    """The outcome of each record."""
    return [_score(one, [(hunt, done) for hunt, done in results.items() if _is_about(hunt, one)]) for one in faults]


def _is_about(hunt: Hunt, fault: FaultRecord) -> bool:
    return any(one.id == fault.id for one in hunt.wanted)


def _score(fault: FaultRecord, done: list[tuple[Hunt, HuntResult]]) -> Score:
    score = Score(fault)
    if not done:
        if fault.missed is not None:
            score.cause = fault.missed.cause
        else:
            score.outcome, score.cause = NOT_HUNTED, _why_not_hunted(fault)
        return score
    for hunt, result in done:
        score.sights.update((hunt.seed, sight) for sight in result.sights if sight.id == fault.id)
    reasons = [result.reason for hunt, result in done if result.reason and hunt.seed not in score.sights]
    reasons += [f"its saved run shows nothing in {hunt.subject}" for hunt, result in done if fault.id in result.silent]
    if 2 * len(score.sights) > len(done):
        score.outcome = FOUND
    elif reasons:
        score.outcome, score.cause = NOT_HUNTED, reasons[0]
    else:
        score.cause = fault.missed.cause if fault.missed else NO_REASON
    return score


def _why_not_hunted(fault: FaultRecord) -> str:
    if not fault.has_releases:
        return f"needs a checkout of {fault.engine} at {fault.bad[-1]}"
    return "it has no saved run, so that nothing tells its runs from others"


def table(found: list[Score], of: Callable[[Score], str]) -> Iterator[tuple[str, Counter[str]]]:
    """How many records have which outcome, by class or engine; the last row is all of them."""
    rows: dict[str, Counter[str]] = {}
    for one in found:
        rows.setdefault(of(one), Counter())[one.outcome] += 1
    order = {name: place for place, name in enumerate(CLASSES)}
    yield from sorted(rows.items(), key=lambda row: (order.get(row[0], len(order)), row[0]))
    yield "all", sum(rows.values(), Counter())
