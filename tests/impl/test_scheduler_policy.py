"""The rules of the policy: limits, prompts, chunks, and preemption by recompute and by swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.impl import InvalidValueError
from kvproof.impl.scheduler import PreemptionMode, SchedulerConfig

Make = Callable[..., Any]

# Configuration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("max_num_seqs", {"max_num_seqs": 0}),
        ("max_model_len", {"max_model_len": 0}),
        ("max_num_batched_tokens", {"max_num_batched_tokens": 0, "max_num_seqs": 1}),
        ("max_num_batched_tokens", {"max_num_batched_tokens": 4, "max_num_seqs": 5, "max_model_len": 4}),
        ("max_num_batched_tokens", {"max_num_batched_tokens": 8, "max_num_seqs": 2, "max_model_len": 9}),
        ("num_lookahead_slots", {"num_lookahead_slots": -1}),
        ("preemption_mode", {"preemption_mode": "sideways"}),
    ],
)
def test_a_configuration_that_would_starve_someone_is_refused(name: str, config: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=name):
        SchedulerConfig(**config)


def test_with_chunked_prefill_a_step_may_be_shorter_than_a_prompt() -> None:
    config = SchedulerConfig(8, 2, max_model_len=9, chunked_prefill_enabled=True)
    assert config.max_num_batched_tokens == 8


# Prompts --------------------------------------------------------------------------------------------------------------


def test_prompts_are_admitted_in_order_and_a_step_of_prompts_decodes_nothing(new_engine: Make) -> None:
    engine = new_engine()
    engine.add(5, "a")
    assert engine.step() == [("a", 5)]
    engine.add(3, "b")
    engine.add(4, "c")
    assert engine.step() == [("b", 3), ("c", 4)]
    assert engine.outputs.num_prefill_groups == 2
    assert engine.step() == [("a", 1), ("b", 1), ("c", 1)]
    assert engine.outputs.num_prefill_groups == 0


def test_a_prompt_that_must_wait_lets_nobody_past(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=4)
    engine.add(8, "a")
    engine.add(12, "large")
    engine.add(1, "small")
    assert engine.step() == [("a", 8)]
    assert engine.step() == [("a", 1)]
    assert engine.queues() == (["large", "small"], ["a"], [])


def test_the_token_budget_bounds_the_prompts_of_a_step(new_engine: Make) -> None:
    engine = new_engine(max_num_batched_tokens=10, max_num_seqs=4, max_model_len=10)
    for name in "abc":
        engine.add(4, name)
    assert engine.step() == [("a", 4), ("b", 4)]
    assert engine.outputs.num_batched_tokens == 8
    assert engine.step() == [("c", 4)]


def test_the_sequence_budget_counts_running_sequences(new_engine: Make) -> None:
    engine = new_engine(max_num_seqs=2)
    for name in "abc":
        engine.add(1, name)
    assert engine.step() == [("a", 1), ("b", 1)]
    assert engine.step() == [("a", 1), ("b", 1)]
    engine.scheduler.abort_seq_group("a")
    assert engine.step() == [("c", 1)]


@pytest.mark.parametrize(("num_tokens", "num_seqs"), [(33, 1), (21, 1), (4, 5)])
def test_a_request_that_can_never_run_is_ignored(num_tokens: int, num_seqs: int, new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=8, max_model_len=20, max_num_seqs=4)
    group = engine.add(num_tokens, "too large", num_seqs)
    engine.add(2, "next")
    assert engine.step() == [("next", 2)]
    assert engine.outputs.ignored_seq_groups == [group]
    assert set(engine.statuses(group)) == {"FINISHED_IGNORED"}
    assert engine.scheduler.get_num_unfinished_seq_groups() == 1


def test_what_the_manager_will_never_have_room_for_is_ignored(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=2)
    group = engine.add(9, "too large")
    assert engine.step() == []
    assert engine.outputs.ignored_seq_groups == [group]
    assert not engine.scheduler.has_unfinished_seqs()


def test_the_waiting_sequences_of_a_group_share_one_prompt(new_engine: Make) -> None:
    engine = new_engine()
    group = engine.add(5, "a", num_seqs=3)
    assert engine.step() == [("a", 5)]
    assert engine.manager.get_num_free_gpu_blocks() == 6
    assert engine.step() == [("a", 1)]
    assert len(engine.outputs.blocks_to_copy) == 2
    assert len({engine.manager.get_block_table(seq)[-1] for seq in group.seqs}) == 3


def test_tokens_hit_in_the_prefix_cache_cost_no_budget(new_engine: Make) -> None:
    engine = new_engine(manager={"enable_caching": True}, max_num_batched_tokens=9, max_num_seqs=4, max_model_len=9)
    engine.add(9, "a")
    engine.step()
    engine.add(8, "b")
    engine.add(9, "c")
    assert engine.schedule() == [("b", 8), ("c", 9)]
    assert [s.num_cached_tokens for s in engine.outputs.scheduled_seq_groups] == [7, 8]
    assert engine.outputs.num_batched_tokens == 2


# Chunks ---------------------------------------------------------------------------------------------------------------


def test_decodes_and_chunks_share_one_budget(chunked: Make) -> None:
    engine = chunked()
    engine.add(2, "a")
    engine.add(11, "b")
    assert engine.step() == [("a", 2), ("b", 4)]
    assert engine.step() == [("b", 5), ("a", 1)]
    assert engine.outputs.num_prefill_groups == 1
    assert engine.step() == [("b", 2), ("a", 1)]
    assert engine.step() == [("a", 1), ("b", 1)]


def test_a_chunk_that_does_not_end_the_prompt_samples_nothing(chunked: Make) -> None:
    engine = chunked()
    group = engine.add(7, "a")
    engine.step()
    assert group.seqs[0].get_output_len() == 0
    engine.step()
    assert group.seqs[0].get_output_len() == 1


def test_a_group_of_several_sequences_is_computed_whole(chunked: Make) -> None:
    engine = chunked()
    engine.add(3, "a")
    engine.add(6, "pair", num_seqs=2)
    assert engine.step() == [("a", 3)]
    assert engine.step() == [("a", 1)]
    engine.scheduler.abort_seq_group("a")
    assert engine.step() == [("pair", 6)]


def test_a_hit_is_part_of_the_first_chunk(chunked: Make) -> None:
    engine = chunked(manager={"enable_caching": True})
    engine.add(9, "a")
    engine.step()
    engine.step()
    engine.add(11, "b")
    assert engine.schedule() == [("b", 11), ("a", 1)]
    assert engine.outputs.num_batched_tokens == 4


# Preemption -----------------------------------------------------------------------------------------------------------


def test_who_came_last_is_preempted_first_and_keeps_its_tokens(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=4)
    first, last = engine.add(8, "first"), engine.add(8, "last")
    engine.step()
    assert engine.step() == [("first", 1)]
    assert engine.outputs.preempted == 1
    assert engine.queues() == (["last"], ["first"], [])
    assert last.seqs[0].get_token_ids() == [1] * 8 + [7]
    assert last.seqs[0].data.get_num_computed_tokens() == 0
    engine.scheduler.abort_seq_group(first.request_id)
    assert engine.step() == [("last", 9)]


def test_a_preempted_request_goes_before_those_that_came_later(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=4, max_num_seqs=2)
    for name in ("first", "second", "third"):
        engine.add(8, name)
    engine.step()
    engine.step()
    assert engine.queues() == (["second", "third"], ["first"], [])


def test_alone_and_without_room_a_request_ends_with_what_it_has(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=2)
    group = engine.add(8, "a")
    assert engine.step() == [("a", 8)]
    assert engine.step() == []
    assert engine.outputs.preempted == 1
    assert engine.step() == []
    assert engine.outputs.ignored_seq_groups == [group]
    assert engine.statuses(group) == ["FINISHED_LENGTH_CAPPED"]
    assert engine.is_empty()


def test_several_sequences_are_swapped_and_come_back(beams: Make) -> None:
    engine, group = beams(num_cpu_blocks=3)
    assert engine.step() == [("single", 1)]
    assert engine.queues() == ([], ["single"], ["pair"])
    assert len(engine.outputs.blocks_to_swap_out) == 3
    assert engine.statuses(group) == ["SWAPPED"] * 2
    assert engine.step() == [("single", 1)]
    engine.scheduler.abort_seq_group("single")
    assert engine.step() == [("pair", 1)]
    assert len(engine.outputs.blocks_to_swap_in) == 3
    assert engine.queues() == ([], ["pair"], [])


def test_without_room_on_the_host_a_group_of_several_is_aborted(beams: Make) -> None:
    engine, group = beams(num_cpu_blocks=2)
    assert engine.step() == [("single", 1)]
    assert engine.outputs.aborted_seq_groups == [group]
    assert engine.statuses(group) == ["FINISHED_ABORTED"] * 2
    assert engine.queues() == ([], ["single"], [])
    assert engine.manager.get_num_free_gpu_blocks() == 2


def test_nothing_is_swapped_in_in_a_step_that_preempts(beams: Make) -> None:
    engine, _ = beams(num_cpu_blocks=9)
    engine.step()
    engine.scheduler.abort_seq_group("single")
    late = engine.add(8, "late")
    engine.step()
    assert engine.queues() == ([late.request_id], ["pair"], [])
    while not engine.outputs.preempted:
        engine.step()
        assert not (engine.outputs.preempted and engine.outputs.blocks_to_swap_in)


def test_nobody_is_admitted_while_someone_is_swapped_out(beams: Make) -> None:
    engine, _ = beams(num_cpu_blocks=3)
    engine.step()
    engine.add(1, "new")
    assert engine.step() == [("single", 1)]
    assert engine.queues() == (["new"], ["single"], ["pair"])


def test_the_mode_swap_swaps_single_sequences_and_recomputes_when_the_host_is_full(new_engine: Make) -> None:
    swap = PreemptionMode.SWAP
    for num_cpu_blocks, queues in ((2, ([], ["a"], ["b", "c"])), (1, (["b"], ["a"], ["c"]))):
        engine = new_engine(num_gpu_blocks=3, num_cpu_blocks=num_cpu_blocks, preemption_mode=swap, max_num_seqs=3)
        for name in ("a", "b", "c"):
            engine.add(4, name)
        engine.step()
        assert engine.step() == [("a", 1)]
        assert engine.queues() == queues


def test_a_swapped_group_that_no_longer_fits_ends_and_leaves_the_host(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=4, num_cpu_blocks=8)
    group = engine.add(8, "pair", num_seqs=2)
    for _ in range(8):
        engine.step()
    assert engine.statuses(group) == ["FINISHED_LENGTH_CAPPED"] * 2
    assert engine.is_empty()
    assert not engine.scheduler.has_unfinished_seqs()
