"""The report at a terminal, and the same report as plain text for a log. Nothing is cut or abbreviated."""

import io
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.reports.counterexample import counterexamples, shortest_first
from kvproof.reports.device_text import device_lines
from kvproof.reports.result import Result
from kvproof.reports.summary import cell, judges, properties, scope_of, sentence, work, work_line
from kvproof.spec.verdict import Exit, Verdict

STYLES: dict[Verdict | None, str] = {
    Verdict.PROVED: "bold green",
    Verdict.EXHAUSTED: "green",
    Verdict.NOT_REFUTED: "cyan",
    Verdict.UNKNOWN: "yellow",
    Verdict.REFUTED: "bold red",
    Verdict.UNSUPPORTED: "dim",
    None: "dim",
}
NAMED_MAX = 5  # properties that one line lists by name
WIDTH_OF_PLAIN_TEXT = 4000  # columns; wide enough for every table


def print_report(result: Result, folder: Path, console: Console) -> None:
    """Print the whole report; the last line is the verdict and the seed."""
    if console.is_terminal:
        _print(result, folder, console)
    else:
        _say(console, plain_text(result, folder).rstrip("\n"))


def plain_text(result: Result, folder: Path) -> str:
    file = io.StringIO()
    _print(result, folder, Console(file=file, width=WIDTH_OF_PLAIN_TEXT, no_color=True, force_terminal=False))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _print(result: Result, folder: Path, console: Console) -> None:
    if result.checks:
        console.print(_table(result, is_plain=not console.is_terminal))
        _say(console)
    for line, style in _lines(result, folder):
        _say(console, line, style)


def _say(console: Console, line: str = "", style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


def _table(result: Result, is_plain: bool) -> Table:
    table = Table(box=box.ASCII2 if is_plain else box.SIMPLE_HEAD, show_edge=False)
    table.add_column("property", overflow="fold")
    for judge in judges(result):
        table.add_column(judge, overflow="fold")
    for name in properties(result):
        row = [Text(name)]
        for judge in judges(result):
            words, weakest = cell(result, name, judge)
            style = "yellow" if words == "note" else STYLES[weakest]
            row.append(Text(words, style=style))
        table.add_row(*row)
    return table


def _lines(result: Result, folder: Path) -> Iterator[tuple[str, str]]:
    for judge, counts in work(result).items():
        if counts:
            yield f"{judge}: {work_line(counts)}", ""
    yield from _witness_lines(result)
    yield from _reason_lines(result, Verdict.UNKNOWN)
    yield from _reason_lines(result, Verdict.UNSUPPORTED)
    if result.data_plane is not None:
        yield from device_lines(result.data_plane)
    for assumption in result.run.assumptions:
        yield f"assumed: {assumption}", ""
    for message in result.messages:
        yield f"note: {message}", "yellow"
    for found, others in shortest_first(counterexamples(result, folder)):
        headline, *rest = found.lines()
        yield "", ""
        yield headline, "bold red" if found.check.is_failure else "bold yellow"
        yield from ((line, "") for line in rest)
        for other in others:
            yield f"  Also: {other.headline} {other.path or ''}".rstrip(), ""
    yield "", ""
    style = {Exit.OK: "bold green", Exit.REFUTED: "bold red"}.get(result.exit_code(), "bold yellow")
    yield f"{sentence(result)} {result.run.seconds:.1f} s, seed {result.run.seed}.", style


def _reason_lines(result: Result, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """One line for each search and reason. If many properties share the reason, the line only counts them."""
    names: dict[tuple[str, str], list[str]] = {}
    for check in result.checks:
        if check.verdict is verdict:
            search = f"{check.judge} {scope_of(check)}".rstrip()
            names.setdefault((search, check.text or "no reason is given"), []).append(check.property)
    for (search, reason), properties_of_it in names.items():
        count = len(properties_of_it)
        what = ", ".join(properties_of_it) if count <= NAMED_MAX else f"{count} properties"
        yield f"{verdict.value}: {search}: {what}: {reason}", STYLES[verdict]


def _witness_lines(result: Result) -> Iterator[tuple[str, str]]:
    for judge in dict.fromkeys(witness.judge for witness in result.witnesses):
        mine = [witness for witness in result.witnesses if witness.judge == judge]
        reached = [f"{witness.name} {witness.count:,}" for witness in mine if witness.count]
        missing = [witness.name for witness in mine if not witness.count and witness.is_expected]
        absent = [witness.name for witness in mine if not witness.count and not witness.is_expected]
        if reached:
            yield f"{judge} reached: {', '.join(reached)}", ""
        if missing:
            yield f"{judge} never reached: {', '.join(missing)}", "yellow"
        if absent:
            yield f"{judge} did not reach, as expected: {', '.join(absent)}", "dim"
