"""SGLang's own scheduler as a subject, with its pool, table of requests and prefix cache, from release 0.5.13 on.

Driven are `get_next_batch_to_run` (admission, chunks of prompts, retraction, priorities with preemption, aborts) and
what a result does to a request (`process_batch_result_prefill` and `_decode`). The adapter plays the loop around them:
`event_loop_normal`, or with one asynchronous step `event_loop_overlap`, in which a batch is scheduled and launched
before the results of the one before are looked at. It replaces the constructor (`scheduler_parts`), the handling of a
message that brings a request, `run_batch`, and the worker. Blocks are pages, as in `manager`.

SGLang carries out an abort of a request that runs with the results of its next step, and of one whose prompt is
computed in chunks when it schedules; the request is over when that is sent to its user. A retracted request goes to
the end of the queue. After a step in which everybody ended, a step may be empty though somebody waits. Where the loop
is idle, SGLang's own check of its pools runs too, and a leak that it reports is a finding.

Where the configuration says so, every other request must not be published in the prefix cache, as one with overridden
embeddings (`skip_radix_cache_insert`).

There may be layers with a sliding window beside those with full attention (`windows`). Then the prefix cache is the
unified tree, which SGLang takes from 0.5.17 on, and before if an option says so.

Limits: before 0.5.22 only a triton kernel can allocate pages of several slots, so a block of these releases has one
slot. A step computes prompts or decodes, never both (`enable_mixed_chunk` is off). No states, sessions, speculative
decoding, grammars, host tiers, and no disaggregation. The tree core is the one in Python.
"""

import inspect
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.manager import WINDOW, Assumption, Observation, Unsupported
from kvproof.check.protocol.scheduler import ABORTED, Access, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.loading.strict import require_known
from kvproof.check.subjects.sglang.manager import first_slots
from kvproof.check.subjects.sglang.request_key import keys_given
from kvproof.check.subjects.sglang.scheduler_fakes import VOCABULARY, AbortReq, Outputs, Result, sampling_of
from kvproof.check.subjects.sglang.scheduler_loader import import_scheduler
from kvproof.check.subjects.sglang.scheduler_parts import make_scheduler
from kvproof.check.subjects.sglang.windows import WindowTables
from kvproof.spec.text.budgets import FCFS, PRIORITY

FILLER = 0  # the token for whom nobody samples one


def row_of(request: Any) -> tuple[int, int]:
    """The row of a request in the table, and how many slots it has there; 0 if it has no row.

    Up to 0.5.15 the request has both; in 0.5.16 to 0.5.18 a record has the length, and later both.
    """
    kv = getattr(request, "kv", request)
    if kv is None:
        return 0, 0
    index = kv.req_pool_idx if hasattr(kv, "req_pool_idx") else request.req_pool_idx
    return (0, 0) if index is None else (index, kv.kv_allocated_len)


@dataclass
class Step:
    """A batch, if there is one, and the tokens that it samples, if they are known when it is launched."""

    batch: Any
    tokens: dict[int, int] = field(default_factory=dict)


ASSUMPTIONS = (
    Assumption("steps-in-order", "The device starts no step before the one before has ended."),
    Assumption("aborted-between-steps", "An abort that comes within a step is looked at before the next one."),
    Assumption(
        "model-fits",
        "The pool holds one sequence of max_model_len and two pages more, so that the engine cuts no generation short.",
    ),
    Assumption("admits-much", "Servers are set so that requests are admitted early: schedule_conservativeness is 0.3."),
)


