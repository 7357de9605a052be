"""The optional parts of `kvproof prove`: a second solver, SMT-LIB files, certificates, and a baseline of efforts.

Second solver: cvc5 is asked every question that Z3 was asked, and each of its answers is a check of its own. If one
solver proves what the other has a counterexample for, one of them is wrong, and the run is refuted.

SMT-LIB: one file for each question, for other solvers and for readers.

Certificates: see `certificates`.

Record: the file that a release carries about its proofs, see `kvproof.models.proof_record`.

Baseline: the effort of each proof, in a file. A later run with the same version of Z3 and the same seed is compared
with it, and fails if a proof has become much harder: proofs get slow before they break.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import z3

from kvproof.check.proving.certificates import CERTIFICATES, KEPT, CertificateRun
from kvproof.check.proving.report import ProofProgress, StyledLine
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import StoreError, explained
from kvproof.check.runs.terminal import Output
from kvproof.models import proof_record
from kvproof.models.certificates.folder import file_stem
from kvproof.models.obligation import Obligation
from kvproof.models.proof_record import ProofRecord
from kvproof.models.proofs.instances import where_denied, where_next_fired
from kvproof.models.solvers import second_solver
from kvproof.models.solvers.solver_effort import Efforts, changes, efforts, worse
from kvproof.models.solvers.solving import Decide, ProofOutcome, Settings
from kvproof.models.suites import BOUNDED
from kvproof.reports.document import read_json
from kvproof.reports.evidence import Disagreement, refuted
from kvproof.reports.result import Check, Difference, Result
from kvproof.spec.verdict import Exit, Verdict

SECOND_SOLVER = "second-solver"
SOLVER = f"z3 {z3.get_version_string()}"


@dataclass
class ProofOptions:
    """The optional parts that the user asked for, and their results.

    smt2: folder for SMT-LIB files. certificates: folder for questions and proofs. record: write the record of the
    release. before: the efforts read from the baseline. second_outcomes: the answers of the second solver. certified:
    the run for certificates.
    """

    second_solver: bool = False
    smt2: Path | None = None
    baseline: Path | None = None
    save_baseline: Path | None = None
    certificates: Path | None = None
    record: bool = False
    before: Efforts | None = None
    second_outcomes: list[ProofOutcome] = field(default_factory=list)
    certified: CertificateRun | None = None

    @property
    def compares_efforts(self) -> bool:
        """Whether efforts are compared or kept, so that each question must be asked alone."""
        return self.baseline is not None or self.save_baseline is not None

    @property
    def needs_formulas(self) -> bool:
        """Whether an option needs the obligations themselves, and not only the answers."""
        return self.second_solver or self.smt2 is not None or self.certificates is not None

    def prepare(self, settings: Settings, is_whole: bool, is_other_text: bool) -> None:
        """Validate the options before the run. Raises UsageError, StoreError.

        is_whole: everything is proved. is_other_text: the text of the specification is replaced.
        """
        if self.compares_efforts and settings.wants_core:
            raise UsageError("--cores changes the efforts; use it without --baseline and --save-baseline")
        if self.save_baseline and not is_whole:
            raise UsageError("--save-baseline needs a run of everything; leave out --only and --text")
        if self.record and not is_whole:
            raise UsageError("--record needs a run of everything; leave out --only and --text")
        if self.certificates is not None and is_other_text:
            raise UsageError("certificates are about the specification as it is; leave out --text")
        for option, folder in (("--smt2", self.smt2), (f"--{CERTIFICATES}", self.certificates)):
            if folder is not None:
                require_folder(folder, option)
        self.before = None if self.baseline is None else read_baseline(self.baseline, settings.seed)

    def run(
        self,
        outcomes: list[ProofOutcome],
        result: Result,
        settings: Settings,
        decide: Decide,
        is_whole: bool,
        console: Output,
    ) -> None:
        """Carry out the optional parts when every obligation is decided. Raises UsageError, StoreError."""
        if self.smt2 is not None:
            files = [write_question(one.obligation, self.smt2) for one in outcomes if not one.is_trivial]
            result.messages.append(f"{len(files):,} questions written below {self.smt2}")
        if self.second_solver:
            for one, check in ask_second_solver(outcomes, settings, decide, console):
                self.second_outcomes.append(one)
                result.checks.append(check)
        if self.certificates is not None:
            self.certified = CertificateRun(self.certificates, settings, decide, is_whole)
            for first, second in self.certified.outcomes(outcomes, console):
                check = compare_answers(first, second, CERTIFICATES)
                result.checks.append(replace(check, text=KEPT) if check.verdict is Verdict.NOT_REFUTED else check)
        if self.before is not None:
            harder = [f"harder than the baseline: {one}" for one in worse(self.before, outcomes)]
            result.difference = Difference(str(self.baseline), harder)
            if is_whole:
                now = efforts(outcomes, SOLVER, settings.seed)
                result.messages += [f"different from the baseline: {one}" for one in changes(self.before, now)]
        if self.save_baseline is not None:
            write_baseline(self.save_baseline, outcomes, settings.seed)
        if self.record:
            result.messages.append(self._recorded(outcomes, result))

    def _recorded(self, outcomes: list[ProofOutcome], result: Result) -> str:
        """Write the record of the release, and return a message. Raises StoreError."""
        if any(check.verdict in (Verdict.UNKNOWN, Verdict.REFUTED) for check in result.checks):
            return "the record of the release is not written: not everything is proved"
        num_bounded = sum(one.obligation.suite in BOUNDED for one in outcomes)
        solvers = [SOLVER, *([f"cvc5 {second_solver.version()}"] if self.second_solver else [])]
        counts = len(outcomes) - num_bounded, num_bounded
        date = result.run.started.partition("T")[0]
        with explained(proof_record.FILE):
            digests = proof_record.digest_of_text(), proof_record.digest_of_pin()
            proof_record.write_record(ProofRecord(result.run.version, *digests, *counts, solvers, date))
        return f"the record of the release is in {proof_record.FILE}"

    def lines(self, result: Result) -> Iterator[StyledLine]:
        """The lines of the report about the optional parts."""
        yield from second_solver_lines(result.checks, self.second_outcomes)
        if self.certified is not None:
            yield from self.certified.lines()
        if result.difference is not None:
            yield from ((one, "bold red") for one in result.difference.worse)
            if not result.difference.worse:
                yield f"no obligation is harder than in {self.baseline}", ""


# The second solver ---------------------------------------------------------------------------------------------------


def ask_second_solver(
    outcomes: list[ProofOutcome], settings: Settings, decide: Decide, console: Output
) -> Iterator[tuple[ProofOutcome, Check]]:
    """Ask cvc5 every question that Z3 was asked. Yields each answer, and its check."""
    first = {one.obligation.id: one for one in outcomes if not one.is_trivial}
    questions = (where_next_fired(where_denied(one.obligation)) for one in first.values())
    with ProofProgress(console, "second solver") as progress:
        for one in decide(questions, settings, asker=second_solver.ask):
            progress.advance(one)
            yield one, compare_answers(first[one.obligation.id], one)


def compare_answers(first: ProofOutcome, second: ProofOutcome, judge: str = SECOND_SOLVER) -> Check:
    """The check for the second solver's answer. It is refuted if the two answers contradict each other."""
    obligation, answer = second.obligation, second.answer
    verdict, text, contradiction = answer.verdict, "", ""
    if {first.answer.verdict, verdict} == {Verdict.PROVED, Verdict.REFUTED}:
        z3_answer, cvc5_answer = (
            "a proof" if one is Verdict.PROVED else "a model in which the goal is false"
            for one in (first.answer.verdict, verdict)
        )
        contradiction = (
            f"the solvers contradict each other, so one is wrong: Z3 has {z3_answer}, cvc5 has {cvc5_answer}"
        )
    elif verdict is Verdict.REFUTED:
        verdict, text = Verdict.UNKNOWN, "cvc5 has a model in which the goal is false, and Z3 has no proof"
    elif verdict is Verdict.UNKNOWN:
        text = answer.reason or "the solver gave up"
    id = f"{judge}/{obligation.property}/{obligation.id}"
    counts = {"hypotheses": len(obligation.hypotheses), "effort": answer.effort}
    check = Check(id, judge, obligation.property, Verdict.UNKNOWN, round(answer.seconds, 4), counts)
    if contradiction:
        return refuted(check, Disagreement(contradiction, [obligation.id]))
    return replace(check, verdict=verdict, text=text)


