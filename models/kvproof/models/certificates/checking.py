"""Have ethos check certificates. ethos is a small program of cvc5's authors that shares no code with cvc5 or Z3.

For each obligation of the index:

1. The question is the one that kvproof asks today. It is made again from the text, and no file is believed: a proof of
   another question, or of an outdated one, is rejected, and so is a row without an obligation.
2. The index, the file of the question and the file of the proof agree in every hash and in how the proof was made.
3. The proof has no commands but assumptions, definitions and steps. Others could give it rules of its own.
4. No step is taken on trust.
5. ethos accepts every step, each assumption is an assertion of the question, and the last step is `false`.

ethos compares assumptions with the question only if it reads the proof from its standard input, after a `reference`.
With `--reference` and a file it compares nothing. So a checker is first given wrong proofs, which it must reject.
"""

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kvproof.models.certificates.folder import (
    INDEX,
    PROOF,
    QUESTION,
    CertificateError,
    Index,
    Row,
    file_stem,
    origin_of,
    read_text,
    sha256,
)
from kvproof.models.certificates.folder import row as row_of
from kvproof.models.certificates.proving import Questions, instances, unsound_rules, with_instances
from kvproof.models.obligation import Obligation
from kvproof.spec.verdict import Verdict

ETHOS = "ethos"
SIGNATURE = Path("proofs", "eo", "cpc", "Cpc.eo")  # in the sources of cvc5
TIMEOUT_SECONDS = 600.0
WAITING_MAX = 8  # certificates that are read ahead
CORRECT = "correct"
ANSWER_LENGTH = 300
ALLOWED = {"assume", "assume-push", "define", "step", "step-pop"}
DECLARES = {"declare-const", "declare-sort"}  # the question declares the same symbols
TOKEN = re.compile(r'[()]|"[^"]*"|\|[^|]*\||;[^\n]*')
COMMAND = re.compile(r"\(\s*([^\s()]+)")
HOW_TO_BUILD = """\
git clone --depth 1 --branch cvc5-{version} https://github.com/cvc5/cvc5
cvc5/contrib/get-ethos-checker     # needs cmake, a C++ compiler and the headers of GMP
ETHOS=cvc5/deps/bin/ethos make check-certificates"""
P, NOT_P = "(declare-fun p () Bool)\n(assert p)\n", "(assert (not p))\n"
PROOF_OF_BOTH = "(assume @p1 p)\n(assume @p2 (not p))\n(step @p3 false :rule contra :premises (@p1 @p2))\n"
CONTROLS = (  # question, proof, whether it is a proof
    (P + NOT_P, PROOF_OF_BOTH, True),
    (P, PROOF_OF_BOTH, False),
    (P, "(assume @p1 p)\n", False),
    (P, "(step @p1 false :rule trust :premises () :args (false))\n", False),
)


