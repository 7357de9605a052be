"""The run of `kvproof prove`: select what is to be proved, decide it, print it, and write the result document.

Order: the lints, the obligations, the vacuity checks of rules and contracts, whether the obligations are the pinned
ones, the vacuity check of their hypotheses, then the optional parts. Rules and contracts are fired in this process
while the solvers answer what is left. An obligation that the solver does not prove is refuted only if a run of the
specification (or of the code) confirms it; otherwise it is unknown, whatever the solver answered.

Proofs mean what they say only if the lints find nothing in the text. So every lint is run with any obligation, whatever
`--only` selects.
"""

import re
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import z3

from kvproof.check.hosts.interrupt import interruptible
from kvproof.check.proving.checks import (
    LINT,
    firing_check,
    hypotheses_check,
    hypotheses_result,
    lint_check,
    obligation_check,
    pin_check,
    run_check,
)
from kvproof.check.proving.kept import Checked, keep, kept
from kvproof.check.proving.options import ProofOptions
from kvproof.check.proving.report import ProofProgress, core_text, proof_lines
from kvproof.check.runs.errors import UsageError, did_you_mean
from kvproof.check.runs.history import add_to_history
from kvproof.check.runs.processor_time import processor_seconds
from kvproof.check.runs.run import close, host, now, version
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.terminal import output, say
from kvproof.models.counterexamples.case import RULES
from kvproof.models.pin import Pin, PinError, pinned_lines, pinned_names
from kvproof.models.proofs.contract_instances import runs
from kvproof.models.proofs.lints import lint_names, lints
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.proofs.satisfied import NativeStates
from kvproof.models.proofs.units import Unit, made
from kvproof.models.proofs.vacuity import (
    FIRES,
    HYPOTHESES,
    RUNS,
    VACUITY,
    Hypotheses,
    firings,
    firings_of_stores,
)
from kvproof.models.solvers.answer_cache import AnswerCache, decide_with
from kvproof.models.solvers.solving import EFFORT_PER_SECOND, Allowance, ProofOutcome, Settings
from kvproof.models.solvers.workers import Decide
from kvproof.models.suites import (
    BOUNDED,
    OF_A_TEXT,
    REFUTATION_SECONDS,
    SUITES,
    is_searched,
    refutation_of,
    units_of,
)
from kvproof.models.translation.text import Text
from kvproof.reports.result import THE_SPECIFICATION, Check, Result, Run
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.store.machine import STORES
from kvproof.spec.verdict import Exit, Verdict

UNCONFIRMED = "the solver has a model in which the goal is false, but no run confirms it"
COUNTEREXAMPLES_SECONDS = 120.0  # of effort, for all open obligations together
UNCHANGED = "no file has changed since an earlier run of this user proved all of this; its result is repeated"


