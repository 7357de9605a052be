"""vLLM's SimpleCPUOffloadConnector on the side of the scheduler, behind vLLM's own scheduler: releases 0.31 to 0.33.

`SimpleCPUOffloadScheduler`, with its block pool of the host, is the release's own; there is no worker. With each step
it gives the worker one event of loads, which begin with the step, and one of stores, which begin when the step has
computed. `taken` reports them to kvproof, a load for each request, and kvproof copies and says when a copy is over. If
a step preempts, the worker first waits for all copies under way.

By default the connector stores eagerly, what a request has computed; lazily, what the device is about to evict.

Limits: the host, and no disk; copies may end in any order, where the worker ends those of one direction in theirs.
"""

from dataclasses import replace
from typing import Any

from kvproof.check.protocol.scheduler import HostStore, Load, SchedulerConfig
from kvproof.check.subjects.loading.stub_modules import StubObject
from kvproof.check.subjects.vllm.offloading_connector import HostConnector
from kvproof.check.subjects.vllm.simple_offload import BYTES_OF_BLOCK, tensor_of
from kvproof.check.subjects.vllm.v1_observation import call_with

EAGER, LAZY = "eager", "lazy"


class SimpleOffloadingConnector(HostConnector):
    """What the scheduler asks of the connector, passed on as `SimpleCPUOffloadConnector` does it."""

    def __init__(self, modules: StubObject, config: SchedulerConfig, options: Any, groups: Any) -> None:
        num_host = config.host_slots + 1  # block 0 of the host is its null block
        wanted = {
            "vllm_config": options,
            "kv_cache_config": replace(groups, kv_cache_tensors=[tensor_of(modules.interface, groups.num_blocks)]),
            "cpu_capacity_bytes": num_host * BYTES_OF_BLOCK,
            "scheduler_block_size": config.block_size,
            "hash_block_size": config.block_size,
            "lazy_offload": config.connector == LAZY,
        }
        super().__init__(call_with(modules.manager.SimpleCPUOffloadScheduler, wanted))
        self._report = modules.metadata.SimpleCPUOffloadWorkerMetadata
        self._stores: dict[int, int] = {}  # job -> event
        self._under_way: list[int] = []  # jobs, in the order in which steps named them
        self._num_jobs = 0
        if modules.steps_for_stores:
            self.has_pending_push_work = self._scheduler.has_pending_stores

    def bind_gpu_block_pool(self, pool: Any) -> None:
        """The manager of the release holds the blocks of the device that it reads and writes."""
        self._scheduler.bind_gpu_block_pool(pool)

    def bind_kv_cache_manager(self, manager: Any) -> None:
        """As the base class of vLLM's connectors passes it on, from 0.32 on."""
        self.bind_gpu_block_pool(manager.block_pool)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """The events of this step."""
        waiting = {name for name, state in self._scheduler._reqs_to_load.items() if state.load_event is None}
        event = self._scheduler.build_connector_meta(scheduler_output)
        flushed = [*self._under_way] if event.need_flush else []
        loads = []
        for name in sorted(waiting, key=int):
            moved = self._scheduler._reqs_to_load[name].transfer_meta
            pairs = list(zip(moved.cpu_block_ids, moved.gpu_block_ids, strict=True))
            self._load_jobs[job := self._new_job()] = name
            loads.append(Load(int(name), *self._loads.pop(name), job, pairs))
        stores = []
        if event.store_event >= 0:
            self._stores[job := self._new_job()] = event.store_event
            stores.append(HostStore(job, list(zip(event.store_gpu_blocks, event.store_cpu_blocks, strict=True))))
        self._named = loads, stores, flushed
        return event

    def _new_job(self) -> int:
        self._num_jobs += 1
        self._under_way.append(self._num_jobs)
        return self._num_jobs

    def report_of(self, jobs: list[int]) -> Any:
        """The events of stores that are over."""
        for job in jobs:
            self._under_way.remove(job)
        return self._report({self._stores.pop(job): 1 for job in jobs if job in self._stores})

    def stores_to_come(self) -> list[list[int]]:
        """The blocks of the device of each store that the next event names."""
        return [[*moved.gpu_block_ids] for moved in getattr(self._scheduler, "_pending_finished_stores", ())]

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        """The blocks of a request that is over are held by the copies that read them."""
        return self._scheduler.request_finished(request, block_ids)

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> Any:
        return self._scheduler.request_finished_all_groups(request, block_ids)

    def reset_cache(self) -> bool:
        return bool(self._scheduler.reset())
