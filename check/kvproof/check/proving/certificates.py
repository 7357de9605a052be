"""`kvproof prove --certificates DIR`: a question and a proof for each obligation that a solver is asked, and an index.

cvc5 is asked for the proofs. Files are written atomically, and the proof after its question. A proof that an earlier
run has written is kept if its question, made again from the text, is still the same, the solver too, and the hashes in
the file are right. So an interrupted run goes on where it was. This run does not check what it keeps, and does not call
it proved: `make check-certificates` checks it. The index is written at the end, also when the run is interrupted. Rows
of an earlier index stay only if they are about obligations that are pinned and their files are right; the others are
named.

cvc5 does not prove some questions as they are. It is then asked the question with instances of hypotheses, as in
`--second-solver`, and the index names them. An obligation without a complete proof is unknown: the run is inconclusive.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvproof.check.proving.report import ProofProgress, StyledLine
from kvproof.check.runs.store import explained
from kvproof.check.runs.terminal import Output
from kvproof.models.certificates.folder import (
    INDEX,
    PROOF,
    QUESTION,
    CertificateError,
    Index,
    Origin,
    Row,
    compressed,
    earlier_proof,
    encode_index,
    file_stem,
    proof_file,
    read_index,
    row,
    sha256,
)
from kvproof.models.certificates.proving import (
    CertifiedAnswer,
    Questions,
    ask,
    instances,
    unsound_rules,
    with_instances,
)
from kvproof.models.obligation import Obligation
from kvproof.models.pin import OBLIGATION, pinned_names
from kvproof.models.solvers import second_solver
from kvproof.models.solvers.solving import Answer, Decide, ProofOutcome, Settings
from kvproof.reports.document import write_atomically
from kvproof.spec.verdict import Verdict

CERTIFICATES = "certificates"
KEPT = "a proof from an earlier run is kept, and not checked here; make check-certificates checks it"
DROPPED_MAX = 10  # named in the report


@dataclass
class CertificateRun:
    """One run. is_whole: it is about all obligations; otherwise the rows of other obligations stay in the index."""

    folder: Path
    settings: Settings
    decide: Decide
    is_whole: bool
    solver: str = field(default_factory=lambda: f"{second_solver.NAME} {second_solver.version()}")
    rows: dict[str, Row] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)  # the ids in an earlier index that are not in this one
    num_kept: int = 0
    questions: Questions = field(default_factory=Questions)

    def outcomes(self, outcomes: list[ProofOutcome], console: Output) -> Iterator[tuple[ProofOutcome, ProofOutcome]]:
        """Z3's outcome and cvc5's, for each obligation that a solver is asked. Writes the files. Raises StoreError."""
        first = {one.obligation.id: one for one in outcomes if not one.is_trivial}
        try:
            with ProofProgress(console, CERTIFICATES) as progress:
                for one in self._all([one.obligation for one in first.values()]):
                    if one.answer.verdict is not Verdict.NOT_REFUTED:
                        progress.advance(one)
                    yield first[one.obligation.id], one
        except (KeyboardInterrupt, GeneratorExit):
            self._write_index(is_whole=False)
            raise
        self._write_index(self.is_whole)

    def lines(self) -> Iterator[StyledLine]:
        """The lines of the report: how many obligations have a complete proof, and which rows were dropped."""
        rows = self.rows.values()
        num_proofs, num_instances = sum(one.is_complete for one in rows), sum(bool(one.instances) for one in rows)
        text = (
            f"certificates: {num_proofs:,} of {len(rows):,} with a proof by {self.solver}, {num_instances:,} of them "
            f"with instances of hypotheses, {self.num_kept:,} from an earlier run, not checked here; in {self.folder}"
        )
        yield text, "" if num_proofs == len(rows) else "bold yellow"
        if self.dropped:
            names = ", ".join(self.dropped[:DROPPED_MAX])
            more = f" and {len(self.dropped) - DROPPED_MAX:,} more" if len(self.dropped) > DROPPED_MAX else ""
            what = "that are not asked today, or whose files are not right"
            yield f"note: {INDEX} had rows of obligations {what}; they are dropped: {names}{more}", "yellow"

    def _all(self, obligations: list[Obligation]) -> Iterator[ProofOutcome]:
        """Those that an earlier run has certified; those that cvc5 proves as they are; those with instances."""
        asked, again = [], {}
        for obligation in obligations:
            found = self._earlier(obligation)
            if found is None:
                asked.append(obligation)
                continue
            self.rows[obligation.id] = found
            self.num_kept += 1
            yield ProofOutcome(obligation, Answer(Verdict.NOT_REFUTED))
        for one in self._asked(asked):
            if one.answer.verdict is Verdict.UNKNOWN and instances(one.obligation):
                again[one.obligation.id] = one.obligation
            else:
                yield one
        for one in self._asked(map(with_instances, again.values()), again):
            yield ProofOutcome(again[one.obligation.id], one.answer)

    def _earlier(self, obligation: Obligation) -> Row | None:
        found = self._earlier_row(obligation.id)
        if found is None or not found.is_complete:
            return None
        question = self.questions.text(with_instances(obligation) if found.instances else obligation)
        is_right = sha256(question) == found.question_sha256
        return found if is_right and found.instances in ([], instances(obligation)) else None

    def _earlier_row(self, id: str, reason: str = "") -> Row | None:
        """The row of a proof that is in the folder, if its files agree. reason: why it is not complete."""
        found = earlier_proof(self.folder, id, self.solver)
        if found is None or found[0].trusted_steps != list(unsound_rules(found[1])):
            return None
        return row(id, *found, reason)

    def _asked(
        self, obligations: Iterable[Obligation], originals: Mapping[str, Obligation] | None = None
    ) -> Iterator[ProofOutcome]:
        """Ask cvc5, and write the files of each answer. originals: by id, if the obligations have instances."""
        answers = self.decide(obligations, self.settings, asker=ask, printer=self.questions.of)
        with closing(answers):  # type: ignore[type-var]
            for one in answers:
                added = instances(originals[one.obligation.id]) if originals else []
                found = self.rows[one.obligation.id] = self._write(one.obligation, one.answer, added)
                yield ProofOutcome(one.obligation, _decided(one.answer, found))

    def _write(self, obligation: Obligation, answer: Answer, added: list[str]) -> Row:
        """Write the question, and the proof if there is one. added: the instances of hypotheses in the question."""
        stem, question = file_stem(obligation.id), self.questions.text(obligation)
        self._write_file(stem + QUESTION, question)
        if not isinstance(answer, CertifiedAnswer) or not answer.proof:
            file = self.folder / (stem + PROOF)
            with explained(file):
                file.unlink(missing_ok=True)
            reason = answer.reason or f"{self.solver} gave up"
            return Row(obligation.id, stem + QUESTION, sha256(question), instances=added, reason=reason)
        hashes = sha256(question), sha256(answer.proof)
        origin = Origin(*hashes, self.solver, answer.options, added, list(answer.trusted_steps))
        proof = proof_file(origin, answer.proof)
        self._write_file(stem + PROOF, proof)
        return row(obligation.id, origin, proof, answer.reason)

    def _write_file(self, name: str, text: str) -> None:
        file = self.folder / name
        with explained(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, compressed(text))

    def _write_index(self, is_whole: bool) -> None:
        """Write the index: the rows of this run, and of other obligations if this run is not about all of them."""
        earlier = self._earlier_rows()
        rows = ({} if is_whole else self._still_right(earlier)) | self.rows
        self.dropped = sorted(earlier.keys() - rows.keys())
        with explained(self.folder / INDEX):
            write_atomically(self.folder / INDEX, encode_index(Index(self.solver, [rows[id] for id in sorted(rows)])))

    def _earlier_rows(self) -> dict[str, Row]:
        try:
            index = read_index(self.folder)
        except CertificateError:
            return {}
        return {one.id: one for one in index.obligations} if index.solver == self.solver else {}

    def _still_right(self, rows: dict[str, Row]) -> dict[str, Row]:
        """The rows of other obligations, if a solver is asked about them today and their files agree."""
        asked = pinned_names({OBLIGATION})
        others = (one for id, one in rows.items() if id not in self.rows and " ".join(id.split()) in asked)
        found = ((one.id, self._earlier_row(one.id, one.reason) if one.proof else one) for one in others)
        return {id: one for id, one in found if one is not None}


def _decided(answer: Answer, found: Row) -> Answer:
    """The answer without the text of its proof, since a run has thousands; it proves nothing if no proof is written."""
    if answer.verdict is Verdict.PROVED and not found.is_complete:
        return replace(answer, verdict=Verdict.UNKNOWN, reason=found.reason)
    return replace(answer, proof="") if isinstance(answer, CertifiedAnswer) else answer
