"""Programs that nobody wrote: the translator against native runs, on drawn programs of the language and drawn states.

Run `pytest -s` to see what was compared, and the share of programs that used each construct.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, find, settings
from tests.models.crosscheck.comparing import Comparison
from tests.models.crosscheck.programs import CONSTRUCTS, NUM_IN_RUN, Program, check_programs, programs
from tests.models.crosscheck.running import loaded

from kvproof.models.translation.errors import NotInLanguage

NUM_PROGRAMS, NUM_PROGRAMS_LONG = 50, 10_000
NUM_SIZES, NUM_STATES = 2, 3


class Figures:
    """What was compared so far, and how many programs used each construct."""

    def __init__(self) -> None:
        self.counts, self.used = Counter[str](), Counter[str]()

    def compare(self, program: Program, seed: int) -> None:
        """Compare a program on states of a seed. A program that divides by a known 0 is refused, which is right."""
        with loaded(program.source) as text:
            self.counts["programs"] += 1
            self.used.update(program.used.keys())
            try:
                comparison = Comparison(text)
            except NotInLanguage as error:
                assert error.what.startswith("division by "), error  # noqa: PT017  # what else it raises is an error
                self.counts["programs that divide by a known number that is not positive"] += 1
                return
            comparison.compare(Random(seed), NUM_SIZES, NUM_STATES)
            self.counts += comparison.counts

    def __str__(self) -> str:
        num_programs = self.counts["programs"]
        shares = [f"{name}: {100 * times / num_programs:.1f} %" for name, times in self.used.most_common()]
        counts = [f"{name}: {times:,}" for name, times in self.counts.items()]
        return "\n".join([", ".join(counts), "of the programs have: " + ", ".join(shares)])


def compared(num_programs: int) -> Figures:
    figures = Figures()
    for number in range(-(-num_programs // NUM_IN_RUN)):
        check_programs(number, figures.compare)
    print(figures)
    return figures


UNREAD = """
class State:
    f0: object = real(BLOCKS, to=COUNTS, start=1)


@dataclass(frozen=True)
class Pair:
    total: Count


@rule
def advance(state: State, b: Count) -> None:
    b += b
    a = (b - 5) // b + b
    state.f0[0] = b


@invariant("some-property")
def first_claim(state: State) -> bool:
    return state.f0[0] > 0


@predicate
def is_kept(start: State, state: State, pair: Pair) -> bool:
    return start.f0[0] <= pair.total
"""


def test_the_value_of_a_local_that_nothing_reads_must_be_defined_for_both_readers() -> None:
    with loaded(UNREAD) as text:
        comparison = Comparison(text)
        comparison.compare(Random(1), NUM_SIZES, 20)
    assert comparison.counts["undefined"] > 5
    assert comparison.counts["fired"] > 5


def test_the_translator_and_python_agree_on_fifty_programs_that_nobody_wrote() -> None:
    figures = compared(NUM_PROGRAMS)
    assert figures.counts["programs"] >= NUM_PROGRAMS
    assert CONSTRUCTS - figures.used.keys() == set()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_translator_and_python_agree_on_ten_thousand_programs_that_nobody_wrote() -> None:
    figures = compared(NUM_PROGRAMS_LONG)
    assert figures.counts["programs"] >= NUM_PROGRAMS_LONG
    assert min(figures.used[one] for one in CONSTRUCTS) >= NUM_PROGRAMS_LONG / 100


SMALLEST_WITH_A_NESTED_QUANTIFIER = """
class State:
    f0: object = real(BLOCKS, SLOTS, to=IDENTITIES, start=0)
    f1: object = real(BLOCKS, to=FLAGS, start=False)


@dataclass(frozen=True)
class Pair:
    seq: SeqId
    total: Count
    ages: Ages


@rule
def advance(state: State, a: Count) -> None:
    a = 0


@predicate
def is_kept(start: State, state: State, pair: Pair) -> bool:
    return pair.total <= 0 or all(all((0 == 0) for a in BLOCKS) for a in BLOCKS)
"""


@pytest.mark.long
def test_a_program_that_fails_shrinks_to_what_fails() -> None:
    found = find(
        programs(),
        lambda program: program.used["nested quantifier"] > 0,
        settings=settings(database=None, deadline=None, max_examples=200, suppress_health_check=list(HealthCheck)),
        random=Random(1),
    )
    assert found.source == SMALLEST_WITH_A_NESTED_QUANTIFIER.removeprefix("\n")
