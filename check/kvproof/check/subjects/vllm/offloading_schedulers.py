"""vLLM's own V1 scheduler with a connector of vLLM's own to host memory, as subjects.

`vllm-offloading` has vLLM's own OffloadingConnector in every configuration: releases 0.21 to 0.33. This is
`vllm-v1-scheduler` with `--fix connector=offloading`, without what refutes that one in every release: a block has at
least two slots, since a prompt of one token that fills a block is loaded again and again; and the connector is reset at
most once between two steps, since it raises if it is reset again while a copy is under way.

`vllm-simple-offloading` has the SimpleCPUOffloadConnector, which is eager or lazy, in every configuration: releases
0.31 to 0.33. Its host memory is a second block pool.
"""

from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.vllm.offloading_connector import HostConnector
from kvproof.check.subjects.vllm.simple_offloading_connector import EAGER, LAZY, SimpleOffloadingConnector
from kvproof.check.subjects.vllm.v1_scheduler import ASSUMPTIONS, OFFLOADING, ONE_GROUP, VllmV1Scheduler
from kvproof.check.subjects.vllm.v1_scheduler_loader import Options, import_modules, simple_offload_modules

BLOCK_SIZE_MIN = 2


class VllmOffloading(VllmV1Scheduler):
    """The scheduler with its connector to host memory."""

    assumptions = (
        *ASSUMPTIONS,
        Assumption("one-reset-a-step", "The connector is reset at most once between two steps."),
    )

    def __init__(self, version: str) -> None:
        super().__init__(version)
        if OFFLOADING not in self.capabilities.connectors:
            raise EngineError(f"vLLM {version} has no connector that can be driven; the first release is 0.21.0")
        self.name = f"vllm-offloading {version}"
        is_hybrid = self.capabilities.hybrid_connectors
        switched_off = ONE_GROUP | {"window": is_hybrid, "kv_groups": is_hybrid}
        self.capabilities = replace(self.capabilities, **switched_off, block_size_min=BLOCK_SIZE_MIN)

    def make(self, config: SchedulerConfig) -> Any:
        if config.block_size < BLOCK_SIZE_MIN or not config.connector:
            raise Unsupported("a connector, and at least two slots in a block, are needed")
        self._reset_in = -1  # the number of steps at the last reset
        return super().make(config)

    def reset_caches(self, preempts: bool, keeps_host: bool = False) -> bool:
        if not keeps_host and self._reset_in != self.now:
            self._reset_in = self.now
            return super().reset_caches(preempts)
        return super().reset_caches(preempts, True)


class VllmSimpleOffloading(VllmV1Scheduler):
    """The scheduler with its connector whose host memory is a second block pool."""

    own_connectors = (EAGER, LAZY)

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.name = f"vllm-simple-offloading {version}"
        is_hybrid = self.capabilities.hybrid_connectors
        switched_off = ONE_GROUP | {"window": is_hybrid, "kv_groups": is_hybrid}
        self.capabilities = replace(self.capabilities, **switched_off, holds_copies=True, eviction="")
        self.capabilities = replace(self.capabilities, steps_for_stores=self._steps_for_stores)

    def import_modules(self, version: str) -> Any:
        modules = import_modules(version)
        self._offloading, self._multi = own, _ = simple_offload_modules(), None
        self._steps_for_stores = own.steps_for_stores
        return modules

    def make(self, config: SchedulerConfig) -> Any:
        if not (config.connector and config.caching):
            raise Unsupported("a connector is needed, which does nothing without a prefix cache")
        if 0 not in config.windows:
            raise Unsupported("the connector needs a group of full attention, and asserts that it has one")
        return super().make(config)

    def host_connector(self, modules: Any, config: SchedulerConfig, options: Options, groups: Any) -> HostConnector:
        self._own = SimpleOffloadingConnector(modules, config, options, groups)
        return self._own

    def stores_to_come(self) -> list[list[int]]:
        return self._own.stores_to_come()
