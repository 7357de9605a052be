"""SGLang's queues of prefill and decode, whose requests are on the way between two engines, without a transport.

The real ones are the queues, what they do with a failed transfer, and the allocator. A request has slots, and gives
them back where SGLang calls `release_kv_cache`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from on_any_engine import StandIn, nothing, same
from on_sglang_modules import import_modules

BASE, DECODE, PREFILL, UTILS = (f"srt.disaggregation.{name}" for name in ("base.conn", "decode", "prefill", "utils"))
module = import_modules(
    ("srt.disaggregation.base", BASE, DECODE, "srt.disaggregation.decode_hicache_mixin", PREFILL, UTILS),
    {"srt.managers.schedule_batch": {"FINISH_ABORT": type("FINISH_ABORT", (), {}), "FINISH_LENGTH": StandIn}},
)
FAILED: int = module(BASE).KVPoll.Failed
NUM_SLOTS = 8


class Quiet:
    """Something that is told what happens: times, metrics and outputs."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> None:
        """Nothing is answered."""

    def __bool__(self) -> bool:
        return False


def failure() -> None:
    """What a sender and a receiver say of a transfer that has failed."""
    raise RuntimeError("aborted")


def polled(ends: Sequence[Any], *groups: Any, **options: Any) -> list[int]:
    """How far each transfer is, on the only rank."""
    return [int(end.poll()) for end in ends]


def new_pool() -> Any:
    """An allocator of slots; `release_kv_cache` gives those of a request back to it."""
    pool = module("srt.mem_cache.allocator").TokenToKVPoolAllocator(NUM_SLOTS, torch.int64, "cpu", None, False)
    for side in (DECODE, PREFILL):
        part = module(side)
        part.release_kv_cache = lambda request, cache, **options: pool.free(request.slots)
        part.prepare_abort = nothing
        part.all_reduce_flags = lambda flags, **options: list(flags)
        for name in ("poll_and_all_reduce", "poll_and_all_reduce_attn_cp_tp_group", "maybe_release_metadata_buffer"):
            setattr(part, name, nothing if name.startswith("maybe") else polled)
    module(PREFILL).release_req_to_metadata_buffer = nothing
    return pool


def new_request(pool: Any, num_slots: int, **more: Any) -> Any:
    """A request with slots, in room 7."""
    off = "return_logprob return_routed_experts pending_bootstrap"
    none = "finished_reason finished_output cache_request_handle session"
    options = same(False, off) | same(None, none) | {"bootstrap_room": 7, "bootstrap_host": "host", "rid": "request"}
    return StandIn(**options | {"slots": pool.alloc(num_slots), "time_stats": Quiet()} | more)


def holds_aborted() -> bool:
    """Whether decode, by default, holds what it has reserved until prefill says that it has stopped."""
    flag = getattr(module("srt.environ").envs, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", None)
    return flag is not None and bool(flag.get())


def given_away(pool: Any, slots: Any) -> list[int]:
    """Which of these slots another request gets that needs most of the pool."""
    others = pool.alloc(NUM_SLOTS - 2)
    return [] if others is None else sorted({*others.tolist()} & {*slots.tolist()})
