"""transformers' continuous batching as a subject of the loop: releases 5.20 to 5.23.

The adapter plays the generation loop of `continuous_batching/continuous_api.py`, one batch at a time: requests are put
into its queue, `prepare_next_batch` schedules (and offloads what is starved), a worker of kvproof's executes the batch
on the real cache tensor, and `update_batch` gives the tokens back, registers complete blocks, and takes over blocks of
equal content. A cancellation, which the loop looks at before it schedules, is looked at when it comes, or when the step
under way is complete.

A request that found a prefix and then got no room for the rest keeps what it found: it is told as admitted, with
nothing to compute. One that is starved is reset and computed anew.

Limits: one group of layers of full attention; no parallel decoding (`num_children`), no room to offload to, no windows,
and no batch prepared while another is executed.
"""

import queue
from types import SimpleNamespace
from typing import Any

from kvproof.check.engines.transformers import Modules, import_modules
from kvproof.check.loop.subject import Chunk, LoopConfig, Step
from kvproof.check.subject import Assumption, Capabilities, Observation, Unsupported
from kvproof.check.subjects.transformers_worker import Batch
from kvproof.spec.identity import Image, Key

NUM_SEQS = 16  # of one batch; more than there are requests
ASSUMPTIONS = (
    Assumption("one-step-at-a-time", "A step is completed before the next one is scheduled."),
    Assumption("cancelled-between-steps", "A request cancelled within a step is given up when the step is complete."),
    Assumption("model-fits", "The pool holds one sequence of max_model_len; a longer prompt is not sent."),
)
NUM_TRASH_SECTORS = 2


