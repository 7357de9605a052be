"""Each kind of mapping is what its name says, and is made again by its seed."""

from __future__ import annotations

import pytest

from kvproof.check.data_plane.mappings import ADVERSARIAL, KINDS, scenario
from kvproof.check.data_plane.mappings.scheduled import LOADS
from kvproof.check.data_plane.memory.layouts import UnknownSetting
from kvproof.check.data_plane.memory.pattern import Kind, unpack
from kvproof.check.data_plane.steps.interpreter import Interpreter
from kvproof.check.data_plane.steps.moves import Moves, Pair, PoolId, Scenario


def pairs_of(made: Scenario, name: str) -> list[Pair]:
    return [pair for step in made.steps for pair in getattr(step.moves, name)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_the_same_scenario_again(kind: str) -> None:
    assert scenario(kind, 3, 20, 14, 4) == scenario(kind, 3, 20, 14, 4)


@pytest.mark.parametrize("kind", ["one", "permutation", "mixed", "heavy-swapping", "beam-search"])
def test_another_seed_makes_another_scenario(kind: str) -> None:
    assert scenario(kind, 3, 20, 14, 4).steps != scenario(kind, 4, 20, 14, 4).steps


@pytest.mark.parametrize("kind", ADVERSARIAL)
@pytest.mark.parametrize("sizes", [(2, 1), (2, 2), (5, 3), (3, 7), (24, 20)])
def test_adversarial_kinds_fit_pools_of_any_size(kind: str, sizes: tuple[int, int]) -> None:
    made = scenario(kind, 0, *sizes, 4)
    for step in made.steps:
        for _, source, target, pairs in step.moves.lists():
            assert all(0 <= s < sizes[source] and 0 <= t < sizes[target] for s, t in pairs)
        assert all(0 <= write.first_slot < write.first_slot + write.num_slots <= 4 for write in step.writes)


def test_every_kind_but_the_empty_one_moves_something() -> None:
    assert [kind for kind in KINDS if not scenario(kind, 0, 24, 20, 4).num_pairs] == ["empty"]


def test_everything_is_every_block_of_the_smaller_pool() -> None:
    made = scenario("all", 0, 6, 4, 4)
    assert pairs_of(made, "swap_out") == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert pairs_of(made, "copy") == [(0, 3), (1, 4), (2, 5)]


def test_fragments_hold_no_two_neighbours() -> None:
    for name in ("swap_in", "swap_out", "copy"):
        pairs = set(pairs_of(scenario("fragments", 0, 24, 20, 4), name))
        assert pairs
        assert not any((source + 1, target + 1) in pairs for source, target in pairs)


def test_long_runs_are_runs() -> None:
    pairs = sorted(pairs_of(scenario("long-runs", 0, 24, 20, 4), "swap_out"))
    assert pairs == [(block, block + 1) for block in range(19)]


@pytest.mark.parametrize("kind", LOADS)
def test_a_scheduler_under_pressure_swaps_both_ways_frees_and_writes(kind: str) -> None:
    made = scenario(kind, 0, 24, 20, 4)
    assert pairs_of(made, "swap_out")
    assert pairs_of(made, "swap_in")
    assert any(step.freed_gpu for step in made.steps)
    assert any(step.freed_cpu for step in made.steps)
    assert bool(pairs_of(made, "copy")) == (LOADS[kind].num_beams > 1)
    assert any(write.num_slots < 4 for step in made.steps for write in step.writes)


@pytest.mark.parametrize("kind", LOADS)
def test_a_scheduler_moves_only_blocks_that_were_written_and_are_not_free(kind: str) -> None:
    made = scenario(kind, 0, 24, 20, 4)
    interpreter = Interpreter(24, 20, 4)
    for block in range(24):
        interpreter.poison(PoolId.GPU, block)
    for step in made.steps:
        for name, source, _, pairs in step.moves.lists():
            for block, _ in pairs:
                assert unpack(int(interpreter.tags[source][block, 0])).kind == Kind.DATA
            interpreter.move(Moves(**{name: pairs}))
        for pool, block in interpreter.freed(step):
            interpreter.poison(pool, block)
        for write in step.writes:
            interpreter.write(write.block, list(range(write.first_slot, write.first_slot + write.num_slots)))


def test_a_walk_holds_swaps_both_ways_and_copies() -> None:
    made = scenario("walked", 0, 24, 20, 4)
    assert all(pairs_of(made, name) for name in ("swap_in", "swap_out", "copy"))
    assert len(set(made.steps)) == len(made.steps)
    assert len(scenario("walked", 0, 8, 8, 4).steps) < len(made.steps)  # what does not fit smaller pools is left out


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownSetting, match=r"no kind of mapping is named 'permutations'; did you mean permutation\?"):
        scenario("permutations", 0, 4, 4, 4)
