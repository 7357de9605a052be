"""The run of `kvproof prove`: what is asked for is decided, shown as it goes, and written as a result document."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import z3

from kvproof.check.commands.guard import UsageError
from kvproof.check.commands.naming import did_you_mean
from kvproof.check.commands.output import Output, output, say
from kvproof.check.commands.proof_progress import ProofProgress
from kvproof.check.commands.proof_report import proof_lines
from kvproof.check.commands.running import STANDARD_OUTPUT, host, now, require_writable, version, write_json
from kvproof.check.session import interruptible
from kvproof.models.finding import Finding
from kvproof.models.lints import lint_names, lints
from kvproof.models.obligation import Obligation
from kvproof.models.solving import Decided, Settings
from kvproof.models.suites import SUITES, obligations_of, refutation_of
from kvproof.models.workers import decide_all
from kvproof.spec.verdict import Check, Exit, Result, Run, Verdict

PROVER, LINT = "prover", "lint"
SUBJECT = "the specification"
CANDIDATE = "the solver has a model in which the goal is false; a candidate, until a run shows it"


@dataclass(frozen=True)
class Proving:
    """What the user asked for. only: patterns of names; empty for all."""

    only: tuple[str, ...]
    settings: Settings
    num_processes: int
    json: Path | None

    def wants(self, id: str) -> bool:
        """Whether something of that name was asked for."""
        return not self.only or any(_matches(id, pattern) for pattern in self.only)

    def wants_of(self, suite: str) -> bool:
        """Whether something in that suite may have been asked for."""
        firsts = [pattern.partition("/")[0] for pattern in self.only]
        return not self.only or any(first == suite or _has_wildcard(first) for first in firsts)


def run_proofs(proving: Proving) -> Exit:
    """Decide everything asked for, print and store it. Raises StoreError, UsageError, NotInLanguage."""
    console = output(to_stderr=proving.json == STANDARD_OUTPUT)
    if proving.json is not None and proving.json != STANDARD_OUTPUT:
        require_writable(proving.json)
    run = Run(version(), "prove", SUBJECT, proving.settings.seed, host() | {"z3": z3.get_version_string()}, now())
    result = Result(run)
    began = time.monotonic()
    say(console, f"kvproof {run.version} prove, seed {run.seed}, at most {proving.settings.timeout_seconds:g} s each")
    decided: list[Decided] = []
    try:
        with interruptible():
            result.checks += [_linted(name, found) for name, found in _lints(proving)]
            _decide(proving, console, decided, result)
        run.is_complete = True
    except KeyboardInterrupt:
        result.messages.append("interrupted: what was not decided until then does not stand here")
    run.seconds = round(time.monotonic() - began, 3)
    result.count_totals()
    if run.is_complete and not result.checks:
        raise UsageError(_nothing(proving))
    if proving.json is not None:
        write_json(result, Path(), proving.json)
    for line, style in proof_lines(result, decided):
        say(console, line, style)
    return result.exit_code()


def _decide(proving: Proving, console: Output, decided: list[Decided], result: Result) -> None:
    with ProofProgress(console) as progress:
        for one in decide_all(_wanted(proving), proving.settings, proving.num_processes):
            decided.append(one)
            result.checks.append(_check(one))
            progress.advance(one)


def _wanted(proving: Proving) -> Iterator[Obligation]:
    for suite in SUITES:
        if proving.wants_of(suite):
            yield from (one for one in obligations_of(suite) if proving.wants(one.id))


def _lints(proving: Proving) -> Iterator[tuple[str, list[Finding]]]:
    if any(proving.wants(f"{LINT}/{name}") for name in lint_names()):
        yield from ((name, found) for name, found in lints() if proving.wants(f"{LINT}/{name}"))


def _linted(name: str, findings: list[Finding]) -> Check:
    text = "; ".join(f"{one.place}: {one.text}" for one in findings)
    verdict = Verdict.REFUTED if findings else Verdict.PROVED
    return Check(f"{LINT}/{name}", LINT, name, verdict, counts={"findings": len(findings)}, text=text)


def _check(one: Decided) -> Check:
    """The verdict of one obligation, as reports have it."""
    obligation, answer = one.obligation, one.answer
    counts = {"hypotheses": len(obligation.hypotheses), "effort": answer.effort}
    text = {Verdict.REFUTED: CANDIDATE, Verdict.UNKNOWN: answer.reason or "the solver gave up"}.get(answer.verdict, "")
    if answer.verdict is Verdict.REFUTED:
        text = refutation_of(obligation) or text
    if text and obligation.place:
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
    return list(dict.fromkeys([*suites, *subjects, *names]))
