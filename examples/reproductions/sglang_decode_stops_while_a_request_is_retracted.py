"""SGLang 0.5.12 to 0.5.23: decode stands still while a retracted request waits for what an arrived one holds.

`process_decode_queue` resumes retracted requests if there is room, and returns if one is left, so that no new request
is let in before it. It also returns before it looks at the queue of transfers. A request whose KV has arrived holds its
slots, does not run, and gives nothing back: the retracted one waits for ever.

The method is the release's own; what both queues answer is written here, with an allocator of the release. Run it with
the SGLang that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if, nothing, same
from on_sglang_disaggregation import DECODE, module, new_pool, new_request

NUM_NEEDED, NUM_ROUNDS = 6, 1_000


class Waiting:
    """The requests that have lost their slots, and need `NUM_NEEDED` of them to go on."""

    retracted_queue: list[Any]

    def resume_retracted_reqs(self) -> list[Any]:
        """Those for which there is room again."""
        if pool.available_size() < NUM_NEEDED:
            return []
        resumed, self.retracted_queue = self.retracted_queue, []
        return resumed

    def pop_preallocated(self) -> tuple[list[Any], list[Any]]:
        """No new request waits."""
        return [], []


class Transfers:
    """The requests whose KV is on its way: it has arrived for all of them."""

    queue: list[Any]
    extend = resolve_deferred_releases = staticmethod(nothing)

    def pop_transferred(self) -> list[Any]:
        """Those whose KV has arrived."""
        arrived, self.queue = self.queue, []
        return arrived


options = same(False, "disaggregation_decode_enable_offload_kvcache")
options |= {"disaggregation_decode_polling_interval": 1, "disaggregation_decode_host_receive_threshold": 1}
module(DECODE).get_disagg = lambda: StandIn(**options)
pool = new_pool()
retracted, arrived = new_request(pool, 0), new_request(pool, 4)
prealloc, transfers, ran = Waiting(), Transfers(), list[Any]()
prealloc.retracted_queue, transfers.queue = [retracted], [arrived]
scheduler = StandIn(
    disagg_decode_prealloc_queue=prealloc,
    disagg_decode_transfer_queue=transfers,
    waiting_queue=[],
    server_args=StandIn(**options),
    polling_count=0,
    polling_interval=1,
    **same(False, "enable_decode_hicache enable_hisparse"),
)
for _ in range(NUM_ROUNDS):  # of the event loop: who waits runs to its end, and gives its slots back
    module(DECODE).SchedulerDisaggregationDecodeMixin.process_decode_queue(scheduler)
    for request in scheduler.waiting_queue:
        ran.append(request)
        pool.free(request.slots)
    scheduler.waiting_queue.clear()
print(f"after {NUM_ROUNDS} rounds {len(ran)} of 2 requests have run; {pool.available_size()} slots are free")
fault_if(len(ran) < 2, "the request whose KV has arrived never runs, and the retracted one waits for its slots")
