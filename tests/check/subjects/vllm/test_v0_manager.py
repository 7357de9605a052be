"""vLLM 0.9.2, brought in for real, driven by hand through its adapter. Expected tables follow from its free list."""

from typing import Any

import pytest

from kvproof.check.protocol.manager import Admission, Admitted, Config, Reserved, Scheduled, Unsupported
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.vllm.v0_loader import import_manager
from kvproof.check.subjects.vllm.v0_manager import VllmV0
from kvproof.spec.text.identity import Key

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def subject() -> VllmV0:
    download.add("vllm==0.9.2")
    return VllmV0("0.9.2", import_manager("0.9.2"))


def opened(subject: VllmV0, **options: Any) -> VllmV0:
    """A manager with blocks of 2 tokens and a pool of 4, unless the options say otherwise."""
    subject.open(Config(**({"block_size": 2, "num_gpu_blocks": 4} | options)))
    return subject


def admit(subject: VllmV0, group: int, seqs: list[int], tokens: list[int], key: Key | None = None) -> Admitted:
    subject.new(group, seqs, tokens, key or Key(), ())
    return readmit(subject, group, len(tokens))


def readmit(subject: VllmV0, group: int, num_tokens: int) -> Admitted:
    assert subject.can_admit(group) is Admission.OK
    return subject.admit(group, num_tokens)


def run(subject: VllmV0, *step: tuple[int, int, int]) -> None:
    scheduled = [Scheduled(*one) for one in step]
    subject.step_scheduled(scheduled, 0)
    subject.step_done(scheduled)


def test_admission_gives_every_token_a_slot_and_counts_the_blocks(subject: VllmV0) -> None:
    admit(opened(subject), 1, [1], [5, 6, 7])
    observed = subject.observe()
    assert observed == ({1: [[0, 1]]}, (2, 0), (), [1, 1, 0, 0], [2, 3], ())


def test_the_waiting_sequences_of_a_group_share_their_prompt(subject: VllmV0) -> None:
    admit(opened(subject), 1, [1, 2], [5, 6, 7])
    observed = subject.observe()
    assert (observed.tables, observed.refs) == ({1: [[0, 1]], 2: [[0, 1]]}, [2, 2, 0, 0])


def test_a_prompt_that_fits_later_and_one_that_never_fits_get_different_answers(subject: VllmV0) -> None:
    admit(opened(subject), 1, [1], [5, 6, 7])
    subject.new(2, [2], [1] * 6, Key(), ())
    subject.new(3, [3], [1] * 10, Key(), ())
    assert (subject.can_admit(2), subject.can_admit(3)) == (Admission.LATER, Admission.NEVER)


def test_an_append_takes_a_block_when_the_last_one_is_full(subject: VllmV0) -> None:
    admit(opened(subject), 1, [1], [5, 6])
    run(subject, (1, 2, 2))
    subject.grow(1, 7)
    assert (subject.can_append(1), subject.reserve(1, 1)) == (True, Reserved([]))
    assert subject.observe().tables == {1: [[0, 1]]}


def test_an_append_to_a_shared_block_copies_it(subject: VllmV0) -> None:
    admit(opened(subject), 1, [1], [5])
    run(subject, (1, 1, 1))
    subject.fork(1, 2)
    assert subject.observe().refs == [2, 0, 0, 0]
    subject.grow(1, 7)
    subject.grow(2, 8)
    assert subject.can_append(1)
    assert (subject.reserve(1, 1), subject.reserve(2, 1)) == (Reserved([(0, 1)]), Reserved([]))
    observed = subject.observe()
    assert (observed.tables, observed.refs) == ({1: [[1]], 2: [[0]]}, [1, 1, 0, 0])


def test_lookahead_slots_are_given_to_decodes_only(subject: VllmV0) -> None:
    admit(opened(subject, lookahead=2), 1, [1], [5, 6])
    before = subject.observe().tables
    run(subject, (1, 2, 2))
    subject.grow(1, 7)
    subject.reserve(1, 1)
    assert (before, subject.observe().tables) == ({1: [[0]]}, {1: [[0, 1, 2]]})  # ceil((3 + 2) / 2) = 3 blocks


