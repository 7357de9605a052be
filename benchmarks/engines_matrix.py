"""Run every release that docs/engines.md claims, and write what ran into its table: `make engines-matrix`.

    python -m benchmarks.engines_matrix [--operations N] [--out DIR] [--minutes M] [--only NAME …]
                                        [--checkout NAME=PATH …] [--no-run]

A release that has a complete result in DIR is not run again, so the command can be interrupted and repeated. The newest
release of each subject runs first, then the oldest, then those in the middle. The table lists only what has a result;
what has none is listed as not run.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise, zip_longest
from pathlib import Path

from benchmarks.campaign import drive, earlier, fault, findings, folder_of, num_operations, releases_of
from kvproof.check.subjects.registry import ROWS, Row
from kvproof.reports.result import Result

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"
BEGIN, END = "<!-- engines-matrix: begin -->\n", "<!-- engines-matrix: end -->\n"
OPERATIONS, SEED = 3_000, 1
HEAD = (
    "| subject | level | release | operations each | verdict | findings | not driven |\n|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True)
class Entry:
    """A subject that the page claims. label: its release, or the commit of its checkout."""

    row: Row
    label: str
    argument: str

    @property
    def subject(self) -> str:
        return f"{self.row.name}=={self.argument}"


def claimed(checkouts: dict[str, Path], only: Sequence[str]) -> dict[str, list[Entry]]:
    """The entries of each subject, oldest first. Raises EngineError if the package index does not answer."""
    entries: dict[str, list[Entry]] = {}
    for row in ROWS:
        if only and row.name not in only:
            continue
        if row.is_checkout and row.name in checkouts:
            path = checkouts[row.name]
            entries[row.name] = [Entry(row, _commit(path), str(path))]
        elif row.engine:
            entries[row.name] = [Entry(row, release, release) for release in releases_of(row)]
    return entries


def _commit(path: Path) -> str:
    command = ["git", "-C", str(path), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "a checkout"


def in_turn(entries: dict[str, list[Entry]]) -> Iterator[Entry]:
    """The first entry of every subject, then the second: of each the newest, the oldest, and then the middle."""
    lines = [_spread(some) for some in entries.values()]
    yield from (entry for entry in chain.from_iterable(zip_longest(*lines)) if entry is not None)


def _spread(some: list[Entry]) -> list[Entry]:
    """The newest and the oldest, then always the middle of the longest gap."""
    taken = list(dict.fromkeys((len(some) - 1, 0)))
    while len(taken) < len(some):
        places = sorted(taken)
        low, high = max(pairwise(places), key=lambda gap: gap[1] - gap[0])
        taken.append((low + high) // 2)
    return [some[place] for place in taken]


# The table --------------------------------------------------------------------------------------------------------


def table(entries: dict[str, list[Entry]], out: Path) -> str:
    """The rows of the page: releases with the same outcome share a row."""
    lines = []
    for name, some in entries.items():
        outcomes = [(entry, _outcome(earlier(folder_of(out, entry.subject)))) for entry in some]
        for outcome, same in groupby(outcomes, key=lambda pair: pair[1]):
            labels = [entry.label for entry, _ in same]
            releases = labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]} ({len(labels)})"
            lines.append(f"| `{name}` {some[0].row.level} | {releases} | {' | '.join(outcome)} |\n")
    return HEAD.replace("| subject | level |", "| subject, level |").replace("|---|---|", "|---|", 1) + "".join(lines)


def _outcome(result: Result | None) -> tuple[str, ...]:
    """Operations, verdict, findings and what was not driven, as cells."""
    if result is None:
        return "0", "not run", "", ""
    count = num_operations(result)
    found = findings(result)
    identities = "; ".join(f"`{f.property}` {_plain(f.signature)}{' (excused)' * bool(f.excused)}" for f in found)
    if (problem := fault(result)) and not found:
        return f"{count:,}", "not driven", "", _plain(problem)
    verdict = "refuted" if any(not f.excused for f in found) else "not refuted"
    missed = [f"not reached: {', '.join(w.name for w in result.unmet_witnesses())}"] * bool(result.unmet_witnesses())
    return f"{count:,}", verdict, identities, "; ".join((*missed, *([_plain(problem)] if problem else [])))


def _plain(text: str) -> str:
    """The text in one cell of a table."""
    return text.partition("\n")[0].replace("|", "/").replace("<", "&lt;")


def write_page(entries: dict[str, list[Entry]], out: Path) -> None:
    """Replace the table between the two marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table(entries, out)}{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no result yet, as long as there is time, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines_matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="for each release")
    parser.add_argument("--out", type=Path, default=Path("build/engines-matrix"), help="the folder of the results")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no release after so many")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a subject; repeatable")
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=PATH", help="repeatable")
    parser.add_argument("--no-run", action="store_true", help="write the table of the results that are there")
    asked = parser.parse_args(arguments)
    checkouts = {name: Path(path) for name, _, path in (text.partition("=") for text in asked.checkout)}
    entries = claimed(checkouts, asked.only)
    began = time.monotonic()
    for entry in [] if asked.no_run else in_turn(entries):
        folder = folder_of(asked.out, entry.subject)
        if earlier(folder) is not None:
            continue
        if time.monotonic() - began > 60 * asked.minutes:
            break
        result = drive(entry.subject, asked.operations, SEED, folder)
        count, verdict, *_ = _outcome(result)
        print(f"{entry.subject}: {count} operations, {verdict}", flush=True)
    if not asked.only:
        write_page(entries, asked.out)


if __name__ == "__main__":
    main()
