"""The report at a terminal, and the same report as plain text for a log. Only lines of absurd length are cut."""

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvproof.reports.counterexample import counterexamples, shortest_first
from kvproof.reports.data_plane_result import Bandwidth, Comparison, DataPlane, Speed
from kvproof.reports.printable import cut, printable
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
        say(console, plain_text(result, folder).rstrip("\n"))


def plain_text(result: Result, folder: Path) -> str:
    file = io.StringIO()
    _print(result, folder, Console(file=file, width=WIDTH_OF_PLAIN_TEXT, no_color=True, force_terminal=False))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _print(result: Result, folder: Path, console: Console) -> None:
    if result.checks:
        console.print(_table(result, is_plain=not console.is_terminal))
        say(console)
    for line, style in _lines(result, folder):
        say(console, cut(line), style)


def say(console: Console, line: str = "", style: str = "") -> None:
    """Print a line without markup and wrapping; what would act on a terminal or in a log of CI is escaped."""
    console.print(Text(printable(line), style=style), soft_wrap=True)


def _table(result: Result, is_plain: bool) -> Table:
    table = Table(box=box.ASCII2 if is_plain else box.SIMPLE_HEAD, show_edge=False)
    table.add_column("property", overflow="fold")
    for judge in judges(result):
        table.add_column(judge, overflow="fold")
    for name in properties(result):
        row = [Text(printable(name))]
        for judge in judges(result):
            words, weakest = cell(result, name, judge)
            style = "yellow" if words == "note" else STYLES[weakest]
            row.append(Text(printable(words), style=style))
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


BUSY_MIN = 0.9
GOAL_WORDS = {True: ("met", ""), False: ("missed", "yellow"), None: ("not compared", "yellow")}

Line = tuple[str, str]  # text, style


def device_lines(plane: DataPlane) -> Iterator[Line]:
    """Lines about the compared bytes, the planted faults, the generated text, the speeds and the baseline."""
    if plane.cases:
        statuses = Counter(case.status for case in plane.cases)
        listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
        proven = sum(case.bytes_proven for case in plane.cases)
        yield f"bytes: {len(plane.cases)} cases ({listed}), {proven:,} bytes compared on {plane.device}", ""
    for kind, num_caught, num_planted in plane.caught_by_kind():
        style = "" if num_caught == num_planted else "bold red"
        yield f"faults planted into this run, {kind}: {num_caught} of {num_planted} caught", style
    for fault in plane.faults:
        if not fault.is_caught:
            yield f"  missed: {fault.name}: {fault.text or 'the harness reported nothing'}", "bold red"
    if plane.storms:
        tokens = sum(workload.num_tokens for workload in plane.storms)
        differ = sum(bool(workload.differences) for workload in plane.storms)
        yield f"text through paged memory: {tokens:,} tokens in {len(plane.storms)} workloads, {differ} differ", ""
    if plane.bandwidth is not None:
        yield from _speed_lines(plane.bandwidth)
    if plane.baseline:
        yield f"baseline: {plane.baseline}", ""
        yield from (_comparison_line(one) for one in plane.comparisons)
    yield from ((f"note: {note}", "yellow") for note in plane.notes)


def _speed_lines(bandwidth: Bandwidth) -> Iterator[Line]:
    yield "", ""
    yield (
        f"speed on {bandwidth.device_name}, {bandwidth.layout}, {bandwidth.dtype}, blocks of {bandwidth.block_bytes:,} "
        f"bytes, {bandwidth.num_rounds} rounds; two timings of one plain copy differ by {100 * bandwidth.drift:.1f} %",
        "",
    )
    if bandwidth.busy < BUSY_MIN:
        yield (
            f"  this process had its core only {100 * bandwidth.busy:.0f} % of the time: the machine is busy",
            "yellow",
        )
    speeds = [*bandwidth.references, *bandwidth.moves, *bandwidth.verification]
    widths = max(len(one.name) for one in speeds), max(len(one.mapping) for one in speeds)
    yield f"  {'':{widths[0]}}  {'':{widths[1]}}    GB/s (5 %, 95 %)       ratio (5 %, 95 %)   noise", ""
    yield from ((_speed_line(one, *widths), "") for one in speeds)
    for cost in bandwidth.host_costs:
        spread = cost.microseconds_per_pair
        yield (
            f"  host cost of {cost.executor}, {cost.mapping}: {spread.median:.2f} us per pair (95 %: {spread.p95:.2f})",
            "",
        )
    yield from ((f"  not timed: {reason}", "") for reason in bandwidth.skipped)
    for goal in bandwidth.goals:
        word, style = GOAL_WORDS[goal.is_met]
        yield f"  goal {word:<12} {goal.name}: wanted {goal.wanted}, measured {goal.measured}", style


def _speed_line(one: Speed, name_width: int, mapping_width: int) -> str:
    speed, ratio = one.gb_per_second, one.ratio
    return (
        f"  {one.name:{name_width}}  {one.mapping:{mapping_width}}"
        f"  {speed.median:6.2f} ({speed.p5:.2f}, {speed.p95:.2f})"
        f"   {ratio.median:6.3f} ({ratio.p5:.3f}, {ratio.p95:.3f})  {100 * one.noise:.0f} %"
    )


def _comparison_line(one: Comparison) -> Line:
    words = "slower than the baseline" if one.is_worse else "within noise" if one.change <= one.band else "faster"
    text = (
        f"  {one.name}, {one.mapping}: ratio {one.before:.3f} before, {one.now:.3f} now, {100 * one.change:+.1f} % "
        f"(noise ± {100 * one.band:.1f} %): {words}"
    )
    return text, "bold red" if one.is_worse else ""
