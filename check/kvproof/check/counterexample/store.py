"""Counterexample files: a finding with its run as a file that anyone can replay, and a regression test beside it.

A file is strict JSON and is checked when it is read: a file that is damaged, that is no trace, or that a newer release
wrote is refused with one message. Functions here take a factory of subjects; who has only the name of a subject looks
it up before (`runs.replay`).
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from kvproof.check.counterexample.steps import describe_steps, narrated, replay_frames
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.own_property import is_property
from kvproof.check.subjects.loading.checkouts import without_folders
from kvproof.check.subjects.loading.partial_import import installed_version
from kvproof.reports.counterexample import FindingView, page_of
from kvproof.reports.counterexample_page import counterexample_page
from kvproof.reports.document import DocumentError, encodable, encode, read, write, write_atomically
from kvproof.reports.evidence import Reported, refuted
from kvproof.reports.result import Check
from kvproof.spec.trace import Trace, names_code
from kvproof.spec.verdict import Verdict

TEXT = '''"""A regression test, written by kvproof{version}. Keep it beside {file}.

{story}

It fails with this text while the manager is broken, and passes once it is fixed.
"""

from pathlib import Path

from kvproof.check import assert_fixed


def test_{name}() -> None:
    assert_fixed(Path(__file__).with_name("{file}"){subject})
'''


def path_of_test(path: Path) -> Path:
    """The path of the test that belongs to a counterexample file."""
    return path.with_name(f"test_{_identifier(path.stem)}.py")


def regression_test(trace: Trace, path: Path, story: str) -> str:
    """The source of the test; `story` is the refutation as it is printed.

    The test names a subject that is code, because the trace may not choose it.
    """
    version = f" {trace.version}" if trace.version else ""
    subject = f", {trace.subject!r}" if names_code(trace.subject) else ""
    return TEXT.format(
        version=version, file=path.name, name=_identifier(path.stem), story=_quotable(story), subject=subject
    )


def story_of(trace: Trace, finding: Finding) -> str:
    """The refutation in a few lines, as a docstring can hold it."""
    text = narrated(finding, config_of(trace, Path()), operations_of(trace, Path()))
    return _quotable(f"{finding.property} is refuted: {text}")


def _identifier(stem: str) -> str:
    return re.sub(r"\W", "_", stem, flags=re.ASCII)


def _quotable(text: str) -> str:
    """The text as it can stand in a docstring: an engine's message may hold anything."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1].replace("\\", "\\\\") for c in text)
    return "\n".join(line.rstrip() for line in text.splitlines())


HEX_MIN, HEX_MAX = 4, 8
DRAWN_BLOCKS_MAX = 100_000  # blocks on a page, over all its steps; about 25 MB
WHERE = "method", "frames", "earlier", "entered", "base"  # fields of a trace that came after its digest was settled
RAW = "raw-"  # how the name of a file begins that holds a run as it was found
Factory = Callable[[], Any]  # makes a subject, of any level


# Writing ----------------------------------------------------------------------------------------------------------


def make_trace(
    subject: str,
    found: Counterexample,
    judge: str,
    seed: int,
    num_operations_before: int = 0,
    *,
    make: Factory,
) -> Trace:
    """The counterexample as data. `make` gives the subject that is run for the text of the steps."""
    trace = raw_trace(subject, found, judge, seed, num_operations_before)
    return replace(trace, steps=describe_steps(make, found.config, found.operations, found.finding))


def raw_trace(subject: str, found: Counterexample, judge: str, seed: int, num_operations_before: int = 0) -> Trace:
    """The counterexample as data, without the text of its steps. The subject is not run."""
    config, finding = found.config, found.finding
    fields = {"block_size": config.block_size, "num_gpu_blocks": config.num_gpu_blocks} | config.as_dict()
    listed = msgspec.json.decode(msgspec.json.encode(found.operations))
    return Trace(
        without_folders(subject),
        finding.property,
        narrated(finding, config, found.operations),
        msgspec.to_builtins(fields),
        listed,
        judge,
        seed,
        num_operations_before,
        version=installed_version("kvproof"),
    )


