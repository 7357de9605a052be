"""A subject beside itself in a newer release of its engine: both are hunted, and the sources are compared.

The release before is the newest one that the subject was judged with, the release after the newest one that the package
index offers, unless both are named. The result of the first hunt is kept.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvproof.check.hunting.ageing.differences import changed_defaults, functions_that_ran
from kvproof.check.hunting.gate.judged import GateOptions, compared, kept_in, kept_result
from kvproof.check.hunting.gate.sides import Hunted, Side
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import explained
from kvproof.check.runs.terminal import output, say
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.loading.newest import newest_release
from kvproof.check.subjects.registry import NAMED, Row
from kvproof.check.subjects.replaced import changed, table_of
from kvproof.reports.ageing_page import Aged, page
from kvproof.reports.document import write_atomically
from kvproof.reports.gate_comment import Change
from kvproof.spec.verdict import Exit

PAGE = "ageing.md"


@dataclass
class AgeingOptions:
    """The options of `kvproof engines check`.

    subjects: names without a release; if there are none, all whose engine goes on. before, after: the releases.
    """

    subjects: list[str]
    before: str | None
    after: str | None
    seed: int
    effort: str
    out: Path


def check(given: AgeingOptions) -> Exit:
    """Compare the releases of each subject, and write the page. Raises UsageError, StoreError."""
    console, code = output(), Exit.OK
    rows = [_row(name) for name in given.subjects] or [row for row in NAMED.values() if row.goes_on]
    newest, aged = dict[str, str](), list[Aged]()
    for row in rows:
        before = given.before or row.default_release
        if given.after is None and row.engine not in newest:
            with _explained_engine():
                newest[row.engine] = newest_release(row.engine)
        after = given.after or newest[row.engine]
        if given.after is None and download.order_of(after) <= download.order_of(before):
            say(console, f"{row.name} was judged with {before}, and {after} is the newest release that is offered.")
            continue
        then, one = _compared(row, before, after, given)
        code = max(code, then)
        aged.append(one)
    if aged:
        with explained(given.out / PAGE):
            write_atomically(given.out / PAGE, page(aged, given.out).encode("utf-8", "backslashreplace"))
        say(console, f"The page: {given.out / PAGE}")
    return code


def _row(name: str) -> Row:
    row = NAMED.get(name)
    if row is None or row.releases is None:
        known = ", ".join(row.name for row in NAMED.values() if row.releases)
        raise UsageError(f"{name} names no subject of an engine with releases; there are {known}, without a release")
    return row


@contextmanager
def _explained_engine() -> Iterator[None]:
    """Raises UsageError in place of an EngineError."""
    try:
        yield
    except EngineError as error:
        raise UsageError(str(error)) from error


def _compared(row: Row, before: str, after: str, given: AgeingOptions) -> tuple[Exit, Aged]:
    """Both hunts, and what differs in the sources. Raises UsageError if the older release cannot be judged."""
    with _explained_engine():
        specs = [f"{row.engine}=={version}" for version in (before, after)]
        for spec in specs:
            download.parse(spec)  # before anything is downloaded
        old, new = (download.add(spec) for spec in specs)
    out = given.out / row.name
    how = GateOptions(row.name, before, after, None, given.seed, given.effort, out)
    sides = [Side(f"{row.name}=={version}", folder, True) for version, folder in ((before, old), (after, new))]
    first, second = (Hunted(side.name, Path.cwd(), os.environ.get("PYTHONPATH", "")) for side in sides)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    kept = kept_in(out.resolve(), before, how)
    change: Change | None = None
    why = ""
    try:
        code, change = compared(sides[0], first, sides[1], second, how, kept)
    except UsageError as error:  # the adapter does not drive the release any more: this is the difference
        if kept_result(kept) is None:
            raise
        code, why = Exit.WORSE_THAN_BASELINE, str(error)
        say(output(), why)
    result = kept_result(kept)
    ran = result.code if result else None
    found = Aged(row.name, before, after, change, why, why_unknown=ran.why_unknown if ran else "")
    found.played = _listed(changed(row.engine, row.name, before, new))
    found.ran = _listed(functions_that_ran(ran, old, new) if ran else ())
    found.defaults = _listed(changed_defaults(table_of(row.engine).options, old, new))
    return code, found


def _listed(found: Iterable[str]) -> list[str]:
    """The sentences, or why there are none."""
    try:
        return list(found)
    except (SyntaxError, ValueError, OSError) as error:
        return [f"the sources cannot be compared: {error}"]
