"""transformers' continuous batching as a subject of the loop: releases 5.20 to 5.23.

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

A request that found a prefix and then got no room for the rest keeps what it found: it is told as admitted, with
nothing to compute. One that is starved is offloaded to the host if it has room, else reset and computed anew; the token
that a batch under way samples of it is dropped, and sampled again.

Limits: one group of layers of full attention; no windows, no padding, no block tables in place of indices.
"""

import queue
from types import SimpleNamespace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Capabilities, Observation, Pair, Unsupported
from kvproof.check.protocol.scheduler import Chunk, SchedulerConfig, Step
from kvproof.check.subjects.transformers.loader import Modules, import_modules
from kvproof.check.subjects.transformers.offloading import NUM_TRASH_SECTORS, Offloading
from kvproof.check.subjects.transformers.worker import Batch, NoProcessors, make_ios, make_model, make_settings
from kvproof.spec.text.identity import Image, Key

NUM_SEQS = 16  # of one batch; more than there are requests
ASSUMPTIONS = (
    Assumption("steps-in-order", "The device starts no step before the one before has ended, nor a copy."),
    Assumption("cancelled-between-steps", "A request cancelled within a step is given up when the loop looks."),
    Assumption(
        "model-fits",
        "The pool holds one sequence of max_model_len, one token more where batches overlap; no longer prompt comes.",
    ),
)


