"""The run of `kvproof prove`: what is asked for is decided, shown as it goes, and written as a result document."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import z3

from kvproof.check.cli.prove_needs import needs
from kvproof.check.cli.prove_options import ProofOptions
from kvproof.check.cli.prove_progress import ProofProgress
from kvproof.check.cli.prove_report import proof_lines
from kvproof.check.cli.prove_vacuity import HYPOTHESES, NAMES, VACUITY, Noted, fires
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.run import host, now, version, write_json
from kvproof.check.runs.session import interruptible
from kvproof.check.runs.subject_lookup import did_you_mean
from kvproof.check.runs.terminal import Output, output, say
from kvproof.models.counterexamples.case import RULES
from kvproof.models.proofs.lint_error import Finding
from kvproof.models.proofs.lints import lint_names, lints
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.proofs.vacuity import FIRES
from kvproof.models.solvers.solving import Decided, Settings
from kvproof.models.solvers.workers import decide_all
from kvproof.models.suites import OF_A_TEXT, REFUTATION_SECONDS, SUITES, is_searched, obligations_of, refutation_of
from kvproof.models.translation.text import Text
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Exit, Verdict

PROVER, LINT = "prover", "lint"
SUBJECT = "the specification"
CANDIDATE = "the solver has a model in which the goal is false, and no run shows it"
COUNTEREXAMPLES_SECONDS = 120.0  # for all that is open


@dataclass(frozen=True)
class Proving:
    """What the user asked for. only: patterns of names; empty for all. text: another one than the specification's."""

    only: tuple[str, ...]
    settings: Settings
    num_processes: int
    json: Path | None
    text: Text | None = None
    besides: ProofOptions = field(default_factory=ProofOptions)

    @property
    def is_whole(self) -> bool:
        """Whether everything there is of the specification was asked for."""
        return not self.only and self.text is None

    def wants(self, id: str) -> bool:
        """Whether something of that name was asked for."""
        return not self.only or any(_matches(id, pattern) for pattern in self.only)

    def wants_of(self, suite: str) -> bool:
        """Whether something in that suite may have been asked for."""
        firsts = [pattern.partition("/")[0] for pattern in self.only]
        return not self.only or any(first == suite or _has_wildcard(first) for first in firsts)


def run_proofs(proving: Proving) -> Exit:
    """Decide everything asked for, print and store it. Raises StoreError, UsageError, NotInLanguage."""
    console = output()
    besides = proving.besides
    besides.prepare(proving.settings, proving.is_whole)
    run = Run(version(), "prove", SUBJECT, proving.settings.seed, host() | {"z3": z3.get_version_string()}, now())
    result = Result(run)
    began = time.monotonic()
    say(console, f"kvproof {run.version} prove, seed {run.seed}, at most {proving.settings.timeout_seconds:g} s each")
    decided: list[Decided] = []
    try:
        with interruptible():
            result.checks += [_linted(name, found) for name, found in _lints(proving)]
            result.checks += fires([name for name in RULES if proving.wants(f"{VACUITY}/{FIRES}/{name}")], proving.text)
            noted = Noted()
            _decide(proving, console, decided, result, noted)
            result.checks += noted.checks() if proving.wants(f"{VACUITY}/{HYPOTHESES}") else ()
            besides.follow(decided, result, proving.settings, proving.num_processes, proving.is_whole, console)
        run.is_complete = True
    except KeyboardInterrupt:
        result.messages.append("interrupted: what was not decided until then does not stand here")
    run.seconds = round(time.monotonic() - began, 3)
    result.count_totals()
    if run.is_complete and not result.checks:
        raise UsageError(_nothing(proving))
    if proving.json is not None:
        write_json(result, Path(), proving.json)
    for line, style in (*proof_lines(result, decided), *besides.lines(decided, result)):
        say(console, line, style)
    return besides.code(result.exit_code())


def _decide(proving: Proving, console: Output, decided: list[Decided], result: Result, noted: Noted) -> None:
    with ProofProgress(console) as progress:
        judge = _Judge(proving)
        for answered in decide_all(noted.noted(_wanted(proving)), proving.settings, proving.num_processes):
            one, check = judge.settled(answered)
            decided.append(one)
            result.checks.append(check)
            progress.advance(one)


