"""The report as text: short at a terminal and in a log, whole in the file `report.txt`.

Both begin with the findings, each whole: what is refuted, by which run, how to repeat it. The short report goes on with
one row for each judge, what is open, what to do about it, and the verdict. The file also has every property under every
judge, the work, the witnesses, the reasons and the assumptions. At a terminal, sentences are wrapped between words;
commands, paths and signatures are never broken, so that they can be copied.
"""

import io
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kvproof.reports.counterexample import REPEAT, SAVED, SIGNATURE, also_found, counterexamples, shortest_first
from kvproof.reports.data_plane_result import Bandwidth, Comparison, DataPlane, Speed
from kvproof.reports.printable import cut, printable
from kvproof.reports.reached import code_lines, not_reached
from kvproof.reports.result import OPERATIONS, Result
from kvproof.reports.summary import (
    EXCUSED,
    NOTE,
    WEAKEST_FIRST,
    advice,
    cell,
    claims_asked,
    claims_by_property,
    judges,
    left_out,
    number,
    properties,
    properties_by_cell,
    refusal_lines,
    scope_of,
    sentence,
    work,
    work_line,
)
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
REPORT = "report.txt"
NAMED_MAX = 5  # properties that one line lists by name
WIDTH_OF_PLAIN_TEXT = 4000  # columns; wide enough for every table
WIDTH_OF_LOG = 80  # columns of a table where there is no terminal
UNBROKEN = (REPEAT, SAVED, SIGNATURE)
COMMAND, UNBROKEN_SPACE = re.compile(r"`[^`]*`|pip install \S+"), "\xa0"

Line = tuple[str, str]  # text, style


def print_report(result: Result, folder: Path, console: Console) -> None:
    """Print the short report; the last line is the verdict and the seed."""
    for line, style in _findings(result, folder):
        say(console, cut(line), style)
    if result.checks:
        _print_judges(result, console)
        say(console)
    for line, style in _in_short(result):
        say(console, cut(line), style)
    if (folder / REPORT).is_file():
        say(console, f"Every property under every judge: {folder / REPORT}")
    say(console)
    say(console, *_verdict(result))


def plain_text(result: Result, folder: Path) -> str:
    """The whole report, as the file `report.txt` has it."""
    lines = [line for line, _ in _findings(result, folder)]
    if result.checks:
        lines += [*_as_text(_matrix(result)), ""]
    lines += [line for line, _ in (*_in_full(result), ("", ""), _verdict(result))]
    return "\n".join(printable(cut(line)).rstrip() for line in lines) + "\n"


def _as_text(table: Table) -> list[str]:
    """The lines of a table where there is no terminal."""
    file = io.StringIO()
    Console(file=file, width=WIDTH_OF_PLAIN_TEXT, no_color=True, force_terminal=False).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def say(console: Console, line: str = "", style: str = "") -> None:
    """Print a line without markup; what would act on a terminal or in a log of CI is escaped.

    At a terminal a line is wrapped between words and keeps its indentation, unless it is there to be copied.
    """
    text = printable(line)
    for part in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(Text(part, style=style), soft_wrap=True)


def wrapped(line: str, width: int) -> list[str]:
    """The line in parts that fit the width. A command in it is there to be copied, and stays in one part."""
    body = line.lstrip()
    if len(line) <= width or "\n" in line or body.startswith(UNBROKEN):
        return [line]
    indent = " " * (len(line) - len(body) + 2)
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    line = COMMAND.sub(lambda command: command[0].replace(" ", UNBROKEN_SPACE), line)
    return [part.replace(UNBROKEN_SPACE, " ") for part in wrapper.wrap(line)]


# Findings ---------------------------------------------------------------------------------------------------------


def _findings(result: Result, folder: Path) -> Iterator[Line]:
    """Every refutation, failures first, each with an empty line after it."""
    for found, others in shortest_first(counterexamples(result, folder)):
        headline, *rest = found.lines()
        yield headline, "bold red" if found.check.is_failure else "bold yellow"
        yield from ((line, "") for line in rest)
        yield from ((line, "") for line in also_found(found, others))
        yield "", ""


