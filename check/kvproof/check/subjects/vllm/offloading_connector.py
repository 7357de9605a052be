"""vLLM's own OffloadingConnector on the side of the scheduler: releases 0.26 to 0.33.

`OffloadingConnectorScheduler` and the manager of host memory are the release's own; there is no worker. The connector
gives the worker jobs with each step: loads, which begin with the step, stores, which begin with the next one, and jobs
that must end before the step computes. `taken` reports them to kvproof, which copies and says when a job is over.

Limits: one block in a chunk, no partial tails, no loads within a step (`sync_load_budget_bytes` is 0); generated tokens
are stored too (`offload_prompt_only` is false).
"""

from typing import Any

from kvproof.check.protocol.manager import Pair
from kvproof.check.protocol.scheduler import HostStore, Load, SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import StubObject, no, nothing
from kvproof.check.subjects.vllm.v1_observation import call_with


def pairs_of(job: Any) -> list[Pair]:
    """The (source, target) pairs of a job."""
    return list(zip(job.src_spec.block_ids.tolist(), job.dst_spec.block_ids.tolist(), strict=True))


class OffloadingConnector:
    """What the scheduler asks of the connector, passed on as `OffloadingConnector` does it."""

    requires_kv_delivery = supports_divergent_local_hybrid_hits = False

    def __init__(self, modules: StubObject, config: SchedulerConfig, options: Any, groups: Any) -> None:
        manager = call_with(
            modules.manager.CPUOffloadingManager,
            {"num_chunks": config.host_slots, "num_blocks": config.host_slots, "cache_policy": "lru"},
        )
        group = StubObject(
            group_id=0, tokens_per_block=config.block_size, sliding_window_size_in_chunks=None, layer_names=()
        )
        spec = StubObject(
            config=StubObject(groups=(group,)),
            tokens_per_block=(config.block_size,),
            blocks_per_chunk=1,
            tokens_per_hash=config.block_size,
            offload_prompt_only=False,
            extra_config={},
            kv_events_config=StubObject(enable_kv_cache_events=False, self_describing_kv_events=False),
            get_manager=lambda: manager,
        )
        self._report = modules.common.OffloadingWorkerMetadata
        self._scheduler = modules.connector.OffloadingConnectorScheduler(spec, options, groups)
        self._hits: dict[str, int] = {}  # by request, the tokens that were found on the device
        self._loads: dict[str, tuple[int, int]] = {}  # by request, what the load brings that begins with this step
        self._load_jobs: dict[int, str] = {}  # job -> the request that loads
        self._named: tuple[list[Load], list[HostStore], list[int]] = [], [], []
        scheduler = self._scheduler
        self.update_connector_output = scheduler.update_connector_output
        self.on_new_request, self.has_pending_push_work = scheduler.on_new_request, scheduler.has_pending_push_work

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

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """The jobs of this step."""
        jobs = self._scheduler.build_connector_meta(scheduler_output)
        loads = []
        for number, job in jobs.load_jobs.items():
            self._load_jobs[number] = job.req_id
            loads.append(Load(int(job.req_id), *self._loads.pop(job.req_id), number, pairs_of(job)))
        stores = [HostStore(number, pairs_of(job)) for number, job in jobs.store_jobs.items()]
        self._named = loads, stores, sorted(jobs.jobs_to_flush or ())
        return jobs

    def taken(self) -> tuple[list[Load], list[HostStore], list[int]]:
        """The loads, the stores and the flushed jobs of the newest step."""
        return self._named

    def over(self, jobs: list[int]) -> tuple[list[str], Any]:
        """The requests whose loads are over with these jobs, and what the worker reports of them."""
        received = [name for job in jobs if (name := self._load_jobs.pop(job, None)) is not None]
        return received, self._report(completed_jobs=dict.fromkeys(jobs, 1)) if jobs else None

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        """Whether the blocks of a request that is over are still needed."""
        return self._scheduler.request_finished(request)

    def reset_cache(self) -> bool:
        """Forget everything that was stored."""
        self._scheduler.reset_cache()
        return True

    # No figures, no events; what was found elsewhere has no source by name.
    bind_gpu_block_pool = bind_kv_cache_manager = get_kv_connector_stats = staticmethod(nothing)
    get_external_cache_hit_sources = staticmethod(nothing)
    get_loaded_kv_cache_group_ids = take_events = staticmethod(lambda *request: ())
    has_pending_block_frees = staticmethod(no)
