"""Compare data planes: the results of `kvproof device` on several machines, or of one machine on several dates.

Results are alike if their speeds were measured on the same kind of device with the same layout, element type and block
size. Among the results that are alike, `usual.RULE` says which speed is out of line; the band is never narrower than
the noise of the speed itself. Fewer than three results that are alike say nothing about what is usual, and the
comparison says so. A fact that is not the most frequent one is marked as different.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvproof.reports.data_plane_result import Bandwidth, Speed
from kvproof.reports.device_baseline import SAME
from kvproof.reports.document import DocumentError
from kvproof.reports.result import Result
from kvproof.reports.speed_history import NEEDED, RULE, usual
from kvproof.reports.summary import sentence
from kvproof.reports.template import render
from kvproof.spec.verdict import Exit

TEMPLATE = "hosts_page.html"
HOST = "host"
SLOWER, FASTER, DIFFERS = "slower", "faster", "differs"
CHANGING = ("load at the start",)  # facts that differ between any two runs


@dataclass
class HostsCell:
    """A value of one result. mark: slower, faster or differs; empty for a usual one."""

    text: str
    mark: str = ""


@dataclass
class HostsRow:
    """A fact or a speed in every result. usual: the median and the band, as text."""

    name: str
    cells: list[HostsCell]
    usual: str = ""


@dataclass
class HostComparison:
    """Several results side by side. columns: what each is called. out_of_line: a column and a sentence about it."""

    columns: list[str]
    results: list[Result]
    facts: list[HostsRow] = field(default_factory=list)
    speeds: list[HostsRow] = field(default_factory=list)
    out_of_line: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    has_slower: bool = False

    @property
    def columns_out_of_line(self) -> list[str]:
        """Those of which at least one value is out of line, each once."""
        return list(dict.fromkeys(column for column, _ in self.out_of_line))

    @property
    def exit_code(self) -> Exit:
        """1 if a result refutes, 6 if one has a speed that is out of line and less than usual, else 0."""
        if any(result.exit_code() is Exit.REFUTED for result in self.results):
            return Exit.REFUTED
        return Exit.WORSE_THAN_BASELINE if self.has_slower else Exit.OK


def compare_hosts(named: Sequence[tuple[str, Result]]) -> HostComparison:
    """Compare results, each with the name of its file. Raises DocumentError if one is not about a data plane."""
    for file, result in named:
        if result.data_plane is None:
            raise DocumentError(f"{file} is no result of a data plane; write one with `kvproof device --json {file}`")
    found = HostComparison(_columns(named), [result for _, result in named])
    found.facts = _facts(found)
    _compare_speeds(found)
    for column, result in zip(found.columns, found.results, strict=True):
        if result.exit_code() is Exit.REFUTED:
            found.out_of_line.append((column, f"{column}: {sentence(result)}"))
    return found


def _columns(named: Sequence[tuple[str, Result]]) -> list[str]:
    """A name for each result: its host, with the date and then the file where that is not enough."""
    hosts = [result.run.host.get(HOST, file) for file, result in named]
    dates = [
        f"{host}, {result.run.started[:16].replace('T', ' ')}" for host, (_, result) in zip(hosts, named, strict=True)
    ]
    names = [host if hosts.count(host) == 1 else date for host, date in zip(hosts, dates, strict=True)]
    return [name if names.count(name) == 1 else f"{name}, {file}" for name, (file, _) in zip(names, named, strict=True)]


def _facts(found: HostComparison) -> list[HostsRow]:
    hosts = [result.run.host for result in found.results]
    rows = []
    for name in dict.fromkeys(name for facts in hosts for name in facts if name != HOST):
        values = [facts.get(name, "–") for facts in hosts]
        ((common, count), *_) = Counter(values).most_common(1)
        is_marked = name not in CHANGING and count > 1
        cells = [HostsCell(value, DIFFERS if is_marked and value != common else "") for value in values]
        rows.append(HostsRow(name, cells))
    return rows


def _compare_speeds(found: HostComparison) -> None:
    planes = [result.data_plane.bandwidth if result.data_plane else None for result in found.results]
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, plane in enumerate(planes):
        if plane is None:
            found.notes.append(f"{found.columns[index]}: no speed was measured.")
        else:
            groups.setdefault(tuple(getattr(plane, name) for name in SAME), []).append(index)
    speeds = [{} if plane is None else _speeds(plane) for plane in planes]
    for members in groups.values():
        if len(members) < NEEDED:
            names = ", ".join(found.columns[index] for index in members)
            what = f"{len(members)} results are" if len(members) > 1 else "1 result is"
            found.notes.append(
                f"Only {what} of this device, layout, element type and block size ({names}); whether a speed is out of "
                f"line needs at least {NEEDED}, so these speeds are shown and not judged."
            )
        for key in dict.fromkeys(key for index in members for key in speeds[index]):
            found.speeds.append(_speed_row(found, key, members, speeds))
    if any(len(members) >= NEEDED for members in groups.values()):
        found.notes.append(RULE)


Key = tuple[str, str, int]


def _speeds(plane: Bandwidth) -> dict[Key, Speed]:
    return {
        (one.name, one.mapping, one.payload_bytes): one
        for one in (*plane.references, *plane.moves, *plane.verification)
    }


def _speed_row(found: HostComparison, key: Key, members: Sequence[int], speeds: Sequence[dict[Key, Speed]]) -> HostsRow:
    """The GB/s of one speed in every result. Only the results in `members` are alike; the other cells are empty."""
    name = f"{key[0]}, {key[1]}"
    values = {index: speeds[index][key].gb_per_second.median for index in members if key in speeds[index]}
    typical = usual(list(values.values()))
    row = HostsRow(name, [HostsCell("–")] * len(found.columns))
    if typical is not None:
        row.usual = f"{typical.median:.2f} ± {typical.band:.2f}"
    for index, value in values.items():
        mark = ""
        if typical is not None and typical.is_out(value, speeds[index][key].noise):
            mark = SLOWER if value < typical.median else FASTER
            change = value / typical.median - 1 if typical.median else 0.0
            found.has_slower |= mark == SLOWER
            column = found.columns[index]
            text = (
                f"{column} is {mark}: {name}: {value:.2f} GB/s, {change:+.1%} against the median "
                f"{typical.median:.2f} of {typical.count} results; the band is ±{typical.band:.2f}"
            )
            found.out_of_line.append((column, text))
        row.cells[index] = HostsCell(f"{value:.2f}", mark)
    return row


def hosts_page(found: HostComparison) -> str:
    """The comparison as a page: one file that makes no request."""
    return render(
        TEMPLATE, {}, found=found, sentences=[sentence(result) for result in found.results], code=found.exit_code
    )
