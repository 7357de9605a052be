"""The head of a campaign: it gives units to the workers, keeps their results, and reports each finding once.

The units of every search are done in rounds: the first unit, the next three, the next twelve, and so on. The units of a
round avoid what earlier rounds have found in the same subject, whatever its configuration and seed. So a result depends
on the plan alone, and not on the workers, their order, or where a campaign was killed and resumed.

After a round its findings are compared in the order of the plan. Of those with one property and mechanism, a worker
looks for the shortest run of the first; the others are the same finding if their runs use its features. The head then
replays the shortest run, in another process than the worker's, before it is reported and saved.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kvproof.check.counterexample.trace_schema import CounterexampleError
from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.workers import Lack, Workers
from kvproof.check.hunting.campaign_units import ShortenUnit, search, shorten
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.plan import Plan, Search
from kvproof.check.hunting.store import CampaignStore, content_of, key_of
from kvproof.check.hunting.unit import Judged, WalkUnit, operations_of_unit
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.search_process import Result, require_possible
from kvproof.check.oracle.level import level_of
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.runs.arguments import Narrowed, factory_of, require_fields_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.known_findings import KnownFindings
from kvproof.check.runs.store import Store
from kvproof.check.runs.verdicts import NOTHING_ACCEPTED, refused_by_subject
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.suppression import KnownFailure, is_duplicate
from kvproof.reports.summary import refusal_line
from kvproof.spec.verdict import Exit

GROWTH = 4  # how many times as many units a search has done after a round as before it
SHORTEN_OPERATIONS = 50_000  # replayed to shorten one finding
HEAD = "head"


@dataclass
class SearchRow:
    """A search in the table of a campaign. planned: its operations. reason: why it was not searched, or empty."""

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
class FindingRow:
    """A finding in the table of a campaign; its fields are those of a result. seed: of the search that found it."""

    subject: str
    property: str
    signature: str
    text: str
    trace: str | None
    excused: str
    seed: int
    judge: str


@dataclass
class CampaignResult:
    """The document of a campaign. is_complete: everything that was planned is done.

    unreached: subjects without a finding whose searches together never reached a situation that their capabilities
    promise. The messages name these; the document has no further field for them.
    """

    searches: list[SearchRow]
    findings: list[FindingRow] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    is_complete: bool = False
    schema_version: int = 1
    unreached: list[str] = field(default_factory=list)

    def exit_code(self) -> Exit:
        """The exit code of the campaign, as of a run."""
        if any(not one.excused for one in self.findings):
            return Exit.REFUTED
        if not any(one.operations for one in self.searches):
            return Exit.NOTHING_CHECKED
        is_open = not self.is_complete or self.unreached or any(one.reason for one in self.searches)
        return Exit.INCONCLUSIVE if is_open else Exit.OK


@dataclass
class Watch:
    """What a display is called with. round: its number, its units, and how many of them were done before."""

    round: Callable[[int, int, int], None]
    unit: Callable[[str, int, set[str]], None]  # the worker, its operations, and the rules that they reached
    say: Callable[[str], None]


@dataclass(frozen=True)
class _Unit:
    """A unit of a search, by the place of the search in the plan. key: in the store."""

    place: int
    index: int
    num_operations: int
    key: str


@dataclass
class _Candidate:
    """A finding as a unit reports it. key: the unit, and the place of the finding in it."""

    subject: str
    seed: int
    key: list[Any]
    num_before: int
    found: Counterexample


class Campaign:
    """One start of a campaign."""

    def __init__(self, plan: Plan, store: CampaignStore, workers: Workers, watch: Watch) -> None:
        self.plan, self.store, self.workers, self.watch = plan, store, workers, watch
        rows = [SearchRow(one.subject, one.fixed, one.seed, one.effort, one.operations) for one in plan.searches]
        self.result = CampaignResult(rows)
        self._done = [SearchResult() for _ in rows]  # their coverage, sizes and refusals
        self._known: dict[str, list[KnownFailure]] = {one.subject: [] for one in plan.searches}
        self._content = {name: content_of(name) for name in self._known}
        self._savings: dict[str, Saving] = {}
        self._news: set[tuple[str, str, str]] = set()
        self._num_units = 0
        self._deadline = float("inf") if plan.seconds is None else time.monotonic() + plan.seconds
        self._limit = ""  # which limit has ended the campaign

    def run(self) -> None:
        """Do what is left of the campaign. The result is filled while it runs."""
        number, begin, end = 1, 0, 1
        while not self._limit and (units := list(self._units(begin, end))):
            self._settle(self._round(number, units))
            number, begin, end = number + 1, end, end * GROWTH
        self.result.is_complete = not self._limit
        if self._limit:
            self.result.messages.append(f"ended by the limit of {self._limit}; start it again to go on")
        else:
            self._judge_reach()

    def _judge_reach(self) -> None:
        """What was planned is done: note which searches did nothing, and what was never reached, as a run does."""
        rows = self.result.searches
        for row, done in zip(rows, self._done, strict=True):
            if not row.operations and not row.reason:
                row.reason = NOTHING_ACCEPTED + done.refusal
            for one in refused_by_subject(row.subject, done.refusals, done.num_drawn):
                self.result.messages.append(refusal_line(one))
        decided = {one.subject for one in self.result.findings} | {row.subject for row in rows if row.reason}
        places: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            if row.subject not in decided:
                places.setdefault(row.subject, []).append(place)
        for name, mine in places.items():
            subject, wanted = self._saving(name, 0).make(), dict[str, None]()
            level = strategy_of(subject).level
            for fixed in (self.plan.searches[place].fixed for place in mine):
                expected = level.expected_witnesses(Narrowed(subject, fixed).capabilities, fixed)
                wanted |= dict.fromkeys(one for one, is_expected in expected.items() if is_expected)
            never = [one for one in wanted if not any(self._done[place].coverage[one] for place in mine)]
            never += dict.fromkeys(size for place in mine for size in self._done[place].sizes_missed())
            if never:
                self.result.unreached.append(name)
                self.result.messages.append(
                    f"inconclusive: the searches of {name} never reached: {', '.join(never)}; give them more effort, "
                    "or correct the capabilities"
                )

    def _units(self, begin: int, end: int) -> Iterator[_Unit]:
        """The units of a round: of each search, those from begin to before end. Stops at the limit of units."""
        for place, one in enumerate(self.plan.searches):
            if self.result.searches[place].reason:
                continue
            size = operations_of_unit(one.operations)
            known = sorted(self._known[one.subject])
            for index in range(begin, min(end, -(-one.operations // size))):
                if self._num_units == self.plan.units_max:
                    self._limit = f"{self.plan.units_max:,} units"
                    return
                self._num_units += 1
                num_operations = min(size, one.operations - index * size)
                parts = one.subject, self._content[one.subject], one.fixed, one.seed, index, num_operations, known
                yield _Unit(place, index, num_operations, key_of("walk", *parts))

    # One round -------------------------------------------------------------------------------------------------------

    def _round(self, number: int, units: list[_Unit]) -> list[_Candidate]:
        """Do the units that are not in the store, and return the findings of all of them in the order of the plan."""
        left = [unit for unit in units if self.store.find(unit.key) is None]
        self.watch.round(number, len(units), len(units) - len(left))
        given: list[_Unit] = []
        for number_done, done in enumerate(self.workers.results(search, self._given(left, given))):
            unit = given[number_done]
            if isinstance(done, Lack):
                self.result.searches[unit.place].reason = done.reason
                continue
            self.store.add(unit.key, done.worker, done.seconds, done.answer)
            walks = [unpack(walk) for walk in done.answer]
            self.watch.unit(done.worker, unit.num_operations, {rule for walk in walks for rule in walk.coverage})
            self._announce(unit, walks)
        candidates = []
        for unit in units:
            if (walks := self.store.find(unit.key)) is not None:
                candidates += self._counted(unit, walks)
        return candidates

    def _given(self, left: list[_Unit], given: list[_Unit]) -> Iterator[WalkUnit]:
        for unit in left:
            if time.monotonic() >= self._deadline:
                self._limit = f"{self.plan.seconds:g} s"
                return
            if self.result.searches[unit.place].reason:
                continue
            one = self.plan.searches[unit.place]
            given.append(unit)
            known = tuple(sorted(self._known[one.subject]))
            yield WalkUnit(Judged(one.subject, None), one.seed, unit.index, unit.num_operations, known, one.fixed)

    def _announce(self, unit: _Unit, walks: list[SearchResult]) -> None:
        """Report a new kind of finding at once; its shortest run follows after the round."""
        one = self.plan.searches[unit.place]
        for found in (walk.counterexample for walk in walks):
            if found is not None and (news := (one.subject, *found.kind)) not in self._news:
                self._news.add(news)
                first = str(found.finding.text).partition("\n")[0]
                self.watch.say(f"found in {one.title}: {found.finding.property}: {first}")

    def _counted(self, unit: _Unit, walks: list[Any]) -> list[_Candidate]:
        row, one, found = self.result.searches[unit.place], self.plan.searches[unit.place], list[_Candidate]()
        for place, done in enumerate(read_results(self.store, SearchResult, walks)):
            row.operations += done.num_operations
            row.runs += done.num_runs
            self._done[unit.place].continue_with(done)
            if done.counterexample is not None:
                key = [unit.key, place]
                found.append(_Candidate(one.subject, one.seed, key, row.operations, done.counterexample))
        row.rules = len(+self._done[unit.place].coverage)
        return found

    # Findings --------------------------------------------------------------------------------------------------------

    def _settle(self, candidates: list[_Candidate]) -> None:
        """Shorten, replay, save and report what is new among the findings of a round."""
        while candidates:
            firsts: dict[tuple[str, str, str], _Candidate] = {}
            later = []
            for one in candidates:
                if is_duplicate(self._known[one.subject], one.found):
                    continue
                if (kind := (one.subject, *one.found.kind)) in firsts:
                    later.append(one)
                else:
                    firsts[kind] = one
            for one, short in zip(firsts.values(), self._shortened(list(firsts.values())), strict=True):
                self._report(one, short)
            candidates = later

    def _shortened(self, found: list[_Candidate]) -> Iterator[Counterexample]:
        keys = [key_of("shorten", one.key, SHORTEN_OPERATIONS) for one in found]
        left = [(key, one) for key, one in zip(keys, found, strict=True) if self.store.find(key) is None]
        units = (
            ShortenUnit(Judged(one.subject, None), one.seed, pack(one.found), SHORTEN_OPERATIONS) for _, one in left
        )
        for (key, _), short in zip(left, self.workers.results(shorten, units), strict=True):
            self.store.add(key, "", 0.0, short)
        for key in keys:
            yield from read_results(self.store, Counterexample, [self.store.find(key)])

    def _report(self, one: _Candidate, short: Counterexample) -> None:
        saving = self._saving(one.subject, one.seed)
        judge = strategy_of(saving.make()).judge
        reported = saving.save(judge, short, one.num_before)
        self._known[one.subject].append((*one.found.kind, reported.features))
        row = FindingRow(
            one.subject,
            reported.property,
            reported.signature,
            reported.text,
            reported.trace,
            reported.excused,
            one.seed,
            judge,
        )
        if all(replace(other, seed=row.seed) != row for other in self.result.findings):
            self.result.findings.append(row)
            where = f": {self.plan.folder / row.trace}" if row.trace else ""
            excuse = f" (excused: {row.excused})" if row.excused else ""
            self.watch.say(f"refuted: {row.subject}: {row.property}: {row.signature}{excuse}{where}")

    def _saving(self, subject: str, seed: int) -> Saving:
        """What replays and saves the findings of a subject; it does not shorten them again."""
        if subject not in self._savings:
            make, _ = factory_of(subject)
            self._savings[subject] = Saving(make, subject, seed, Store(self.plan.folder), KnownFindings())
            self._savings[subject].max_operations = 0
        saving = self._savings[subject]
        saving.seed = seed
        return saving


def read_results(store: CampaignStore, kind: type[Result], packed: Any) -> list[Result]:
    """The packed results of one unit, as the database has them. Raises StoreError."""
    try:
        results = [unpack(one) for one in packed]
        for one in results:
            require_possible(one, kind)
        return results
    except (TypeError, ChannelError, CounterexampleError) as error:
        raise store.damaged(error) from error


def check_fields(plan: Plan) -> dict[str, str]:
    """Why subjects cannot be made here, by name. Raises UsageError if a fixed field is not of the subject's level."""
    reasons: dict[str, str] = {}
    fixed: dict[str, list[Search]] = {}
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
    return {name: value for name, value in asdict(result).items() if name != "unreached"}
