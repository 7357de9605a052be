"""The explorer as stages: on the specification itself, and in lockstep on a subject."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kvproof.check.isolation.remote_search import explore_pool, explore_subject
from kvproof.check.protocol.adapter_check import is_pool_subject
from kvproof.check.protocol.manager import ManagerSubject, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.save_findings import Saving
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import (
    STOPPED,
    Outcome,
    ReportedFinding,
    named_if_excused,
    notes,
    planned_checks_of_scopes,
    resolve_checks,
    witness_counts,
)
from kvproof.check.search.exhaustive.pool import SHOWN_ORDER
from kvproof.check.search.exhaustive.runs import BLOCK_SYMMETRY, SubjectExploration
from kvproof.check.search.exhaustive.specification import Exploration, explore_specification
from kvproof.reports.result import Check
from kvproof.spec.language import COLLECTED
from kvproof.spec.text.witnesses import WITNESSES
from kvproof.spec.verdict import Verdict

SPECIFICATION = "specification"
EXCUSED = "the search ended at a finding that is excused"
EXPLORER = "explorer"

Searched = Exploration | SubjectExploration
Progress = Callable[[int], None]


@dataclass
class Searches:
    """Scopes searched one after the other; the first finding ends them."""

    judge: str
    scopes: Mapping[str, Scope]
    planned_checks: list[Check]
    explore: Callable[[Scope, float, Progress], Searched]
    save: Callable[[Searched], ReportedFinding]
    expected: dict[str, bool] = field(default_factory=dict)
    is_hunt: bool = False  # looks as far as time allows, and promises no scope
    keeps_going: bool = False
    is_done: Callable[[str], None] = lambda name: None  # told of each scope that need not be searched again

    def run(self, stint: StageBudget) -> Iterator[StageOutput]:
        """Search them."""
        deadline = time.monotonic() + stint.seconds
        seen, num_states, is_cut_short = Counter[str](), 0, False
        for name, scope in self.scopes.items():
            left = deadline - time.monotonic()
            if self.is_hunt and left <= 0:
                break
            if is_cut_short and not self.keeps_going:
                yield from self._decided(name, Outcome(Verdict.UNKNOWN, {}, 0.0, STOPPED))
                continue
            try:
                done = self.explore(scope, max(0.0, left), stint.further(num_states))
            except Unsupported as error:
                reason = f"the subject has no such configuration: {error}"
                yield from self._decided(name, Outcome(Verdict.UNSUPPORTED, {}, 0.0, reason))
                continue
            if self.is_hunt and done.finding is None and not done.transitions:
                break  # the time was over before it began: there is nothing to say of it
            num_states += done.states
            stint.advance(num_states)
            seen.update(done.fired)
            seen.update(done.witnesses)
            outcome = self._outcome(done)
            is_cut_short = is_cut_short or (done.finding is not None and outcome.text != EXCUSED)
            yield from self._decided(name, outcome)
            if done.finding is not None or done.is_exhausted:
                self.is_done(name)
        yield from witness_counts(self.judge, seen, {} if is_cut_short else self.expected)

    def _decided(self, name: str, outcome: Outcome) -> Iterator[StageOutput]:
        mine = [check for check in self.planned_checks if check.id.endswith(f"/{name}")]
        return resolve_checks(self.judge, mine, outcome, name)

    def _outcome(self, done: Searched) -> Outcome:
        counts = {"states": done.states, "transitions": done.transitions}
        if done.finding is not None:
            found = named_if_excused(self.save(done))
            verdict, text = (Verdict.NOT_REFUTED, EXCUSED) if found.excused else (Verdict.UNKNOWN, STOPPED)
            return Outcome(verdict, counts, done.seconds, text, [found])
        found_notes = notes(done.notes, done.transitions, "transitions") if isinstance(done, SubjectExploration) else []
        if done.is_exhausted:
            return Outcome(Verdict.EXHAUSTED, counts, done.seconds, refutations=found_notes)
        reason = f"the time ended at depth {done.depth}, before every state was reached"
        verdict = Verdict.NOT_REFUTED if self.is_hunt else Verdict.UNKNOWN
        return Outcome(verdict, counts, done.seconds, reason, found_notes)


def specification_stage(scopes: Mapping[str, Scope], share: float, is_whole: bool) -> Stage:
    """Every reachable state of the specification in each scope.

    Scopes that are the whole must fire every rule and meet every witness; one scope alone need not.
    """

    def save(done: Searched) -> ReportedFinding:
        """No subject is at fault, and none could replay it: the steps are the text, and the scope repeats them."""
        assert done.finding is not None
        calls = [f"{name}({', '.join(map(str, arguments))})" for name, *arguments in done.operations]
        steps = "".join(f"\n  {number}  {call}" for number, call in enumerate(calls, start=1))
        return ReportedFinding(done.finding.property, f"the specification itself: {done.finding.text}{steps}")

    def explore(scope: Scope, seconds: float, progress: Progress) -> Searched:
        return explore_specification(scope, seconds=seconds, progress=progress)

    names = [*(rule.__name__ for rule in COLLECTED.rules), *WITNESSES]
    planned_checks = planned_checks_of_scopes(SPECIFICATION, scopes, None)
    expected = dict.fromkeys(names, is_whole)
    searches = Searches(SPECIFICATION, scopes, planned_checks, explore, save, expected)
    return Stage(SPECIFICATION, share, planned_checks, searches.run)


def subject_stage(
    make: Callable[[], ManagerSubject],
    subject: ManagerSubject,
    scopes: Mapping[str, Scope],
    saving: Saving,
    share: float,
    is_hunt: bool = False,
    keeps_going: bool = False,
    is_done: Callable[[str], None] = lambda name: None,
) -> Stage:
    """Every reachable state of the subject in each scope, explained by the specification.

    A gate promises every scope. A hunt takes them one by one as far as its time goes, and goes on if it is told to.
    """

    def save(done: Searched) -> ReportedFinding:
        assert isinstance(done, SubjectExploration)
        assert done.finding is not None
        return saving.save(EXPLORER, done.config, done.operations, done.finding, done.transitions)

    def explore(scope: Scope, seconds: float, progress: Progress) -> Searched:
        search = explore_pool if is_pool else explore_subject
        return search(make(), scope, seconds=seconds, progress=progress)

    is_pool = is_pool_subject(subject)
    planned_checks = planned_checks_of_scopes(EXPLORER, scopes, subject)
    searches = Searches(EXPLORER, scopes, planned_checks, explore, save, is_hunt=is_hunt, keeps_going=keeps_going)
    searches.is_done = is_done
    kept = [check for check in planned_checks if check.verdict is Verdict.UNSUPPORTED] if is_hunt else planned_checks
    return Stage(EXPLORER, share, kept, searches.run, (SHOWN_ORDER if is_pool else BLOCK_SYMMETRY,))
