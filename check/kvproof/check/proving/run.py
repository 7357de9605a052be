"""The run of `kvproof prove`: decide what is asked, print it, and write the result document.

Order: the lints, the obligations, the vacuity checks of rules and contracts, whether the obligations are the pinned
ones, the vacuity check of their hypotheses, then the optional parts.

The result is kept, so that a run of the same text takes no longer than a look at the files. A kept result belongs to
one digest: of every file of the specification, of kvproof's own managers, which some proofs are about, of the prover
and of the pin. The settings, the solver and the patterns of `--only` have results of their own. Only a result in which
everything is proved is kept; the solver's answers in it count as cached.

It stands in the file of the answers (`kvproof.models.solvers.answer_cache`), and is as trusted as they are.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import z3

import kvproof.impl
import kvproof.models
import kvproof.spec
from kvproof.check.hosts.interrupt import interruptible
from kvproof.check.hosts.workers import digest_of
from kvproof.check.proving.asked import Asked
from kvproof.check.proving.checks import Judge
from kvproof.check.proving.options import ProofOptions
from kvproof.check.proving.questions import answer_cache, deciding
from kvproof.check.proving.report import ProofProgress, proof_lines
from kvproof.check.proving.selection import Selection
from kvproof.check.proving.vacuity import Vacuity
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.history import add_to_history
from kvproof.check.runs.run import close, host, now, version
from kvproof.check.runs.session import processor_seconds
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.terminal import output, say
from kvproof.models.obligation import Obligation
from kvproof.models.pin import PinError
from kvproof.models.solvers.answer_cache import AnswerCache, decide_with
from kvproof.models.solvers.solving import EFFORT_PER_SECOND, Answer, Decide, ProofOutcome, Settings
from kvproof.models.suites import BOUNDED, OF_A_TEXT, SUITES
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.text import Text, specification
from kvproof.reports.document import DocumentError, read_bytes
from kvproof.reports.result import THE_SPECIFICATION, Check, Result, Run
from kvproof.spec.verdict import Exit, Verdict

ProofCheck = tuple[ProofOutcome | None, Check]  # a check, and the obligation that it is about, if it is about one

TEXT_BYTES_MAX = 1 << 20  # of the file of --text; the specification has a tenth of it
UNCHANGED = "no file has changed since an earlier run of this user proved all of this; its result is repeated"


@dataclass(frozen=True)
class KeptOutcome:
    """An obligation without its formulas, and the solver's answer."""

    suite: str
    subject: str
    claim: str
    property: str
    place: str
    seconds: float
    effort: int
    is_trivial: bool


@dataclass(frozen=True)
class KeptCheck:
    """One check, and what was decided, if the check is about an obligation."""

    check: Check
    decided: KeptOutcome | None


def kept(cache: AnswerCache, only: tuple[str, ...]) -> list[ProofCheck] | None:
    """The result of an earlier run with the same files, settings and patterns; None if there is none."""
    text = cache.result(_name(only), digest_of_files())
    if text is None:
        return None
    try:
        return [restored(line) for line in msgspec.json.decode(text, type=list[KeptCheck])]
    except msgspec.MsgspecError:
        return None


def keep(cache: AnswerCache, only: tuple[str, ...], result: Iterable[ProofCheck]) -> None:
    """Keep a result, if everything in it is proved."""
    lines = [KeptCheck(check, None if one is None else decided_of(one)) for one, check in result]
    if all(line.check.verdict is Verdict.PROVED for line in lines):
        cache.add_result(_name(only), digest_of_files(), msgspec.json.encode(lines).decode())


def digest_of_files() -> str:
    """The digest of every file that a result may depend on, with its name, and of Python's version."""
    return f"{sys.version} {digest_of(folders())}"


def folders() -> list[Path]:
    """The folders of all files that a result may depend on."""
    packages = [Path(one) for package in (kvproof.spec, kvproof.impl, kvproof.models) for one in package.__path__]
    return [*packages, Path(__file__).parent]


def _name(only: tuple[str, ...]) -> str:
    return msgspec.json.encode(sorted(only)).decode()


def decided_of(one: ProofOutcome) -> KeptOutcome:
    """What is kept of an outcome."""
    obligation, answer = one.obligation, one.answer
    names = obligation.suite, obligation.subject, obligation.claim, obligation.property, obligation.place
    return KeptOutcome(*names, answer.seconds, answer.effort, one.is_trivial)


def restored(line: KeptCheck) -> ProofCheck:
    """A kept check, with its outcome if it is about an obligation; the solver's answer counts as cached."""
    one = line.decided
    if one is None:
        return None, line.check
    obligation = Obligation(one.suite, one.subject, one.claim, one.property, (), True, one.place)
    answer = Answer(line.check.verdict, one.seconds, one.effort)
    if one.is_trivial:
        return ProofOutcome(obligation, answer, is_trivial=True), line.check
    check = replace(line.check, counts=line.check.counts | {"cached": 1})
    return ProofOutcome(obligation, answer, is_cached=True), check


