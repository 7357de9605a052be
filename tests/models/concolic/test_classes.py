"""Every method of the small classes, on every path: pinned, proved, replayed on plain numbers, every line reached.

Each path is replayed with concrete values that take it. The method must then end as the path says, and every claim must
be true of plain numbers as it was of terms. So a replay also compares the symbolic numbers with Python's own.
"""

import linecache
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

import pytest
import z3
from tests.models.proofs.proving import SAMPLED, differences, grown, not_proved, proved

from kvproof.impl.swapping import move
from kvproof.models import suites
from kvproof.models.concolic import SCENARIOS
from kvproof.models.concolic import scenario as scenarios
from kvproof.models.concolic.eviction import LONG_SCENARIOS
from kvproof.models.concolic.scenario import Scenario, Shape, explore, obligations_of, replay
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import ProofOutcome
from kvproof.models.suites import OF_CODE

SUBJECTS = list(dict.fromkeys(scenario.subject for scenario in SCENARIOS))

# Scenarios of `move` are about devices without a prefix cache; these lines of it are for those with one.
WITH_A_PREFIX_CACHE = (
    "computed = cache.computed",
    "for old, new in mapping.items():",
    "computed[new] = computed[old]",
    "source.record_access(held, table.last_accessed)",
    "computed, pairs = target.computed, zip(moved, table.contents, strict=False)",
    "target.mark_all_computed([pair for pair in pairs if computed[pair[0]]])",
)


class PathNotTaken(Exception):
    """With values that should take a path, the method does something else: the symbolic numbers are wrong."""


@dataclass(frozen=True)
class Reached:
    """The number of paths of a subject, and the text of its lines that no path reaches."""

    num_paths: int
    lines_missed: tuple[str, ...]


def reached(subject: Any, pairs: Iterable[tuple[Scenario, Shape]]) -> Reached:
    """Replay every path of these scenarios of `subject`. Raises PathNotTaken."""
    codes = list(_codes(subject))
    found: set[tuple[CodeType, int]] = set()
    num_paths = 0
    for scenario, shape in pairs:
        for path in shape.paths:
            ending, claims = _watched(codes, found, partial(replay, scenario, shape.name, path.example))
            false = [claim.sentence for claim in claims if not claim.holds]
            if ending != path.ending or false:
                raise PathNotTaken(
                    f"{scenario.name} {shape.name} with {path.example} {ending}, not {path.ending}; {false}"
                )
            num_paths += 1
    missed = [
        linecache.getline(code.co_filename, line).strip()
        for code in codes
        for line in sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno})
        if (code, line) not in found
    ]
    return Reached(num_paths, tuple(missed))


def _codes(subject: Any) -> Iterator[CodeType]:
    """The code of a function, or of every method and property of a class."""
    methods = list(vars(subject).values()) if isinstance(subject, type) else []
    for part in methods or [subject]:
        function = part.fget if isinstance(part, property) else part
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield code
            yield from (one for one in code.co_consts if isinstance(one, CodeType))


def _watched(codes: list[CodeType], found: set[tuple[CodeType, int]], run: Callable[[], Any]) -> Any:
    watched = set(codes)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in watched:
            return None
        if event == "line":
            found.add((frame.f_code, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run()
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def explored() -> list[tuple[Scenario, Shape]]:
    """Every shape of every scenario, with all of its paths, in the order in which they are proved."""
    return [(scenario, explore(scenario, name)) for scenario in SCENARIOS for name in scenario.shapes]


@pytest.fixture(scope="module")
def made(explored: list[tuple[Scenario, Shape]]) -> list[Obligation]:
    """The obligations of the suite, which takes the shapes that are explored already."""
    known = {(scenario.name, shape.name): shape for scenario, shape in explored}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "explore", lambda scenario, name: known[scenario.name, name])
        return list(suites.obligations_of(OF_CODE))


@pytest.fixture(scope="module")
def outcomes(made: list[Obligation]) -> list[ProofOutcome]:
    return proved(made)


def unproved(pairs: list[tuple[Scenario, Shape]]) -> list[str]:
    found = []
    for scenario, shape in pairs:
        for obligation in obligations_of(scenario, shape):
            solver = z3.Solver()
            solver.add(*(one.formula for one in obligation.hypotheses), obligation.negated_goal())
            if solver.check() != z3.unsat:
                found.append(obligation.id)
    return found


def test_the_claims_are_those_that_are_pinned(made: list[Obligation]) -> None:
    assert differences(made, {OF_CODE}) == []


def test_what_is_not_recorded_and_a_sample_of_what_is_are_proved(outcomes: list[ProofOutcome]) -> None:
    assert not_proved(outcomes) == []
    assert len(outcomes) > 140 // SAMPLED
    assert not all(one.is_trivial for one in outcomes)


def test_no_proof_takes_half_as_much_effort_again_as_the_baseline(outcomes: list[ProofOutcome]) -> None:
    assert grown(outcomes) == []


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__)
def test_every_path_keeps_the_invariant_and_reaches_every_line(
    subject: object, explored: list[tuple[Scenario, Shape]]
) -> None:
    pairs = [(scenario, shape) for scenario, shape in explored if scenario.subject is subject]
    report = reached(subject, pairs)
    assert report.num_paths == sum(len(shape.paths) for _, shape in pairs) > 0
    assert report.lines_missed == (WITH_A_PREFIX_CACHE if subject is move else ())


# What is in the queue is in order, so few paths are left where one block waits; that no other path exists is proved.
NUM_PATHS = {
    "queue empty, heap empty, waiting 0123": 648,
    "queue 0, heap empty, waiting 123": 648,
    "queue 01, heap empty, waiting 23": 206,
    "queue 01, heap 2, waiting 3": 112,
    "queue 0123, heap empty, waiting 4": 18,
    "queue 0123, heap x, waiting x": 1043,
}


@pytest.mark.long
@pytest.mark.parametrize("name", list(LONG_SCENARIOS[0].shapes))
def test_the_evictor_is_right_where_blocks_may_come_in_many_orders(name: str) -> None:
    scenario = LONG_SCENARIOS[0]
    pairs = [(scenario, explore(scenario, name))]
    assert len(pairs[0][1].paths) == NUM_PATHS[name]
    assert unproved(pairs) == []
    reached(scenario.subject, pairs)


def test_every_obligation_has_a_name_of_its_own_and_a_property(made: list[Obligation]) -> None:
    assert len({one.id for one in made}) == len(made) > 140


def test_a_path_that_is_left_out_is_missed() -> None:
    scenario = next(one for one in SCENARIOS if one.name == "LRUEvictor.update")
    shape = explore(scenario, list(scenario.shapes)[-1])
    assert len(shape.paths) > 1
    for left_out in range(len(shape.paths)):
        paths = shape.paths[:left_out] + shape.paths[left_out + 1 :]
        *_, no_other = obligations_of(scenario, Shape("", shape.assumptions, paths, 0))
        assert no_other.claim == "no other path"
        solver = z3.Solver()
        solver.add(*(one.formula for one in no_other.hypotheses), no_other.negated_goal())
        assert solver.check() == z3.sat
