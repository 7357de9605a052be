"""Read and write results and traces as JSON files.

Reading is strict. A file that is broken, is something else, has an unknown field, or was written by a newer release is
rejected with a message that names the file and the place. A reader that guesses could report verdicts that no judge
gave.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvproof.reports.result import SCHEMA_VERSION, Result
from kvproof.spec.trace import TRACE_SCHEMA_VERSION, Trace
from kvproof.spec.verdict import Verdict


class DocumentError(Exception):
    """The file cannot be read, or is not a valid document of its kind; the message is for the user."""


DOCUMENT_BYTES_MAX = 1 << 24  # 16 MiB; the result of a run of hours has a few
CHECKS_MAX, FINDINGS_MAX, MESSAGES_MAX = 20_000, 1_000, 20_000  # of a result; to report so many takes a second or two
VALUES_MAX = 500_000  # of a JSON document; an empty list takes 3 bytes there, and 64 in memory


def read_bytes(path: Path, bytes_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """The content of a regular file. Never waits for a pipe, and never reads more than `bytes_max`.

    Raises DocumentError, which names the file and says what is wrong with it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DocumentError(f"cannot read {path}: it is not a regular file")
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise DocumentError(f"cannot read {str(path)!r}: {error}") from None
    if len(data) > bytes_max:
        raise DocumentError(f"cannot read {path}: it has more than {bytes_max:,} bytes")
    return data


def read_json(path: Path) -> bytes:
    """The content of a JSON file, which has at most VALUES_MAX values. Raises DocumentError."""
    data = read_bytes(path)
    require_few_values(data, str(path))
    return data


def require_few_values(data: bytes, name: str) -> None:
    """Raise DocumentError if the values of this JSON may need much memory. A comma in a text counts like another."""
    if (count := sum(map(data.count, (b"[", b"{", b",")))) > VALUES_MAX:
        raise DocumentError(f"cannot read {name}: it has about {count:,} values, and at most {VALUES_MAX:,} are read")


def inside(folder: Path, name: str) -> Path:
    """The path of a file that a document names in its folder. Raises DocumentError if it leads out of the folder."""
    try:
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DocumentError(f"{name!r} is not in the folder {folder}")
    except (ValueError, OSError, RuntimeError) as error:  # a NUL, a name that is too long, a loop of links
        raise DocumentError(f"{name!r} is no file name: {error}") from None
    return path


def write_atomically(path: Path, data: bytes, *, follows_links: bool = False) -> None:
    """Replace the content of the file by `data`, or leave it unchanged. Raises OSError.

    A path that is not a regular file (a pipe, /dev/stdout) cannot be replaced; the data is written into it. A symbolic
    link is replaced itself, so that nothing outside the folder is written, unless `follows_links`.
    """
    target = Path(os.path.realpath(path)) if follows_links else path
    if path.is_relative_to("/dev") or (not target.is_symlink() and target.exists() and not target.is_file()):
        path.write_bytes(data)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed, or a link that somebody else has made
        draft.write_bytes(data)
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


Document = TypeVar("Document", Result, Trace)

NOUNS: dict[type, str] = {Result: "result", Trace: "trace"}
SCHEMA_VERSIONS: dict[type, int] = {Result: SCHEMA_VERSION, Trace: TRACE_SCHEMA_VERSION}


def encode(document: Result | Trace) -> bytes:
    """The document as indented JSON with a final newline."""
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:  # an engine's message may hold half a character
        data = msgspec.json.encode(encodable(msgspec.to_builtins(document)))
    return msgspec.json.format(data, indent=2) + b"\n"


def decode(data: bytes, kind: type[Document], name: str) -> Document:
    """The document in `data`; `name` is what a message calls the file. Raises DocumentError."""
    noun = NOUNS[kind]
    require_few_values(data, name)
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DocumentError(f"{name} is not JSON ({error}); it must be a complete {noun} of kvproof") from None
    _require_known_version(raw, kind, name)
    try:
        document = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise DocumentError(f"{name} is not a {noun} of kvproof: {error}") from None
    foreign = _foreign_field(raw, msgspec.to_builtins(document))
    if foreign is not None:
        raise DocumentError(f"{name} is not a {noun} of kvproof: the field `{foreign}` is unknown")
    if isinstance(document, Result):
        _require_reportable(document, name)
    return document


def write(path: Path, document: Result | Trace) -> None:
    """Write the document to a file, atomically. Raises OSError."""
    write_atomically(path, encode(document))


def read(path: Path, kind: type[Document]) -> Document:
    """Read a document of this kind from a file. Raises DocumentError."""
    return decode(read_bytes(path), kind, str(path))


def _require_known_version(raw: Any, kind: type, name: str) -> None:
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if type(version) is not int or version < 1:
        raise DocumentError(f"{name} is not a {NOUNS[kind]} of kvproof: it has no schema_version")
    if version > SCHEMA_VERSIONS[kind]:
        raise DocumentError(
            f"{name} has schema version {version}, written by a newer kvproof; this one reads versions up to "
            f"{SCHEMA_VERSIONS[kind]}: use the newer release"
        )


def _require_reportable(result: Result, name: str) -> None:
    num_findings = sum(check.verdict is Verdict.REFUTED or bool(check.note) for check in result.checks)
    for what, count, count_max in (
        ("checks", len(result.checks), CHECKS_MAX),
        ("findings", num_findings, FINDINGS_MAX),
        ("messages", len(result.messages), MESSAGES_MAX),
    ):
        if count > count_max:
            raise DocumentError(f"{name} has {count:,} {what}, and a report has at most {count_max:,}")


def _foreign_field(raw: Any, known: Any, path: str = "") -> str | None:
    """The path of the first field of `raw` that decoding dropped, or None."""
    if isinstance(raw, dict):
        for name, value in raw.items():
            here = f"{path}.{name}" if path else name
            found = here if name not in known else _foreign_field(value, known[name], here)
            if found is not None:
                return found
    elif isinstance(raw, list):
        for index, (value, kept) in enumerate(zip(raw, known, strict=True)):
            found = _foreign_field(value, kept, f"{path}[{index}]")
            if found is not None:
                return found
    return None


def encodable(value: Any) -> Any:
    """A JSON value with every lone surrogate replaced by an escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(name): encodable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value
