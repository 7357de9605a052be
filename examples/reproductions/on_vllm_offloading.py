"""The scheduler's side of vLLM's OffloadingConnector, 0.26.0 and later: what the scripts for it share."""

from collections.abc import Iterable
from typing import Any

from on_any_engine import StandIn, same, with_options
from on_vllm import kv_config, spec
from on_vllm_scheduler import Connector
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import OffloadingConnectorScheduler
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager


class Offloading(Connector):
    """The connector, with a store in host memory. `jobs` are the copies that the last step asks for."""

    def __init__(self, block_size: int, num_blocks: int = 8, num_host_blocks: int = 4) -> None:
        manager = with_options(CPUOffloadingManager, num_chunks=num_host_blocks, num_blocks=num_host_blocks)
        group = StandIn(group_id=0, tokens_per_block=block_size, sliding_window_size_in_chunks=None, layer_names=())
        offloading = StandIn(
            config=StandIn(groups=(group,)),
            tokens_per_block=(block_size,),
            blocks_per_chunk=1,
            tokens_per_hash=block_size,
            offload_prompt_only=False,
            extra_config={},
            kv_events_config=StandIn(enable_kv_cache_events=False, self_describing_kv_events=False),
            get_manager=lambda: manager,
        )
        options = StandIn(
            cache_config=StandIn(enable_prefix_caching=False, prefix_cache_retention_interval=None),
            parallel_config=StandIn(**same(1, "world_size decode_context_parallel_size prefill_context_parallel_size")),
            speculative_config=None,
        )
        config = kv_config(num_blocks, spec(block_size=block_size))
        self.real = OffloadingConnectorScheduler(offloading, options, config)
        super().__init__(finds=self.real.get_num_new_matched_tokens)
        self.jobs: Any = None
        self.on_new_request = self.real.on_new_request
        self.update_state_after_alloc = self.real.update_state_after_alloc
        self.update_connector_output = self.real.update_connector_output

    def build_connector_meta(self, step: Any) -> Any:
        """The copies that a step asks for."""
        self.jobs = self.real.build_connector_meta(step)
        return self.jobs

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        """Whether the blocks are kept, and what the server says about it."""
        return self.real.request_finished(request)


def over(jobs: Iterable[int]) -> Any:
    """The report of the workers that these copies are over."""
    return OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(jobs, 1))