class Transformers:
    """`ContinuousBatchProcessor` with its scheduler and its paged cache."""

    capabilities = Capabilities(asks_first=False, caching=True, chunked=True, exchanges_at_step=True)
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

    def open(self, config: LoopConfig) -> None:
        """A new loop without requests. Raises Unsupported."""
        if config.num_host_blocks or config.watermark or config.group_size > 1 or config.cross or config.images:
            raise Unsupported("no host blocks, watermark, groups of several sequences, encoder or images")
        if config.lookahead or config.window or config.keys > 1:
            raise Unsupported("no drafting, windows or keys")
        if not config.chunked or config.max_num_seqs < NUM_SEQS:
            raise Unsupported("prompts are always computed in chunks, and only the requests of a batch are bounded")
        if -(-config.max_model_len // config.block_size) > config.num_gpu_blocks:
            raise Unsupported("the longest sequence does not fit the pool")
        self._config, modules = config, self._modules
        self._cache = cache = self._make_cache(config)
        (self._allocator,) = cache.cache_allocators.values()
        if self._allocator.num_blocks != config.num_gpu_blocks:
            raise Unsupported("so many blocks are no whole sectors")
        self._scheduler = modules.scheduler.SCHEDULER_MAPPING["fifo"](cache, None, config.max_num_seqs)
        self._batch = Batch(cache, modules.requests.TMP_TOKEN_ID)
        alone = modules.distributed.DistributedHelper(None, None)
        self._inbox: queue.Queue[Any] = queue.Queue()
        self._processor = self._processor_class(
            cache=cache,
            scheduler=self._scheduler,
            inputs_and_outputs=self._batch,
            distributed_helper=alone,
            offloading_manager=modules.offloading.OffloadingManager(cache, self._scheduler, 0.0, 0.0, None, alone),
            model_runner=SimpleNamespace(
                maybe_pad_inputs=lambda queries, keys, fast: (queries, keys), pad_inputs=False
            ),
            logit_processor=SimpleNamespace(check_kwargs=lambda options: None),
            output_router=SimpleNamespace(deliver_batch=lambda outputs: None),
            background_thread_status=modules.api.BackgroundThreadStatus(),
            input_queue=self._inbox,
            cancel_queue=queue.Queue(),
            max_batch_tokens=cache.max_batch_tokens,
            use_async_batching=False,
        )
        self._tokens: dict[str, list[int]] = {}
        self._names: dict[tuple[int, ...], int] = {}
        self._seq_of: dict[int, int] = {}
        self._running: set[int] = set()
        self._refused: list[int] = []
        self._leaving: list[str] = []
        self._is_under_way = False

    def _make_cache(self, config: LoopConfig) -> Any:
        """A pool of exactly so many blocks; where they are even in number, a sector may hold two."""
        import torch

        model = SimpleNamespace(
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16 if config.num_gpu_blocks % 2 else 8,
            hidden_size=16,
            vocab_size=16,
        )
        settings = SimpleNamespace(
            page_size=config.block_size,
            num_blocks=config.num_gpu_blocks,
            allow_block_sharing=config.caching,
            max_batch_tokens=config.max_num_batched_tokens,
            max_blocks_per_request=0,
            fallback_max_blocks_per_request=0,
            max_memory_percent=1.0,
            max_requests_per_batch=config.max_num_seqs,
            return_logprobs=False,
            use_async_batching=False,
        )
        helper = self._modules.distributed.DistributedHelper(None, None)
        return self._modules.cache.PagedAttentionCache(model, settings, "cpu", helper, torch.float32)

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
        (seq,) = seqs
        if len(tokens) > self._config.max_model_len:
            self._refused.append(request)
            return
        room = max(1, min(max_tokens, self._config.max_model_len - len(tokens)))
        self._seq_of[request] = seq
        self._tokens[str(seq)] = tokens[:]
        self._inbox.put(self._modules.requests.RequestState(str(seq), tokens[:], max_new_tokens=room))

    def abort(self, request: int) -> None:
        """A cancellation, looked at now or when the step is complete."""
        if request in self._refused:
            self._refused.remove(request)
            return
        self._leaving.append(str(self._seq_of.pop(request)))
        if not self._is_under_way:
            self._leave()

    def _leave(self) -> None:
        """What `prepare_next_batch` begins with: the queues are emptied, and who is cancelled is cleared."""
        processor = self._processor
        for name in self._leaving:
            processor.cancel_queue.put(name)
            self._tokens.pop(name, None)
            self._running.discard(int(name))
        self._leaving.clear()
        processor._update_tp_group_state()
        for state in self._scheduler.clear_cancelled_requests():
            processor.offloading_manager.free_request_cpu_cache(state)

    def schedule(self) -> Step:
        """prepare_next_batch."""
        self._batch.futures = []
        self._is_under_way = True
        self._processor.prepare_next_batch()
        tables, chunks = self._allocator.block_table, []
        self._running &= {int(name) for name in tables}
        for future in self._batch.futures:
            seq, stop = int(future.state.request_id), future.state.position_offset
            start = stop - future.query_length
            chunks.append(Chunk(seq, start, stop, 0 if seq in self._running else start))
            self._running.add(seq)
        for name in tables:
            if int(name) not in self._running:
                found = self._scheduler.active_requests[name].position_offset
                chunks.append(Chunk(int(name), found, found, found))
                self._running.add(int(name))
        ignored = self._refused[:]
        self._refused.clear()
        return Step(chunks, ignored=ignored)

    def launch(self) -> None:
        """The worker writes and reads the cache tensor."""
        if self._batch.futures:
            self._batch.execute(self._tokens, self._names)

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        """update_batch, then the cancellations that came meanwhile."""
        self._batch.tokens = []
        for future in self._batch.futures:
            if future.has_new_token:
                seq = int(future.state.request_id)
                token = sampled.get(seq, 0)
                self._batch.tokens.append(token)
                self._tokens[str(seq)].append(token)
                if seq in finished:
                    future.state._eos_token_ids = {token}
        if self._batch.futures:
            self._processor.update_batch()
        self._is_under_way = False
        for seq in finished:
            self._running.discard(seq)
            del self._tokens[str(seq)]
        self._leave()

    def observe(self) -> Observation:
        """Tables, the ledger's refcounts, and all blocks that are free, in a free sector, or cached and unused."""
        allocator, pool = self._allocator, self._cache.pool
        per_sector, ledger = allocator.blocks_per_sector, allocator.ledger
        base = NUM_TRASH_SECTORS * per_sector
        tables = {int(name): [[block - base for block in table]] for name, table in allocator.block_table.items()}
        free_ids = [block - base for block in ledger.cached_blocks]
        for leaves in pool._free_blocks[allocator.index].trees.values():
            free_ids += [block - base for block in leaves]
        for sector in pool.free_sectors:
            free_ids += range(sector * per_sector - base, (sector + 1) * per_sector - base)
        refs = [0] * self._config.num_gpu_blocks
        for table in allocator.block_table.values():
            for block in table:
                refs[block - base] = ledger.shared_ref_counts.get(block, 1)
        num_free = (pool.num_free_sectors * per_sector) + pool.count_free_blocks(allocator.index)
        return Observation(tables, (num_free + len(ledger.cached_blocks), 0), refs=refs, free_ids=free_ids)


def make(version: str = "5.23.0") -> Transformers:
    """The loop of a release that was brought in. Raises EngineError."""
    return Transformers(version, import_modules(version))
