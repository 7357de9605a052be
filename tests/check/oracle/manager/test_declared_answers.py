"""What a manager may declare: how many records it keeps, drafts in own blocks, whole prompts, common blocks."""

import gc
from typing import Any

import pytest

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.manager.releasing import RECORDS_OF_NEW
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.records import num_records
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.objects import BlockObjects
from kvproof.impl.vllm_api.block_table import BlockTable

PLAIN = (None, 0, None)
CACHED = Config(block_size=2, num_gpu_blocks=8, caching=True)


def found_by(subject: Any, config: Config, operations: list[tuple[Any, ...]]) -> tuple[str, str]:
    """The property and the text of the finding that the last operation makes, and no earlier one."""
    judge = ManagerJudge(subject, config)
    for operation in operations[:-1]:
        assert judge.apply(operation), operation
    with pytest.raises(Finding) as raised:
        judge.apply(operations[-1])
    return raised.value.property, str(raised.value.text)


def test_records_are_counted_once_wherever_they_are() -> None:
    class Slotted:
        __slots__ = ("one",)

        def __init__(self) -> None:
            self.one = [1, 2]

    shared = Slotted()
    assert num_records({"a": shared, "b": (shared, None)}) == 4 + 2 + 1 + 2


def test_records_of_new_managers_are_known_of_each_subject_however_it_compares_and_as_long_as_it_lives() -> None:
    class Incomparable(BuiltIn):
        num_counted = 0

        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

        def num_records(self) -> int:
            self.num_counted += 1
            return super().num_records()

    gc.collect()  # subjects of other tests may end now
    before = len(RECORDS_OF_NEW)
    subjects = [Incomparable(), Incomparable()]
    for subject in (*subjects, *subjects):
        ManagerJudge(subject, CACHED)
    assert [subject.num_counted for subject in subjects] == [1, 1]
    assert len(RECORDS_OF_NEW) == before + 2

    del subject, subjects
    gc.collect()
    assert len(RECORDS_OF_NEW) <= before


def test_a_manager_that_keeps_records_of_earlier_requests_is_found_after_a_reset() -> None:
    class KeepsLog(BuiltIn):
        def free(self, seq: int) -> None:
            super().free(seq)
            self.manager.log = [*getattr(self.manager, "log", ()), seq]

    operations = [("new", 1, (1,), (5, 6), PLAIN, ()), ("admit", 1, 9), ("run", 1), ("free", 1), ("reset",)]
    property, text = found_by(KeepsLog(), CACHED, operations)
    assert property == "no-leak-at-rest"
    assert "the manager keeps" in text


def test_a_look_up_that_leaves_out_the_last_full_block_is_found() -> None:
    class LeavesOut(BuiltIn):
        def hits(self, group: int) -> int:
            return min(super().hits(group), (len(self.tokens[self.groups[group][0]]) - 1) // 2 * 2)

    operations = [("new", 1, (1,), (5, 6), PLAIN, ()), ("admit", 1, 9), ("run", 1)]
    operations += [("new", 2, (2,), (5, 6), PLAIN, ()), ("lookup", 2)]
    assert found_by(LeavesOut(), CACHED, operations)[0] == "hit-found"


def test_common_blocks_that_a_table_does_not_begin_with_are_found() -> None:
    class OneTable(BuiltIn):
        def common_blocks(self, seqs: list[int]) -> list[int]:
            return super().common_blocks(seqs[:1])

    operations: list[tuple[Any, ...]] = []
    for seq, tokens in ((1, (5, 6)), (2, (7, 8))):
        operations += [("new", seq, (seq,), tokens, PLAIN, ()), ("admit", seq, 9)]
    property, text = found_by(OneTable(), CACHED, [*operations, ("run", 1), ("lookup", 1)])
    assert property == "hit-computed"
    assert "called common" in text


def test_drafts_of_two_sequences_in_one_block_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockTable, "_is_shared", lambda self, index: False)  # so no lookahead block is copied
    config = Config(block_size=2, num_gpu_blocks=12, lookahead=3)
    operations = [("new", 1, (1,), (5, 6), PLAIN, ()), ("admit", 1, 9), ("run", 1), ("sample", 1, (7,))]
    operations += [("append", 1), ("run", 1), ("fork", 1, 2), ("sample", 1, (8, 9)), ("append", 1), ("run", 1)]
    property, text = found_by(BlockObjects(), config, operations)
    assert property == "exclusive-writer"
    assert "keep the drafts of this step" in text


def test_an_encoder_table_on_the_host_is_replaced_when_its_group_is_admitted_again() -> None:
    judge = ManagerJudge(BuiltIn(), Config(block_size=2, num_gpu_blocks=8, num_host_blocks=4, cross=True))
    operations = [("new", 1, (1,), (5, 6), PLAIN, (), (2, (7, 8))), ("admit", 1, 9), ("run", 1), ("swap_out", 1)]
    for operation in [*operations, ("run", 1), ("preempt", 1), ("admit", 1, 9), ("run", 1)]:
        assert judge.apply(operation), operation
    assert judge.coverage["cross-attention table left on the host"] == 1
    assert judge.explainer.observed.free == (6, 4)