class SGLangScheduler(SchedulerAdapter):
    """SGLang's `Scheduler` with its pool and prefix cache."""

    assumptions = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"sglang-scheduler {version}"
        self._release = release = import_scheduler(version)
        self.capabilities = Capabilities(
            caching=True,
            chunked=True,
            adapters=True,
            salts=True,
            reports_ends=True,
            aborts_late=True,
            dedups_after_step=True,
            dedups_when_scheduled=True,
            steps_in_order=True,
            has_admission_query=False,
            holds_longest=True,
            num_spare=2,
            mixes_steps=False,
            idles_once=True,
            async_steps=1,
            runs_ahead=True,
            policies=(FCFS, PRIORITY),
            requeues_last=True,
            unpublished=True,
            window=True,
            window_with_caching=True,
            kv_groups=True,
            keeps_behind_window=True,
            block_size_max=None if release.has_large_pages else 1,
        )
        self._wanted = frozenset(inspect.signature(release.Req.__init__).parameters)
        slots = release.RadixKey.__slots__ if hasattr(release.RadixKey, "__slots__") else ()
        self._salted = "cache_salt" in slots

    def make(self, config: SchedulerConfig) -> Any:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        if config.max_num_batched_tokens < config.max_num_seqs:
            raise Unsupported("a decode computes a token of each request that runs")
        if not config.chunked and config.max_num_batched_tokens < config.max_model_len:
            raise Unsupported("without chunks a step has room for the longest prompt")
        if config.chunked and config.max_num_batched_tokens < config.block_size:
            raise Unsupported("a chunk has whole pages")
        if config.window is None:
            self.require_fitting_model(config.max_model_len + 2 * config.block_size)
        self._outputs = Outputs()
        self._requests: dict[int, Any] = {}  # the engine's request, by the judge's sequence
        self._numbers: dict[int, int] = {}  # the request of a sequence
        self._priorities: dict[int, int] = {}
        scheduler = make_scheduler(self._release, config, self._outputs)
        self._windows = WindowTables(self._release, config, scheduler) if scheduler.is_hybrid_swa else None
        return scheduler

    # Requests ---------------------------------------------------------------------------------------------------------

    def prioritize(self, request: int, priority: int) -> None:
        self._priorities[request] = priority

    def add(self, request: Request) -> None:
        """A request comes into the queue, as `handle_generate_request` puts it there. Some must not be published."""
        extra, salt, adapter = keys_given(request.key, self._salted)
        options = {
            "extra_key": extra,
            "cache_salt": salt,
            "lora_id": adapter,
            "vocab_size": VOCABULARY,
            "disagg_mode": self._release.modes.NULL,
            "eos_token_ids": set(),
            "priority": self._priorities.pop(request.number, None),
        }
        given = {name: value for name, value in options.items() if name in self._wanted}
        tokens = array("q", request.tokens) if self._release.has_arrays else list(request.tokens)
        sampling = sampling_of(self.num_to_generate(request))
        made = self._release.Req(f"{request.seq:08}", "", tokens, sampling, **given)
        if self.config.unpublished and request.number % 2:
            made.skip_radix_cache_insert = True
        self._requests[request.seq], self._numbers[request.seq] = made, request.number
        self.scheduler.init_req_max_new_tokens(made)
        self.scheduler._add_request_to_queue(made)

    def takes_aborts(self) -> bool:
        """Where the loop looks for messages: before it schedules."""
        return self.is_launched and len(self.under_way) <= self.config.async_steps

    def cancel(self, request: Request) -> None:
        self.scheduler.abort_request(AbortReq(f"{request.seq:08}"))

    def ended(self) -> dict[int, str]:
        seqs = [int(name) for name in self._outputs.ended]
        self._outputs.ended.clear()
        self._forget(seqs)
        return super().ended() | {self._numbers.pop(seq): ABORTED for seq in seqs}

    def _forget(self, seqs: Sequence[int]) -> None:
        """Requests are over. One that keeps a row is still shown."""
        for seq in seqs:
            if seq in self._requests and not row_of(self._requests[seq])[1]:
                del self._requests[seq]

    # Steps ------------------------------------------------------------------------------------------------------------

    def next_step(self) -> tuple[Step, ScheduledStep]:
        scheduler = self.scheduler
        had_rows = {seq for seq, one in self._requests.items() if row_of(one)[1]}
        if self._release.has_plans:
            plan = scheduler.get_next_batch_to_run(scheduler.running_batch, scheduler.last_batch)
            scheduler.running_batch, batch = plan.running_batch, plan.batch_to_run
        else:
            batch = scheduler.get_next_batch_to_run()
        scheduler.cur_batch = scheduler.cur_batch_for_debug = batch
        if batch is None and scheduler.last_batch is None:
            self._idle()
        scheduler.last_batch = batch
        require_known()
        if batch is None:
            return Step(None), ScheduledStep(prompts=[])
        chunks, prompts = [], []
        if batch.forward_mode.is_extend():
            for one, start, length in zip(batch.reqs, batch.prefix_lens, batch.extend_lens, strict=True):
                hit = 0 if int(one.rid) in had_rows else start
                chunks.append(Chunk(int(one.rid), start, start + length, hit))
                prompts.append(int(one.rid))
        else:
            for one, stop in zip(batch.reqs, batch.seq_lens.tolist(), strict=True):
                chunks.append(Chunk(int(one.rid), stop - 1, stop))
        return Step(batch), ScheduledStep(chunks, prompts=prompts)

    def _idle(self) -> None:
        """What the loop does when it has no batch twice: its own check of the pools, if there is no request at all."""
        scheduler = self.scheduler
        if scheduler.waiting_queue or scheduler.running_batch.reqs or scheduler.chunked_req is not None:
            return
        checker = scheduler.invariant_checker
        has_leak, messages = checker._check_all_pools(scheduler.pool_stats_observer.get_pool_stats())
        if has_leak:
            raise EngineFailure(f"SGLang's own check when idle: {' '.join(messages)}")
        checker._check_req_pool()
        scheduler.new_token_ratio_tracker.reset()

    def launch(self) -> Sequence[Access]:
        step = self.under_way[-1]
        if step.batch is not None and self.config.async_steps:
            step.batch = step.batch.copy()
            self.scheduler.result_queue.append((step.batch, None))
        return super().launch()

    def computed(self, tokens: dict[int, int]) -> None:
        self.under_way[-1].tokens = tokens

    def take_results(self, output: Step, sampled: dict[int, int], finished: list[int]) -> None:
        batch = output.batch
        if batch is None:
            return
        if self.config.async_steps:
            self.scheduler.result_queue.popleft()
        for seq in finished:
            self._requests[seq].eos_token_ids = {sampled[seq]}
        known = output.tokens | sampled
        result = Result(self._torch.tensor([known.get(int(one.rid), FILLER) for one in batch.reqs]))
        processor = self.scheduler.batch_result_processor
        if batch.forward_mode.is_extend():
            processor.process_batch_result_prefill(batch, result)
        else:
            processor.process_batch_result_decode(batch, result)
        require_known()
        self._forget(finished)

    # Observation ------------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        tables, kept, size = {}, list[int](), self.config.block_size
        rows = self.scheduler.req_to_token_pool.req_to_token.numpy()
        for seq, one in self._requests.items():
            index, length = row_of(one)
            if length:
                row = rows[index, :length]
                tables[seq] = [[slot // size - 1 for slot in first_slots(row, size, seq)]]
                if self._windows is not None:
                    table, behind = self._windows.of(one, row, seq)
                    tables[seq].insert(self.config.kinds.index(WINDOW), table)
                    kept += behind
        if self._windows is not None:
            return Observation(tables, (self._windows.num_free() // size, 0), kept=tuple(kept))
        free = self.scheduler.token_to_kv_pool_allocator.available_size() + self.scheduler.tree_cache.evictable_size()
        return Observation(tables, (int(free) // size, 0))