@dataclass(frozen=True)
class ProofRequest:
    """What the user asked for.

    only: patterns of names; empty for everything. decide: asks the solver. text: replaces the text of the
    specification. cache: answers of earlier runs. history: the file to which the run adds itself. words: the options
    that repeat the request.
    """

    only: tuple[str, ...]
    settings: Settings
    decide: Decide
    json: Path | None
    text: Text | None = None
    options: ProofOptions = field(default_factory=ProofOptions)
    cache: AnswerCache | None = None
    history: Path | None = None
    words: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether everything is proved, of the specification as it is."""
        return not self.only and self.text is None

    @property
    def suites(self) -> tuple[str, ...]:
        return tuple(SUITES) if self.text is None else OF_A_TEXT


class Selection:
    """Which names the patterns of `--only` select, and which patterns have matched no name so far.

    A pattern is a name, the beginning of a name up to a slash, or has wildcards. Without patterns, every name is
    selected.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        self.unmatched = list(self.patterns)

    def has(self, name: str) -> bool:
        """Whether the name is selected. The patterns that match it count as matched from now on."""
        matching = [pattern for pattern in self.patterns if matches(name, pattern)]
        self.unmatched = [pattern for pattern in self.unmatched if pattern not in matching]
        return not self.patterns or bool(matching)

    def may_have(self, suite: str) -> bool:
        """Whether a name in that suite may be selected."""
        return not self.patterns or any(_first_part_matches(pattern, suite) for pattern in self.patterns)

    def may_have_any_of(self, suite: str, subject: str) -> bool:
        """Whether a name of that subject may be selected; its obligations need not be made otherwise."""
        return not self.patterns or any(_may_match(f"{suite}/{subject}/", pattern) for pattern in self.patterns)

    def require_names(self, suites: Iterable[str], text: Text | None) -> None:
        """Raise UsageError if a pattern has matched nothing so far, and matches no obligation of these suites.

        The pinned names decide this at once. Only for a pattern that matches none of them, which may be the name of a
        new obligation, the obligations of the suites that it may select are made.
        """
        suites = list(suites)
        known = [name for name in pinned_names() if name.partition("/")[0] in suites]
        for pattern in self.unmatched:
            if not any(matches(name, pattern) for name in known):
                of_suites = (_units(suite, text) for suite in suites if _first_part_matches(pattern, suite))
                if not any(matches(one.id, pattern) for units in of_suites for one in made(units)):
                    raise _no_such_name(pattern)

    def require_matched(self) -> None:
        """Raise UsageError if a pattern has matched nothing."""
        for pattern in self.unmatched:
            raise _no_such_name(pattern)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is the name, the beginning of it up to a slash, or matches it with wildcards."""
    return name == pattern or name.startswith(f"{pattern}/") or fnmatchcase(name, pattern)


def _may_match(beginning: str, pattern: str) -> bool:
    """Whether a pattern may match a name with this beginning, which ends in a slash."""
    literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    literal = literal if literal != pattern else f"{pattern}/"
    return literal.startswith(beginning) or beginning.startswith(literal)


def _first_part_matches(pattern: str, suite: str) -> bool:
    first = pattern.partition("/")[0]
    return first == suite or any(sign in first for sign in "*?[")


def _no_such_name(pattern: str) -> UsageError:
    """The error of a pattern that matches nothing; it suggests names that are similar."""
    names = sorted(pinned_names())
    subjects = [name.rpartition("/")[0] for name in names]
    fire = [*(f"{VACUITY}/{FIRES}/{rule}" for rule in RULES), *(f"{VACUITY}/{RUNS}/{one.name}" for one in CONTRACTS)]
    others = [*(f"{LINT}/{name}" for name in lint_names()), f"{VACUITY}/{HYPOTHESES}"]
    known = list(dict.fromkeys([*SUITES, VACUITY, LINT, *subjects, *names, *fire, *others]))
    return UsageError(
        f"nothing is named {pattern}{did_you_mean(pattern, known)}; "
        "names are suite/subject/claim, * stands for anything"
    )


def _units(suite: str, text: Text | None, selection: Selection | None = None) -> Iterator[Unit]:
    """The units of a suite; of the subjects that may be selected only, if it can tell. Raises NotInLanguage."""
    for unit in units_of(suite, text):
        if selection is None or suite not in OF_A_TEXT or selection.may_have_any_of(suite, unit.name):
            yield unit


def run_proofs(request: ProofRequest) -> Exit:
    """Prove what was asked for, print it and write the result. Raises StoreError, UsageError, NotInLanguage."""
    console = output()
    options, settings = request.options, request.settings
    options.prepare(settings, request.is_whole, request.text is not None)
    run = Run(version(), "prove", THE_SPECIFICATION, settings.seed, host() | {"z3": z3.get_version_string()}, now())
    run.options = list(request.words)
    result = Result(run)
    began, processor_began = time.monotonic(), processor_seconds()
    seconds = settings.effort_max / EFFORT_PER_SECOND
    say(console, f"kvproof {run.version} prove, seed {run.seed}, at most {seconds:g} s of effort each")
    outcomes: list[ProofOutcome] = []
    unwritten: StoreError | None = None
    try:
        with interruptible():
            with ProofProgress(console) as progress:
                for one, check in _kept_or_made(request, result):
                    result.checks.append(check)
                    if one is not None:
                        outcomes.append(one)
                        progress.advance(one)
            options.run(outcomes, result, settings, request.decide, request.is_whole, console)
        run.is_complete = True
    except KeyboardInterrupt:
        result.messages.append("interrupted: the result has only the obligations that were decided before")
    except StoreError as error:
        unwritten = error
    run.seconds = round(time.monotonic() - began, 3)
    run.processor_seconds = round(processor_seconds() - processor_began, 3)
    result.count_totals()
    result.totals["cached answers"] = sum(one.is_cached for one in outcomes)
    result.totals["bounded obligations"] = sum(one.obligation.suite in BOUNDED for one in outcomes)
    for line, style in (*proof_lines(result, outcomes), *options.lines(result)):
        say(console, line, style)
    code = result.exit_code()
    if not run.is_complete and not outcomes and code is not Exit.REFUTED and unwritten is None:
        code = Exit.INTERRUPTED
    add_to_history(request.history, result, code, console)
    return close(result, request.json, code, unwritten)


def _kept_or_made(request: ProofRequest, result: Result) -> Iterator[Checked]:
    """Every check: those of an earlier run if nothing has changed since, or else made now and kept."""
    cache = request.cache
    if cache is None:
        yield from _checks(request)
        return
    try:
        is_keepable = not (request.settings.wants_core or request.options.needs_formulas or request.text is not None)
        known = kept(cache, request.only) if is_keepable else None
        if known is not None:
            result.messages.append(UNCHANGED)
            yield from known
            return
        found: list[Checked] = []
        for one in _checks(request):
            found.append(one)
            yield one
        if is_keepable:
            keep(cache, request.only, found)
    finally:
        cache.close()


def _checks(request: ProofRequest) -> Iterator[Checked]:
    """Every check that was asked for, with the obligation that it is about, if it is about one."""
    selection, text, pinned = Selection(request.only), request.text, _pinned(request.suites)
    linted = [name for name in lint_names() if selection.has(f"{LINT}/{name}")]
    if any(map(selection.may_have, request.suites)):
        linted = lint_names()
    rules = [name for name in RULES if selection.has(f"{VACUITY}/{FIRES}/{name}")]
    contracts = [one.name for one in CONTRACTS if selection.has(f"{VACUITY}/{RUNS}/{one.name}")]
    wants_hypotheses = selection.has(f"{VACUITY}/{HYPOTHESES}")
    selection.require_names(request.suites, text)
    if linted:
        found = lints() if text is None else lints(text)
        yield from ((None, lint_check(name, findings)) for name, findings in found if name in linted)
    names = (
        {} if text is not None else {f"{STORES.name}/{one.__name__}": one.__name__ for one in STORES.collected.rules}
    )
    of_stores = [name for long, name in names.items() if selection.has(f"{VACUITY}/{FIRES}/{long}")]
    hypotheses: dict[str, Hypotheses] = {}
    fired: list[Check] = []

    def meanwhile() -> Iterator[None]:
        for one in _fired(rules, of_stores, contracts, text):
            fired.append(one)
            yield
        if wants_hypotheses and any(sets.sets for sets in hypotheses.values()):
            states = NativeStates(text)
            for sets in hypotheses.values():
                yield from sets.look_in(states)

    pin = Pin()
    judge = _Judge(text)
    still_open: list[ProofOutcome] = []
    searches = wants_hypotheses or text is not None  # nothing pins the hypotheses of another text
    selected = _selected(request, selection, hypotheses, pin, searches)
    for one in _decided(request, selected, meanwhile()):
        if one.obligation.is_search:
            hypotheses[one.obligation.suite].searched(one)
        elif one.answer.verdict is Verdict.PROVED:
            yield judge.check(one)
        else:
            still_open.append(one)
    for one in sorted(still_open, key=lambda one: one.obligation.id):  # the answers arrive in any order
        yield judge.check(one)
    yield from ((None, one) for one in fired)
    if pin.lines:
        is_selected = selection.has if request.only else None
        yield None, pin_check(list(pin.differences(pinned, is_selected)), text is not None)
    if wants_hypotheses:
        yield from ((None, hypotheses_check(suite, sets)) for suite, sets in hypotheses.items())
    else:
        yield from ((None, hypotheses_result(suite, sets)) for suite, sets in hypotheses.items() if sets.contradictory)


def _fired(rules: list[str], of_stores: list[str], contracts: list[str], text: Text | None) -> Iterator[Check]:
    """The vacuity checks of these rules and contracts, one after the other."""
    yield from (firing_check(name, is_fired) for name, is_fired in firings(rules, text))
    yield from (firing_check(f"{STORES.name}/{name}", is_fired) for name, is_fired in firings_of_stores(of_stores))
    yield from (run_check(name, wrong, has_run) for name, wrong, has_run in runs(contracts, text))


def _decided(
    request: ProofRequest, obligations: Iterator[Obligation], meanwhile: Iterator[None]
) -> Iterator[ProofOutcome]:
    settings, decide = request.settings, request.decide
    if request.cache is None:
        yield from decide(obligations, settings, meanwhile=meanwhile)
        return
    yield from decide_with(
        request.cache,
        obligations,
        lambda missing, printer: decide(missing, settings, printer=printer, meanwhile=meanwhile),
    )


def _pinned(suites: Container[str]) -> list[str]:
    """The lines of the committed pin that are about these suites. Raises UsageError if it is missing or wrong."""
    try:
        return pinned_lines(suites)
    except PinError as error:
        raise UsageError(str(error)) from error


def _selected(
    request: ProofRequest,
    selection: Selection,
    hypotheses: dict[str, Hypotheses],
    pin: Pin,
    searches: bool,
) -> Iterator[Obligation]:
    """The selected obligations; adds them to the pin and to the hypotheses of their suite. Raises UsageError.

    searches: also yield the search for a contradiction in each set of hypotheses, before the obligations that have it.
    """
    for suite in request.suites:
        if not selection.may_have(suite):
            continue
        for unit in _units(suite, request.text, selection):
            for one in unit.obligations():
                if selection.has(one.id):
                    search = hypotheses.setdefault(suite, Hypotheses()).note(one)
                    if searches and search is not None:
                        yield search
                    pin.add(one)
                    yield one
    selection.require_matched()


class _Judge:
    """Turns the solver's answers into checks; looks for a counterexample where there is no proof."""

    def __init__(self, text: Text | None) -> None:
        self.text = text
        self.allowance = Allowance(COUNTEREXAMPLES_SECONDS)

    def check(self, one: ProofOutcome) -> tuple[ProofOutcome, Check]:
        """The outcome with its final verdict, and its check."""
        if one.answer.verdict is Verdict.PROVED:
            return one, obligation_check(one, core_text(one))
        is_spent = not self.allowance.left
        mine = Allowance(REFUTATION_SECONDS, self.allowance)
        found = None if is_spent else refutation_of(one.obligation, self.text, mine)
        if found is not None:
            refuted = replace(one, answer=replace(one.answer, verdict=Verdict.REFUTED))
            return refuted, replace(obligation_check(refuted, found.text), counterexample=found.data)
        reason = UNCONFIRMED if one.answer.verdict is Verdict.REFUTED else one.answer.reason or "the solver gave up"
        unknown = replace(one, answer=replace(one.answer, verdict=Verdict.UNKNOWN))
        return unknown, obligation_check(unknown, reason + _search_text(one.obligation, is_spent))


def _search_text(obligation: Obligation, is_spent: bool) -> str:
    if not is_searched(obligation):
        return ""
    if is_spent:
        return "; no effort was left to look for a counterexample"
    return f"; no counterexample was found in small instances, by the effort of {REFUTATION_SECONDS:.0f} s"
