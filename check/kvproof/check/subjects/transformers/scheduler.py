"""transformers' continuous batching as a scheduler subject: releases 5.20 to 5.24.

The adapter plays the generation loop of `continuous_batching/continuous_api.py`: requests are put into its queue,
`prepare_next_batch` schedules (offloads what is starved, restores what comes back) and fills the tensors of the batch,
a worker of kvproof's executes the batch on the real cache tensor, and `update_batch` gives the tokens back, registers
complete blocks, takes over blocks of equal content, and forks.

With `async_steps` batches overlap as in the engine: it prepares and launches the next one before it looks at the
results of the one before. What is offloaded, restored and forked is copied on the stream of the computation, so that
all of it happens in the order in which it is asked for. A cancellation, which the loop looks at before it schedules, is
looked at as soon as the results of all steps but the newest are back.

A request of several sequences is one with children: the first sequence is computed up to the last token of the prompt,
then it forks. A child that finds no room becomes a request of its own. A child is a request by itself from then on.

A request that found a prefix and then got no blocks for the rest keeps what it found: it is reported as admitted, with
nothing to compute. A starved request is offloaded to the host if the host has room; else it is reset and computed
again. The token that a batch under way samples of it is dropped, and sampled again.

Limits: one group of layers of full attention; no windows, no padding, no block tables in place of indices.
"""

import queue
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Observation, Pair, Unsupported
from kvproof.check.protocol.scheduler import Access, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.transformers.loader import import_modules
from kvproof.check.subjects.transformers.worker import NO_PROCESSORS, Batch, make_ios, make_model, make_settings

NUM_TRASH_SECTORS = 2
GIB = 1 << 30


class Offloading:
    """An `OffloadingManager` that records what it moves. It has room for `num_host_blocks` of the configuration.

    The pairs are read where the engine reads them: those of a copy to the host from the tables it gives to
    `_offload_to_cpu` and the host blocks it has kept for each request, those of a copy back from these host blocks and
    the table the scheduler has made meanwhile. Whether exactly those blocks are copied is checked on the tensor.
    """

    def __init__(self, modules: Any, cache: Any, scheduler: Any, helper: Any, config: SchedulerConfig) -> None:
        ((self._group, self._allocator),) = cache.cache_allocators.items()
        num_sectors, rest = divmod(config.num_host_blocks, self._allocator.blocks_per_sector)
        if rest:
            raise Unsupported("so many host blocks are no whole sectors")
        space = num_sectors * cache.bytes_per_sector / GIB
        self.manager = modules.offloading.OffloadingManager(cache, scheduler, space, 0.0, None, helper)
        self._first_host, self._base = config.num_gpu_blocks, NUM_TRASH_SECTORS * self._allocator.blocks_per_sector
        self.swapped_out: list[Pair] = []  # in the step that is being scheduled, device-relative
        self.swapped_in: list[Pair] = []
        self._out, self._back = self.manager._offload_to_cpu, self.manager.restore_scheduled_requests
        self.manager._offload_to_cpu, self.manager.restore_scheduled_requests = self._to_host, self._from_host

    def _to_host(self, victims: list[Any], tables: dict[str, dict[str, list[int]]]) -> set[str]:
        gone: set[str] = self._out(victims, tables)
        for name in gone:
            kept = self.manager._request_id_to_cpu_blocks[name][self._group]
            moved = [block - self._base for block in tables[name][self._group]]
            self.swapped_out += zip(moved, kept, strict=True)
        return gone

    def _from_host(self, futures: list[Any]) -> None:
        for future in futures:
            if future.state.is_cpu_offloaded:
                name = future.state.request_id
                kept = self.manager._request_id_to_cpu_blocks[name][self._group]
                moved = [block - self._base for block in self._allocator.block_table[name][: len(kept)]]
                self.swapped_in += zip(kept, moved, strict=True)
        self._back(futures)

    @property
    def tables(self) -> dict[str, list[int]]:
        """The host blocks of each request that is there, as absolute ids."""
        kept = self.manager._request_id_to_cpu_blocks
        return {name: [self._first_host + block for block in groups[self._group]] for name, groups in kept.items()}

    @property
    def free_ids(self) -> list[int]:
        """Host blocks that are free, or in a free sector, as absolute ids."""
        pool, size = self.manager._cpu_pool, self._allocator.blocks_per_sector
        if pool is None:
            return []
        ids = [block for leaves in pool._free_blocks[self._allocator.index].trees.values() for block in leaves]
        ids += [block for sector in pool.free_sectors for block in range(sector * size, (sector + 1) * size)]
        return [self._first_host + block for block in ids]

    @property
    def num_free(self) -> int:
        """The number of free host blocks, as the pool counts them."""
        pool, allocator = self.manager._cpu_pool, self._allocator
        if pool is None:
            return 0
        return int(pool.num_free_sectors * allocator.blocks_per_sector + pool.count_free_blocks(allocator.index))


