"""One engine of a pair: SGLang's `Scheduler`, without the server around it (`pd_scheduler`).

A step is one round of `event_loop_normal_disagg_prefill` or `event_loop_normal_disagg_decode`. DECODE asks its
receivers when it decides, PREFILL its senders when it completes a step.

A block is a page; page 0 is padding, which nobody gets.
"""

import inspect
from array import array
from typing import Any

import torch

from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import Observation
from kvproof.check.protocol.pair import DECODE, PREFILL, Offer, PairConfig, PairLoad, PairStep, Reported
from kvproof.check.protocol.scheduler import Chunk
from kvproof.check.protocol.wire import Wire
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.sglang.pd_scheduler import NUM_ROWS, new_scheduler
from kvproof.check.subjects.sglang.pd_wire import Manager
from kvproof.check.subjects.sglang.scheduler_fakes import VOCABULARY, AbortReq, Result, sampling_of
from kvproof.check.subjects.sglang.scheduler_settings import CURRENT


class Side:
    """One engine of a pair."""

    def __init__(self, release: StubObject) -> None:
        self._release = release
        decide = release.Scheduler.get_next_disagg_decode_batch_to_run
        self._has_plans = "running_batch" in inspect.signature(decide).parameters

    # Making it ------------------------------------------------------------------------------------------------------

    def begin(self, side: int, config: PairConfig, wire: Wire) -> None:
        """Make the engine of a side. Raises Unsupported."""
        self.side, self._page, self._num_pages = side, config.slots(side), config.num_blocks(side)
        self.requests: dict[int, Any] = {}
        self._left: set[int] = set()  # whose user has left
        self._loads: list[PairLoad] = []
        self._batch: Any = None
        self.scheduler = new_scheduler(self._release, side, config, wire)

    # Requests -------------------------------------------------------------------------------------------------------

    def come(self, request: int, room: int, tokens: list[int], max_tokens: int) -> None:
        """A request comes, for a room."""
        sampling = sampling_of(max_tokens)
        sampling.ignore_eos = True
        self.requests[request] = req = self._release.Req(
            f"{request:08}",
            "",
            array("q", tokens) if self._release.has_arrays else tokens,
            sampling,
            eos_token_ids=set(),
            bootstrap_host="prefill",
            bootstrap_port=0,
            bootstrap_room=room,
            disagg_mode=self.scheduler.disaggregation_mode,
            vocab_size=VOCABULARY,
        )
        req.tokenizer = None
        self.scheduler._add_request_to_queue(req)

    def abort(self, request: int) -> None:
        """The user of a request leaves."""
        self._left.add(request)
        self.scheduler.abort_request(AbortReq(self.requests[request].rid))

    # Steps ----------------------------------------------------------------------------------------------------------

    def decide(self) -> PairStep:
        """The next step."""
        scheduler, received = self.scheduler, list[int]()
        if self.side == PREFILL:
            scheduler.waiting_queue.extend(scheduler.disagg_prefill_bootstrap_queue.pop_bootstrapped())
            self._plan(scheduler.get_next_disagg_prefill_batch_to_run, scheduler.last_batch)
        else:
            scheduler.process_decode_queue()
            received = [self.number_of(req) for req in scheduler.waiting_queue if req.output_ids]
            self._plan(scheduler.get_next_disagg_decode_batch_to_run)
        loads = [self._load(body) for body in self.manager.begun] if self.side == DECODE else []
        self.manager.begun.clear()
        return PairStep(self._chunks(), loads, Reported(received, (), self._failed()))

    def _plan(self, decide: Any, *last: Any) -> None:
        """Let the scheduler decide. Up to 0.5.15 it keeps what it runs by itself."""
        scheduler = self.scheduler
        if self._has_plans:
            plan = decide(scheduler.running_batch, *last)
            scheduler.running_batch, self._batch = plan.running_batch, plan.batch_to_run
        else:
            self._batch = decide()

    @property
    def manager(self) -> Manager:
        """The transport of this side."""
        manager: Manager = CURRENT.managers[self.side]
        return manager

    def number_of(self, req: Any) -> int:
        """The number of a request."""
        return next(number for number, one in self.requests.items() if one is req)

    def _load(self, body: Any) -> PairLoad:
        number, req = next((n, one) for n, one in self.requests.items() if one.bootstrap_room == body.room)
        return PairLoad(number, body.prefix, len(req.origin_input_ids))

    def _chunks(self) -> list[Chunk]:
        batch = self._batch
        if batch is None:
            return []
        chunks = []
        for place, req in enumerate(batch.reqs):
            number = self.number_of(req)
            if batch.forward_mode.is_decode():
                stop = len(req.origin_input_ids) + len(req.output_ids)
                chunks.append(Chunk(number, stop - 1, stop, 0))
            else:
                start = batch.prefix_lens[place]
                chunks.append(Chunk(number, start, start + batch.extend_lens[place], start))
        return chunks

    def finish(self, sampled: dict[int, int]) -> Reported:
        """The step is executed: each request gets its token, and PREFILL asks its senders."""
        scheduler, batch = self.scheduler, self._batch
        if batch is not None:
            tokens = [sampled.get(self.number_of(req), 0) for req in batch.reqs]
            batch.output_ids = torch.tensor(tokens)  # as `run_batch` sets it; from 0.5.13 on nobody reads it
            result = Result(batch.output_ids)
            if self.side == PREFILL:
                scheduler.process_batch_result_disagg_prefill(batch, result)
            else:
                processor = getattr(scheduler, "batch_result_processor", scheduler)  # from 0.5.13
                processor.process_batch_result_decode(batch, result)
        if self.side == PREFILL:
            scheduler.process_disagg_prefill_inflight_queue()
        scheduler.last_batch, self._batch = batch, None
        return Reported((), (), self._failed())

    def _failed(self) -> list[int]:
        """The requests that have ended with an error since the last call; those that hold nothing are forgotten."""
        failed = []
        for number, req in list(self.requests.items()):
            is_over = req.finished_reason is not None or number in self._left
            if is_over and type(req.finished_reason).__name__ == "FINISH_ABORT" and number not in self._left:
                failed.append(number)
                self._left.add(number)
            if is_over and row_of(req) is None and not self._is_queued(req):
                del self.requests[number]
        return failed

    # What it shows --------------------------------------------------------------------------------------------------

    def offer(self, request: int) -> Offer | None:
        """What a request of PREFILL holds for DECODE."""
        req = self.requests.get(request)
        if req is None or req not in self.scheduler.disagg_prefill_inflight_queue:
            return None
        num_tokens = len(req.origin_input_ids)
        return Offer(num_tokens, self._pages(req)[: -(-num_tokens // self._page)])

    def _pages(self, req: Any) -> list[int]:
        number = row_of(req)
        assert number is not None
        row = self.scheduler.req_to_token_pool.req_to_token.numpy()[number, : num_allocated(req)]
        for place, slot in enumerate(row):
            if slot != row[place - place % self._page] + place % self._page:
                raise EngineFailure(
                    f"position {place} of {name_of(req)} is in slot {slot}, not in its page: {row.tolist()}"
                )
        return [int(slot) // self._page for slot in row[:: self._page]]

    def observe(self) -> Observation:
        """The pool: page 0 is nobody's."""
        tables = {number: [self._pages(req)] for number, req in self.requests.items() if row_of(req) is not None}
        scheduler = self.scheduler
        free = scheduler.token_to_kv_pool_allocator.available_size() + scheduler.tree_cache.evictable_size()
        return Observation(tables, (int(free) // self._page, 0), reserved=(0,))

    def _queues(self) -> dict[str, list[Any]]:
        scheduler = self.scheduler
        if self.side == PREFILL:
            return {
                "bootstrap queue": scheduler.disagg_prefill_bootstrap_queue.queue,
                "inflight queue": scheduler.disagg_prefill_inflight_queue,
                "waiting queue": scheduler.waiting_queue,
            }
        prealloc, transfer = scheduler.disagg_decode_prealloc_queue, scheduler.disagg_decode_transfer_queue
        return {
            "prealloc queue": [one.req for one in prealloc.queue],
            "pending requests": [one.req for one in prealloc.pending_reqs],
            "retracted queue": prealloc.retracted_queue,
            "transfer queue": [one.req for one in transfer.queue],
            "deferred releases": [one[0].req for one in getattr(transfer, "_deferred_releases", ())],
            "waiting queue": scheduler.waiting_queue,
            "running batch": scheduler.running_batch.reqs,
        }

    def _is_queued(self, req: Any) -> bool:
        return any(req in queue for queue in self._queues().values())

    def kept(self) -> dict[str, list[str]]:
        """The queues that are not empty, and the rows and slots for metadata that are in use."""
        scheduler = self.scheduler
        found = {name: [name_of(req) for req in queue] for name, queue in self._queues().items() if queue}
        metadata = scheduler.req_to_metadata_buffer_idx_allocator
        if number := metadata.size - metadata.available_size():
            found["slots for metadata"] = [str(number)]
        table = scheduler.req_to_token_pool
        if number := NUM_ROWS * (1 + self.side) - table.available_size():
            found["rows of requests"] = [str(number)]
        return found


def name_of(req: Any) -> str:
    """The name of a request."""
    return f"request {int(req.rid)}"


def row_of(req: Any) -> int | None:
    """The row of a request; None if it holds nothing. From 0.5.19 on it is in a record, `req.kv`."""
    row: int | None = req.req_pool_idx if hasattr(req, "req_pool_idx") else req.kv.req_pool_idx
    return row


def num_allocated(req: Any) -> int:
    """The positions for which a request has slots. From 0.5.16 on it is in a record, `req.kv`."""
    number: int = req.kv_allocated_len if hasattr(req, "kv_allocated_len") else req.kv.kv_allocated_len
    return number
