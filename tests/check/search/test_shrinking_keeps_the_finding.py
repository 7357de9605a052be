"""Whatever a pass of the shrinker tries, its result refutes in the same way and is no larger; together they end small.

The subject of these tests refutes a run if its operations have some kinds in an order, and if its configuration has
some settings. The runs are those of a walk, at every level.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.check.drawn_runs import SUBJECTS, Run, cheaply, runs

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.search import shrinking
from kvproof.check.search.shrinking import PASSES, Shrinker
from kvproof.spec.trace import Operation

FINDING = Finding("read-back", "wrong")


class Fault:
    """Refutes a run with these kinds of operation in this order, in a configuration with these settings."""

    def __init__(self, kinds: list[str], settings: dict[str, Any]) -> None:
        self.kinds, self.settings = kinds, settings

    def refutes(self, config: Config, operations: list[Operation]) -> bool:
        names: Iterator[str] = (name for name, *_ in operations)
        has_kinds = all(kind in names for kind in self.kinds)
        return has_kinds and all(getattr(config, name) == value for name, value in self.settings.items())


@st.composite
def faulty_runs(draw: st.DrawFn, level: str) -> tuple[Run, Fault]:
    """A run, and a fault that it shows: one to three of its operations matter, and one setting or none."""
    config, operations = draw(runs(level))
    numbers = draw(st.sets(st.integers(0, len(operations) - 1), min_size=1, max_size=3))
    settings = config.as_dict()
    kept = draw(st.sets(st.sampled_from(sorted(settings)), max_size=1)) if settings else set()
    kinds = [operations[number][0] for number in sorted(numbers)]
    return (config, operations), Fault(kinds, {name: settings[name] for name in kept})


def shrunk(run: Run, fault: Fault, passes: Any) -> Counterexample:
    """The result of these passes."""

    def finding_of(subject: object, config: Config, operations: list[Operation]) -> Finding | None:
        return FINDING if fault.refutes(config, operations) else None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shrinking, "finding_of", finding_of)
        return Shrinker(None, Counterexample(*run, FINDING), 1e12).run(passes)


@pytest.mark.parametrize("level", SUBJECTS)
def test_every_pass_keeps_the_finding_and_never_makes_the_run_larger(level: str) -> None:
    @cheaply(25)
    @given(faulty_runs(level), st.sampled_from(PASSES))
    def keeps(drawn: tuple[Run, Fault], one: Any) -> None:
        run, fault = drawn
        found = shrunk(run, fault, (one,))
        assert fault.refutes(found.config, found.operations)
        assert found.finding.kind == FINDING.kind
        assert shrinking.sort_key(found.config, found.operations) <= shrinking.sort_key(*run)

    keeps()


@pytest.mark.parametrize("level", SUBJECTS)
def test_all_passes_together_leave_the_operations_that_matter(level: str) -> None:
    @cheaply(15)
    @given(faulty_runs(level))
    def ends_small(drawn: tuple[Run, Fault]) -> None:
        run, fault = drawn
        found = shrunk(run, fault, PASSES)
        assert fault.refutes(found.config, found.operations)
        assert [name for name, *_ in found.operations] == fault.kinds
        again = shrunk((found.config, found.operations), fault, PASSES)
        assert (again.config, again.operations) == (found.config, found.operations)

    ends_small()