class Transformers:
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
        dedups_after_step=True,
    )
    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, version: str, modules: Modules) -> None:
        self.name = f"transformers {version}"
        self._modules = modules

        class Processor(modules.api.ContinuousBatchProcessor):  # type: ignore[misc, name-defined]
            """Made of the parts it is given; nothing of a device is freed with it."""

            def __init__(self, **parts: Any) -> None:
                self.__dict__.update(parts)

            def __del__(self) -> None:
                pass

        self._processor_class = Processor

    def open(self, config: SchedulerConfig) -> None:
        """A new loop without requests. Raises Unsupported."""
        if config.watermark or config.cross or config.images or config.preemption != "auto":
            raise Unsupported("no watermark, encoder, images, or choice of how to preempt")
        if config.lookahead or config.window or config.keys > 1:
            raise Unsupported("no drafting, windows or keys")
        if not config.chunked or config.max_num_seqs < NUM_SEQS:
            raise Unsupported("prompts are always computed in chunks, and only the requests of a batch are bounded")
        if -(-(config.max_model_len + config.async_steps) // config.block_size) > config.num_gpu_blocks:
            raise Unsupported("the longest sequence does not fit the pool")
        self._config, modules = config, self._modules
        model, settings = make_model(config), make_settings(config)
        alone = modules.distributed.DistributedHelper(None, None)
        self._cache = cache = self._make_cache(model, settings, alone)
        (self._allocator,) = cache.cache_allocators.values()
        if self._allocator.num_blocks != config.num_gpu_blocks:
            raise Unsupported("so many blocks are no whole sectors")
        self._scheduler = modules.scheduler.SCHEDULER_MAPPING["fifo"](cache, None, config.max_num_seqs)
        self._ios = make_ios(modules, cache, model, settings)
        self._offloading = Offloading(modules, cache, self._scheduler, alone, config)
        self._inbox: queue.Queue[Any] = queue.Queue()
        self._processor = self._processor_class(
            cache=cache,
            scheduler=self._scheduler,
            inputs_and_outputs=self._ios,
            distributed_helper=alone,
            offloading_manager=self._offloading.manager,
            model_runner=SimpleNamespace(
                maybe_pad_inputs=lambda queries, keys, fast: (queries, keys), pad_inputs=False
            ),
            logit_processor=NoProcessors(),
            output_router=SimpleNamespace(deliver_batch=lambda outputs: None),
            background_thread_status=modules.api.BackgroundThreadStatus(),
            input_queue=self._inbox,
            cancel_queue=queue.Queue(),
            max_batch_tokens=cache.max_batch_tokens,
            use_async_batching=settings.use_async_batching,
        )
        self._tokens: dict[str, list[int]] = {}  # of each request, the sampled ones included
        self._names: dict[tuple[int, ...], int] = {}
        self._name_of: dict[int, str] = {}  # by request
        self._seq_of: dict[str, int] = {}
        self._running: set[str] = set()
        self._on_host: set[str] = set()
        self._refused: list[int] = []
        self._leaving: list[str] = []
        self._forked: list[tuple[int, int]] = []
        self._copied: list[Pair] = []
        self._batches: list[Batch] = []  # under way, the oldest first
        self._is_launched = True
        self._note_forks()

    def _make_cache(self, model: Any, settings: Any, helper: Any) -> Any:
        """A pool of exactly so many blocks; where they are even in number, a sector may hold two."""
        import torch

        return self._modules.cache.PagedAttentionCache(model, settings, "cpu", helper, torch.float32)

    def _note_forks(self) -> None:
        """Note whom `update_batch` forks, and which blocks it copies."""
        prepare, copy = self._cache.prepare_fork_request, self._allocator.copy_blocks
        base = NUM_TRASH_SECTORS * self._allocator.blocks_per_sector

        def prepares(state: Any, children: list[str], copies: Any) -> Any:
            self._forked += [(self._seq_of[state.request_id], self._seq_of[name]) for name in children]
            return prepare(state, children, copies)

        def copies(sources: list[int], targets: list[int]) -> None:
            self._copied += [(source - base, target - base) for source, target in zip(sources, targets, strict=True)]
            copy(sources, targets)

        self._cache.prepare_fork_request, self._allocator.copy_blocks = prepares, copies

    def add_request(
        self,
        request: int,
        seqs: list[int],
        tokens: list[int],
        key: Key,
        images: tuple[Image, ...],
        max_tokens: int,
        encoder: tuple[int, list[int]] | None,
    ) -> None:
        """Into the queue; a prompt beyond max_model_len is not sent, and told of with the next step."""
        if len(tokens) > self._config.max_model_len:
            self._refused.append(request)
            return
        name, *children = str(seqs[0]), *(f"{seqs[0]}__child#{i}" for i in range(len(seqs) - 1))
        self._name_of[request], self._seq_of[name], self._tokens[name] = name, seqs[0], tokens[:]
        for child, seq in zip(children, seqs[1:], strict=True):
            self._seq_of[child] = seq
        room = max(1, min(max_tokens, self._config.max_model_len - len(tokens)))
        made = self._modules.requests.RequestState
        self._inbox.put(made(name, tokens[:], max_new_tokens=room, num_children=len(children)))

    def abort(self, request: int) -> None:
        """A cancellation, looked at before the next batch is prepared, behind the results that come until then."""
        if request in self._refused:
            self._refused.remove(request)
            return
        self._leaving.append(self._name_of.pop(request))
        self._leave()

    def _leave(self) -> None:
        """What `prepare_next_batch` begins with: the queues are emptied, and who is cancelled is cleared."""
        if not self._is_launched or len(self._batches) > self._config.async_steps:
            return
        processor = self._processor
        for name in self._leaving:
            processor.cancel_queue.put(name)
            self._running.discard(name)
        self._leaving.clear()
        processor._update_tp_group_state()
        for state in self._scheduler.clear_cancelled_requests():
            processor.offloading_manager.free_request_cpu_cache(state)

    def schedule(self) -> Step:
        """prepare_next_batch."""
        self._is_launched = False
        moves = self._offloading
        moves.swapped_out.clear()
        moves.swapped_in.clear()
        is_prepared = self._processor.prepare_next_batch()
        batch = Batch(self._futures() if is_prepared else [])
        self._batches.append(batch)
        tables, chunks = self._allocator.block_table, []
        for name in self._running - tables.keys():
            self._drop_ahead(name)
        for name, start, stop in zip(batch.names, batch.starts, batch.stops, strict=True):
            chunks.append(Chunk(self._seq_of[name], start, stop, 0 if name in self._running else start))
        self._on_host |= self._running | set(batch.names)
        for name in (*tables, *moves.tables):
            if name not in self._on_host:
                state = self._scheduler.active_requests.get(name) or self._scheduler.waiting_requests[name]
                found = state.position_offset
                chunks.append(Chunk(self._seq_of[name], found, found, found))
        self._running, self._on_host = set(tables), set(moves.tables)
        ignored = self._refused[:]
        self._refused.clear()
        return Step(chunks, moves.swapped_in[:], moves.swapped_out[:], ignored=ignored)

    def _futures(self) -> list[Any]:
        ios = self._ios.io_pairs[self._ios.current_pair].host_io if self._config.async_steps else self._ios
        return list(ios.requests_in_batch)

    def _drop_ahead(self, name: str) -> None:
        """A request was reset or offloaded: the token that a batch under way samples of it is dropped."""
        for batch in self._batches:
            if batch.told.pop(name, None) is not None:
                self._tokens[name].pop()

    def launch(self) -> None:
        """The worker writes and reads the cache tensor."""
        self._is_launched = True
        if self._batches[-1].futures:
            self._batches[-1].execute(self._ios, self._tokens, self._names)
        self._leave()

    def computed(self, tokens: dict[int, int]) -> None:
        """What the newest batch samples is on the device, and on its way to the host."""
        if self._batches[-1].futures:
            self._sample(self._batches[-1], tokens)
            self._ios.retrieve_device_outputs()

    def _sample(self, batch: Batch, tokens: dict[int, int]) -> None:
        named = {name: tokens[self._seq_of[name]] for name in batch.names if self._seq_of[name] in tokens}
        batch.sample(named)
        for name, token in named.items():
            self._tokens[name].append(token)

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        """update_batch, then the cancellations that came meanwhile."""
        batch = self._batches.pop(0)
        if batch.futures:
            if not self._config.async_steps:
                self._sample(batch, sampled)
            for future, name in zip(batch.futures, batch.names, strict=True):
                if (seq := self._seq_of[name]) in finished:
                    future.state._eos_token_ids = {sampled[seq]}
            is_newest = self._config.async_steps and not any(later.futures for later in self._batches)
            if is_newest:  # as when the loop ends: its tensors are the other ones by now
                self._ios.swap_io_pairs()
            self._processor.update_batch()
            if is_newest:
                self._ios.swap_io_pairs()
        for parent, child in self._forked:
            first, name = str(parent), next(name for name, seq in self._seq_of.items() if seq == child)
            self._tokens[name], self._name_of[-child] = self._tokens[first][:], name
            self._running |= self._allocator.block_table.keys() & {name}
        for name in batch.names:
            if self._seq_of[name] in finished:
                self._running.discard(name)
        self._leave()

    def forked(self) -> tuple[list[tuple[int, int]], list[Pair]]:
        """Of the last complete."""
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
        refs = [0] * (self._config.num_gpu_blocks + self._config.num_host_blocks)
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


def make(version: str) -> Transformers:
    """The loop of a release that was brought in. Raises EngineError."""
    return Transformers(version, import_modules(version))
