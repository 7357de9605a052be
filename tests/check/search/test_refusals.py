"""What was refused is not drawn again in one step, while as many blocks are free."""

from random import Random

import pytest

from kvproof.check.protocol.manager import Config
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.search.refusals import RefusedOperations
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.trace import Operation

ENABLED = {"new": [], "admit": [1, 2], "append": [3], "reset": []}
FREE = (0, 4)


def test_what_was_refused_is_left_out() -> None:
    refusals = RefusedOperations()
    refusals.note(("new", 3), False, FREE)
    refusals.note(("admit", 2, 5), True, FREE)
    refusals.note(("append", 3), True, FREE)
    refusals.note(("reset",), True, FREE)

    assert refusals.left(ENABLED) == {"new": [], "admit": [1]}


def test_what_was_not_refused_stays() -> None:
    refusals = RefusedOperations()
    refusals.note(("new", 3), False, FREE)
    refusals.note(("admit", 2, 5), False, FREE)

    assert refusals.left(ENABLED) == ENABLED


@pytest.mark.parametrize(("operation", "free"), [(("run", 1), FREE), (("free", 1), (1, 4))])
def test_everything_may_be_asked_again_after_a_step_and_when_other_counts_are_free(
    operation: Operation, free: tuple[int, ...]
) -> None:
    refusals = RefusedOperations()
    refusals.note(("new", 3), False, FREE)
    refusals.note(("append", 3), True, FREE)
    refusals.note(operation, False, free)

    assert refusals.left(ENABLED) == ENABLED


def test_a_run_asks_a_manager_nothing_twice_in_one_step() -> None:
    num_refused = 0
    for seed in range(20):
        config = Config(block_size=2, num_gpu_blocks=4, num_host_blocks=3)
        run = ManagerOperations(BuiltIn(), Random(seed), config)
        refused, free = set[Operation](), run.judge.explainer.observed.free
        for _ in range(80):
            operation = run.draw()
            if operation is None:
                break
            assert operation[:2] not in refused
            run.judge.apply(operation)
            if operation[0] == "run" or run.judge.explainer.observed.free != free:
                refused.clear()
                free = run.judge.explainer.observed.free
            elif run.judge.is_refused:
                refused.add(operation[:2])
                num_refused += 1
    assert num_refused > 50