def test_the_next_chunk_of_a_prompt_takes_no_lookahead_slots(subject: VllmV0) -> None:
    admit(opened(subject, lookahead=2, chunked=True), 1, [1], [5, 6, 7, 8])
    run(subject, (1, 2, 2))
    assert (subject.can_append(1), subject.reserve(1, 2)) == (True, Reserved([]))
    assert subject.observe().tables == {1: [[0, 1]]}


def test_a_swap_names_blocks_relative_to_their_device_and_tables_in_absolute_ids(subject: VllmV0) -> None:
    admit(opened(subject, num_host_blocks=3), 1, [1], [5, 6, 7])
    run(subject, (1, 3, 3))
    assert subject.can_swap_out(1) is Admission.OK
    assert subject.swap_out(1) == [(0, 0), (1, 1)]
    observed = subject.observe()
    assert (observed.tables, observed.free, observed.refs) == ({1: [[4, 5]]}, (4, 1), [0, 0, 0, 0, 1, 1, 0])
    assert subject.can_swap_in(1) is Admission.OK
    back = subject.swap_in(1)
    observed = subject.observe()
    assert (back, observed.tables, observed.free) == ([(0, 1), (1, 0)], {1: [[1, 0]]}, (2, 3))


def test_a_swap_that_the_host_has_no_room_for_is_refused(subject: VllmV0) -> None:
    admit(opened(subject, num_host_blocks=1), 1, [1], [5, 6, 7])
    run(subject, (1, 3, 3))
    assert subject.can_swap_out(1) is Admission.LATER


def test_after_the_last_free_every_block_is_free(subject: VllmV0) -> None:
    admit(opened(subject), 1, [1, 2], [5, 6, 7])
    run(subject, (1, 3, 3), (2, 0, 3))
    subject.free(1)
    subject.free(2)
    observed = subject.observe()
    assert (observed.tables, observed.free, observed.refs, sorted(observed.free_ids or [])) == (
        {},
        (4, 0),
        [0] * 4,
        [0, 1, 2, 3],
    )


def test_a_preempted_group_keeps_its_tokens_and_is_a_prompt_again(subject: VllmV0) -> None:
    admit(opened(subject, lookahead=2), 1, [1], [5, 6])
    run(subject, (1, 2, 2))
    subject.grow(1, 7)
    subject.preempt(1)
    assert subject.observe().tables == {}
    readmit(subject, 1, 3)
    subject.reserve(1, 1)
    assert len(subject.observe().tables[1][0]) == 2  # 3 tokens, and no lookahead slots


def test_a_prefix_is_hit_once_a_step_has_computed_it_and_only_under_the_same_adapter(subject: VllmV0) -> None:
    opened(subject, num_gpu_blocks=8, caching=True, keys=2)
    assert admit(subject, 1, [1], [5, 6, 7]) == Admitted(0)
    assert admit(subject, 2, [2], [5, 6, 8]) == Admitted(0)  # the block is shared, and not yet computed
    run(subject, (1, 3, 3), (2, 3, 3))
    assert admit(subject, 3, [3], [5, 6, 9], Key(adapter_name="X", adapter_id=1)) == Admitted(0)
    assert admit(subject, 4, [4], [5, 6, 9]) == Admitted(2)
    assert [table[0][0] for table in subject.observe().tables.values()] == [0, 0, 3, 0]


def test_before_a_step_the_manager_is_called_in_the_order_of_vllms_scheduler(subject: VllmV0) -> None:
    admit(opened(subject, caching=True), 1, [1, 2], [5, 6, 7])
    calls: list[tuple[Any, ...]] = []
    manager = subject.manager
    manager.access_all_blocks_in_seq = lambda seq, now: calls.append(("access", seq.seq_id, now))
    manager.get_common_computed_block_ids = lambda seqs: calls.append(("common", [seq.seq_id for seq in seqs]))
    manager.mark_blocks_as_computed = lambda group, chunk: calls.append(("computed", group.request_id, chunk))
    for _ in range(2):
        subject.step_scheduled([Scheduled(1, 3, 3), Scheduled(2, 0, 3)], 0)
    first, second = (
        [("access", 1, now), ("access", 2, now), ("common", [1, 2]), ("computed", "1", 3)] for now in (1.0, 2.0)
    )
    assert calls == first + second