def _wanted(proving: Proving) -> Iterator[Obligation]:
    for suite in SUITES if proving.text is None else OF_A_TEXT:
        if proving.wants_of(suite):
            made = obligations_of(suite) if proving.text is None else obligations_of(suite, proving.text)
            yield from (one for one in made if proving.wants(one.id))


def _lints(proving: Proving) -> Iterator[tuple[str, list[Finding]]]:
    if any(proving.wants(f"{LINT}/{name}") for name in lint_names()):
        found = lints() if proving.text is None else lints(proving.text)
        yield from ((name, findings) for name, findings in found if proving.wants(f"{LINT}/{name}"))


def _linted(name: str, findings: list[Finding]) -> Check:
    text = "; ".join(f"{one.place}: {one.text}" for one in findings)
    verdict = Verdict.REFUTED if findings else Verdict.PROVED
    return Check(f"{LINT}/{name}", LINT, name, verdict, counts={"findings": len(findings)}, text=text)


class _Judge:
    """What an answer of the solver is worth: what is not proved is refuted by a run, or else unknown."""

    def __init__(self, proving: Proving) -> None:
        self.proving = proving
        self.seconds = COUNTEREXAMPLES_SECONDS

    def settled(self, one: Decided) -> tuple[Decided, Check]:
        """The answer with the verdict that stands, and the check that reports have."""
        if one.answer.verdict is Verdict.PROVED:
            return one, _check(one, needs(one))
        began = time.monotonic()
        limit = min(self.seconds, REFUTATION_SECONDS)
        found = refutation_of(one.obligation, self.proving.text, limit) if limit > 0 else None
        self.seconds -= time.monotonic() - began
        if found is not None:
            shown = replace(one, answer=replace(one.answer, verdict=Verdict.REFUTED))
            return shown, replace(_check(shown, found.text), counterexample=found.data)
        text = CANDIDATE if one.answer.verdict is Verdict.REFUTED else one.answer.reason or "the solver gave up"
        unknown = replace(one, answer=replace(one.answer, verdict=Verdict.UNKNOWN))
        return unknown, _check(unknown, f"{text}{_nothing_found(one.obligation, limit)}")


def _nothing_found(obligation: Obligation, seconds: float) -> str:
    if not is_searched(obligation):
        return ""
    if seconds <= 0:
        return "; no time was left to look for a counterexample"
    return f"; no counterexample was found in small instances within {seconds:.0f} s"


def _check(one: Decided, text: str) -> Check:
    """The verdict of one obligation, as reports have it."""
    obligation, answer = one.obligation, one.answer
    counts = {"hypotheses": len(obligation.hypotheses), "effort": answer.effort}
    if text and obligation.place and answer.verdict is Verdict.UNKNOWN:
        text = f"{obligation.place}: {text}"
    id = f"{PROVER}/{obligation.property}/{obligation.id}"
    return Check(id, PROVER, obligation.property, answer.verdict, round(answer.seconds, 4), counts, text)


def _matches(id: str, pattern: str) -> bool:
    """As a name, as the beginning of one up to a slash, or as a pattern."""
    return id == pattern or id.startswith(f"{pattern}/") or fnmatchcase(id, pattern)


def _has_wildcard(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def _nothing(proving: Proving) -> str:
    known = _known_names(SUITES)
    wrong = next((pattern for pattern in proving.only if not any(_matches(name, pattern) for name in known)), "")
    return f"nothing is named {wrong}{did_you_mean(wrong, known)}; names are suite/subject/claim, * stands for anything"


def _known_names(suites: Iterable[str]) -> list[str]:
    """Names that whoever mistyped one may have meant: of obligations, and of what they are about."""
    names = [one.id for suite in suites for one in obligations_of(suite)]
    subjects = [name.rpartition("/")[0] for name in names]
    return list(dict.fromkeys([*suites, VACUITY, *subjects, *names, *NAMES]))
