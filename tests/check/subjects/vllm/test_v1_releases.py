"""Differences between releases of vLLM's V1 manager, and the fake request; nothing is downloaded."""

from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.subjects.vllm.v1_fakes import FakeRequest
from kvproof.check.subjects.vllm.v1_loader import STAND_INS, content_hash, images_in, seeded_hash
from kvproof.check.subjects.vllm.v1_manager import Calls
from kvproof.spec.text.identity import Key


class AsOf065:
    def __init__(self, block_size: int, num_gpu_blocks: int) -> None: ...
    def allocate_slots(self, request: Any, num_tokens: int, computed_blocks: Any) -> None: ...
    def append_slots(self, request: Any, num_tokens: int) -> None: ...


class AsOf033:
    def __init__(self, kv_cache_config: Any, hash_block_size: int) -> None: ...
    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        num_lookahead_tokens: int = 0,
    ) -> None: ...
    def new_step_starts(self) -> None: ...
    def reset_prefix_cache(self) -> None: ...
    def take_new_block_ids(self) -> None: ...


def test_a_release_of_0_6_5_has_a_call_of_its_own_for_requests_that_run() -> None:
    calls = Calls(AsOf065)
    assert (calls.appends, calls.takes_found, calls.takes_num_found, calls.takes_lookahead) == (
        True,
        False,
        False,
        False,
    )
    assert (calls.resets, "kv_cache_config" in calls.options) == (False, False)


def test_a_release_of_0_33_takes_found_blocks_their_number_and_lookahead() -> None:
    calls = Calls(AsOf033)
    assert (calls.appends, calls.takes_found, calls.takes_num_found, calls.takes_lookahead) == (False, True, True, True)
    assert (calls.resets, calls.starts_steps, calls.takes_block_ids, calls.frees_hashes) == (True, True, True, False)


def test_hashes_differ_where_content_does_and_agree_where_it_does_not() -> None:
    values: list[Any] = [(b"x", (1, 2), None), (b"x", (1, 2), ("Y",)), (b"x", (1, "2"), None), (b"x", (12,), None)]
    assert len({content_hash(value) for value in values}) == len(values)
    assert content_hash((b"x", (1, 2), None)) == content_hash((bytes([120]), (1, 2), None))


def test_every_hash_seed_gives_other_hashes_and_an_odd_one_shorter_hashes() -> None:
    hashes = [seeded_hash(seed)((b"x", (1, 2), None)) for seed in (0, 1, 2, 3)]
    assert len(set(hashes)) == 4
    assert [len(one) for one in hashes] == [32, 16, 32, 16]


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, 2, (0, 0)), (0, 3, (0, 1)), (3, 5, (0, 1)), (4, 6, (1, 2)), (7, 9, (2, 2))]
)
def test_the_images_in_a_range_are_those_with_a_row_in_it(start: int, end: int, expected: tuple[int, int]) -> None:
    images = [SimpleNamespace(mm_position=SimpleNamespace(offset=o, length=n)) for o, n in ((2, 2), (5, 1))]
    assert images_in(images, start, end) == expected


def test_a_request_hashes_its_blocks_when_it_is_made_and_with_each_token() -> None:
    seen: list[int] = []

    def hasher(request: Any) -> list[int]:
        seen.append(request.num_tokens)
        return [request.num_tokens]

    request = FakeRequest(1, [5, 6], Key("X", 3, "salt"), (), hasher)
    request.append_token(7)
    assert (seen, request.block_hashes) == ([2, 3], [2, 3])
    assert (request.lora_request.lora_int_id, request.lora_request.lora_name, request.cache_salt) == (3, "X", "salt")  # type: ignore[union-attr]


def test_a_part_of_vllm_that_nothing_stands_in_for_is_a_fault_of_kvproof_and_no_finding() -> None:
    with pytest.raises(StandInError, match="does not stand in"):
        STAND_INS["config"]["VllmConfig"]()
