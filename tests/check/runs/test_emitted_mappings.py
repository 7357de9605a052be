"""What another manager emits is linted and moved, and a verdict says whose mappings they were."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvproof.check.data_plane.executors import BUILT_IN
from kvproof.check.data_plane.executors.base import Executor
from kvproof.check.data_plane.mappings.emitted import emitted
from kvproof.check.data_plane.memory.world import Caches
from kvproof.check.data_plane.run.correctness import SMALL
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.check.isolation.factory import factory_for
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.runs.data_plane_stage import NOTHING_TO_MOVE, SECONDS_MIN, EmittingManager, emitted_stages
from kvproof.check.runs.session import Stage, StageBudget
from kvproof.check.subjects.builtin.generation1 import Generation1
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import download
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

SIZES = SMALL.num_gpu_blocks, SMALL.num_cpu_blocks, SMALL.block_size


def verdicts(stage: Stage) -> dict[str, tuple[Verdict, str]]:
    checks = [one for one in stage.run(StageBudget(1, 30.0, lambda count: None)) if isinstance(one, Check)]
    return {check.property: (check.verdict, check.text) for check in checks}


def test_the_first_generation_is_driven_to_swap_both_ways_and_to_copy() -> None:
    made, _ = emitted("kvproof-generation1", Generation1, 1, *SIZES, seconds_max=60.0)
    assert made.kind == "of kvproof-generation1"
    assert len(made.steps) == 60
    for name in ("swap_in", "swap_out", "copy"):
        assert sum(len(getattr(step.moves, name)) for step in made.steps) > 3
    assert max(len(step.moves.swap_out) for step in made.steps) > 3
    assert emitted("kvproof-generation1", Generation1, 1, *SIZES, seconds_max=60.0) == (made, [])


def test_what_it_emits_is_moved_by_our_engine_and_the_report_says_so() -> None:
    (stage,), plane = emitted_stages(EmittingManager("kvproof-generation1", Generation1), Generation1())
    assert verdicts(stage) == dict.fromkeys(
        ("swap-mapping", "cow-copied", "mapping-hazard-free"), (Verdict.NOT_REFUTED, "")
    )
    assert plane is not None
    assert {case.mapping for case in plane.cases} == {"of kvproof-generation1"}
    assert (
        plane.notes[0] == "The mappings are those of kvproof-generation1; the engine that executed them is kvproof's."
    )


def test_an_engine_that_loses_the_last_copy_of_a_step_is_refuted_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(caches: Caches) -> Callable[[Moves], object]:
        move = BUILT_IN["block-copy"].prepare(caches)
        return lambda moves: move(replace(moves, copy=moves.copy[:-1]))

    monkeypatch.setitem(BUILT_IN, "engine", Executor("engine", prepare))
    (stage,), _ = emitted_stages(EmittingManager("kvproof-generation1", Generation1), Generation1())
    checks = verdicts(stage)
    assert checks["cow-copied"][0] is Verdict.REFUTED
    assert "mapping of kvproof-generation1, seed 1: after step " in checks["cow-copied"][1]
    assert "still holds what it held before the step" in checks["cow-copied"][1]
    assert checks["swap-mapping"][0] is not Verdict.REFUTED


@pytest.mark.engine
def test_what_vllm_emits_is_moved_by_our_engine() -> None:
    name = "vllm-v0==0.9.2"
    download.add("vllm==0.9.2")
    make = factory_for(name)
    (stage,), _ = emitted_stages(EmittingManager(name, make), make())
    assert {verdict for verdict, _ in verdicts(stage).values()} == {Verdict.NOT_REFUTED}


def test_when_there_was_no_time_to_emit_anything_nothing_is_claimed() -> None:
    (stage,), plane = emitted_stages(EmittingManager("kvproof-generation1", Generation1), Generation1())
    checks = [one for one in stage.run(StageBudget(1, SECONDS_MIN, lambda count: None)) if isinstance(one, Check)]
    assert {check.verdict for check in checks} == {Verdict.UNKNOWN}
    assert plane is not None
    assert plane.cases == []


class Patient(BuiltIn):
    """A manager that neither swaps nor forks."""

    capabilities = Capabilities()


def test_a_manager_that_emits_nothing_is_unsupported() -> None:
    (stage,), plane = emitted_stages(EmittingManager("patient", Patient), Patient())
    assert plane is None
    assert [(check.verdict, check.text) for check in stage.planned_checks] == [
        (Verdict.UNSUPPORTED, NOTHING_TO_MOVE)
    ] * 3
    assert list(stage.run(StageBudget(1, 30.0, lambda count: None))) == []
