"""The run of `kvproof faults --of impl`, or another list: judge a catalogue, print who finds what, write the result."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

from kvproof.audit.cli.fault_store import FaultStore, StoredResult
from kvproof.audit.cli.faults_session import FAULTS, FaultSession
from kvproof.audit.faults.catalogue import catalogue, fresh, second, shipped
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.judging import COLUMNS, EFFORTS, JUDGES, NOBODY, NOT_JUDGED, SEED, is_as_stated, judged
from kvproof.audit.faults.running import FaultOutcome, judge_all
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.errors import UsageError
from kvproof.reports.evidence import MissedFault, refuted
from kvproof.reports.result import Check, Result
from kvproof.spec.verdict import Exit, Verdict

FOUND = "every-fault-found"
CATALOGUES = {"impl": catalogue, "fresh": fresh, "second": second, "shipped": shipped}


def selected(of: str, only: Sequence[str]) -> list[Fault]:
    """The faults of these subjects, kinds or patterns; all for none. Raises UsageError if a pattern selects none."""
    faults = CATALOGUES[of]()
    for pattern in only:
        if not any(_is_selected(fault, pattern) for fault in faults):
            known = sorted({fault.id for fault in faults} | {fault.kind for fault in faults})
            raise UsageError(f"no subject, kind or fault is named {pattern}{did_you_mean(pattern, known)}")
    return [fault for fault in faults if not only or any(_is_selected(fault, pattern) for pattern in only)]


def _is_selected(fault: Fault, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (fault.id, fault.kind, fault.row))


def run_catalogue(
    of: str, only: Sequence[str], workers: str, json: Path | None, out: Path | None, is_resumed: bool
) -> Exit:
    """Judge the selected faults of a catalogue, print the table and write the result. Raises StoreError, UsageError."""
    faults = selected(of, only)
    settings = {"seed": SEED, "efforts": sorted((k, repr(one)) for k, one in EFFORTS.items())}
    session = FaultSession(
        planted_in="block managers",
        headline=f"faults --of {of}, {len(faults):,} faults, judged as kvproof verify does",
        name="faults",
        seed=SEED,
        faults=faults,
        store=None if out is None else FaultStore.opened(out, settings, is_resumed),
        judge=lambda left: judge_all(workers, judged, left),
        evidence=_evidence,
        known=_from_store,
        remark=lambda one: "" if is_as_stated(one) else f"{one.fault.id}: {_text(one)}",
        place=lambda one: (False, one.fault.id),
        check=_check,
        lines=_lines,
    )
    return session.run(json)


def _evidence(one: FaultOutcome) -> str | None:
    """What the store keeps of a result: property, operations and the text of the finding."""
    return None if one.by == NOT_JUDGED else f"{one.property_id}|{one.num_operations}|{one.text}"


def _from_store(fault: Fault, known: StoredResult) -> FaultOutcome:
    property_id, num_operations, text = known.evidence.split("|", 2)
    return FaultOutcome(fault, known.by, text, known.seconds, property_id, int(num_operations))


def _text(one: FaultOutcome) -> str:
    """What is known of a fault, in a sentence."""
    fault, count = one.fault, f"{one.num_operations:,} operations"
    reason = fault.equivalent or (f"blind spot {fault.blind_spot}" if fault.blind_spot else "")
    if one.by == NOT_JUDGED:
        return f"not judged: {one.text}"
    if one.by not in JUDGES:
        return f"not found by {count}{f': {reason}' if reason else '; it has no reason in the catalogue'}"
    found = f"{one.by}: {one.property_id} after {count}: {one.text}"
    return f"found although the catalogue says {reason!r}; {found}" if reason else found


def _check(one: FaultOutcome) -> Check:
    verdict = Verdict.UNKNOWN if one.by == NOT_JUDGED else Verdict.NOT_REFUTED
    counts = {"operations": one.num_operations}
    text = f"{one.fault.sentence} {_text(one)}"
    id = f"{FAULTS}/{one.fault.id}"
    check = Check(id, FAULTS, FOUND, verdict, round(one.seconds, 3), counts=counts, text=text)
    is_missed = verdict is Verdict.NOT_REFUTED and not is_as_stated(one)
    return refuted(check, MissedFault(text, one.fault.id)) if is_missed else check


def _lines(result: Result, results: list[FaultOutcome]) -> Iterator[tuple[str, str]]:
    """The kill matrix: one row for each subject, one column for each judge; then every fault that was not found."""
    rows: dict[str, Counter[str]] = {}
    for one in results:
        rows.setdefault(one.fault.row, Counter())[one.by] += 1
    width = max((len(name) for name in (*rows, "all")), default=3)
    total: Counter[str] = sum(rows.values(), Counter())
    yield "", ""
    yield f"{'':{width}}  faults  {'  '.join(COLUMNS)}", "dim"
    for name, counts in (*rows.items(), ("all", total)):
        cells = "  ".join(f"{counts[column] or '·':>{len(column)}}" for column in COLUMNS)
        yield f"{name:{width}}  {counts.total():6}  {cells}", "bold yellow" if counts[NOBODY] else ""
    yield "", ""
    for one in results:
        if one.by not in JUDGES or not is_as_stated(one):
            yield f"{one.fault.id}: {one.fault.sentence} {_text(one)}", "" if is_as_stated(one) else "yellow"
    yield from ((f"note: {message}", "yellow") for message in result.messages)
    found = [one for one in results if one.by in JUDGES]
    if found:
        yield f"operations until a fault is found: median {median(one.num_operations for one in found):,.0f}", ""
    num_judged = total.total() - total[NOT_JUDGED]
    share = len(found) / num_judged if num_judged else 0.0
    is_good = all(is_as_stated(one) for one in results)
    yield (
        f"{num_judged:,} faults: {len(found):,} found ({share:.1%}), {num_judged - len(found):,} not found. "
        f"{result.run.seconds:.1f} s.",
        "bold green" if is_good else "bold red",
    )