@dataclass(frozen=True)
class ProofRequest:
    """What the user asked for.

    only: patterns of names; empty for everything. workers: who asks the solver. text: a file with functions that
    replace those of the specification. uses_cache: whether answers of earlier runs count. history: the file to which
    the run adds itself. words: the options that repeat the request.
    """

    only: tuple[str, ...]
    settings: Settings
    options: ProofOptions
    workers: str
    text: Path | None = None
    uses_cache: bool = False
    json: Path | None = None
    history: Path | None = None
    words: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether everything is proved, of the specification as it is."""
        return not self.only and self.text is None


def run_proofs(request: ProofRequest) -> Exit:
    """Prove what was asked for, print it and write the result.

    Raises StoreError and UsageError; MissingExtra and NoWorkers if Ray is to ask the solver.
    """
    try:
        text = None if request.text is None else specification().rewritten(read_text(request.text), str(request.text))
        request.options.prepare(request.settings, request.is_whole, text is not None)
        with deciding(request.workers) as decide:
            cache = answer_cache(request.settings) if request.uses_cache else None
            return _Proving(request, text, decide, cache).run()
    except (NotInLanguage, PinError, ValueError) as error:
        raise UsageError(str(error)) from error


def read_text(file: Path) -> str:
    """Read a UTF-8 file of at most TEXT_BYTES_MAX. Raises UsageError if that fails."""
    try:
        return read_bytes(file, TEXT_BYTES_MAX).decode()
    except DocumentError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: {error}") from error


class _Proving:
    """One run. decide: asks the solver. cache: the answers of earlier runs."""

    def __init__(self, request: ProofRequest, text: Text | None, decide: Decide, cache: AnswerCache | None) -> None:
        self.request, self.text, self.decide, self.cache = request, text, decide, cache
        self.settings, self.options, self.console = request.settings, request.options, output()
        solver = {"z3": z3.get_version_string()}
        run = Run(version(), "prove", THE_SPECIFICATION, self.settings.seed, host() | solver, now())
        run.options = list(request.words)
        self.result = Result(run)
        self.outcomes: list[ProofOutcome] = []

    def run(self) -> Exit:
        """Prove, print and write. Raises StoreError, UsageError, NotInLanguage, PinError."""
        request, run = self.request, self.result.run
        began, processor_began = time.monotonic(), processor_seconds()
        seconds = self.settings.effort_max / EFFORT_PER_SECOND
        say(self.console, f"kvproof {run.version} prove, seed {run.seed}, at most {seconds:g} s of effort each")
        unwritten = self._prove()
        run.seconds = round(time.monotonic() - began, 3)
        run.processor_seconds = round(processor_seconds() - processor_began, 3)
        self._count()
        for line, style in (*proof_lines(self.result, self.outcomes), *self.options.lines(self.result)):
            say(self.console, line, style)
        code = self.result.exit_code()
        if not run.is_complete and not self.outcomes and code is not Exit.REFUTED and unwritten is None:
            code = Exit.INTERRUPTED
        add_to_history(request.history, self.result, code, self.console)
        return close(self.result, request.json, code, unwritten)

    def _prove(self) -> StoreError | None:
        """Decide everything, then the optional parts. Returns the error if an optional part cannot be written."""
        try:
            with interruptible():
                kept_answers = nullcontext() if self.cache is None else closing(self.cache)
                with ProofProgress(self.console) as progress, kept_answers:
                    for one, check in self._kept_or_made():
                        self.result.checks.append(check)
                        if one is not None:
                            self.outcomes.append(one)
                            progress.advance(one)
                is_whole = self.request.is_whole
                self.options.run(self.outcomes, self.result, self.settings, self.decide, is_whole, self.console)
            self.result.run.is_complete = True
        except KeyboardInterrupt:
            self.result.messages.append("interrupted: the result has only the obligations that were decided before")
        except StoreError as error:
            return error
        return None

    def _count(self) -> None:
        self.result.count_totals()
        self.result.totals["cached answers"] = sum(one.is_cached for one in self.outcomes)
        self.result.totals["bounded obligations"] = sum(one.obligation.suite in BOUNDED for one in self.outcomes)

    def _kept_or_made(self) -> Iterator[ProofCheck]:
        """Every check: those of an earlier run if nothing has changed since, or else made now and kept."""
        cache, only = self.cache, self.request.only
        if cache is None or self.settings.wants_core or self.options.needs_formulas or self.text is not None:
            yield from self._made()
            return
        known = kept(cache, only)
        if known is not None:
            self.result.messages.append(UNCHANGED)
            yield from known
            return
        found: list[ProofCheck] = []
        for one in self._made():
            found.append(one)
            yield one
        keep(cache, only, found)

    def _made(self) -> Iterator[ProofCheck]:
        """Every check that was asked for, with the obligation that it is about, if it is about one."""
        selection, judge = Selection(self.request.only), Judge(self.text)
        asked = Asked(SUITES if self.text is None else OF_A_TEXT, self.text, selection)
        vacuity = Vacuity(selection, self.text)
        asked.require_names()
        yield from ((None, check) for check in asked.lint_checks())
        still_open: list[ProofOutcome] = []
        for one in self._decided(asked, vacuity):
            if one.obligation.is_search:
                vacuity.searched(one)
            elif one.answer.verdict is Verdict.PROVED:
                yield judge.check(one)
            else:
                still_open.append(one)
        for one in sorted(still_open, key=lambda one: one.obligation.id):  # the answers arrive in any order
            yield judge.check(one)
        yield from ((None, check) for check in vacuity.fired)
        yield from ((None, check) for check in asked.pin_checks())
        yield from ((None, check) for check in vacuity.checks_of_hypotheses())

    def _decided(self, asked: Asked, vacuity: Vacuity) -> Iterator[ProofOutcome]:
        obligations, meanwhile = vacuity.noted(asked.obligations()), vacuity.meanwhile()
        if self.cache is None:
            yield from self.decide(obligations, self.settings, meanwhile=meanwhile)
            return
        yield from decide_with(
            self.cache,
            obligations,
            lambda missing, printer: self.decide(missing, self.settings, printer=printer, meanwhile=meanwhile),
        )
