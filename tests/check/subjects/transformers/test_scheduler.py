"""The worker that executes a batch of transformers; and the loop itself, on a release that is brought in."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvproof.check.oracle.scheduler.stepping import judge_access
from kvproof.check.protocol.finding import Finding
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.transformers.worker import Batch

RELEASE = "5.23.0"
TRACES = Path(__file__).parents[4] / "examples" / "traces"
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


class Ios:
    """The tensors of a batch: so many tokens of one request from `past` on; `moved`: where it reads its first one."""

    def __init__(self, allocator: Allocator, past: int, tokens: list[int], moved: int = 0) -> None:
        stop = past + len(tokens)
        self.output = torch.zeros(1, 4, dtype=torch.int32)
        self.inputs: dict[str, Any] = {
            "input_ids": torch.tensor([tokens]),
            "position_ids": torch.tensor([range(past, stop)]),
            "cu_seq_lens_q": torch.tensor([0, len(tokens)]),
            "logits_indices": torch.tensor([len(tokens) - 1]),
            "read_index": [torch.tensor([moved, *range(1, stop)] if past else [], dtype=torch.long)],
            "write_index": [torch.tensor(range(past, stop))],
            "cache": SimpleNamespace(cache_allocators={"full_attention": allocator}),
        }

    def get_model_kwargs(self) -> dict[str, Any]:
        return self.inputs

    def get_cb_kwargs(self) -> tuple[None, None, torch.Tensor]:
        return None, None, self.output

    def carry_over_tokens(self, tokens: torch.Tensor, carried: None, before: None) -> None:
        """There is no batch before."""


def two_steps(last: int = 7, moved: int = 0) -> tuple[Allocator, torch.Tensor]:
    """Two tokens, then one that reads them: the cache, and where the last step samples."""
    allocator, names = Allocator(), dict[tuple[int, ...], int]()
    for stop, ios in ((2, Ios(allocator, 0, [5, 6])), (3, Ios(allocator, 2, [last], moved))):
        state = SimpleNamespace(request_id="1", position_offset=stop)
        batch = Batch([SimpleNamespace(state=state, query_length=len(ios.inputs["input_ids"][0]))])
        for access in batch.execute(ios, TOKENS, names):
            judge_access(access)
        batch.sample({"1": 9})
    return allocator, ios.output


def test_a_step_reads_back_what_the_steps_before_wrote_and_samples() -> None:
    allocator, output = two_steps()
    assert allocator.keys[:4, 0, 0].tolist() == [1, 2, 3, 0]
    assert allocator.values[:4, 0, 0].tolist() == [-1, -2, -3, 0]
    assert output.tolist() == [[9, 0, 0, 0]]


def test_a_slot_of_another_token_is_a_finding() -> None:
    with pytest.raises(Finding, match=r"request 1 reads position 0.*the key of another token"):
        two_steps(moved=1)


def test_a_token_that_is_not_the_sampled_one_is_a_finding() -> None:
    with pytest.raises(Finding, match=r"request 1: its position 2 is computed as position 2 of token 8, and is of to"):
        two_steps(last=8)


# What downloads ---------------------------------------------------------------------------------------------------

WALK = """
import sys
from kvproof.check.subjects.transformers.loader import import_modules
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.transformers.scheduler import Transformers

modules = import_modules(sys.argv[1])
api, cache, offloading, scheduler = modules.api, modules.cache, modules.offloading, modules.scheduler
{change}
fixed = {{"chunked": True, "max_num_seqs": 16, **{fixed}}}
done = walk(SCHEDULERS, Transformers(sys.argv[1]), 2, max_operations={num_operations}, seconds=300, fixed=fixed)
print(done.finding or "not refuted", done.num_operations, *sorted(name for name, n in done.coverage.items() if n))
"""
LIFTS_THE_BLOCK = """
clear = scheduler.Scheduler.clear_cancelled_requests


def cleared(self):
    cancelled = clear(self)
    self.block_new_requests &= not cancelled
    return cancelled


scheduler.Scheduler.clear_cancelled_requests = cleared
"""
MARKS_WHO_IS_THERE = """
mark = cache.PagedAttentionCache.mark_complete_blocks


def marked(self, state, blocks):
    if all(state.request_id in allocator.block_table for allocator in self.cache_allocators.values()):
        mark(self, state, blocks)


cache.PagedAttentionCache.mark_complete_blocks = marked
"""
FORKS_WHO_IS_THERE = """
update = api.ContinuousBatchProcessor.update_batch


def updated(self):
    forking, active = self.scheduler._requests_to_fork, self.scheduler.active_requests
    self.scheduler._requests_to_fork = [state for state in forking if state.request_id in active]
    update(self)