@dataclass(frozen=True)
class CheckedProof:
    """The result for one obligation. verdict: proved, refuted (the certificate is wrong) or unknown."""

    id: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Ethos:
    """The checker: its program, and the rules of the calculus, the file `Cpc.eo` of cvc5's sources."""

    program: str
    signature: Path

    def answer(self, question: str, proof: str) -> str:
        """What ethos says of a proof: `correct`, or why not. Raises TimeoutExpired."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "question.smt2")
            file.write_text(question, encoding="utf-8")
            command = [self.program, "--require-proof-of-false", f"--include={self.signature}"]
            done = subprocess.run(
                command,
                input=f'(reference "{file}")\n{proof}',
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        printed = done.stdout.splitlines()  # before its answer, it may note attributes of the question that it ignores
        if done.returncode == 0 and printed and printed[-1] == CORRECT:
            return CORRECT
        errors = [line for line in done.stderr.splitlines() if line.startswith("Error")] or printed
        return errors[0][:ANSWER_LENGTH] if errors else f"exit code {done.returncode}"

    def require_strict(self) -> None:
        """Raise CertificateError if it rejects a right proof or accepts a wrong one."""
        for question, proof, is_proof in CONTROLS:
            answer = self.answer(question, proof)
            if (answer == CORRECT) != is_proof:
                what = "rejects a right proof" if is_proof else "accepts a wrong proof"
                raise CertificateError(
                    f"{self.program} with {self.signature} {what}: {answer}; take the one of cvc5's release"
                )


def found_ethos(program: str | None, signature: Path | None, solver: str) -> Ethos:
    """The checker of these names, or of the environment. Raises CertificateError if it is missing.

    program: or the environment's ETHOS, or `ethos` on the PATH. signature: or the environment's CPC_SIGNATURE, or in
    the checkout of cvc5 that the program lies in. solver: name and version of the solver that made the proofs.
    """
    name = program or os.environ.get("ETHOS") or ETHOS
    path = shutil.which(name)
    how = "It checks proofs and is built from source:\n" + HOW_TO_BUILD.format(version=solver.rpartition(" ")[2])
    if path is None:
        raise CertificateError(f"the program {name} is not found. {how}")
    given = signature or os.environ.get("CPC_SIGNATURE")
    places = [Path(given)] if given else [folder / SIGNATURE for folder in Path(path).resolve().parents]
    rules = next((place.resolve() for place in places if place.is_file()), None)
    if rules is None:
        where = given or f"{SIGNATURE} above {path}"
        raise CertificateError(f"the rules of the proofs, {where}, are not found; set CPC_SIGNATURE. {how}")
    return Ethos(path, rules)


def check_index(
    index: Index, folder: Path, ethos: Ethos, obligations: Iterable[Obligation], num_threads: int = 2
) -> Iterator[CheckedProof]:
    """Check every row of the index. obligations: those for which kvproof asks a solver today."""
    rows: dict[str, Row] = {}
    for row in index.obligations:
        if row.id in rows:
            yield CheckedProof(row.id, Verdict.REFUTED, "it is in the index twice")
        rows[row.id] = row
    questions, running = Questions(), deque[Future[CheckedProof]]()
    with ThreadPoolExecutor(num_threads) as pool:
        for one in obligations:
            found = rows.pop(one.id, None)
            if found is None:
                yield CheckedProof(one.id, Verdict.UNKNOWN, "it is not in the index")
                continue
            if found.instances and found.instances != instances(one):
                yield CheckedProof(one.id, Verdict.REFUTED, "the index names other instances than the question has")
                continue
            question = questions.text(with_instances(one) if found.instances else one)
            running.append(pool.submit(check_row, found, folder, ethos, question, index.solver))
            if len(running) > WAITING_MAX:
                yield running.popleft().result()
        yield from (one.result() for one in running)
    yield from (CheckedProof(id, Verdict.REFUTED, "kvproof has no such obligation today") for id in rows)


def check_row(row: Row, folder: Path, ethos: Ethos, question: str, solver: str) -> CheckedProof:
    """Check one certificate for the question that kvproof asks. solver: the one that the index names."""
    if row.question_sha256 != sha256(question):
        return CheckedProof(row.id, Verdict.REFUTED, "its question is not the one that kvproof asks today")
    if not row.proof:
        return CheckedProof(row.id, Verdict.UNKNOWN, f"no proof: {row.reason}")
    try:
        stem = file_stem(row.id)
        proof = read_text(folder / (stem + PROOF))
        if read_text(folder / (stem + QUESTION)) != question:
            return CheckedProof(row.id, Verdict.REFUTED, f"{stem}{QUESTION} has another question")
        if sha256(proof) != row.proof_sha256:
            return CheckedProof(row.id, Verdict.REFUTED, f"{stem}{PROOF} has another proof")
        origin = origin_of(proof)
        is_bound = (origin.solver, origin.proof_sha256) == (solver, sha256(proof.partition("\n")[2]))
        if not is_bound or row_of(row.id, origin, proof, row.reason) != row:
            return CheckedProof(row.id, Verdict.REFUTED, f"{INDEX} and the first line of {stem}{PROOF} do not agree")
        if rules := unsound_rules(proof):
            return CheckedProof(row.id, Verdict.UNKNOWN, f"steps without a justification: {', '.join(rules)}")
        answer = ethos.answer(question, without_declarations(proof))
    except CertificateError as error:
        return CheckedProof(row.id, Verdict.REFUTED, str(error))
    except subprocess.TimeoutExpired:
        return CheckedProof(row.id, Verdict.UNKNOWN, f"{ETHOS} gave no answer in {TIMEOUT_SECONDS:.0f} s")
    if answer == CORRECT:
        return CheckedProof(row.id, Verdict.PROVED)
    return CheckedProof(row.id, Verdict.REFUTED, f"{ETHOS}: {answer}")


def without_declarations(proof: str) -> str:
    """The assumptions, definitions and steps of a proof. Raises CertificateError if it has anything else."""
    kept: list[str] = []
    depth = begin = 0
    for token in TOKEN.finditer(proof):
        if token[0] == "(":
            begin = token.start() if depth == 0 else begin
            depth += 1
        elif token[0] == ")":
            depth -= 1
            if depth == 0:
                command = proof[begin : token.end()]
                found = COMMAND.match(command)
                word = found[1] if found else ""
                if word in ALLOWED:
                    kept.append(command)
                elif word not in DECLARES:
                    raise CertificateError(f"a proof must not have the command ({word})")
            elif depth < 0:
                break
    if depth:
        raise CertificateError("the parentheses of the proof do not match")
    return "\n".join([*kept, ""])
