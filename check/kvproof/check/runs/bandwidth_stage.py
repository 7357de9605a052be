"""The stage that measures speeds. A speed is not a property and refutes nothing, but it can be worse than before.

A baseline asks whether something is slower. If a speed of the baseline was not measured, the answer is not
known: for each executor of the run that the baseline has timed, a witness expects that its speeds were compared.
"""

from collections import Counter
from collections.abc import Iterator

from kvproof.check.runs.data_plane_stage import DataPlaneOptions
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.verdicts import NO_TIME
from kvproof.reports.data_plane_result import Bandwidth, DataPlane
from kvproof.reports.result import WitnessCount

TIMER = "speed"


def timing_stage(
    options: DataPlaneOptions, share: float, seconds_max: float, baseline: Bandwidth | None, source: str
) -> Stage:
    """Time the executors that moved every byte right, and compare their speeds with a baseline.

    source: what a message calls the baseline.
    """

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        from kvproof.check.data_plane.device import is_out_of_memory
        from kvproof.check.data_plane.executors import named
        from kvproof.check.data_plane.memory.layouts import Layout, layout_named
        from kvproof.check.data_plane.speed.bandwidth import BandwidthConfig, NoSpeeds, run_bandwidth

        plane = options.plane
        wrong = {case.executor for case in plane.cases if case.status == "failed"}
        failed = [f"{name}: a correctness case failed" for name in sorted(wrong)]
        right = [named(name) for name in options.executors if name not in wrong]
        config = BandwidthConfig(
            executors=tuple(one for one in right if not one.untimed),
            device=options.device,
            layout=layout_named(options.layouts[0]) if options.layouts else Layout.TWO_PLANES,
            dtype=options.dtypes[0] if options.dtypes else "bfloat16",
            seed=budget.seed,
            seconds=min(budget.seconds, seconds_max),
        )
        if options.device != "cpu":
            config = config.on_cuda()
        try:
            if budget.seconds <= 0:
                raise NoSpeeds(NO_TIME)
            if not config.executors and any(one.untimed for one in right):
                raise NoSpeeds("; ".join(f"{one.name} was not timed: {one.untimed}" for one in right))
            if options.broken:
                raise NoSpeeds(f"an executor broke the device: {options.broken[0]}")
            if wrong and not right:
                raise NoSpeeds("; ".join(failed))
            with budget.within_the_run():
                speeds = run_bandwidth(config, lambda what, done, total: budget.advance(done))
        except (NoSpeeds, MemoryError, RuntimeError) as error:
            if not (isinstance(error, NoSpeeds) or is_out_of_memory(error)):
                raise
            why = str(error) if isinstance(error, NoSpeeds) else "memory ran out"
            plane.notes.append(f"No speed was measured: {why}.")
            if baseline is not None:
                plane.baseline = f"{source} was not compared: no speed was measured."
                yield from _answered(options, baseline)
            return
        speeds.skipped += failed
        speeds.skipped += [f"{one.name}: {one.untimed}" for one in right if one.untimed]
        plane.bandwidth = speeds
        if baseline is not None:
            _compare(plane, speeds, baseline, source)
            yield from _answered(options, baseline)

    return Stage(TIMER, share, [], run)


def _answered(options: DataPlaneOptions, baseline: Bandwidth) -> Iterator[WitnessCount]:
    """How many speeds of each executor were compared; none if one of them was not."""
    from kvproof.reports.device_baseline import untimed

    done = Counter(comparison.name for comparison in options.plane.comparisons)
    for name, missing in untimed(options.plane.bandwidth, baseline, options.executors).items():
        yield WitnessCount(f"compared with the baseline: {name}", TIMER, 0 if missing else done[name])


def _compare(plane: DataPlane, speeds: Bandwidth, baseline: Bandwidth, source: str) -> None:
    """Compare the speeds with a baseline, or say why they are not."""
    from kvproof.reports.device_baseline import compared, difference, host_change, not_compared

    if reason := difference(speeds, baseline):
        plane.baseline = f"{source} was not compared: {reason}."
        return
    plane.comparisons = compared(speeds, baseline)
    missing = not_compared(speeds, baseline)
    plane.baseline = f"Compared with {source}." + (f" This run did not time: {'; '.join(missing)}." if missing else "")
    plane.notes += filter(None, [host_change(speeds, baseline)])
