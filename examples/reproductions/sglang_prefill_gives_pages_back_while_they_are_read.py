"""SGLang 0.5.13 to 0.5.23: prefill gives the slots of a failed request back while its transfer reads them (PR 38961).

Prefill sends the KV of a request, a thread of the transport reads it, and decode gives up. The sender says at once that
the request has failed, and the queue of requests on the way gives their slots back. Nothing has stopped the thread: the
next request writes these slots, and the rest of the transfer sends what it writes.

Run it with the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is
there.
"""

from on_any_engine import StandIn, fault_if, nothing, same
from on_sglang_disaggregation import FAILED, PREFILL, Quiet, failure, given_away, module, new_pool, new_request

pool = new_pool()
sender = StandIn(
    poll=lambda: FAILED,
    failure_exception=failure,
    kv_mgr=None,
    **same(nothing, "clear abort get_transfer_metric"),
)
request = new_request(pool, 4, disagg_kv_sender=sender, metadata_buffer_index=0, tmp_end_idx=0)
read = request.slots.clone()
scheduler = module(PREFILL).SchedulerDisaggregationPrefillMixin()
quiet = "metrics_reporter metrics_collector output_streamer tree_cache req_to_metadata_buffer_idx_allocator"
scheduler.__dict__.update(
    same(Quiet(), quiet)
    | same(None, "attn_cp_cpu_group attn_tp_cpu_group")
    | same(nothing, "stream_output _release_aborted_request"),
    disagg_prefill_inflight_queue=[request],
    enable_metrics=False,
    tp_rank=0,
    ps=StandIn(tp_rank=0),
)
if hasattr(module(PREFILL), "get_parallel"):
    module(PREFILL).get_parallel = lambda: StandIn(tp_rank=0)
scheduler.process_disagg_prefill_inflight_queue()
shared = given_away(pool, read)
print(f"the transfer reads slots {read.tolist()}; another request has {shared} of them")
fault_if(shared, "slots that a transfer reads are given to another request")
