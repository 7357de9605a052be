"""The folder of certificates: its files and its index.

    index.json                               solver, options, and a row for each obligation
    <suite>/<subject>/<claim>-<hash>.smt2.gz the question in SMT-LIB: unsatisfiable exactly if the obligation holds
    <suite>/<subject>/<claim>-<hash>.cpc.gz  the proof in cvc5's calculus CPC, that the question is unsatisfiable

Hashes are SHA-256 of the uncompressed text. The first line of a proof is a comment with the hashes of its question and
of the lines after it, and with how the proof was made. So the index can be written again from the files, and a file
that is damaged, or belongs to another question or solver, is known. Hashes do not show who has written a file: only a
checker can say whether it is a proof.
"""

import errno
import gzip
import hashlib
import re
import stat
import zlib
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path

import msgspec

INDEX = "index.json"
QUESTION, PROOF = ".smt2.gz", ".cpc.gz"
FILE_NAME_LENGTH = 60
SCHEMA_VERSION = 1
COMMENT = "; "
COMPRESSION = 6
TEXT_BYTES_MAX = 1 << 26  # 64 MiB, of a question or a proof, and of the index


class CertificateError(Exception):
    """The folder of certificates cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Origin:
    """How a proof was made; the first line of its file.

    question_sha256: the question. proof_sha256: the lines after the first. solver: name and version. options: all
    options of the solver that were set. instances: the hypotheses in the question that are instances of hypotheses of
    the obligation. trusted_steps: the rules of steps that the proof does not justify, each once.
    """

    question_sha256: str
    proof_sha256: str
    solver: str
    options: dict[str, str]
    instances: list[str] = field(default_factory=list)
    trusted_steps: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """An obligation in the index.

    id: `suite/subject/claim`. question, proof: files, relative to the folder; proof is empty if there is none.
    options, instances, trusted_steps: see `Origin`. reason: why there is no proof, or why it is not complete.
    """

    id: str
    question: str
    question_sha256: str
    proof: str = ""
    proof_sha256: str = ""
    options: dict[str, str] = field(default_factory=dict)
    instances: list[str] = field(default_factory=list)
    trusted_steps: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there is a proof, and each of its steps is justified."""
        return bool(self.proof) and not self.trusted_steps


@dataclass(frozen=True)
class Index:
    """The content of `index.json`. obligations: sorted by id."""

    solver: str
    obligations: list[Row]
    schema_version: int = SCHEMA_VERSION


def file_stem(id: str) -> str:
    """The path of an obligation's files in a folder, without their endings: `suite/subject/claim-hash`.

    id: of the obligation. The hash keeps names apart, since a claim may be too long for a file name and is cut.
    """
    digest = hashlib.sha256(id.encode()).hexdigest()[:8]
    suite, subject, claim = map(_file_name, id.split("/", 2))
    return f"{suite}/{subject}/{claim}-{digest}"


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text)[:FILE_NAME_LENGTH].strip("-")


def sha256(text: str) -> str:
    """The hash of a question or a proof."""
    return hashlib.sha256(text.encode()).hexdigest()


def compressed(text: str) -> bytes:
    """The content of a file; the same for the same text."""
    return gzip.compress(text.encode(), COMPRESSION, mtime=0)


def read_text(file: Path) -> str:
    """The text of a question or a proof. Raises CertificateError if the file is missing, damaged or too large."""
    try:
        with gzip.open(_regular(file)) as unpacked:
            return _bounded(unpacked).decode()
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CertificateError(f"{file} cannot be read: {reason}") from error


def _regular(file: Path) -> Path:
    """The same file. Raises OSError if it is missing, or a pipe or a device, from which a read may not return."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def _bounded(file: BufferedIOBase) -> bytes:
    """What is left of an open file. Raises ValueError if that is too much."""
    data = file.read(TEXT_BYTES_MAX + 1)
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"it has more than {TEXT_BYTES_MAX:,} bytes")
    return data


def proof_file(origin: Origin, proof: str) -> str:
    """The text of a proof file."""
    return f"{COMMENT}{msgspec.json.encode(origin).decode()}\n{proof}"


def origin_of(proof: str) -> Origin:
    """How the proof in this file was made. Raises CertificateError if its first line does not say so."""
    first = proof.partition("\n")[0]
    try:
        return msgspec.json.decode(first.removeprefix(COMMENT), type=Origin)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CertificateError(f"its first line does not say how the proof was made: {error}") from error


def encode_index(index: Index) -> bytes:
    """The content of `index.json`."""
    return msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"


def read_index(folder: Path) -> Index:
    """Read `index.json`. Raises CertificateError if there is none, or none of this version."""
    file = folder / INDEX
    again = f"kvproof prove --certificates {folder} writes it"
    try:
        with _regular(file).open("rb") as opened:
            index = msgspec.json.decode(_bounded(opened), type=Index)
    except OSError as error:
        raise CertificateError(f"{file} cannot be read ({error.strerror}); {again}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise CertificateError(f"{file} is not an index of certificates ({error}); {again}") from error
    if index.schema_version != SCHEMA_VERSION:
        raise CertificateError(f"{file} has version {index.schema_version}, and this is {SCHEMA_VERSION}; {again}")
    return index


def earlier_proof(folder: Path, id: str, solver: str) -> tuple[Origin, str] | None:
    """How an earlier run made the proof of the obligation with this id, and the file of the proof.

    None if there is none, or it is damaged, or of another solver; or if its question is missing or another.
    """
    stem = file_stem(id)
    try:
        proof = read_text(folder / (stem + PROOF))
        origin = origin_of(proof)
        question = read_text(folder / (stem + QUESTION))
    except CertificateError:
        return None
    hashes = sha256(question), sha256(proof.partition("\n")[2])
    is_right = origin.solver == solver and (origin.question_sha256, origin.proof_sha256) == hashes
    return (origin, proof) if is_right else None


def row(id: str, origin: Origin, proof: str, reason: str = "") -> Row:
    """The row of the obligation with this id that has this proof file."""
    stem = file_stem(id)
    return Row(
        id,
        stem + QUESTION,
        origin.question_sha256,
        stem + PROOF,
        sha256(proof),
        origin.options,
        origin.instances,
        origin.trusted_steps,
        reason,
    )
