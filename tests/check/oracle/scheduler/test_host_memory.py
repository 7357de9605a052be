"""The worker that copies between the device and the host memory of a connector: what it must never find."""

from collections import Counter

import pytest

from kvproof.check.oracle.expected import ExpectedSequence, Group
from kvproof.check.oracle.ghost_worker import Worker
from kvproof.check.oracle.scheduler.host_memory import HostMemory
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scheduler import HostStore, Load, ScheduledStep
from kvproof.spec.text.identity import Key

STORE = ScheduledStep(stores=[HostStore(1, [(2, 0)])])
NOTHING = ScheduledStep()


def memory_with(*contents: list[int]) -> HostMemory:
    """Host memory beside a device of four blocks with two slots each, the last of which have these contents."""
    worker = Worker(4, 2)
    for block, content in enumerate(contents, 2):
        worker.slots[block] = content
    return HostMemory(worker, Counter())


def do(memory: HostMemory, *steps: ScheduledStep) -> None:
    """Schedule, launch and complete these steps; no copy is over unless a step waits for it."""
    for step in steps:
        memory.schedule(step)
        memory.launch(step)
        memory.executed("launch()")
        memory.complete(())


def finding_in(memory: HostMemory, *steps: ScheduledStep) -> str:
    """The property that these steps break."""
    with pytest.raises(Finding) as caught:
        do(memory, *steps)
    return caught.value.property


def test_a_store_begins_with_the_next_step_and_its_slot_has_the_content_when_it_is_over() -> None:
    memory = memory_with([7, 8])
    do(memory, STORE)
    assert (memory.ready(), memory.slots) == ([], {})
    do(memory, NOTHING)
    assert [copy.job for copy in memory.complete([0])] == [1]
    assert (memory.slots, memory.copies) == ({0: [7, 8]}, {})


def test_a_step_that_waits_for_a_store_copies_the_content_from_before_the_step() -> None:
    memory = memory_with([7, 8])
    step = STORE._replace(flushes=[1])
    memory.schedule(step)
    memory.launch(step)
    memory.worker.slots[2] = [5, 5]
    memory.executed("launch()")
    assert ([copy.job for copy in memory.complete(())], memory.slots) == ([1], {0: [7, 8]})


def test_the_block_of_a_store_that_is_not_over_must_not_be_written() -> None:
    memory = memory_with([7, 8])
    do(memory, STORE, NOTHING)
    memory.worker.slots[2] = [5, 5]
    with pytest.raises(Finding, match="block 2 is written while store 1 still reads it"):
        memory.executed("launch()")


def test_a_load_must_not_write_the_block_of_a_store_that_is_not_over() -> None:
    memory = memory_with([7, 8])
    memory.slots[1] = [1, 1]
    load = ScheduledStep(loads=[Load(5, 0, 2, 2, [(1, 2)])])
    assert finding_in(memory, STORE, load) == "source-held"


def test_two_stores_must_not_write_one_slot() -> None:
    memory = memory_with([7, 8], [3, 4])
    assert finding_in(memory, STORE, ScheduledStep(stores=[HostStore(2, [(3, 0)])]), NOTHING) == "one-writer"


def test_a_store_may_follow_on_one_that_the_step_waits_for_and_its_content_stays() -> None:
    memory = memory_with([7, 8], [3, 4])
    do(memory, STORE, ScheduledStep(stores=[HostStore(2, [(3, 0)])], flushes=[1, 2]))
    assert (memory.slots, memory.copies) == ({0: [3, 4]}, {})


@pytest.mark.parametrize("steps", [(STORE,), ()])
def test_a_load_must_not_read_a_slot_whose_store_is_not_over(steps: tuple[ScheduledStep, ...]) -> None:
    assert finding_in(memory_with([7, 8]), *steps, ScheduledStep(loads=[Load(5, 0, 2, 2, [(0, 3)])])) == "hit-written"


def test_a_store_must_not_write_a_slot_that_a_load_still_reads() -> None:
    memory = memory_with([7, 8])
    memory.slots[0] = [1, 1]
    load = ScheduledStep(loads=[Load(5, 0, 2, 9, [(0, 3)])])
    assert finding_in(memory, load, STORE, NOTHING) == "one-writer"


@pytest.mark.parametrize(("content", "table", "words"), [([7, 9], [3], "other content"), ([7, 8], [2], "needs")])
def test_a_load_brings_the_content_of_its_sequence_into_its_blocks(
    content: list[int], table: list[int], words: str
) -> None:
    memory = memory_with()
    memory.slots[0] = content
    do(memory, ScheduledStep(loads=[Load(5, 0, 2, 1, [(0, 3)])]))
    seq = ExpectedSequence(5, Group(5), Key(), (), 0, 0)
    seq.whole, seq.computed, seq.observed_table = [7, 8], 2, table
    with pytest.raises(Finding, match=words) as caught:
        memory.judge_load(memory.copies[1], seq)
    assert caught.value.property == "arrived-whole"


def judged_load(window: int, *pairs: tuple[int, int]) -> None:
    """Judge a load of four tokens into a sequence whose second KV group has a window. Raises Finding.

    In the first group it has blocks 2 and 3, in the second one blocks 4 and 5. Slot n has what block n + 2 needs.
    """
    memory = HostMemory(Worker(6, 2), Counter())
    memory.slots = {0: [1, 2], 1: [3, 4], 2: [11, 12], 3: [13, 14]}
    do(memory, ScheduledStep(loads=[Load(5, 0, 4, 1, [*pairs])]))
    seq = ExpectedSequence(5, Group(5), Key(), (), 0, 0)
    seq.add_part(0, window)
    seq.tokens[:] = [0] * 5
    seq.parts[0].whole[:], seq.parts[1].whole[:] = [1, 2, 3, 4, 5], [11, 12, 13, 14, 15]
    seq.parts[0].observed_table[:], seq.parts[1].observed_table[:], seq.computed = [2, 3], [4, 5], 4
    memory.judge_load(memory.copies[1], seq)


WHOLE = (0, 2), (1, 3), (2, 4), (3, 5)


@pytest.mark.parametrize("pairs", [WHOLE, WHOLE[::-1], (*WHOLE[:2], WHOLE[3])], ids=["all", "any-order", "in-reach"])
def test_a_load_may_leave_out_what_no_later_token_reads(pairs: tuple[tuple[int, int], ...]) -> None:
    judged_load(2, *pairs)


@pytest.mark.parametrize(
    ("window", "pairs", "words"),
    [
        (2, WHOLE[:3], "needs"),  # the window of the next token is not there
        (4, (*WHOLE[:2], WHOLE[3]), "needs"),
        (2, WHOLE[1:], "needs"),  # nor the first tokens, of full attention
        (2, ((0, 4), (1, 3), (2, 2), (3, 5)), "other content"),  # the groups are mixed up
        (2, ((0, 2), (1, 3), (3, 4), (3, 5)), "other content"),  # what nobody reads counts if it is loaded
    ],
)
def test_a_load_must_fill_what_later_tokens_read_in_each_kv_group(
    window: int, pairs: tuple[tuple[int, int], ...], words: str
) -> None:
    with pytest.raises(Finding, match=words):
        judged_load(window, *pairs)
