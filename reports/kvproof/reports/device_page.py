"""The device page: one HTML file without external resources, for the owner of the machine.

It answers in this order: is every byte where it belongs, would this run have detected a fault, how fast are the moves,
and are they slower than before. Everything is rendered from the result document.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kvproof.reports import device_plots
from kvproof.reports.data_plane_result import DataPlane, MovedCase
from kvproof.reports.result import Result
from kvproof.reports.summary import sentence
from kvproof.spec.verdict import Exit

PAGE = "device.html"
TEMPLATE = "device_page.html"
GREEN, RED, AMBER = "right", "wrong", "open"
COLOUR_OF = {Exit.OK: GREEN, Exit.REFUTED: RED}


class Cell(NamedTuple):
    """The cases of one mapping and one layout: their element types, and the title that a tooltip shows."""

    status: str
    text: str
    title: str


class Matrix(NamedTuple):
    """The cases of one executor: rows are mappings, columns are layouts."""

    executor: str
    layouts: list[str]
    rows: list[tuple[str, list[Cell]]]


def device_page(result: Result) -> str:
    """Render the page. Raises ValueError for a result without a data plane."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    plane = result.data_plane
    if plane is None:
        raise ValueError("the result has no data plane")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"size": size, "percent": percent}
    bandwidth = plane.bandwidth
    return environment.get_template(TEMPLATE).render(
        run=result.run,
        plane=plane,
        sentence=sentence(result),
        colour=COLOUR_OF.get(result.exit_code(), AMBER),
        matrices=matrices(plane),
        statuses=Counter(case.status for case in plane.cases),
        failed=[case for case in plane.cases if case.status == "failed"],
        bytes_proven=sum(case.bytes_proven for case in plane.cases),
        kinds=plane.caught_by_kind(),
        speeds_plot=Markup(device_plots.speeds_plot(bandwidth)) if bandwidth and bandwidth.moves else "",
        costs_plot=Markup(device_plots.costs_plot(bandwidth.host_costs)) if bandwidth and bandwidth.host_costs else "",
        comparison_plot=Markup(device_plots.comparison_plot(plane.comparisons)) if plane.comparisons else "",
        messages=[*result.messages, *plane.notes],
    )


def matrices(plane: DataPlane) -> list[Matrix]:
    """One matrix for each executor, in the order in which they ran."""
    found = []
    layouts = list(dict.fromkeys(case.layout for case in plane.cases))
    for executor in dict.fromkeys(case.executor for case in plane.cases):
        mine = [case for case in plane.cases if case.executor == executor]
        rows = []
        for mapping in dict.fromkeys(case.mapping for case in mine):
            of_mapping = [case for case in mine if case.mapping == mapping]
            rows.append((mapping, [_cell([case for case in of_mapping if case.layout == name]) for name in layouts]))
        found.append(Matrix(executor, layouts, rows))
    return found


def _cell(cases: list[MovedCase]) -> Cell:
    if not cases:
        return Cell("none", "", "not in the sample")
    status = next(word for word in ("failed", "passed", "skipped") if any(case.status == word for case in cases))
    signs = {"failed": "✗", "passed": "✓", "skipped": "–"}
    names = [f"{signs[case.status]} {case.dtype}{_stream(case)}" for case in cases]
    titles = [case.text for case in cases if case.text]
    return Cell(status, ", ".join(dict.fromkeys(names)), "; ".join(dict.fromkeys(titles)))


def _stream(case: MovedCase) -> str:
    return "" if case.stream in ("", "none") else f" ({case.stream} stream)"


def size(num_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            return f"{num_bytes:,.0f} {unit}" if unit == "bytes" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1024
    raise AssertionError("the last unit takes any size")


def percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
