"""The worker that executes a batch of transformers; and the loop itself, on a release that is brought in."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from kvproof.check.engines import bring
from kvproof.check.finding import Finding
from kvproof.check.subjects.transformers_worker import Batch

RELEASE = "5.23.0"
TOKENS = {"1": [5, 6, 7]}


class Allocator:
    """One layer, its cache a tensor of slots; a position is in the slot of its number."""

    num_key_value_heads = head_dim = 1
    cache_dtype = torch.float32
    layer_indices = (0,)

    def __init__(self) -> None:
        self.keys, self.values = torch.zeros(8, 1, 1), torch.zeros(8, 1, 1)

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, reads: torch.Tensor, writes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys[writes], self.values[writes] = keys, values
        return self.keys[reads], self.values[reads]


class Cache:
    """Where a request reads and writes; `moved` is the slot of the first position when it reads."""

    def __init__(self, moved: int = 0) -> None:
        self.moved = moved
        self.cache_allocators = {"full_attention": Allocator()}

    def extend_read_and_write_indices(
        self, request: str, past: int, length: int, reads: list[list[int]] | None, writes: list[list[int]]
    ) -> None:
        writes[0].extend(range(past, past + length))
        if reads is not None:
            reads[0].extend([self.moved, *range(1, past + length)])


def two_steps(cache: Cache) -> Batch:
    """Two tokens, then one that reads them."""
    batch, state, names = (
        Batch(cache, -1),
        SimpleNamespace(request_id="1", position_offset=0),
        dict[tuple[int, ...], int](),
    )
    for length, past in ((2, 0), (1, 2)):
        future = SimpleNamespace(state=state, query_length=length, has_new_token=past > 0)
        batch.prepare_batch_tensors(requests_in_batch=[future], max_kv_read=past)
        batch.execute(TOKENS, names)
    assert (state.position_offset, state.tokens_to_process) == (3, [-1])
    return batch


def test_a_step_reads_back_what_the_steps_before_wrote() -> None:
    batch = two_steps(Cache())
    (allocator,) = batch.cache.cache_allocators.values()
    assert allocator.keys[:4, 0, 0].tolist() == [1, 2, 3, 0]
    assert allocator.values[:4, 0, 0].tolist() == [-1, -2, -3, 0]


def test_a_slot_of_another_token_is_a_finding() -> None:
    with pytest.raises(Finding, match=r"sequence 1 reads position 0.*the key of another token"):
        two_steps(Cache(moved=1))


# What downloads ---------------------------------------------------------------------------------------------------

WALK = """
import sys
from kvproof.check.engines.transformers import import_modules
from kvproof.check.loop.walker import walk_loop
from kvproof.check.subjects.transformers import make

modules = import_modules(sys.argv[1])
{change}
fixed = {{"chunked": True, "max_num_seqs": 16}}
done = walk_loop(make(sys.argv[1]), 1, max_operations=15_000, seconds=300, fixed=fixed)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.witnesses))
"""
MENDS_THE_STALL = """
clear = modules.scheduler.Scheduler.clear_cancelled_requests


def cleared(self):
    cancelled = clear(self)
    self.block_new_requests &= not cancelled
    return cancelled


modules.scheduler.Scheduler.clear_cancelled_requests = cleared
"""
CONFUSES_PARENTS = """
from transformers.generation.continuous_batching.cache_allocators import cache_allocator

named = cache_allocator.compute_block_hash
cache_allocator.compute_block_hash = lambda parent, tokens: named(None, tokens)
"""


def walked(change: str) -> str:
    """What a walk says; in a process of its own, since modules of a release stay imported."""
    bring.add(f"transformers=={RELEASE}")
    command = [sys.executable, "-c", WALK.format(change=change), RELEASE]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout


@pytest.mark.engine
def test_a_request_that_was_reset_waits_for_ever_when_the_others_are_cancelled() -> None:
    """Nothing but the end of a request lifts `block_new_requests`, and a cancellation is not one."""
    assert walked("").startswith("progress")


@pytest.mark.engine
def test_transformers_is_not_refuted_where_a_cancellation_lifts_the_block() -> None:
    said = walked(MENDS_THE_STALL)
    assert said.startswith("not refuted")
    for witness in ("exchange after a step", "hit on an evictable block", "preempted", "aborted in flight"):
        assert witness in said


@pytest.mark.engine
def test_blocks_named_by_their_own_tokens_alone_are_refuted() -> None:
    assert walked(MENDS_THE_STALL + CONFUSES_PARENTS).split()[0] in ("sharing-equal", "read-back", "hit-computed")