def _verdict(result: Result) -> Line:
    style = {Exit.OK: "bold green", Exit.REFUTED: "bold red"}.get(result.exit_code(), "bold yellow")
    run = result.run
    return f"{sentence(result)} {run.seconds:.1f} s{f', seed {run.seed}' if run.has_seed else ''}.", style


# The short report -------------------------------------------------------------------------------------------------


def _print_judges(result: Result, console: Console) -> None:
    """How many properties have which verdict under each judge: a table, or a line for each judge if it is too wide."""
    counts = {judge: properties_by_cell(result, judge) for judge in judges(result)}
    cells = [(verdict.value, verdict) for verdict in WEAKEST_FIRST]
    cells[1:1] = (EXCUSED, Verdict.REFUTED), (NOTE, Verdict.UNSUPPORTED)
    shown = [one for one in cells if any(of_judge[one] for of_judge in counts.values())]
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.ASCII2, show_edge=False)
    table.add_column("properties", no_wrap=True)
    for word, _ in shown:
        table.add_column(word, justify="right", no_wrap=True)
    for judge, of_judge in counts.items():
        row = [Text(str(of_judge[one]) if of_judge[one] else "–", style=_style_of(one)) for one in shown]
        table.add_row(Text(printable(judge)), *row)
    width = console.width if console.is_terminal else WIDTH_OF_LOG
    unlimited = console.options.update(max_width=WIDTH_OF_PLAIN_TEXT)
    if Measurement.get(console, unlimited, table).maximum > width:
        for judge, of_judge in counts.items():
            say(console, f"{judge}: {', '.join(f'{of_judge[one]} {one[0]}' for one in shown if of_judge[one])}")
    elif console.is_terminal:
        console.print(table)
    else:
        for line in _as_text(table):
            say(console, line)


def _style_of(cell: tuple[str, Verdict]) -> str:
    word, verdict = cell
    return STYLES[Verdict.UNKNOWN if word == EXCUSED else verdict]


def _in_short(result: Result) -> Iterator[Line]:
    if result.exit_code() is not Exit.OK:  # otherwise the verdict lists the work
        yield from _work_lines(result)
    yield from ((line, "yellow") for line in left_out(result))
    yield from ((line, "") for line in claims_asked(result))
    yield from ((line, "yellow") for line in refusal_lines(result))
    yield from _missing_lines(result)
    if line := not_reached(result):
        yield line, ""
    for (judge, reason), places in _reasons(result, Verdict.UNKNOWN).items():
        names, scopes = dict.fromkeys(property for property, _ in places), {scope for _, scope in places}
        where = f" in {len(scopes)} scopes" if len(scopes) > 1 else f" {scope}" if (scope := min(scopes)) else ""
        yield f"unknown: {judge}{where}: {_named(names)}: {reason}", STYLES[Verdict.UNKNOWN]
    if result.data_plane is not None:
        yield from device_lines(result.data_plane)
    yield from _messages(result)


def _named(names: dict[str, None]) -> str:
    return ", ".join(names) if len(names) <= NAMED_MAX else f"{len(names)} properties"


def _work_lines(result: Result) -> Iterator[Line]:
    yield from ((f"{judge}: {work_line(counts)}", "") for judge, counts in work(result).items() if counts)


def _messages(result: Result) -> Iterator[Line]:
    if (found := result.difference) is not None:
        yield from ((f"worse than {found.baseline}: {one}", "bold red") for one in found.worse)
        yield from ((f"compared with {found.baseline}: {one}", "") for one in found.better)
        if not found.worse:
            yield f"nothing is worse than in {found.baseline}", ""
    reasons = {f"{check.judge}: {check.text}" for check in result.checks if check.verdict is Verdict.UNKNOWN}
    yield from ((f"note: {message}", "yellow") for message in result.messages if message not in reasons)
    yield from ((line, "yellow") for line in advice(result))


