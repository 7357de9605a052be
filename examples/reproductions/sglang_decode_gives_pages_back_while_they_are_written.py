"""SGLang 0.5.12 to 0.5.20: decode gives the slots of an aborted request back while prefill writes them (issue 24527).

Decode has reserved slots for a request, and prefill writes its KV there. The user leaves. The queue of transfers sees
that the receiver has failed, and gives the slots back, although nothing has stopped the writing. The next request gets
them, and reads what prefill writes.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if, nothing, same
from on_sglang_disaggregation import (
    DECODE,
    FAILED,
    Quiet,
    failure,
    given_away,
    holds_aborted,
    module,
    new_pool,
    new_request,
)


class Receiver:
    """The receiver of a request whose user has left; prefill has not said yet that it has stopped."""

    abort_notified, require_staging, bootstrap_infos = True, False, (0,)
    kv_mgr = StandIn(
        enable_deferred_decode_kv_release=True, is_abort_release_safe=lambda room, acks: False, clear=nothing
    )

    def poll(self) -> int:
        return FAILED

    failure_exception = staticmethod(failure)
    clear = abort = ensure_abort_notified = staticmethod(nothing)


pool = new_pool()
request = new_request(pool, 4)
written = request.slots.clone()
entry = StandIn(req=request, kv_receiver=Receiver(), metadata_buffer_index=1, host_staged=False)
entry.hicache_restore_status = None
quiet: dict[str, Any] = same(Quiet(), "output_streamer stream_output metrics_reporter metrics_collector")
kind = module(DECODE).DecodeTransferQueue
queue = kind.__new__(kind)
queue.__dict__.update(
    same(None, "gloo_group tree_cache staging_handler"),
    queue=[entry],
    tp_rank=0,
    enable_staging=False,
    enable_deferred_kv_release=holds_aborted(),
    deferred_kv_release_timeout=30.0,
    _deferred_releases=[],
    metadata_buffers=StandIn(bootstrap_room={}, clear_slot=nothing),
    req_to_metadata_buffer_idx_allocator=Quiet(),
    scheduler=StandIn(**quiet, **same(False, "enable_decode_hicache enable_hisparse enable_metrics")),
    _clean_hicache_prefetch_resources=nothing,
    _poll_with_metadata_gate=lambda: [FAILED],
)
queue.pop_transferred()
if hasattr(queue, "resolve_deferred_releases"):
    queue.resolve_deferred_releases()
shared = given_away(pool, written)
print(f"prefill writes slots {written.tolist()}; another request has {shared} of them")
fault_if(shared, "slots into which prefill writes are given to another request")
