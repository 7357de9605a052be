"""Compare two results: `kvproof compare A B`. What is worse and better is what `reports/baseline.py` says of A as a
baseline of B; in addition, the verdicts that became stronger, what is reached for the first time, and the speeds.

The exit code is that of a gate with a baseline: 6 if anything is worse, else 0. The speed of one run says little, as it
has noise; so operations per second are shown and decide nothing. The speeds of data planes have their noise with them
and decide, as `kvproof device --baseline` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvproof.reports.baseline import STRENGTH, difference, is_same_subject, what_differs
from kvproof.reports.device_baseline import compared
from kvproof.reports.device_baseline import difference as why_not
from kvproof.reports.document import DocumentError
from kvproof.reports.recorded_run import STEPS
from kvproof.reports.result import Result
from kvproof.reports.summary import judges, properties, weakest_verdict, work
from kvproof.spec.verdict import Exit


@dataclass
class ComparedResults:
    """What is different in result B. notes: what is different and neither worse nor better."""

    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> Exit:
        return Exit.WORSE_THAN_BASELINE if self.worse else Exit.OK


def compare(name: str, before: Result, now: Result) -> ComparedResults:
    """Compare the result `now` with the result `before` of this name. Raises DocumentError for different subjects."""
    if not is_same_subject(before.run.subject, now.run.subject):
        raise DocumentError(
            f"{name} is a result of {before.run.subject}, and the other one of {now.run.subject}: results of different "
            "subjects are not compared"
        )
    found = difference(name, before, now)
    done = ComparedResults(list(found.worse), list(found.better))
    done.better += [*_stronger(before, now), *_newly_reached(before, now)]
    done.notes += [*what_differs(name, before.run, now.run), *_speed(before, now)]
    _compare_moves(before, now, done)
    return done


def _stronger(before: Result, now: Result) -> Iterator[str]:
    """The properties of each judge whose weakest verdict is stronger now; refutations are findings."""
    gained: dict[tuple[str, str, str], list[str]] = {}
    for judge in judges(now):
        for name in properties(now):
            was, found = (weakest_verdict(result, name, judge) for result in (before, now))
            if was in STRENGTH and found in STRENGTH and STRENGTH[found] > STRENGTH[was]:
                gained.setdefault((judge, was.value, found.value), []).append(name)
    for (judge, old, new), names in gained.items():
        yield f"stronger: {judge}: {', '.join(names)}: {old} before, now {new}"


def _newly_reached(before: Result, now: Result) -> Iterator[str]:
    known = {(witness.judge, witness.name) for witness in before.witnesses if witness.count}
    there = {witness.judge for witness in before.witnesses}
    for judge in dict.fromkeys(witness.judge for witness in now.witnesses if witness.judge in there):
        names = [
            witness.name
            for witness in now.witnesses
            if witness.judge == judge and witness.count and (judge, witness.name) not in known
        ]
        if names:
            yield f"newly reached: {judge}: {', '.join(names)}"


def operations_per_second(result: Result) -> float | None:
    """The operations and transitions of all judges per second of processor time; None if either is not known."""
    done = sum(count for units in work(result).values() for unit, count in units.items() if unit in STEPS)
    return done / result.run.processor_seconds if done and result.run.processor_seconds else None


def _speed(before: Result, now: Result) -> Iterator[str]:
    was, found = operations_per_second(before), operations_per_second(now)
    if was and found:
        yield (
            f"speed: {was:,.0f} operations per processor second before, now {found:,.0f} ({found / was - 1:+.1%}); it "
            "decides nothing, because one run does not show the noise (`kvproof history` does)"
        )


def _compare_moves(before: Result, now: Result, done: ComparedResults) -> None:
    """Compare the speeds of both data planes, if both have some."""
    speeds = [None if result.data_plane is None else result.data_plane.bandwidth for result in (before, now)]
    if speeds[0] is None or speeds[1] is None:
        return
    if reason := why_not(speeds[1], speeds[0]):
        done.notes.append(f"the speeds of the data plane are not compared: {reason}")
        return
    for one in compared(speeds[1], speeds[0]):
        text = f"{one.name}, {one.mapping}: ratio {one.before:.3f} before, now {one.now:.3f} ({one.change:+.1%})"
        if one.is_worse:
            done.worse.append(f"slower: {text}; noise is ±{one.band:.1%}")
        elif one.change > one.band:
            done.better.append(f"faster: {text}; noise is ±{one.band:.1%}")