def _missing_lines(result: Result) -> Iterator[Line]:
    for judge in dict.fromkeys(witness.judge for witness in result.unmet_witnesses()):
        names = [witness.name for witness in result.unmet_witnesses() if witness.judge == judge]
        yield f"{judge} never reached: {', '.join(names)}", "yellow"


def _reasons(result: Result, verdict: Verdict) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """For each judge and reason of this verdict: the properties and scopes that have it."""
    places: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for check in result.checks:
        if check.verdict is verdict:
            key = check.judge, check.text or "no reason is given"
            places.setdefault(key, []).append((check.property, scope_of(check)))
    return places


# The whole report -------------------------------------------------------------------------------------------------


def _matrix(result: Result) -> Table:
    """The verdict of each judge on each property; of several scopes, the weakest."""
    table = Table(box=box.ASCII2, show_edge=False)
    table.add_column("property", overflow="fold")
    for judge in judges(result):
        table.add_column(printable(judge), overflow="fold")
    for name in properties(result):
        row = [Text(printable(name))]
        row += [Text(printable(cell(result, name, judge)[0])) for judge in judges(result)]
        table.add_row(*row)
    return table


def _in_full(result: Result) -> Iterator[Line]:
    yield from _work_lines(result)
    yield from ((line, "") for line in claims_asked(result))
    for judge, name, asked, not_asked in claims_by_property(result):
        parts = [
            f"{word} {', '.join(names)}" for word, names in (("evaluated", asked), ("left out", not_asked)) if names
        ]
        yield f"claims: {judge}: {name}: {'; '.join(parts)}", ""
    yield from ((line, "yellow") for line in refusal_lines(result))
    yield from _witness_lines(result)
    if line := not_reached(result):
        yield line, ""
    yield from ((line, "") for line in code_lines(result))
    for verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED):
        for (judge, reason), places in _reasons(result, verdict).items():
            for scope in dict.fromkeys(scope for _, scope in places):
                names = dict.fromkeys(property for property, place in places if place == scope)
                yield f"{verdict.value}: {f'{judge} {scope}'.rstrip()}: {_named(names)}: {reason}", STYLES[verdict]
    if result.data_plane is not None:
        yield from device_lines(result.data_plane)
    for assumption in result.run.assumptions:
        yield f"assumed: {assumption}", ""
    yield from _messages(result)


def _witness_lines(result: Result) -> Iterator[Line]:
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
            words = "never done" if judge.endswith(OPERATIONS) else "did not reach, as expected"
            yield f"{judge} {words}: {', '.join(absent)}", "dim"


# Bytes on a device ------------------------------------------------------------------------------------------------

BUSY_MIN = 0.9
GOAL_WORDS = {True: ("met", ""), False: ("missed", "yellow"), None: ("not compared", "yellow")}


def device_lines(plane: DataPlane) -> Iterator[Line]:
    """Lines about the compared bytes, the planted faults, the generated text, the speeds and the baseline."""
    if plane.cases:
        statuses = Counter(case.status for case in plane.cases)
        listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
        proven = sum(case.bytes_proven for case in plane.cases)
        cases = number(len(plane.cases), "case", "cases")
        yield f"bytes: {cases} ({listed}), {proven:,} bytes compared on {plane.device}", ""
    for kind, num_caught, num_planted in plane.caught_by_kind():
        style = "" if num_caught == num_planted else "bold red"
        yield f"faults planted into this run, {kind}: {num_caught} of {num_planted} caught", style
    for fault in plane.faults:
        if not fault.is_caught:
            yield f"  missed: {fault.name}: {fault.text or 'the harness reported nothing'}", "bold red"
    if plane.storms:
        tokens = sum(workload.num_tokens for workload in plane.storms)
        differ = sum(bool(workload.differences) for workload in plane.storms)
        workloads = number(len(plane.storms), "workload", "workloads")
        differences = f"{differ} {'differs' if differ == 1 else 'differ'}"
        yield f"text through paged memory: {tokens:,} tokens in {workloads}, {differences}", ""
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
