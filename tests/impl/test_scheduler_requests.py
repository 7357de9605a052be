"""How requests arrive, fork and end: aborted in any queue and at any time, finished, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.impl import InvalidValueError, SequenceGroup, SequenceStatus

Make = Callable[..., Any]

# Leaving --------------------------------------------------------------------------------------------------------------


def test_an_abort_takes_a_request_out_of_every_queue(beams: Make) -> None:
    engine, _ = beams(num_cpu_blocks=3)
    engine.step()
    engine.add(1, "new")
    assert engine.queues() == (["new"], ["single"], ["pair"])
    engine.scheduler.abort_seq_group(["new", "unknown", "single", "pair"])
    assert engine.queues() == ([], [], [])
    assert engine.is_empty()
    assert not engine.scheduler.has_unfinished_seqs()


def test_an_abort_in_the_middle_of_a_prompt_frees_all_of_it(chunked: Make) -> None:
    engine = chunked(manager={"enable_caching": True})
    group = engine.add(11, "a")
    engine.step()
    engine.scheduler.abort_seq_group("a")
    assert engine.is_empty()
    assert engine.manager.get_num_cached_tokens(group.seqs[0]) == 4, "the second block was never complete"


def test_blocks_of_a_step_under_way_are_given_up_when_it_ends(new_engine: Make) -> None:
    engine = new_engine()
    group = engine.add(5, "a")
    engine.schedule()
    engine.scheduler.abort_seq_group("a")
    assert engine.statuses(group) == ["FINISHED_ABORTED"]
    assert not engine.scheduler.has_unfinished_seqs()
    assert not engine.is_empty(), "the worker still writes there"
    engine.complete()
    assert engine.is_empty()


def test_the_next_step_ends_the_one_before_it(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=2)
    engine.add(5, "a")
    engine.schedule()
    engine.scheduler.abort_seq_group("a")
    engine.add(8, "b")
    assert engine.schedule() == [("b", 8)]


def test_cross_attention_tables_leave_with_their_request(new_engine: Make) -> None:
    engine = new_engine(num_gpu_blocks=6)
    engine.add(4, "a", encoder=5)
    engine.add(4, "b", encoder=5)
    engine.step()
    assert engine.step() == [("a", 1)], "preempting b gives its cross-attention table back too"
    assert engine.manager.get_num_free_gpu_blocks() == 2
    engine.scheduler.abort_seq_group("a")
    assert engine.step() == [("b", 5)]
    engine.scheduler.abort_seq_group("b")
    assert engine.is_empty()


def test_a_finished_sequence_gives_its_blocks_up_while_its_group_goes_on(new_engine: Make) -> None:
    engine = new_engine()
    group = engine.add(4, "a", num_seqs=2)
    engine.step()
    engine.step()
    group.seqs[0].status = SequenceStatus.FINISHED_STOPPED
    engine.scheduler.free_finished_seq_groups()
    assert engine.manager.get_num_free_gpu_blocks() == 6
    assert engine.step() == [("a", 1)]
    group.seqs[1].status = SequenceStatus.FINISHED_STOPPED
    engine.scheduler.free_finished_seq_groups()
    assert engine.is_empty()
    assert engine.queues() == ([], [], [])


# Forks, lookahead, refusals -------------------------------------------------------------------------------------------


def test_a_fork_shares_until_it_writes(new_engine: Make) -> None:
    engine = new_engine()
    group = engine.add(5, "a")
    engine.step()
    child = engine.fork(group)
    assert engine.step() == [("a", 1)]
    assert len(engine.outputs.blocks_to_copy) == 1
    tables = [engine.manager.get_block_table(seq) for seq in (group.seqs[0], child)]
    assert tables[0][0] == tables[1][0]
    assert tables[0][1] != tables[1][1]


def test_a_group_cannot_outgrow_a_step(new_engine: Make) -> None:
    engine = new_engine(max_num_seqs=2)
    group = engine.add(5, "a")
    engine.step()
    engine.fork(group)
    with pytest.raises(InvalidValueError, match="sequences of a group is 3"):
        engine.fork(group)


def test_decodes_get_their_lookahead_and_chunks_none(chunked: Make) -> None:
    engine = chunked(num_lookahead_slots=5)
    group = engine.add(8, "a")
    engine.step()
    engine.step()
    assert len(engine.manager.get_block_table(group.seqs[0])) == 2
    engine.step()
    assert len(engine.manager.get_block_table(group.seqs[0])) == 4
    assert [s.num_lookahead_slots for s in engine.outputs.scheduled_seq_groups] == [5]


def test_a_request_that_cannot_be_is_refused_when_it_comes(new_engine: Make) -> None:
    engine = new_engine(manager={"enable_caching": True})
    engine.add(1, "a")
    with pytest.raises(InvalidValueError, match="request_id"):
        engine.add(1, "a")
    with pytest.raises(InvalidValueError, match="prompt"):
        engine.add(0, "empty")
    with pytest.raises(InvalidValueError, match="encoder"):
        engine.add(1, "cross", encoder=4)
    with pytest.raises(InvalidValueError, match="sequences"):
        engine.scheduler.add_seq_group(SequenceGroup("nobody", []))
    assert engine.scheduler.get_num_unfinished_seq_groups() == 1
