"""vLLM NIXL in push mode, 0.26.0 to 0.33.0: with more ranks of decode than of prefill, registrations are kept for ever.

Each rank of decode registers the blocks of a request with the rank of prefill that has its heads. With two ranks of
decode and one of prefill, prefill gets two registrations of each request. The first one meets the finished request, and
prefill writes to both ranks. The second one meets nothing: `_handle_push_reg_notif` puts it into
`_pending_d_registrations`. When the request is over, `_push_writer_loop` drops the registration with the name that
prefill has for the request; but registrations have the name that decode has for it, whose random suffix is another one.

So prefill keeps a record of each request for ever. And if a client gives a later request the same name, prefill takes
what it kept for the registration of that request, and writes KV into blocks of decode that may be somebody else's.
Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from queue import Queue
from typing import Any

import msgspec
from on_any_engine import StandIn, fault_if, nothing
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_worker import NixlPushConnectorWorker

PREFIX = b"PUSH_REG:"
RANKS = 2  # of decode, for one of prefill
FINISHED = "cmpl-1-0-aaaaaaaa"  # the names of one request on prefill and on decode
CLAIMED = "cmpl-1-0-bbbbbbbb"
RETRIED = "cmpl-1-0-cccccccc"  # a later request with the same name


def registration() -> bytes:
    """What a rank of decode sends."""
    return PREFIX + msgspec.msgpack.encode({"request_id": CLAIMED, "local_block_ids": [[5, 6]]})


written: list[tuple[str, Any]] = []
worker: Any = type("Worker", (NixlPushConnectorWorker,), {"__init__": nothing, "__del__": nothing})()
worker._do_start_push_kv = lambda name, blocks, registered: written.append((name, registered["local_block_ids"]))
worker._push_finished_blocks, worker._pending_d_registrations = {}, {}
worker._pending_completion_notifs = Queue()
for inbox in ("reg_send", "deferred_push", "finished_blocks", "evict_finished"):
    setattr(worker, f"_{inbox}_inbox", Queue())
worker._push_writer_wake = StandIn(wait=nothing, clear=nothing)


def one_round(notifications: list[bytes]) -> None:
    """Let the writer's loop go round once, with these notifications."""
    rounds = iter((False, True))
    worker._push_writer_stop = StandIn(is_set=lambda: next(rounds), wait=nothing)
    worker.nixl_wrapper = StandIn(get_new_notifs=lambda: {"decode": notifications})
    worker._push_writer_loop()


worker._finished_blocks_inbox.put((FINISHED, [[1, 2]]))
one_round([registration() for _ in range(RANKS)])
worker._evict_finished_inbox.put(FINISHED)  # as `get_finished` does when all is written
one_round([])
print(f"request {FINISHED} is over, and prefill keeps the registrations of {sorted(worker._pending_d_registrations)}")
is_kept = bool(worker._pending_d_registrations)
worker._finished_blocks_inbox.put((RETRIED, [[3, 4]]))
one_round([])
if len(written) > 1:
    print(f"request {RETRIED}, which nobody has registered, is written to blocks {written[-1][1]} of decode")
fault_if(is_kept, "prefill keeps a registration of each request")