def second_solver_lines(checks: list[Check], outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    """How many obligations the second solver proved, and its hardest one. Contradictions are listed as open checks."""
    verdicts = Counter(check.verdict for check in checks if check.judge == SECOND_SOLVER)
    if not verdicts:
        return
    hardest = max(outcomes, key=lambda one: one.answer.effort)
    yield f"most effort of the second solver, {hardest.answer.effort:,}: {hardest.obligation.id}", "dim"
    others = ", ".join(f"{verdicts[verdict]:,} {verdict.value}" for verdict in (Verdict.UNKNOWN, Verdict.REFUTED))
    yield (
        f"second solver: {verdicts[Verdict.PROVED]:,} of {verdicts.total():,} proved by cvc5 {second_solver.version()} "
        f"too, {others}; {sum(one.answer.seconds for one in outcomes):.1f} s, "
        f"effort {sum(one.answer.effort for one in outcomes):,}",
        "" if verdicts[Verdict.PROVED] == verdicts.total() else "bold yellow",
    )


# SMT-LIB files -------------------------------------------------------------------------------------------------------


def require_folder(folder: Path, option: str) -> None:
    """Create the folder of an option, and see whether files can be written to it. Raises StoreError if not."""
    with explained(folder):
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file; {option} takes a folder", Exit.USAGE)
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def write_question(obligation: Obligation, folder: Path) -> Path:
    """Write the question to `folder/suite/subject/claim-hash.smt2`, and return the path. Raises StoreError."""
    file = folder / f"{file_stem(obligation.id)}.smt2"
    name = " ".join(obligation.id.split())
    head = f"; {name}\n; property: {obligation.property}\n(set-logic ALL)\n(set-info :status unsat)\n"
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(head + obligation.smt2(), encoding="utf-8")
    return file


# The baseline of efforts ---------------------------------------------------------------------------------------------


def read_baseline(file: Path, seed: int) -> Efforts:
    """Read the efforts of an earlier run. Raises UsageError if they cannot be compared, and DocumentError."""
    data = read_json(file)
    try:
        before = msgspec.json.decode(data, type=Efforts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not a baseline of proofs ({error}); --save-baseline writes one") from error
    if (before.solver, before.seed) != (SOLVER, seed):
        raise UsageError(
            f"{file} was written by {before.solver} with seed {before.seed}, and this is {SOLVER} with seed {seed}: "
            "their efforts cannot be compared; write a new baseline with --save-baseline"
        )
    return before


def write_baseline(file: Path, outcomes: list[ProofOutcome], seed: int) -> None:
    """Write the efforts of a run. Raises StoreError."""
    text = json.dumps(efforts(outcomes, SOLVER, seed).as_data(), indent=1)
    with explained(file):
        file.write_text(text + "\n", encoding="utf-8")
