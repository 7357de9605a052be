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
LISTED_MAX = 12  # releases that a row lists by name
HEAD = (
    "| subject, level | releases | operations of each, at least | verdict | findings | not reached |\n"
    "|---|---|---|---|---|---|\n"
)
LACKING = "\nNot driven at all, because the adapter of the subject does not declare the feature:\n\n"


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
    """The rows of the page, and the features that are not driven.

    Releases with the same verdict and findings, and none that differs between them, share a row.
    """
    lines, lacks = [], []
    for name, some in entries.items():
        outcomes = [(entry.label, earlier(folder_of(out, entry.subject))) for entry in some]
        ran = [(label, result) for label, result in outcomes if result is not None]
        lines += [
            _row(some[0].row, verdict, list(same)) for verdict, same in groupby(ran, key=lambda pair: _verdict(pair[1]))
        ]
        if others := [label for label, result in outcomes if result is None]:
            lines.append(f"| `{name}` {some[0].row.level} | {_named(others)} | 0 | not run | | |\n")
        without = {result.run.host.get("lacks", "") for _, result in ran} - {""}
        lacks += [f"- `{name}`: {' / '.join(sorted(without))}\n"] if without else []
    return f"{HEAD}{''.join(lines)}{LACKING}{''.join(lacks)}"


def _row(row: Row, verdict: tuple[str, str], releases: list[tuple[str, Result]]) -> str:
    """Releases with the same verdict and findings, and the situations that none of them reached."""
    labels, results = zip(*releases, strict=True)
    missed = [[witness.name for witness in result.unmet_witnesses()] for result in results]
    never = ", ".join(name for name in missed[0] if all(name in names for names in missed))
    cells = f"`{row.name}` {row.level}", _named(labels), f"{min(map(num_operations, results)):,}", *verdict, never
    return f"| {' | '.join(cells)} |\n"


def _named(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= LISTED_MAX else f"{len(labels)} from {labels[0]} to {labels[-1]}"


def _verdict(result: Result) -> tuple[str, str]:
    """The verdict and the findings, or why the release was not driven."""
    found = findings(result)
    if (problem := fault(result)) and not found:
        return "not driven", _plain(problem)
    identities = "; ".join(f"`{f.property}` {_plain(f.signature)}{' (excused)' * bool(f.excused)}" for f in found)
    return "refuted" if any(not f.excused for f in found) else "not refuted", identities


def _plain(text: str) -> str:
    """The text in one cell of a table."""
    return text.partition("\n")[0].partition("; please report")[0].replace("|", "/").replace("<", "&lt;")


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
        print(f"{entry.subject}: {num_operations(result):,} operations, {_verdict(result)[0]}", flush=True)
    if not asked.only:
        write_page(entries, asked.out)


if __name__ == "__main__":
    main()
