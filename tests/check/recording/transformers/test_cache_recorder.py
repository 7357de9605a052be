"""The recorder of transformers' paged cache: what it writes for each call, and what it leaves out."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.check.recording import RecordingRefused, record

PAGE, STRIDE, PER_SECTOR, NUM_SECTORS = 4, 8, 2, 3
FIRST = 2 * PER_SECTOR  # after the trash sectors


class Cache:
    """The parts of a `PagedAttentionCache` that the recorder reads, and calls that change them."""

    use_prefix_sharing = True

    def __init__(self) -> None:
        self.free = list(range(FIRST, FIRST + PER_SECTOR))
        self.tables: dict[str, list[int]] = {}
        ledger = SimpleNamespace(cached_blocks={}, block_to_hash={}, shared_ref_counts={})
        allocator = SimpleNamespace(
            ledger=ledger, block_table=self.tables, blocks_per_sector=PER_SECTOR, num_blocks=NUM_SECTORS * PER_SECTOR,
            tokens_per_page=PAGE, block_physical_stride=STRIDE, index=0, layer_type="full_attention",
        )  # fmt: skip
        trees = SimpleNamespace(trees={0: self.free})
        self.pool = SimpleNamespace(
            free_sectors=[4, 3], count_free_blocks=lambda _: len(self.free), _free_blocks=[trees]
        )
        self.cache_allocators = {"full_attention": allocator}

    def can_store_request_tokens(self, state: Any, request_len: int, dry_run: bool = False) -> bool:
        if not dry_run and self.free:
            self.tables.setdefault(state.request_id, []).append(self.free.pop())
        return bool(self.free)

    def extend_read_and_write_indices(self, name: str, past: int, number: int, reads: Any, writes: Any) -> None:
        table = self.tables[name]
        writes[0] += [table[at // PAGE] * STRIDE + at % PAGE for at in range(past, past + number)]

    def free_blocks(self, name: str, no_cache: bool = False) -> None:
        self.free += self.tables.pop(name, [])

    def perform_cache_copy(self, pairs: dict[str, tuple[list[int], list[int]]]) -> None:
        pass


def request(name: str, tokens: list[int], *later: int, start: int = 0) -> Any:
    return SimpleNamespace(
        request_id=name,
        initial_tokens=tokens,
        generated_tokens=[*later],
        position_offset=start,
        is_cpu_offloaded=False,
    )


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_blocks_count_from_the_first_one_after_the_trash_sectors_and_tokens_are_stored_once(tmp_path: Path) -> None:
    cache, path, writes = Cache(), tmp_path / "cache.jsonl", [[99]]
    with record(cache, path):
        cache.can_store_request_tokens(request("a", [7, 8, 9]), 3)
        cache.extend_read_and_write_indices("a", 0, 3, None, writes)
        cache.can_store_request_tokens(request("a", [7, 8, 9], 5, start=3), 1)
        cache.perform_cache_copy({"full_attention": ([FIRST], [FIRST + 1])})
        cache.free_blocks("a", no_cache=True)
    header, *lines, _ = lines_of(path)
    assert (header["block_size"], header["num_gpu_blocks"], header["free"], header["is_fresh"]) == (4, 6, [6, 0], True)
    assert [{key: value for key, value in line.items() if key not in ("n", "group")} for line in lines] == [
        {"call": "can_store_request_tokens", "free": [5, 0], "answer": True, "num_tokens": 3,
         "seqs": [{"seq": 1, "tokens": [7, 8, 9], "tables": [[0, [1]]]}]},
        {"call": "extend_read_and_write_indices", "free": [5, 0], "num_tokens": 3, "slots": [4],
         "seqs": [{"seq": 1}]},
        {"call": "can_store_request_tokens", "free": [4, 0], "answer": False, "num_tokens": 1,
         "seqs": [{"seq": 1, "start": 3, "tokens": [5], "num_computed": 3, "tables": [[1, [0]]]}]},
        {"call": "perform_cache_copy", "free": [4, 0], "answer": [[0, 1]]},
        {"call": "free_blocks", "free": [6, 0], "seqs": [{"seq": 1, "tables": []}]},
    ]  # fmt: skip


def test_questions_and_the_warm_up_leave_no_line(tmp_path: Path) -> None:
    cache, path = Cache(), tmp_path / "cache.jsonl"
    with record(cache, path):
        assert cache.can_store_request_tokens(request("a", [7]), 1, dry_run=True)
        cache.can_store_request_tokens(request("__warmup_DECODING_0__", [0]), 1)
        cache.free_blocks("__warmup_DECODING_0__")
    assert len(lines_of(path)) == 2


def test_the_whole_pool_is_stored_on_request(tmp_path: Path) -> None:
    cache, path = Cache(), tmp_path / "cache.jsonl"
    with record(cache, path, shows_pool=True):
        cache.can_store_request_tokens(request("a", [7]), 1)
    _, line, _ = lines_of(path)
    assert (line["refs"], line["free_ids"]) == ([0, 1, 0, 0, 0, 0], [0, 2, 3, 4, 5])


def test_a_cache_without_a_pool_of_sectors_is_refused(tmp_path: Path) -> None:
    cache = Cache()
    cache.pool = None  # type: ignore[assignment]
    with pytest.raises(RecordingRefused, match=r"Cache is not a PagedAttentionCache of transformers 5\.20 or newer"):
        record(cache, tmp_path / "none")
