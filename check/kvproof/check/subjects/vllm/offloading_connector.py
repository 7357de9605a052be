"""vLLM's own OffloadingConnector on the side of the scheduler: releases 0.21 to 0.33.

`OffloadingConnectorScheduler` and the manager of host memory are the release's own; there is no worker. The connector
gives the worker jobs with each step: loads, which begin with the step, stores, which begin with the next one, and jobs
that must end before the step computes. `taken` reports them to kvproof, which copies and says when a job is over.

KV groups are of full attention or of one sliding window, with blocks of one size.

Limits: one block in a chunk, no partial tails, no loads within a step (`sync_load_budget_bytes` is 0); generated tokens
are stored too (`offload_prompt_only` is false).
"""

import inspect
from typing import Any

from kvproof.check.protocol.manager import Pair
from kvproof.check.protocol.scheduler import HostStore, Load, SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.vllm.v1_observation import call_with
from kvproof.check.subjects.vllm.v1_scheduler_loader import SupportsHMA


def pairs_of(job: Any) -> list[Pair]:
    """The (source, target) pairs of a job."""
    source, target = job.transfer_spec if hasattr(job, "transfer_spec") else (job.src_spec, job.dst_spec)
    return list(zip(source.block_ids.tolist(), target.block_ids.tolist(), strict=True))


class HostConnector(SupportsHMA):
    """What connectors to host memory have in common: the copies that each step names, and those that are over."""

    requires_kv_delivery = supports_divergent_local_hybrid_hits = False

    def __init__(self, scheduler: Any) -> None:
        """scheduler: the release's own side of the scheduler."""
        self._scheduler = scheduler
        self._hits: dict[str, int] = {}  # by request, the tokens that were found on the device
        self._loads: dict[str, tuple[int, int]] = {}  # by request, what the load brings that begins with this step
        self._load_jobs: dict[int, str] = {}  # job -> the request that loads
        self._named: tuple[list[Load], list[HostStore], list[int]] = [], [], []
        self.update_connector_output = scheduler.update_connector_output
        self.on_new_request = getattr(scheduler, "on_new_request", nothing)
        self.has_pending_push_work = getattr(scheduler, "has_pending_push_work", no)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        """How many tokens more can be loaded; None if that is known later."""
        self._hits[request.request_id] = num_computed_tokens
        return self._scheduler.get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request has its blocks; with tokens from elsewhere, a load begins."""
        if num_external_tokens:
            hit = self._hits[request.request_id]
            self._loads[request.request_id] = hit, hit + num_external_tokens
        self._scheduler.update_state_after_alloc(request, blocks, num_external_tokens)

    def taken(self) -> tuple[list[Load], list[HostStore], list[int]]:
        """The loads, the stores and the flushed jobs of the newest step."""
        return self._named

    def over(self, jobs: list[int]) -> tuple[list[str], Any]:
        """The requests whose loads are over with these jobs, and what the worker reports of them."""
        received = [name for job in jobs if (name := self._load_jobs.pop(job, None)) is not None]
        return received, self.report_of(jobs) if jobs else None

    def report_of(self, jobs: list[int]) -> Any:
        """What the worker reports of jobs that are over."""
        raise NotImplementedError

    # No figures, no events; what was found elsewhere has no source by name.
    bind_gpu_block_pool = bind_kv_cache_manager = get_kv_connector_stats = staticmethod(nothing)
    get_external_cache_hit_sources = staticmethod(nothing)
    get_loaded_kv_cache_group_ids = take_events = staticmethod(lambda *request: ())
    has_pending_block_frees = staticmethod(no)


class OffloadingConnector(HostConnector):
    """What the scheduler asks of the connector, passed on as `OffloadingConnector` does it."""

    def __init__(self, modules: StubObject, config: SchedulerConfig, options: Any, groups: Any) -> None:
        manager = call_with(
            modules.manager.CPUOffloadingManager,
            {"num_chunks": config.host_slots, "num_blocks": config.host_slots, "cache_policy": "lru"},
        )
        size = config.block_size
        parts = tuple(
            StubObject(
                group_id=number,
                tokens_per_block=size,
                sliding_window_size_in_chunks=modules.num_window_chunks(group.kv_cache_spec, size),
                layer_names=(),
            )
            for number, group in enumerate(groups.kv_cache_groups)
        )
        spec = StubObject(
            config=StubObject(groups=parts),
            tokens_per_block=(size,) * len(parts),
            gpu_block_size=(size,) * len(parts),  # so far the names are those of later releases
            blocks_per_chunk=1,
            block_size_factor=1,
            tokens_per_hash=size,
            hash_block_size=size,
            vllm_config=options,
            kv_cache_config=groups,
            offload_prompt_only=False,
            extra_config={},
            kv_events_config=StubObject(enable_kv_cache_events=False, self_describing_kv_events=False),
            get_manager=lambda: manager,
        )
        self._flushes_new_stores: bool = modules.flushes_new_stores
        self._report = modules.common.OffloadingWorkerMetadata
        wanted = {"spec": spec, "vllm_config": options, "kv_cache_config": groups}
        super().__init__(call_with(modules.connector.OffloadingConnectorScheduler, wanted))
        self._takes_blocks = len(inspect.signature(self._scheduler.request_finished).parameters) > 1

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """The jobs of this step."""
        jobs = self._scheduler.build_connector_meta(scheduler_output)
        loads = []
        for number, job in jobs.load_jobs.items():
            self._load_jobs[number] = job.req_id
            loads.append(Load(int(job.req_id), *self._loads.pop(job.req_id), number, pairs_of(job)))
        stores = [HostStore(number, pairs_of(job)) for number, job in jobs.store_jobs.items()]
        flushed = set(jobs.jobs_to_flush or ())
        if not self._flushes_new_stores:  # then the worker begins such a store with the next step
            flushed -= jobs.store_jobs.keys()
        self._named = loads, stores, sorted(flushed)
        return jobs

    def report_of(self, jobs: list[int]) -> Any:
        return self._report(completed_jobs=dict.fromkeys(jobs, 1))

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        """Whether the blocks of a request that is over are still needed."""
        return self._scheduler.request_finished(request, *((block_ids,) if self._takes_blocks else ()))

    request_finished_all_groups = request_finished

    def reset_cache(self) -> bool:
        """Forget everything that was stored; before 0.22 the connector keeps it."""
        getattr(self._scheduler, "reset_cache", nothing)()
        return True
