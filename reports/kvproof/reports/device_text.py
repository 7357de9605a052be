"""The results of the data plane as lines of text, for a terminal and a log."""

from collections import Counter
from collections.abc import Iterator

from kvproof.reports.data_plane_result import Bandwidth, Comparison, DataPlane, Speed

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
