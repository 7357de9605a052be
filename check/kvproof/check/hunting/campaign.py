"""A campaign: hunts of many subjects, releases, configurations and seeds, whose units the same workers do.

Each search is a hunt of its own, and does what `kvproof hunt` with its subject, seed and effort does: a result depends
on the plan alone, and not on the workers, their order, or where a campaign was killed and resumed. The units of all
searches are done in rounds, so that a campaign that is stopped has searched a part of everything: the first unit of
each search, the next three, the next twelve, and so on.

Where searches have found something, workers look for the shortest run of each finding, and the searches go on with
what they know then. The head replays the shortest run, in another process than the worker's, before it is reported and
saved. What another search of the same subject has reported before is not reported again.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from kvproof.check.hosts.workers import LOSS_IS_A_RESULT, UnitLost, Workers
from kvproof.check.hunting.findings import Saving, features_of_both
from kvproof.check.hunting.head import Head, Taken
from kvproof.check.hunting.plan import Plan, PlannedSearch
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import INFINITE, Judged, Walk, num_units_of, shorten_unit, walk_unit_if_possible
from kvproof.check.oracle.level import level_of
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.runs.arguments import Narrowed, factory_of, require_fields_of
from kvproof.check.runs.effort import effort_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.known_findings import KnownFindings
from kvproof.check.runs.store import Store
from kvproof.check.runs.verdicts import NOTHING_ACCEPTED, refused_by_subject
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.suppression import Features, KnownFailure, is_duplicate
from kvproof.reports.result import Check
from kvproof.reports.summary import refusal_line
from kvproof.spec.verdict import Exit

GROWTH = 4  # how many times as many units a search has done after a round as before it


@dataclass
class SearchRow:
    """A search in the table of a campaign. planned: its operations. reason: why not all is done."""

    subject: str
    fixed: dict[str, Any]
    seed: int
    effort: str
    planned: int
    operations: int = 0
    runs: int = 0
    rules: int = 0
    reason: str = ""


@dataclass
class CampaignResult:
    """The document of a campaign. is_complete: everything that was planned is done.

    findings: each with the search that found it. unreached: subjects without a finding whose searches together never
    reached a situation that their capabilities promise. The messages name these; the document has no field for them.
    """

    searches: list[SearchRow]
    findings: list[tuple[SearchRow, Check]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    is_complete: bool = False
    schema_version: int = 1
    unreached: list[str] = field(default_factory=list)

    def exit_code(self) -> Exit:
        """The exit code of the campaign, as of a run."""
        if any(not found.excused for _, found in self.findings):
            return Exit.REFUTED
        if self.is_complete and not any(one.operations for one in self.searches):
            return Exit.NOTHING_CHECKED
        is_open = not self.is_complete or self.unreached or any(one.reason for one in self.searches)
        return Exit.INCONCLUSIVE if is_open else Exit.OK


@dataclass
class Watch:
    """What a display is called with.

    round: its number, and its units. unit: the worker of runs that were done, or None if they were in the store; their
    operations; the rules that they reached; and whether they end a unit.
    """

    round: Callable[[int, int], None]
    unit: Callable[[str | None, int, set[str], bool], None]
    say: Callable[[str], None]


class _Candidate(NamedTuple):
    """A finding as a search has it. place: of the search in the plan. num_before: the operations until it."""

    place: int
    num_before: int
    found: Counterexample


class Campaign:
    """One start of a campaign."""

    def __init__(self, plan: Plan, store: ResultStore, workers: Workers, watch: Watch) -> None:
        self.plan, self.store, self.workers, self.watch = plan, store, workers, watch
        rows = [SearchRow(one.subject, one.fixed, one.seed, one.effort, one.operations) for one in plan.searches]
        self.result = CampaignResult(rows)
        self._walks = [Walk(Judged(one.subject, None), one.seed, one.operations, one.fixed) for one in plan.searches]
        self._places = {walk: place for place, walk in enumerate(self._walks)}
        self._head = Head(workers, walk_unit_if_possible, store, self._lacks, cuts_units=False)
        self._reported: dict[str, list[KnownFailure]] = {one.subject: [] for one in plan.searches}
        self._savings: dict[str, Saving] = {}
        self._news: set[tuple[str, str, str]] = set()
        self._num_units = 0
        self._deadline = INFINITE if plan.seconds is None else time.monotonic() + plan.seconds
        self._limit = ""  # which limit has ended the campaign

    def run(self) -> None:
        """Do what is left of the campaign. The result is filled while it runs."""
        number, begin, end = 1, 0, 1
        while not self._limit and (ends := self._ends(begin, end)):
            self._round(number, ends)
            number, begin, end = number + 1, end, end * GROWTH
        self.result.is_complete = not self._limit
        if self._limit:
            self.result.messages.append(f"ended by the limit of {self._limit}; start it again to go on")
        else:
            self._judge_reach()

    def _judge_reach(self) -> None:
        """What was planned is done: note which searches did nothing, and what was never reached, as a run does."""
        rows = self.result.searches
        for row, walk in zip(rows, self._walks, strict=True):
            done = walk.total
            if not row.operations and not row.reason:
                row.reason = NOTHING_ACCEPTED + done.refusal
            row.reason = row.reason or done.lacking(walk.max_operations)
            for one in refused_by_subject(row.subject, done.refusals, done.num_drawn):
                self.result.messages.append(refusal_line(one))
        decided = {search.subject for search, _ in self.result.findings} | {row.subject for row in rows if row.reason}
        places: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            if row.subject not in decided:
                places.setdefault(row.subject, []).append(place)
        for name, mine in places.items():
            subject, wanted = self._saving(mine[0]).make(), dict[str, None]()
            level = strategy_of(subject).level
            for fixed in (self.plan.searches[place].fixed for place in mine):
                expected = level.expected_witnesses(Narrowed(subject, fixed).capabilities, fixed)
                wanted |= dict.fromkeys(one for one, is_expected in expected.items() if is_expected)
            never = [one for one in wanted if not any(self._walks[place].total.coverage[one] for place in mine)]
            never += dict.fromkeys(size for place in mine for size in self._walks[place].total.sizes_missed())
            if never:
                self.result.unreached.append(name)
                self.result.messages.append(
                    f"inconclusive: the searches of {name} never reached: {', '.join(never)}; give them more effort, "
                    "or correct the capabilities"
                )

    # One round -------------------------------------------------------------------------------------------------------

    def _ends(self, begin: int, end: int) -> dict[Walk, int]:
        """Where the units of each search end in a round, whose units have numbers from begin to before end."""
        ends: dict[Walk, int] = {}
        for walk, row in zip(self._walks, self.result.searches, strict=True):
            num = min(end, num_units_of(walk.max_operations)) - begin
            if row.reason or num <= 0:
                continue
            left = num if self.plan.units_max is None else min(num, self.plan.units_max - self._num_units)
            self._num_units += left
            if left:
                ends[walk] = begin + left
            if left < num:
                self._limit = f"{self.plan.units_max:,} units"
                break
        return ends

    def _round(self, number: int, ends: dict[Walk, int]) -> None:
        """Do the units of a round; after findings, go on with what is left of it."""
        self.watch.round(number, sum(end - walk.index for walk, end in ends.items()))
        while left := [walk for walk in ends if self._is_left(walk, ends[walk])]:
            if time.monotonic() >= self._deadline:
                self._limit = f"{self.plan.seconds:g} s"
                return
            found = [
                one
                for taken in self._head.results(left, [ends[walk] for walk in left], self._deadline)
                for one in self._counted(taken)
            ]
            self._settle(found)

    def _is_left(self, walk: Walk, end: int) -> bool:
        is_searched = walk.is_left and not walk.total.is_unsupported
        return is_searched and walk.index < end and not self.result.searches[self._places[walk]].reason

    def _lacks(self, walk: Walk, reason: str) -> None:
        self.result.searches[self._places[walk]].reason = reason

    def _counted(self, taken: Taken) -> list[_Candidate]:
        """Count the result of a unit in the table; what it found."""
        walk, unit, done, worker = taken
        place, total, found = self._places[walk], walk.total, done.counterexample
        row = self.result.searches[place]
        row.operations, row.runs, row.rules = total.num_operations, total.num_runs, len(+total.coverage)
        self.watch.unit(worker, done.num_operations, {*done.coverage}, walk.index > unit.index)
        if found is None:
            return []
        if worker is not None:
            self._announce(place, found)
        return [_Candidate(place, total.num_operations, found)]

    def _announce(self, place: int, found: Counterexample) -> None:
        """Report a new kind of finding at once; its shortest run follows."""
        one = self.plan.searches[place]
        if (news := (one.subject, *found.kind)) not in self._news:
            self._news.add(news)
            first = str(found.finding.text).partition("\n")[0]
            self.watch.say(f"found in {one.title}: {found.finding.property}: {first}")

    # Findings --------------------------------------------------------------------------------------------------------

    def _settle(self, candidates: list[_Candidate]) -> None:
        """Shorten findings; save and report those that no search of their subject has reported."""
        units = [self._saving(one.place).unit_of(one.found) for one in candidates]
        left = list({unit.key: unit for unit in units if self.store.find(unit.key) is None}.values())
        for unit, short in zip(left, self.workers.results(shorten_unit, left, LOSS_IS_A_RESULT), strict=True):
            if not isinstance(short, UnitLost):  # else this process shortens it
                self.store.add(unit.key, "", 0.0, short)
        for one, unit in zip(candidates, units, strict=True):
            name = self.plan.searches[one.place].subject
            if is_duplicate(self._reported[name], one.found):
                short = self.store.result_of(unit.key, Counterexample) or one.found
                features = features_of_both(one.found, short)
            else:
                features = self._report(one)
            self._walks[one.place].avoid(one.found, features)

    def _report(self, one: _Candidate) -> Features:
        """Replay, save and report a finding; the features of its runs."""
        saving = self._saving(one.place)
        judge = strategy_of(saving.make()).judge
        found, features = saving.save(judge, one.found, one.num_before)
        self._reported[saving.subject].append((*one.found.kind, features))
        row = self.result.searches[one.place]
        if all((search.subject, before) != (row.subject, found) for search, before in self.result.findings):
            self.result.findings.append((row, found))
            where = f": {self.plan.folder / found.trace}" if found.trace else ""
            excuse = f" (excused: {found.excused})" if found.excused else ""
            self.watch.say(f"refuted: {row.subject}: {found.property}: {found.signature}{excuse}{where}")
        return features

    def _saving(self, place: int) -> Saving:
        """What replays and saves the findings of a search. The searches of one subject share it."""
        one = self.plan.searches[place]
        if one.subject not in self._savings:
            make, _ = factory_of(one.subject)
            saving = Saving(make, one.subject, one.seed, Store(self.plan.folder), KnownFindings())
            saving.isolation, saving.results = self._walks[place].subject.isolation, self.store
            self._savings[one.subject] = saving
        saving = self._savings[one.subject]
        saving.seed, saving.fixed = one.seed, one.fixed
        saving.max_operations = effort_of(one.effort, None, one.subject).shrinking_operations
        return saving


def check_fields(plan: Plan) -> dict[str, str]:
    """Why subjects cannot be made here, by name. Raises UsageError if a fixed field is not of the subject's level."""
    reasons: dict[str, str] = {}
    fixed: dict[str, list[PlannedSearch]] = {}
    for one in plan.searches:
        fixed.setdefault(one.subject, []).append(one)
    for name, searches in fixed.items():
        try:
            make, subject = factory_of(name)
        except (UsageError, AdapterError) as error:
            reasons[name] = str(error)
            continue
        try:
            for one in searches:
                require_fields_of(level_of(subject).config, one.fixed)
        finally:
            if (close := getattr(make, "close", None)) is not None:
                close()
    return reasons


def as_data(result: CampaignResult) -> dict[str, Any]:
    """The result as the data of its JSON document."""
    data = {name: value for name, value in asdict(result).items() if name != "unreached"}
    names = ("property", "signature", "text", "trace", "excused", "judge")
    data["findings"] = [
        {"subject": search.subject, "seed": search.seed} | {name: getattr(found, name) for name in names}
        for search, found in result.findings
    ]
    return data
