"""Every goal of a run of the benchmarks in one table: what was measured, the goal, and whether it is met.

A goal of which nothing was measured is listed too, so that the table does not look complete when a part was left out.
Goals in seconds were set on a fast host. What Python does in a second is shown a second time if it misses one, as it
would be there. The C reader and the solver are not: they are slower on a slow host by another factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from benchmarks import (
    driven,
    engines,
    first_sight,
    growth,
    judge_growth,
    judges,
    pools,
    proofs,
    recorded_calls,
    recorded_managers,
    searches,
    workers,
)
from benchmarks.manager import Goal

Slow = float | None  # how many times as long the host takes as that of the goals


def at_least(name: str, measured: float | None, limit: float, slow: Slow = None) -> Goal:
    """A goal that a large figure meets. measured: None if there is no figure. slow: given for a count in a second."""
    return _goal(name, f"at least {limit:,g}", measured, slow, lambda figure: figure >= limit)


def at_most(name: str, measured: float | None, limit: float, slow: Slow = None) -> Goal:
    """A goal that a small figure meets. measured: None if there is no figure. slow: given for a time."""
    factor = None if slow is None else 1 / slow
    return _goal(name, f"at most {limit:,g}", measured, factor, lambda figure: figure <= limit)


def _goal(
    name: str, wanted: str, measured: float | None, factor: float | None, is_enough: Callable[[float], bool]
) -> Goal:
    """A goal. factor: the figure times this is that of the host of the goals; None if the host does not matter."""
    if measured is None:
        return Goal(name, wanted, "", None)
    goal = Goal(name, wanted, _text(measured), is_enough(measured))
    if factor is None:
        return goal
    return replace(goal, scaled=_text(measured * factor), is_met_scaled=is_enough(measured * factor))


def _text(figure: float) -> str:
    return f"{figure:,.3g}" if figure < 1_000 else f"{figure:,.0f}"


def of_judges(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """Walker, start and plugin."""
    for name, least in judges.GOALS.items():
        yield at_least(f"walker on {name}, operations/s", found[name], least, slow)
    yield at_most("hunt to its first operation, CPU s", found["start s"], judges.START_MAX, slow)
    yield at_most("plugin of pytest, CPU s", found["plugin s"], judges.PLUGIN_MAX, slow)


def of_sights(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """First sights of known faults."""
    for name, goal in first_sight.GOALS.items():
        most = round(goal.scaled(found["slowness"]), 4)
        yield at_most(f"{name} seen, CPU s of the walk", found.get(name, {}).get("median s"), most)


def of_searches(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """The specification in C."""
    for name in searches.EXPLORED:
        one = found.get(name, {})
        yield at_least(f"C reader, {name}, states/s", one.get("states/s"), searches.STATES_MIN)
        yield at_least(f"C reader, {name}, transitions/s", one.get("transitions/s"), searches.TRANSITIONS_MIN)


def of_proofs(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """The prover, by the clock."""
    for name, most in proofs.GOALS.items():
        yield at_most(f"prove, {name}, s", found[name][0], most)


def of_manager(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """The built-in manager beside vLLM V0."""
    for mode in driven.MODES:
        for goal in found[mode]["goals"]:
            yield Goal(**goal | {"name": f"{driven.THEIRS} / kvproof, {mode}: {goal['name']}"})


def of_engines(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """The built-in manager beside vLLM V1 and nano-vllm."""
    for mode in engines.MODES:
        for row, by in found[mode].items():
            for name in (engines.V1, engines.NANO):
                ratio = by[name] / by[engines.OURS] if name in by else None
                yield at_least(f"{name} / kvproof, {mode}: {row}", ratio, 1)


def of_calls(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """How calls of the built-in manager grow with a sequence."""
    for mode in driven.MODES:
        for call, one in found[mode][driven.OURS].items():
            most = growth.FLAT_EXPONENT_MAX if call in growth.FLAT else growth.LINEAR_EXPONENT_MAX
            yield at_most(f"exponent of {call}, {mode}", one["exponent"], most)


def of_pools(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """How judging grows with the pool."""
    for level, one in found.items():
        yield at_most(f"exponent of judging, blocks of the pool of a {level}", one["exponent"], pools.EXPONENT_MAX)


def of_judging(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """How judging grows with everything else."""
    for name, (most, _, _) in judge_growth.CURVES.items():
        yield at_most(f"exponent of judging, {name}", found[name]["exponent"], most)


def of_recording(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """What recording adds to a call: to the mean of a served request, and to a call of each phase; the worst size."""
    limit, line = recorded_calls.GOAL_US, found["recording"]["us/line"]
    yield at_most("recording, the built-in manager, us a call", line, limit, slow)
    for kind in recorded_managers.MANAGERS:
        one = found["engines"].get(kind.name)
        mean = None if one is None else max(one["served"].values())
        yield at_most(f"recording, {kind.name}, us a call, mean of a request", mean, limit, slow)
        for phase, cost in ({} if one is None else one["phases"]).items():
            yield at_most(f"recording, {kind.name}, {phase}, us a call", cost["worst us"], limit, slow)


def of_workers(found: Mapping[str, Any], slow: Slow) -> Iterator[Goal]:
    """What two workers gain by the clock, and what they cost the processors."""
    for title in workers.OF_HUNTS:
        clock, processor = found[title]["one process"]
        seconds, used = found[title]["--workers 2"]
        yield at_least(f"{title}, two workers, gain by the clock", clock / seconds, workers.GAIN_MIN)
        yield at_most(f"{title}, two workers, processor seconds to one process", used / processor, workers.RATIO_MAX)


OF = {
    "judges": of_judges,
    "first_sight": of_sights,
    "searches": of_searches,
    "proofs": of_proofs,
    "manager": of_manager,
    "engines": of_engines,
    "growth": of_calls,
    "pools": of_pools,
    "judge_growth": of_judging,
    "recording": of_recording,
    "workers": of_workers,
}


def goals(figures: Mapping[str, Any]) -> list[Goal]:
    """The goals of the benchmarks that ran."""
    slow = figures.get("slowness", {})
    return [goal for name, of in OF.items() if name in figures for goal in of(figures[name], slow.get(name))]


def report(figures: Mapping[str, Any]) -> None:
    """Print the table."""
    found, slow = goals(figures), figures.get("slowness", {}).values()
    if not found:
        return
    width = max(len(goal.name) for goal in found)
    print(f"goals: {sum(goal.is_met is True for goal in found)} of {len(found)} met")
    if slow:
        num_scaled = sum((goal.is_met_scaled if goal.scaled else goal.is_met) is True for goal in found)
        print(
            f"  fixed work takes {min(slow):.1f} to {max(slow):.1f} times as long as on the host of the goals; "
            f"with seconds scaled to it, {num_scaled} are met"
        )
    for goal in found:
        state = {True: "met", False: "missed", None: "not measured"}[goal.is_met]
        if goal.scaled and not (goal.is_met and goal.is_met_scaled):
            state += f"; scaled {goal.scaled}: {'met' if goal.is_met_scaled else 'missed'}"
        print(f"  {goal.name:<{width}}  {goal.measured:>16}  {goal.wanted:<24}  {state}")
