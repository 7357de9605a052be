"""The device page: one HTML file without external resources, for the owner of the machine.

It answers in this order: is every byte where it belongs, would this run have detected a fault, how fast are the moves,
and are they slower than before. Everything is rendered from the result document.

The plots are embedded as SVG, drawn without a display and without the global state of pyplot. Their text stays text, so
that the page can be searched and read aloud.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kvproof.reports.data_plane_result import Bandwidth, Comparison, DataPlane, HostCost, MovedCase, Speed
from kvproof.reports.result import Result
from kvproof.reports.summary import sentence
from kvproof.reports.template import render
from kvproof.spec.cache_folder import cache_folder
from kvproof.spec.extras import reason_missing
from kvproof.spec.verdict import Exit

PAGE = "device.html"
TEMPLATE = "device_page.html"
GREEN, RED, AMBER = "right", "wrong", "open"
COLOUR_OF = {Exit.OK: GREEN, Exit.REFUTED: RED}

Data = TypeVar("Data")


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
    values = data_plane_values(result, with_plots=True)
    return render(
        TEMPLATE,
        {},
        run=result.run,
        sentence=sentence(result),
        colour=COLOUR_OF.get(result.exit_code(), AMBER),
        messages=[*result.messages, *values["plane"].notes],
        **values,
    )


def data_plane_values(result: Result, with_plots: bool) -> dict[str, Any]:
    """What the template `data_plane.html` shows. Raises ValueError for a result without a data plane."""
    plane = result.data_plane
    if plane is None:
        raise ValueError("the result has no data plane")
    bandwidth = plane.bandwidth if with_plots else None
    return {
        "plane": plane,
        "matrices": matrices(plane),
        "statuses": Counter(case.status for case in plane.cases),
        "failed": [case for case in plane.cases if case.status == "failed"],
        "bytes_proven": sum(case.bytes_proven for case in plane.cases),
        "kinds": plane.caught_by_kind(),
        "speeds_plot": drawn(speeds_plot, bandwidth) if bandwidth and bandwidth.moves else "",
        "costs_plot": drawn(costs_plot, bandwidth.host_costs) if bandwidth and bandwidth.host_costs else "",
        "comparison_plot": drawn(comparison_plot, plane.comparisons) if with_plots and plane.comparisons else "",
        "size": size,
        "percent": percent,
    }


def drawn(plot: Callable[[Data], str], data: Data) -> Markup:
    """The plot of the data, or a sentence if matplotlib is not installed.

    Matplotlib makes a folder when it is imported. It is made in kvproof's cache, not in the configuration of the user.
    """
    from markupsafe import Markup

    if reason := reason_missing("device", "This plot"):
        return Markup("<p>{}</p>").format(reason)
    with suppress(RuntimeError):  # the user has no home: Matplotlib takes a temporary folder
        os.environ.setdefault("MPLCONFIGDIR", str(cache_folder() / "matplotlib"))
    return Markup(plot(data))


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


if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which can be distinguished with any colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
WIDTH_INCHES, BAR_INCHES = 9.0, 0.2


def speeds_plot(bandwidth: Bandwidth) -> str:
    """Ratios to plain copies. A bar ends at the median; a line goes from the 5th to the 95th percentile."""
    return _bars(
        [*bandwidth.moves, *bandwidth.verification], "ratio to a plain copy of as many bytes, in the same rounds"
    )


def costs_plot(costs: Sequence[HostCost]) -> str:
    """Microseconds that each pair takes on the host, by executor and mapping."""
    names = list(dict.fromkeys(cost.executor for cost in costs))
    kinds = list(dict.fromkeys(cost.mapping for cost in costs))
    figure, axes = _figure(len(costs))
    for index, name in enumerate(names):
        mine = {cost.mapping: cost.microseconds_per_pair for cost in costs if cost.executor == name}
        places = [_place(kinds.index(kind), index, len(names)) for kind in mine]
        middles = [one.median for one in mine.values()]
        axes.barh(places, middles, 0.8 / len(names), label=name, color=COLOURS[index % len(COLOURS)])
    _finish(axes, kinds, "microseconds on the host for each pair, with tiny blocks")
    return _svg(figure)


def comparison_plot(comparisons: Sequence[Comparison]) -> str:
    """The change of each ratio since the baseline, in front of the band of noise."""
    figure, axes = _figure(len(comparisons))
    names = [f"{one.name}, {one.mapping}" for one in comparisons]
    for place, one in enumerate(comparisons):
        axes.barh(place, 200 * one.band, 0.8, -100 * one.band, color="#DDDDDD")
        axes.plot(100 * one.change, place, "o", color=COLOURS[5] if one.is_worse else COLOURS[0])
    axes.axvline(0, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("change since the baseline in percent; grey is noise, left is slower")
    return _svg(figure)


def _bars(speeds: Sequence[Speed], label: str) -> str:
    names = list(dict.fromkeys(speed.name for speed in speeds))
    kinds = list(dict.fromkeys(speed.mapping for speed in speeds))
    figure, axes = _figure(len(speeds))
    for index, name in enumerate(names):
        mine = [speed for speed in speeds if speed.name == name]
        places = [_place(kinds.index(speed.mapping), index, len(names)) for speed in mine]
        middles = [speed.ratio.median for speed in mine]
        reach = [
            [speed.ratio.median - speed.ratio.p5 for speed in mine],
            [speed.ratio.p95 - speed.ratio.median for speed in mine],
        ]
        colour = COLOURS[index % len(COLOURS)]
        axes.barh(places, middles, 0.8 / len(names), label=name, color=colour, xerr=reach, error_kw={"linewidth": 0.8})
    axes.axvline(1, color="#000000", linewidth=0.8)
    _finish(axes, kinds, label)
    axes.set_xlim(right=1.25 * max([1.0, *(speed.ratio.median for speed in speeds)]))  # a percentile may be anywhere
    return _svg(figure)


def _place(kind: int, index: int, num_names: int) -> float:
    """The position of the bar of a name in the group of a kind."""
    return kind + (index - (num_names - 1) / 2) * 0.8 / num_names


def _figure(num_bars: int) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, 1.2 + BAR_INCHES * num_bars), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _finish(axes: Axes, kinds: list[str], label: str) -> None:
    axes.set_yticks(range(len(kinds)), kinds)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.figure.legend(loc="outside upper left", ncols=4, frameon=False)


def _svg(figure: Figure) -> str:
    """The drawing as an `svg` element, without the XML header. The output is deterministic."""
    from matplotlib import rc_context

    drawn = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "kvproof"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    return text[text.index("<svg") :]