def test_a_cached_block_that_nobody_holds_is_free_to_be_taken(subject: VllmV0) -> None:
    admit(opened(subject, caching=True), 1, [1], [5, 6, 7])
    run(subject, (1, 3, 3))
    subject.free(1)
    observed = subject.observe()
    assert (observed.free, observed.refs, sorted(observed.free_ids or [])) == ((4, 0), [0] * 4, [0, 1, 2, 3])


def test_a_look_up_that_is_forgotten_leaves_no_trace(subject: VllmV0) -> None:
    opened(subject, caching=True)
    subject.new(1, [1], [5, 6, 7], Key(), ())
    for _ in range(2):
        assert subject.hits(1) == 0
        subject.forget(1)
    subject.forget(1)
    assert subject.manager._computed_blocks_tracker._seq_id_to_num_tokens_computed == {}


def test_a_child_may_be_freed_before_it_is_ever_scheduled(subject: VllmV0) -> None:
    admit(opened(subject, caching=True), 1, [1], [5, 6, 7])
    run(subject, (1, 3, 3))
    subject.fork(1, 2)
    subject.free(2)
    assert list(subject.observe().tables) == [1]


def test_a_window_drops_blocks_and_shows_the_null_block_once_it_is_taken(subject: VllmV0) -> None:
    admit(opened(subject, block_size=1, num_gpu_blocks=8, window=1), 1, [1], [5, 6, 7, 8])
    before = subject.observe()
    run(subject, (1, 4, 4))
    subject.grow(1, 9)
    subject.reserve(1, 1)
    observed = subject.observe()
    # Of 4 computed blocks the window keeps 1 // 1 + 1 + 1 = 3. Block 4 is the null block, then 0 is free again.
    assert (before.reserved, observed.reserved) == ((), (4,))
    assert (observed.tables, observed.free) == ({1: [[-1, 1, 2, 3, 0]]}, (3, 0))
    assert (observed.refs or [])[4] == 0


def test_an_encoder_has_a_table_of_its_own_until_its_group_is_over(subject: VllmV0) -> None:
    opened(subject, cross=True)
    subject.new(1, [1], [5, 6], Key(), ())
    subject.new_encoder(1, 9, [1, 2, 3])
    readmit(subject, 1, 2)
    admitted = subject.observe().tables
    subject.preempt(1)
    preempted = subject.observe().tables
    readmit(subject, 1, 2)
    subject.free(1)
    assert (admitted, preempted, subject.observe()[:2]) == ({1: [[0]], 9: [[1, 2]]}, {}, ({}, (4, 0)))


def test_the_cache_is_reset_only_when_nothing_is_in_use(subject: VllmV0) -> None:
    admit(opened(subject, caching=True), 1, [1], [5, 6])
    run(subject, (1, 2, 2))
    refused = subject.reset_cache()
    subject.free(1)
    assert (refused, subject.reset_cache(), admit(subject, 2, [2], [5, 6])) == (False, True, Admitted(0))


@pytest.mark.parametrize(
    "options",
    [
        {"caching": True, "window": 4},
        {"cross": True, "caching": True},
        {"cross": True, "lookahead": 1},
        {"images": True},
        {"keys": 3},
        {"chunked": True, "group_size": 2},
        {"kv_groups": ("full", "window")},
    ],
)
def test_a_configuration_that_vllm_refuses_is_unsupported(subject: VllmV0, options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported):
        subject.open(Config(**options))


def test_a_second_release_in_the_same_process_is_refused(subject: VllmV0, tmp_path: Any) -> None:
    other = tmp_path / "vllm-0.9.1" / "vllm" / "core"
    other.mkdir(parents=True)
    (other / "block_manager.py").touch()
    with pytest.raises(EngineError, match="one process for each release"):
        import_manager("0.9.1", tmp_path)
