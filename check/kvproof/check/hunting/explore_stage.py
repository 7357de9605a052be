"""The stages of exhaustive search: on the specification itself, and on a subject in lockstep with it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

from kvproof.check.hosts.time_limit import search_ends_after, time_limit_of
from kvproof.check.hosts.workers import WorkerLost
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.scope_unit import EXPLORER, OnCount, Past, ScopeUnits, Search, kept, key_of_scope
from kvproof.check.isolation.remote_search import explore
from kvproof.check.oracle.coverage import properties_of_the_specification
from kvproof.check.oracle.level import Level
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import FindingKey
from kvproof.check.protocol.manager import ManagerSubject, Unsupported
from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.runs.session import INTERRUPTED, Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import (
    NO_STEP,
    STOPPED,
    JudgeOutcome,
    named,
    notes,
    planned_checks_of_scopes,
    refused_by_subject,
    refuted_by,
    resolve_checks,
    undecided,
    witness_counts,
)
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.store_rules import StoreScope, explore_stores
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import strategy_of
from kvproof.reports.evidence import PrintedRun
from kvproof.reports.identity import Identity
from kvproof.reports.result import Check
from kvproof.spec.language import COLLECTED
from kvproof.spec.store.machine import STORES
from kvproof.spec.text.witnesses import WITNESSES
from kvproof.spec.verdict import Verdict

SPECIFICATION = "specification"
EXCUSED = "the search ended at a finding that is excused, and could not go past it"
PAST_NOTE = "it went past {:,} operations with excused findings in {}; what comes after these was not searched"
PAST = "every state was searched but those that come after an operation with an excused finding: {} of them"
OPEN_SECONDS_MAX = 20.0  # to open a subject in this process


@dataclass
class Searches:
    """A search of scopes, one after the other; the first finding ends it.

    save: turns a counterexample, with the number of transitions before it, into a report. expected: the rules and
    witnesses, each with whether the search must reach it. is_hunt: searches as far as the time allows, and promises no
    scope. max_transitions: of each scope;
    in a hunt, of all scopes together. refusal: why the subject has no such configuration as a scope needs, asked before
    the first search; None if it has.
    """

    judge: str
    scopes: Mapping[str, Scope]
    planned_checks: list[Check]
    explore: Search
    save: Callable[[Counterexample, int], Check]
    expected: dict[str, bool] = field(default_factory=dict)
    is_hunt: bool = False
    keeps_going: bool = False
    max_transitions: int = UNLIMITED
    refusal: Callable[[Scope], "ScopeRefusal | None"] = lambda scope: None

    def run(self, budget: StageBudget) -> Iterator[StageOutput]:
        deadline, num_left = time.monotonic() + budget.seconds, self.max_transitions
        coverage, num_states, is_cut_short = Counter[str](), 0, False
        past = dict[str, int]()  # by scope: the operations with excused findings that the search went past
        refusals = self._refusals()
        refused = {name: _without(one.reason) for name, one in refusals.items()}
        promised = Counter(one.reason for one in refusals.values() if one.is_promised)
        yield from refused_by_subject(self.judge, promised, len(self.scopes))
        if not self.is_hunt:
            for name, outcome in refused.items():
                yield from self._decided(name, outcome)
        for number, name in enumerate(self.scopes):
            if name in refused:
                continue
            left = deadline - time.monotonic()
            if self.is_hunt and (left <= 0 or num_left <= 0):
                self._note_end(budget, number, "time" if left <= 0 else "effort")
                break
            if is_cut_short and not self.keeps_going:
                yield from self._decided(name, JudgeOutcome(Verdict.UNKNOWN, {}, 0.0, STOPPED))
                continue
            try:
                done, found, num_done = self._past_excused(name, deadline, num_left, budget.further(num_states))
            except WorkerLost as error:
                yield from self._decided(name, JudgeOutcome(Verdict.UNKNOWN, {}, 0.0, str(error)))
                continue
            except Unsupported as error:  # of a subject that had the configuration when it was asked
                refused[name] = _without(str(error))
                if not self.is_hunt:
                    yield from self._decided(name, refused[name])
                continue
            except KeyboardInterrupt:
                if self.is_hunt:
                    self._note_end(budget, number + 1, "search")
                    yield from self._decided(name, JudgeOutcome(Verdict.UNKNOWN, {}, 0.0, INTERRUPTED))
                raise
            if self.is_hunt and not found and not done.num_operations:
                self._note_end(budget, number, "time")
                break  # it was over before the search began: there is nothing to report
            if self.is_hunt:
                num_left -= num_done
            num_states += done.num_states
            budget.advance(num_states)
            coverage.update(done.coverage)
            past |= {name: done.num_past} if done.num_past else {}
            if is_late := not done.is_exhausted and done.finding is None and time.monotonic() >= deadline:
                budget.stopped_after(done.num_operations, self.max_transitions, f"transitions of {name}")
            outcome = self._outcome(done, found, is_late)
            is_cut_short = is_cut_short or any(not one.excused for one in found)
            yield from self._decided(name, outcome)
        else:  # a scope that was left out might have decided what the refused ones cannot
            for name, outcome in refused.items() if self.is_hunt else ():
                yield from self._decided(name, outcome)
        if past:
            where = f"{len(past)} scopes" if len(past) > 1 else min(past)
            budget.notes.append(PAST_NOTE.format(sum(past.values()), where))
        yield from witness_counts(self.judge, coverage, {} if is_cut_short else self.expected)

    def _refusals(self) -> dict[str, "ScopeRefusal"]:
        """The scopes whose configuration the subject does not have. All are known before the first search.

        So a search that ends at a finding leaves the same scopes unknown as one that goes on past it decides.
        """
        found = ((name, self.refusal(scope)) for name, scope in self.scopes.items())
        return {name: one for name, one in found if one is not None}

    def _note_end(self, budget: StageBudget, num_begun: int, what: str) -> None:
        """Report the scopes of a hunt that were not begun, if there are any. what: ended before them."""
        if num_left := len(self.scopes) - num_begun:
            budget.notes.append(f"its {what} ended with {num_left} of {len(self.scopes)} scopes not begun")

    def _decided(self, name: str, outcome: JudgeOutcome) -> Iterator[StageOutput]:
        mine = [check for check in self.planned_checks if check.id.endswith(f"/{name}")]
        return resolve_checks(self.judge, mine, outcome, name)

    def _past_excused(
        self, name: str, deadline: float, num_left: int, progress: OnCount
    ) -> tuple[SearchResult, list[Check], int]:
        """The search of a scope, its findings, and the transitions of the first search.

        After an excused finding the search begins again, and goes past such findings.

        The last finding ends the search, if the result has one: it is not excused, or the search cannot go past it.
        What a hunt does once more is not taken from what it may do in the scopes after this one: workers may have
        searched these already.
        """
        found: dict[FindingKey, Check] = {}
        scope, num_of_first = self.scopes[name], 0
        while True:
            left = max(0.0, deadline - time.monotonic())
            done = self.explore(scope, left, num_left - num_of_first, progress, tuple(found))
            if done.counterexample is None or done.counterexample.kind in found:
                break
            one = self.save(done.counterexample, done.num_operations)
            one.id = f"{one.id}/{name}"
            if one.excused:
                named(one, found.values())
            if self.is_hunt and not found:
                num_of_first = done.num_operations
            found[done.counterexample.kind] = one
            if not one.excused or num_left <= num_of_first:
                break
        return done, list(found.values()), num_of_first or done.num_operations

    def _outcome(self, done: SearchResult, found: list[Check], is_late: bool) -> JudgeOutcome:
        counts = {"states": done.num_states, "transitions": done.num_operations}
        outcome = JudgeOutcome(Verdict.NOT_REFUTED if self.is_hunt else Verdict.UNKNOWN, counts, done.seconds)
        outcome.claims, outcome.claims_left_out = done.claims, done.claims_left_out
        outcome.refutations, outcome.notes = found, notes(done.notes, done.num_operations, "transitions")
        what = "time" if is_late else "effort"
        if any(not one.excused for one in found):
            outcome.verdict, outcome.text = Verdict.UNKNOWN, STOPPED
        elif done.counterexample is not None:
            outcome.text = EXCUSED
        elif not done.is_exhausted:
            outcome.text = done.text or f"the {what} ended at depth {done.depth}, before every state was reached"
        elif found:
            outcome.verdict, outcome.text = Verdict.NOT_REFUTED, PAST.format(f"{done.num_past:,}")
        else:
            outcome.verdict, outcome.text = Verdict.EXHAUSTED, done.text
        return outcome


def _without(reason: str) -> JudgeOutcome:
    """The outcome of a scope whose configuration the subject does not have."""
    return JudgeOutcome(Verdict.UNSUPPORTED, {}, 0.0, f"the subject has no such configuration: {reason}")


class ScopeRefusal(NamedTuple):
    """Why a subject has no such configuration as a scope needs, and whether its capabilities promise one."""

    reason: str
    is_promised: bool


def _refusal_by(subject: ManagerSubject, scope: Scope) -> ScopeRefusal | None:
    """Why the subject has no such configuration as the scope needs; None if it has, or if something else is wrong.

    What else is wrong is for the search to find.
    """
    strategy, is_promised = strategy_of(subject), False
    try:
        strategy.exhaustive.check(subject, scope)
        is_promised = True
        with time_limit_of(subject, OPEN_SECONDS_MAX):
            strategy.level.open(subject, strategy.exhaustive.config_of(scope))
    except Unsupported as error:
        return ScopeRefusal(str(error), is_promised)
    except Exception:
        return None
    return None


def _printed(judge: str, found: Counterexample, num_transitions: int) -> Check:
    """A finding of the specification, with its steps as text.

    No subject could replay them, and a search of the scope repeats them.
    """
    calls = [f"{name}({', '.join(map(str, arguments))})" for name, *arguments in found.operations]
    steps = "\n".join(f"  {number}  {call}" for number, call in enumerate(calls, start=1)) or NO_STEP
    shown = PrintedRun(f"the specification itself: {found.finding.text}", steps)
    return refuted_by(judge, Identity(found.finding.property, ""), shown)


def specification_stage(
    scopes: Mapping[str, Scope],
    share: float,
    is_whole: bool,
    max_transitions: int = UNLIMITED,
    reader: Callable[..., SearchResult] = explore_specification,
    judge: str = SPECIFICATION,
    saving: Saving | None = None,
) -> Stage:
    """Search every reachable state of the specification in each scope.

    is_whole: the scopes together must fire every rule and observe every witness; one scope alone need not. reader: the
    search, if the text is not read in Python; judge: its name in the result. saving: of the run, in whose store the
    results are kept.
    """

    def search(scope: Scope, seconds: float, max_transitions: int, progress: OnCount, past: Past) -> SearchResult:
        return reader(scope, seconds=seconds, max_transitions=max_transitions, progress=progress)

    names = [*(rule.__name__ for rule in COLLECTED.rules), *WITNESSES]
    planned_checks = planned_checks_of_scopes(judge, scopes, None)
    expected = dict.fromkeys(names, is_whole)
    searches = Searches(judge, scopes, planned_checks, _kept_by(saving, search), partial(_printed, judge), expected)
    searches.max_transitions = max_transitions
    return Stage(judge, share, planned_checks, searches.run)


def subject_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    scopes: Mapping[str, Scope],
    saving: Saving,
    share: float,
    is_hunt: bool = False,
    keeps_going: bool = False,
    max_transitions: int = UNLIMITED,
    units: ScopeUnits | None = None,
) -> Stage:
    """Search every reachable state of the subject in each scope, each explained by the specification.

    A gate promises every scope. A hunt takes them one by one as far as its time and its transitions go, and continues
    after a finding with keeps_going. units: the scopes as units for workers; without it, this process searches them.
    What is in the store of the saver is not searched again.
    """

    strategy = strategy_of(subject)

    def save(found: Counterexample, num_transitions: int) -> Check:
        return saving.save(EXPLORER, found, num_transitions)[0]

    def search(scope: Scope, seconds: float, max_transitions: int, progress: OnCount, past: Past) -> SearchResult:
        bounds: dict[str, Any] = {"seconds": seconds, "max_transitions": max_transitions, "past": past}
        with search_ends_after(seconds):
            return explore(strategy, make(), scope, progress=progress, **bounds)

    chosen, judged, store = cast(Search, search), saving.judged, saving.results
    if units is not None and is_hunt:
        first = next(iter(scopes.values()), None)
        is_resumed = store is not None and first and store.find(key_of_scope(judged, first, max_transitions))
        chosen = units.shared_search_of(scopes, max_transitions, not keeps_going, bool(is_resumed))
    elif units is not None:
        chosen = units.search_of(scopes, max_transitions)
    if store is not None:
        chosen = kept(chosen, judged, store)
    planned_checks = planned_checks_of_scopes(EXPLORER, scopes, subject)
    searches = Searches(EXPLORER, scopes, planned_checks, chosen, save, is_hunt=is_hunt, keeps_going=keeps_going)
    searches.refusal = partial(_refusal_by, subject)
    searches.max_transitions = max_transitions
    shown = [check for check in planned_checks if check.verdict is Verdict.UNSUPPORTED] if is_hunt else planned_checks
    return Stage(EXPLORER, share, shown, searches.run, (strategy.exhaustive.assumption,))


def _kept_by(saving: Saving | None, search: Search) -> Search:
    """The same search of the specification, with results in the store of a run if it has one."""
    if saving is None or saving.results is None:
        return search
    return kept(search, saving.judged, saving.results, SPECIFICATION)


def specification_stage_of(level: Level, share: float, saving: Saving | None = None) -> Stage:
    """The stage of a gate that searches the specification of a level: of stores, or of block managers."""
    if level.system is not STORES:
        return specification_stage(SPECIFICATION_SCOPES, share, is_whole=True, saving=saving)
    names = [rule.__name__ for rule in STORES.collected.rules]
    planned = [
        undecided(SPECIFICATION, property, scope)
        for scope in STORE_SCOPES
        for property in sorted(properties_of_the_specification(STORES))
    ]

    def search(scope: Any, seconds: float, max_transitions: int, progress: OnCount, past: Past) -> SearchResult:
        return explore_stores(scope, seconds=seconds, max_transitions=max_transitions)

    scopes: Mapping[str, Any] = STORE_SCOPES
    save = partial(_printed, SPECIFICATION)
    searches = Searches(SPECIFICATION, scopes, planned, _kept_by(saving, search), save, dict.fromkeys(names, True))
    return Stage(SPECIFICATION, share, planned, searches.run)


# The scopes of the specification of stores that a gate searches: together they fire each of its rules.
STORE_SCOPES = {
    "store": StoreScope(),
    "store-leases": StoreScope(leases=True, ends=True, promises=True, drops=True),
    "store-moves": StoreScope((1, 1), num_pins=2, moves=True),
    "store-owners": StoreScope((2,), num_pins=2, num_owners=2),
    "store-from-nothing": StoreScope((2,), is_built=False),
    "store-ranges": StoreScope((1, 1), num_keys=2, num_pins=2, loads=False, moves=True, ranges=True),
    "store-void": StoreScope((1, 1), num_pins=2, leases=True, loads=False, moves=True),
    "store-parts": StoreScope(ends=True, parts=2),
}
# The scopes of the specification that a gate searches within its minute, each feature in at least one of them.
# Together they fire every rule and meet every witness of the specification; what does not is reported.
SPECIFICATION_SCOPES = {name: SCOPES[name] for name in ("tables-5x3x8", "lookahead", "swap", "cache")} | {
    "window": Scope(4, num_seqs=3, num_tokens=4, window=2),
    "window-and-cache": Scope(2, num_seqs=2, num_tokens=3, block_size=1, caching=True, window=2, fork=False),
    "local-attention": SCOPES["local-attention"],
    "cache-and-swap": Scope(2, 2, num_seqs=2, num_tokens=1, block_size=1, caching=True, swap=True),
    "flights": SCOPES["flights"],
    "transfers": SCOPES["transfers"],
    "rules-flights": Scope(
        2, num_seqs=1, num_tokens=1, block_size=1, caching=True, fork=False, num_flights=1, level="rules"
    ),
    "rules-lookahead": SCOPES["rules-lookahead"],
    "rules-cache": SCOPES["rules-cache"],
    "rules-window": Scope(3, num_seqs=2, num_tokens=2, block_size=1, window=1, level="rules"),
    "rules-swap": Scope(2, 2, num_seqs=2, num_tokens=1, block_size=1, swap=True, level="rules"),
    "rules-window-and-swap": Scope(2, 2, num_seqs=1, num_tokens=2, block_size=1, window=1, swap=True, level="rules"),
}