NUM_SEQS = 16  # of one batch; more than there are requests
ASSUMPTIONS = (
    Assumption("steps-in-order", "The device starts no step before the one before has ended, nor a copy."),
    Assumption("cancelled-between-steps", "A request cancelled within a step is given up when the loop looks."),
    Assumption(
        "model-fits",
        "The pool holds one sequence of max_model_len, one token more where batches overlap; no longer prompt comes.",
    ),
)


class Transformers(SchedulerAdapter):
    """`ContinuousBatchProcessor` with its scheduler and its paged cache."""

    capabilities = Capabilities(
        has_admission_query=False,
        swap=True,
        caching=True,
        chunked=True,
        async_steps=1,
        steps_in_order=True,
        runs_ahead=True,
        forks_itself=True,
        bounds_only_steps=True,
        dedups_after_step=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"transformers {version}"
        self._modules = modules = import_modules(version)

        class Processor(modules.api.ContinuousBatchProcessor):  # type: ignore[misc, name-defined]
            """Made of the parts it is given; nothing of a device is freed with it."""

            def __init__(self, **parts: Any) -> None:
                self.__dict__.update(parts)

            def __del__(self) -> None:
                pass

        self._processor_class = Processor

    def make(self, config: SchedulerConfig) -> Any:
        import torch

        if config.preemption != "auto":
            raise Unsupported("the engine chooses how to preempt")
        if not config.chunked or config.max_num_seqs < NUM_SEQS:
            raise Unsupported("prompts are always computed in chunks, and only the requests of a batch are bounded")
        self.require_fitting_model(config.max_model_len + config.async_steps)
        modules = self._modules
        model, settings = make_model(config), make_settings(config)
        alone = modules.distributed.DistributedHelper(None, None)
        # A pool of exactly so many blocks; where they are even in number, a sector may hold two.
        cache = modules.cache.PagedAttentionCache(model, settings, "cpu", alone, torch.float32)
        self._cache = cache
        (self._allocator,) = cache.cache_allocators.values()
        if self._allocator.num_blocks != config.num_gpu_blocks:
            raise Unsupported("so many blocks are no whole sectors")
        scheduler = modules.scheduler.SCHEDULER_MAPPING["fifo"](cache, None, config.max_num_seqs)
        self._ios = make_ios(modules, cache, model, settings)
        self._offloading = Offloading(modules, cache, scheduler, alone, config)
        self._inbox: queue.Queue[Any] = queue.Queue()
        self._processor = self._processor_class(
            cache=cache,
            scheduler=scheduler,
            inputs_and_outputs=self._ios,
            distributed_helper=alone,
            offloading_manager=self._offloading.manager,
            model_runner=StubObject(maybe_pad_inputs=lambda queries, keys, fast: (queries, keys), pad_inputs=False),
            logit_processor=NO_PROCESSORS,
            output_router=StubObject(deliver_batch=lambda outputs: None),
            background_thread_status=modules.api.BackgroundThreadStatus(),
            input_queue=self._inbox,
            cancel_queue=queue.Queue(),
            max_batch_tokens=cache.max_batch_tokens,
            use_async_batching=settings.use_async_batching,
        )
        self._tokens: dict[str, list[int]] = {}  # of each request, the sampled ones included
        self._names: dict[tuple[int, ...], int] = {}
        self._seq_of: dict[str, int] = {}
        self._running: set[str] = set()
        self._on_host: set[str] = set()
        self._forked: list[tuple[int, int]] = []
        self._copied: list[Pair] = []
        self._record_forks()
        return scheduler

    def _record_forks(self) -> None:
        """Record which requests `update_batch` forks, and which blocks it copies."""
        prepare, copy = self._cache.prepare_fork_request, self._allocator.copy_blocks
        base = NUM_TRASH_SECTORS * self._allocator.blocks_per_sector

        def prepare_recorded(state: Any, children: list[str], copies: Any) -> Any:
            self._forked += [(self._seq_of[state.request_id], self._seq_of[name]) for name in children]
            return prepare(state, children, copies)

        def copy_recorded(sources: list[int], targets: list[int]) -> None:
            self._copied += [(source - base, target - base) for source, target in zip(sources, targets, strict=True)]
            copy(sources, targets)

        self._cache.prepare_fork_request, self._allocator.copy_blocks = prepare_recorded, copy_recorded

    def add(self, request: Request) -> None:
        """Put the request into the engine's queue, under the name of its first sequence."""
        first, *others = request.seqs
        self._tokens[str(first)] = request.tokens
        self._seq_of[str(first)] = first
        for number, seq in enumerate(others):
            self._seq_of[f"{first}__child#{number}"] = seq
        state = self._modules.requests.RequestState
        num_tokens = self.num_to_generate(request)
        self._inbox.put(state(str(first), request.tokens[:], max_new_tokens=num_tokens, num_children=len(others)))

    def takes_aborts(self) -> bool:
        """Before a batch is prepared, once the results of all steps but the newest are back."""
        return self.is_launched and len(self.under_way) <= self.config.async_steps

    def cancel(self, request: Request) -> None:
        """Cancel the request; then, as `prepare_next_batch` does first, empty the queues and drop what is cancelled."""
        processor, name = self._processor, self._name_of(request.seq)
        processor.cancel_queue.put(name)
        self._running.discard(name)
        processor._update_tp_group_state()
        for state in self.scheduler.clear_cancelled_requests():
            processor.offloading_manager.free_request_cpu_cache(state)

    def _name_of(self, seq: int) -> str:
        return next(name for name, number in self._seq_of.items() if number == seq)

    def next_step(self) -> tuple[Batch, ScheduledStep]:
        """Call `prepare_next_batch`; the output is the batch, which is empty if nothing was prepared."""
        moves = self._offloading
        moves.swapped_out.clear()
        moves.swapped_in.clear()
        is_prepared = self._processor.prepare_next_batch()
        batch = Batch(self._futures() if is_prepared else [])
        tables, chunks = self._allocator.block_table, []
        for name in self._running - tables.keys():
            self._drop_ahead(name)
        for name, start, stop in zip(batch.names, batch.starts, batch.stops, strict=True):
            chunks.append(Chunk(self._seq_of[name], start, stop, 0 if name in self._running else start))
        self._on_host |= self._running | set(batch.names)
        for name in (*tables, *moves.tables):
            if name not in self._on_host:
                state = self.scheduler.active_requests.get(name) or self.scheduler.waiting_requests[name]
                found = state.position_offset
                chunks.append(Chunk(self._seq_of[name], found, found, found))
        self._running, self._on_host = set(tables), set(moves.tables)
        return batch, ScheduledStep(chunks, moves.swapped_in[:], moves.swapped_out[:])

    def _futures(self) -> list[Any]:
        ios = self._ios.io_pairs[self._ios.current_pair].host_io if self.config.async_steps else self._ios
        return list(ios.requests_in_batch)

    def _drop_ahead(self, name: str) -> None:
        """Drop the token that a batch under way samples of a request: it was reset or offloaded."""
        for batch in self.under_way:
            if batch.sampled.pop(name, None) is not None:
                self._tokens[name].pop()

    def launch(self) -> Sequence[Access]:
        batch, accesses = self.under_way[-1], list[Access]()
        if batch.futures:
            accesses = batch.execute(self._ios, self._tokens, self._names)
        super().launch()
        return accesses

    def computed(self, tokens: dict[int, int]) -> None:
        """Put what the newest batch samples on the device, and start its copy to the host."""
        if self.under_way[-1].futures:
            self._sample(self.under_way[-1], tokens)
            self._ios.retrieve_device_outputs()

    def _sample(self, batch: Batch, tokens: dict[int, int]) -> None:
        named = {name: tokens[self._seq_of[name]] for name in batch.names if self._seq_of[name] in tokens}
        batch.sample(named)
        for name, token in named.items():
            self._tokens[name].append(token)

    def take_results(self, output: Batch, sampled: dict[int, int], finished: list[int]) -> None:
        """Call `update_batch`; the sampled token of a sequence that is over is made its end-of-text token."""
        if output.futures:
            if not self.config.async_steps:
                self._sample(output, sampled)
            for future, name in zip(output.futures, output.names, strict=True):
                if (seq := self._seq_of[name]) in finished:
                    future.state._eos_token_ids = {sampled[seq]}
            is_newest = self.config.async_steps and not any(later.futures for later in self.under_way)
            if is_newest:  # as when the loop ends: its tensors are the other pair by now
                self._ios.swap_io_pairs()
            self._processor.update_batch()
            if is_newest:
                self._ios.swap_io_pairs()
        for parent, child in self._forked:
            name = self._name_of(child)
            self._tokens[name] = self._tokens[str(parent)][:]
            if (request := self.requests_by_seq.get(parent)) is not None:
                request.seqs.remove(child)
                self.keep(replace(request, number=-child, seqs=[child]))
            self._running |= self._allocator.block_table.keys() & {name}
        for name in output.names:
            if self._seq_of[name] in finished:
                self._running.discard(name)

    def forked(self) -> tuple[list[tuple[int, int]], list[Pair]]:
        """The forks and copies of the last `complete`."""
        forked, copied = self._forked, self._copied
        self._forked, self._copied = [], []
        return forked, copied

    def observe(self) -> Observation:
        """Tables, the ledger's refcounts, and all blocks that are free, in a free sector, or cached and unused."""
        allocator, pool = self._allocator, self._cache.pool
        per_sector, ledger = allocator.blocks_per_sector, allocator.ledger
        base = NUM_TRASH_SECTORS * per_sector
        tables = {self._seq_of[name]: [[b - base for b in table]] for name, table in allocator.block_table.items()}
        free_ids = [block - base for block in ledger.cached_blocks]
        for leaves in pool._free_blocks[allocator.index].trees.values():
            free_ids += [block - base for block in leaves]
        for sector in pool.free_sectors:
            free_ids += range(sector * per_sector - base, (sector + 1) * per_sector - base)
        refs = [0] * (self.config.num_gpu_blocks + self.config.num_host_blocks)
        for table in allocator.block_table.values():
            for block in table:
                refs[block - base] = ledger.shared_ref_counts.get(block, 1)
        num_free = (pool.num_free_sectors * per_sector) + pool.count_free_blocks(allocator.index)
        for name, kept in self._offloading.tables.items():
            tables[self._seq_of[name]] = [kept]
            for block in kept:
                refs[block] += 1
        free = num_free + len(ledger.cached_blocks), self._offloading.num_free
        return Observation(tables, free, refs=refs, free_ids=free_ids + self._offloading.free_ids)
