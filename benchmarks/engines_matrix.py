"""Run every release that docs/engines.md claims, and write what ran into docs/engine-runs.md: `make engines-matrix`.

    python -m benchmarks.engines_matrix [--operations N] [--out DIR] [--minutes M] [--only NAME …]
                                        [--checkout NAME=PATH …] [--no-run]

A release that has a complete result in DIR is not run again, so the command can be interrupted and repeated. The newest
release of each subject runs first, then the oldest, then those in the middle. In the table a release with a result in
DIR has a new row, and every other one keeps the row that it had; a release that never ran is listed as not run.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from pathlib import Path

from benchmarks import engines_table
from benchmarks.campaign import drive, earlier, folder_of, num_operations, releases_of
from kvproof.check.subjects.registry import ROWS, Row

PAGE = Path(__file__).parents[1] / "docs" / "engine-runs.md"
OPERATIONS, SEED = 3_000, 1


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
    """The entries of each subject of which `only` asks for a release, oldest first; without `only` of every subject.

    Raises EngineError if the package index does not answer.
    """
    entries: dict[str, list[Entry]] = {}
    for row in ROWS:
        if only and not any(one.partition("==")[0] == row.name for one in only):
            continue
        if row.is_checkout and row.name in checkouts:
            path = checkouts[row.name]
            entries[row.name] = [Entry(row, _commit(path), str(path))]
        elif row.engine:
            entries[row.name] = [Entry(row, release, release) for release in releases_of(row)]
    return entries


def is_asked(entry: Entry, only: Sequence[str]) -> bool:
    """Is the entry to be run? `only` has subjects, with a release or without one."""
    return not only or entry.row.name in only or entry.subject in only


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


def write_page(entries: dict[str, list[Entry]], out: Path) -> None:
    """Write the rows of these subjects into the page; a release without a result in `out` keeps its row."""
    text = PAGE.read_text(encoding="utf-8")
    before = engines_table.parsed(text)
    subjects = {}
    for name, some in entries.items():
        found = {entry.label: earlier(folder_of(out, entry.subject)) for entry in some}
        results = {label: result for label, result in found.items() if result is not None}
        subjects[name] = engines_table.merged(some[0].row, list(found), results, before.get(name))
    PAGE.write_text(engines_table.replaced(text, subjects), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no result yet, as long as there is time, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines_matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="for each release")
    parser.add_argument("--out", type=Path, default=Path("build/engines-matrix"), help="the folder of the results")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no release after so many")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a subject, or a release of it as vllm-v1==0.33.0; repeatable",
    )
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=PATH", help="repeatable")
    parser.add_argument("--no-run", action="store_true", help="write the table of the results that are there")
    asked = parser.parse_args(arguments)
    checkouts = {name: Path(path) for name, _, path in (text.partition("=") for text in asked.checkout)}
    entries = claimed(checkouts, asked.only)
    try:
        run([] if asked.no_run else in_turn(entries), asked)
    finally:
        write_page(entries, asked.out)


def run(entries: Iterable[Entry], asked: argparse.Namespace) -> None:
    """Run the entries that are asked for and have no result, until the time is over."""
    began = time.monotonic()
    for entry in entries:
        folder = folder_of(asked.out, entry.subject)
        if not is_asked(entry, asked.only) or earlier(folder) is not None:
            continue
        if time.monotonic() - began > 60 * asked.minutes:
            break
        result = drive(entry.subject, asked.operations, SEED, folder)
        verdict = engines_table.outcome_of(result).verdict
        print(f"{entry.subject}: {num_operations(result):,} operations, {verdict}", flush=True)


if __name__ == "__main__":
    main()