api.ContinuousBatchProcessor.update_batch = updated
"""
COUNTS_WHEN_FREED = """
keep = offloading.OffloadingManager._reserve_cpu_blocks


def kept(self, counts):
    if self._cpu_pool is not None:
        self._cpu_pool.try_to_free_sectors()
    return keep(self, counts)


offloading.OffloadingManager._reserve_cpu_blocks = kept
"""
FIXED = LIFTS_THE_BLOCK + MARKS_WHO_IS_THERE + FORKS_WHO_IS_THERE + COUNTS_WHEN_FREED
CONFUSES_PARENTS = """
from transformers.generation.continuous_batching.cache_allocators import cache_allocator

named = cache_allocator.compute_block_hash
cache_allocator.compute_block_hash = lambda parent, tokens: named(None, tokens)
"""
# One line of the engine is another one: (module, the function, the line, what it reads instead).
PLANTS = """
import inspect, textwrap
from operator import attrgetter


def plant(module, name, line, instead):
    function = attrgetter(name)(module)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, (name, line, source.count(line))
    names = {{}}
    exec(source.replace(line, instead), vars(module), names)
    function.__code__ = names[function.__name__].__code__


from transformers.generation.continuous_batching.cache_allocators import cache_allocator

"""
ASYNC, SYNC = {"async_steps": 1}, {"async_steps": 0}
PLAIN = {"num_host_blocks": 0, "group_size": 1}


def walked(change: str, num_operations: int = 15_000, **fixed: int) -> str:
    """What a walk says; in a process of its own, since modules of a release stay imported."""
    download.add(f"transformers=={RELEASE}")
    script = WALK.format(
        change=change.replace("{{", "{").replace("}}", "}"), fixed=fixed, num_operations=num_operations
    )
    command = [sys.executable, "-c", script, RELEASE]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout


@pytest.mark.engine
def test_a_request_that_was_reset_waits_for_ever_when_the_others_are_cancelled() -> None:
    """Nothing but the end of a request lifts `block_new_requests`, and a cancellation is not one."""
    assert "'progress'" in walked("", **SYNC, **PLAIN)


@pytest.mark.engine
def test_a_cancelled_request_of_a_batch_under_way_ends_the_loop() -> None:
    """`update_batch` registers blocks of a request whose table is gone: cancelled, it is neither over nor waiting."""
    assert "'complete KeyError'" in walked(LIFTS_THE_BLOCK + COUNTS_WHEN_FREED, **ASYNC, **PLAIN)


@pytest.mark.engine
def test_a_request_that_is_cancelled_before_it_forks_ends_the_loop() -> None:
    output = walked(LIFTS_THE_BLOCK + MARKS_WHO_IS_THERE + COUNTS_WHEN_FREED, **ASYNC, num_host_blocks=0, group_size=3)
    assert "'complete KeyError'" in output


@pytest.mark.engine
def test_host_sectors_that_are_freed_are_counted_twice() -> None:
    """`_reserve_cpu_blocks` counts free blocks, makes sectors of them, and takes both."""
    output = walked(LIFTS_THE_BLOCK, **SYNC, group_size=1, num_host_blocks=2, num_gpu_blocks=6, block_size=2)
    assert "'schedule ValueError'" in output


@pytest.mark.engine
@pytest.mark.parametrize("order", [SYNC, ASYNC])
def test_transformers_is_not_refuted_where_these_are_mended(order: dict[str, int]) -> None:
    output = walked(FIXED, **order)
    assert output.startswith("not refuted")
    expected = {
        "exchange after a step", "hit on an evictable block", "preempted", "aborted in flight", "swap_in", "swap_out",
        "swapped out when admitted", "forked by itself", "forked, and waits", "shared with a child",
    }  # fmt: skip
    if order is ASYNC:
        expected |= {"token dropped", "scheduled while another is under way"}
    assert [name for name in sorted(expected) if name not in output] == []


SCRIPT = """
import os, runpy, sys
from kvproof.check.subjects.transformers.loader import import_modules

