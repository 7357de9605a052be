"""The table of docs/engine-runs.md that says what ran: written from results, and read back, so that it keeps its rows.

A row has the releases of a subject with the same verdict and findings, if none that differs lies between them. Each
release is listed by name: the table is the record of what ran, and a later run replaces only the releases that it ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from benchmarks.campaign import fault, findings, num_operations
from kvproof.check.subjects.registry import ROWS, Row
from kvproof.reports.result import Result

BEGIN, END = "<!-- engines-matrix: begin -->\n", "<!-- engines-matrix: end -->\n"
HEAD = (
    "| subject, level | releases | operations of each, at least | verdict | findings | not reached |\n"
    "|---|---|---|---|---|---|\n"
)
LACKING = "\nNot driven at all, because the adapter of the subject does not declare the feature:\n\n"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """What the table says of one release. not_reached: the situations that the walk should reach and did not."""

    operations: int
    verdict: str
    findings: str
    not_reached: tuple[str, ...]


@dataclass
class Subject:
    """What the table says of a subject. outcomes: by release, in the order of the rows.

    lacks: the features that are not driven, once for each list that some release has.
    """

    row: Row
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    not_run: list[str] = field(default_factory=list)
    lacks: set[str] = field(default_factory=set)


def outcome_of(result: Result) -> Outcome:
    """What the table says of this result: the verdict and the findings, or why the release was not driven."""
    found = findings(result)
    if (problem := fault(result)) and not found:
        verdict, text = "not driven", _plain(problem)
    else:
        verdict = "refuted" if any(not one.excused for one in found) else "not refuted"
        text = "; ".join(f"`{f.property}` {_plain(f.signature)}{' (excused)' * bool(f.excused)}" for f in found)
    missed = tuple(witness.name for witness in result.unmet_witnesses())
    return Outcome(num_operations(result), verdict, text.strip(), missed)


def _plain(text: str) -> str:
    """The text in one cell of a table."""
    return text.partition("\n")[0].partition("; please report")[0].replace("|", "/").replace("<", "&lt;")


def merged(row: Row, releases: Sequence[str], results: Mapping[str, Result], before: Subject | None) -> Subject:
    """The subject with these releases, oldest first: each as its result says, and without one as it was before."""
    kept = before.outcomes if before is not None else {}
    subject = Subject(row, lacks={result.run.host.get("lacks", "") for result in results.values()} - {""})
    for release in releases:
        if release in results:
            subject.outcomes[release] = outcome_of(results[release])
        elif release in kept:
            subject.outcomes[release] = kept[release]
        else:
            subject.not_run.append(release)
    if before is not None and not subject.outcomes.keys() <= results.keys():
        subject.lacks |= before.lacks
    return subject


def parsed(text: str) -> dict[str, Subject]:
    """The subjects of a page. A subject that is no longer one is left out."""
    named = {row.name: row for row in ROWS}
    subjects: dict[str, Subject] = {}
    table = text.partition(BEGIN)[2].partition(END)[0]
    for line in table.splitlines():
        name = line.partition("`")[2].partition("`")[0]
        if name not in named:
            continue
        subject = subjects.setdefault(name, Subject(named[name]))
        if line.startswith("- "):
            subject.lacks = set(line.partition(": ")[2].split(" / "))
            continue
        releases, operations, verdict, found, missed = (cell.strip() for cell in line.split("|")[2:7])
        labels = releases.split(", ")
        if verdict == NOT_RUN:
            subject.not_run += labels
        else:
            not_reached = tuple(missed.split(", ")) if missed else ()
            outcome = Outcome(int(operations.replace(",", "")), verdict, found, not_reached)
            subject.outcomes.update(dict.fromkeys(labels, outcome))
    return subjects


def rendered(subjects: Mapping[str, Subject]) -> str:
    """The rows, and the features that are not driven; the subjects in the order of the registry."""
    some = [subjects[row.name] for row in ROWS if row.name in subjects]
    lacks = [f"- `{one.row.name}`: {' / '.join(sorted(one.lacks))}\n" for one in some if one.lacks]
    return f"{HEAD}{''.join(map(_rows, some))}{LACKING}{''.join(lacks)}"


def _rows(subject: Subject) -> str:
    """The rows of a subject. What a row lists as not reached, none of its releases reached."""
    first = f"`{subject.row.name}` {subject.row.level}"
    lines = []
    pairs = subject.outcomes.items()
    for (verdict, found), same in groupby(pairs, key=lambda pair: (pair[1].verdict, pair[1].findings)):
        labels, outcomes = zip(*same, strict=True)
        never = [name for name in outcomes[0].not_reached if all(name in one.not_reached for one in outcomes)]
        operations = f"{min(one.operations for one in outcomes):,}"
        lines.append((first, ", ".join(labels), operations, verdict, found, ", ".join(never)))
    if subject.not_run:
        lines.append((first, ", ".join(subject.not_run), "0", NOT_RUN, "", ""))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def replaced(text: str, subjects: Mapping[str, Subject]) -> str:
    """The page with the rows of these subjects in place of those that it has of them."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{rendered(parsed(text) | dict(subjects))}{END}{after}"
