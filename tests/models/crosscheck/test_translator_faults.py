"""Each fault of the translator is found: on generated programs, or on programs outside the language."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

import pytest
from tests.models.crosscheck.comparing import Comparison, Disagreement
from tests.models.crosscheck.outside import refused
from tests.models.crosscheck.programs import whole_program
from tests.models.crosscheck.running import loaded
from tests.models.crosscheck.translator_faults import GENERATED, OUTSIDE

from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.planting import in_memory

NUM_PROGRAMS = 400  # that are tried before a fault counts as not found
NUM_PLACES = 20


@contextmanager
def with_fault(fault: Fault) -> Iterator[None]:
    with ExitStack() as stack:
        for edit in fault.plant:
            stack.enter_context(in_memory(edit))
        yield


def compared(fault: Fault, seed: int) -> tuple[bool, int]:
    """Whether the fault is found on one program, and how many cells are compared. A fault that stops it counts not."""
    comparison = None
    with loaded(whole_program(seed).source) as program, with_fault(fault):
        try:
            comparison = Comparison(program)
            comparison.compare(Random(seed), num_sizes=2, num_states=3)
        except Disagreement:
            assert comparison is not None
            return True, comparison.counts["cells"]
        except Exception:  # of any kind: the fault is in the translator
            return False, 0
    return False, comparison.counts["cells"]


def programs_until_found(fault: Fault, first: int) -> tuple[int, int]:
    """How many programs, and cells of states, are compared from the first program on until the fault is found."""
    num_cells = 0
    for seed in range(first, first + NUM_PROGRAMS):
        is_found, num_more = compared(fault, seed)
        num_cells += num_more
        if is_found:
            return seed - first + 1, num_cells
    pytest.fail(f"{fault.id}: not found on {NUM_PROGRAMS} programs")


def refused_anywhere(piece: str) -> int:
    return sum(refused(piece, seed) for seed in range(NUM_PLACES))


@pytest.mark.parametrize("fault", GENERATED, ids=lambda fault: fault.id.replace(" ", "-"))
def test_a_fault_of_the_translator_is_found_on_a_generated_program(fault: Fault) -> None:
    programs_until_found(fault, fault.settings["program"])


@pytest.mark.parametrize("fault", OUTSIDE, ids=lambda fault: fault.id.replace(" ", "-"))
def test_a_fault_of_the_translator_is_found_on_a_program_outside_the_language(fault: Fault) -> None:
    with with_fault(fault), pytest.raises(AssertionError, match=re.escape(fault.settings["piece"])):
        refused_anywhere(fault.settings["piece"])


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_fault_of_the_translator_is_found_within_a_few_programs() -> None:
    for fault in GENERATED:
        num_programs, num_cells = programs_until_found(fault, first=0)
        print(f"{fault.id}: found on program {num_programs}, after {num_cells:,} cells")
        assert num_programs <= NUM_PROGRAMS