modules = import_modules(sys.argv[1])
api, cache, offloading, scheduler = modules.api, modules.cache, modules.offloading, modules.scheduler
{change}
sys.path[0] = os.path.dirname(sys.argv[2])  # as `python SCRIPT` has it: the scripts import what lies beside them
runpy.run_path(sys.argv[2])
"""
CANCELLED = "cancelled_requests_end_the_loop"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (CANCELLED, "", "a request with 0 children is cancelled while it is computed: KeyError"),
        (
            CANCELLED,
            MARKS_WHO_IS_THERE + LIFTS_THE_BLOCK,
            "a request with 1 children is cancelled while it is computed: KeyError",
        ),
        (CANCELLED, MARKS_WHO_IS_THERE + FORKS_WHO_IS_THERE, "['second'] wait, and nothing runs"),
        (CANCELLED, FIXED, ""),
        ("host_blocks_count_twice", "", "a request of three blocks, a pool of two: ValueError"),
        ("host_blocks_count_twice", COUNTS_WHEN_FREED, ""),
    ],
)
def test_a_script_shows_each_fault_until_it_is_fixed(name: str, change: str, message: str) -> None:
    download.add(f"transformers=={RELEASE}")
    script = TRACES.parent / "reproductions" / f"transformers_{name}.py"
    command = [sys.executable, "-c", SCRIPT.format(change=change), RELEASE, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr.startswith(message)) == (int(bool(message)), True), done.stderr


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "property"),
    [
        ("a-cancelled-request-forks", "total-calls"),
        ("a-cancelled-request-of-a-batch-under-way", "total-calls"),
        ("a-reset-request-waits-for-ever", "progress"),
        ("host-sectors-that-are-freed-count-twice", "total-calls"),
    ],
)
def test_what_was_found_replays(name: str, property: str) -> None:
    download.add(f"transformers=={RELEASE}")
    command = [str(Path(sys.executable).with_name("kvproof")), "replay", str(TRACES / f"transformers-{name}.json")]
    output = subprocess.run(command, capture_output=True, text=True, timeout=200).stdout
    assert output.startswith("FAILED")
    assert f"{property} is still refuted" in output


@pytest.mark.engine
def test_blocks_named_by_their_own_tokens_alone_are_refuted() -> None:
    output = walked(FIXED + CONFUSES_PARENTS, **SYNC, **PLAIN)
    assert any(f"'{name}'" in output for name in ("sharing-equal", "read-back", "hit-computed"))


@pytest.mark.engine
@pytest.mark.parametrize(
    ("fixed", "where", "name", "line", "instead", "properties"),
    [
        (
            SYNC,
            "cache_allocator",
            "BlockLedger.acquire",
            "self.shared_ref_counts.get(block_id, 1) + 1",
            "1",
            {"refcount-exact"},
        ),
        (
            SYNC,
            "offloading",
            "OffloadingManager._offload_to_cpu",
            "all_gpu_ids[name].extend(gpu_tables[name])",
            "all_gpu_ids[name].extend(gpu_tables[name][::-1])",
            {"read-back"},
        ),
        (
            SYNC,
            "offloading",
            "OffloadingManager.restore_scheduled_requests",
            "all_cpu_ids[name].extend(cpu_ids[:num_blocks])",
            "all_cpu_ids[name].extend(sorted(cpu_ids[:num_blocks], reverse=True))",
            {"read-back"},
        ),
        (
            SYNC,
            "offloading",
            "OffloadingManager.free_request_cpu_cache",
            "cpu_blocks = self._request_id_to_cpu_blocks.pop(state.request_id)",
            "cpu_blocks = {}; self._request_id_to_cpu_blocks.pop(state.request_id)",
            {"no-leak-at-rest", "conservation"},
        ),
        (
            SYNC,
            "cache_allocator",
            "CacheAllocator.fork_blocks",
            "return blocks_to_copy, fresh_blocks",
            "return [], []",
            {"cow-copied"},
        ),
        (
            SYNC,
            "cache_allocator",
            "CacheAllocator.copy_blocks",
            "dest = torch.tensor(dest_block_ids,",
            "dest = torch.tensor(source_block_ids,",
            {"read-back"},
        ),
        (
            SYNC,
            "cache_allocator",
            "CacheAllocator.count_shareable_blocks",
            "past_length // self.tokens_per_page, len",
            "-(-past_length // self.tokens_per_page), len",
            {"cow-copied"},
        ),
        (ASYNC, "ios", "ContinuousBatchingAsyncIOs.infer_carry_over_ids", "= i\n", "= 0\n", {"read-back"}),
        (
            ASYNC,
            "offloading",
            "OffloadingManager.offload_requests",
            "state.position_offset -= 1",
            "pass",
            {"read-back"},
        ),
        (
            ASYNC,
            "ios",
            "ContinuousBatchingAsyncIOs.carry_over_tokens",
            "(carry_over_ids != -1)",
            "(carry_over_ids > 0)",
            {"read-back"},
        ),
    ],
)
def test_one_line_that_is_another_is_found(
    fixed: dict[str, int], where: str, name: str, line: str, instead: str, properties: set[str]
) -> None:
    module = where if where == "cache_allocator" else f"modules.{where}"
    output = walked(FIXED + PLANTS + f"plant({module}, {name!r}, {line!r}, {instead!r})", **fixed)
    assert any(output.startswith(f"('{property}'") for property in properties), output