def save(folder: Path, trace: Trace, make: Factory | None = None, finding: Finding | None = None) -> Path:
    """Write the trace and its regression test, and return the path of the trace. Raises OSError.

    The name of the file holds the property and a digest of the content, so the same counterexample found again is the
    same file. With `make`, the trace is also replayed on that subject and its page is written, unless the page would be
    too large to open; `finding` is what the replay is expected to find.
    """
    path = save_trace(folder, trace)
    save_test(path, trace)
    if make is not None and can_be_drawn(trace):
        draw(path, trace, make, finding)
    return path


def save_trace(folder: Path, trace: Trace) -> Path:
    """Write the trace, and return its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path_for(folder, trace)
    write(path, trace)
    return path


def save_test(path: Path, trace: Trace) -> None:
    """Write the regression test of a saved trace. Raises OSError."""
    test = regression_test(trace, path, refutation(trace))
    write_atomically(path_of_test(path), test.encode())


def save_raw(folder: Path, subject: str, found: Counterexample, judge: str, seed: int, num_before: int) -> Path:
    """Write a finding as it was found, before anything else is done with it, and return the path. Raises OSError.

    The file is a trace; if the run cannot be written as one, it is a text with the same data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{RAW}{_word(found.finding.property)}-{seed}-{num_before}"
    try:
        data = encode(raw_trace(subject, found, judge, seed, num_before))
        path = folder / f"{name}.json"
    except OSError:
        raise
    except Exception:  # for example an argument of a type that JSON does not have
        lines = subject, f"{judge}, seed {seed}", found.finding.text, found.config, *found.operations
        data = "\n".join(map(str, lines)).encode("utf-8", "backslashreplace")
        path = folder / f"{name}.txt"
    write_atomically(path, data)
    return path


def can_be_drawn(trace: Trace) -> bool:
    """Whether the page of the trace, which shows every block at every step, is small enough to be opened."""
    num_blocks: int = trace.config.get("num_gpu_blocks", 1)
    return len(trace.operations) * num_blocks <= DRAWN_BLOCKS_MAX


def draw(path: Path, trace: Trace, make: Factory, finding: Finding | None = None) -> Path:
    """Replay the trace, write its page beside it, and return the path of the page. Raises OSError."""
    page = counterexample_page(_counterexample(trace, path), replay_frames(make, trace, path, finding))
    write_atomically(page_of(path), page.encode("utf-8", "backslashreplace"))
    return page_of(path)


def _word(property: str) -> str:
    """The property as part of the name of a file."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in property) or "unnamed"


def _path_for(folder: Path, trace: Trace) -> Path:
    name = _word(trace.property)
    digits = hashlib.sha256(_content(trace)).hexdigest()
    for length in range(HEX_MIN, HEX_MAX):
        path = folder / f"{name}-{digits[:length]}.json"
        if not path.exists() or _holds(path, trace):
            return path
    return folder / f"{name}-{digits[:HEX_MAX]}.json"


def _content(trace: Trace) -> bytes:
    """What identifies a counterexample; the judge that found it and the wording do not."""
    kept = msgspec.to_builtins(Trace(trace.subject, trace.property, "", trace.config, trace.operations))
    data = encodable({name: value for name, value in kept.items() if name not in WHERE})
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def _holds(path: Path, trace: Trace) -> bool:
    try:
        return _content(load(path)) == _content(trace)
    except CounterexampleError:
        return False


def refutation(trace: Trace, path: Path | None = None) -> str:
    """The counterexample as text, in the order of every report."""
    return _counterexample(trace, path).text()


def _counterexample(trace: Trace, path: Path | None) -> FindingView:
    judge = trace.judge or "replay"
    check = refuted(Check("", judge, trace.property, Verdict.UNKNOWN), Reported(trace.text, judge))
    return FindingView(check, trace.subject, trace, path)


# Reading ----------------------------------------------------------------------------------------------------------


def load(path: Path) -> Trace:
    """Read a counterexample file. Raises CounterexampleError."""
    try:
        trace = read(path, Trace)
    except DocumentError as error:
        raise CounterexampleError(str(error)) from None
    if not is_property(trace.property):
        raise CounterexampleError(f"{path} is not a trace of kvproof: there is no property {trace.property!r}")
    config_of(trace, path)
    operations_of(trace, path)
    return trace
