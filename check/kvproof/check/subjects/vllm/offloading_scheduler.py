"""vLLM's V1 scheduler with its own OffloadingConnector in every configuration: releases 0.29 to 0.33.

This is `vllm-v1-scheduler` with `--fix connector=offloading`, without what refutes that one in every release: a block
has at least two slots, since a prompt of one token that fills a block is loaded again and again; and the connector is
reset at most once between two steps, since it raises if it is reset again while a copy is under way.
"""

from dataclasses import replace
from typing import Any

from kvproof.check.protocol.manager import Assumption, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.vllm.v1_scheduler import ASSUMPTIONS, OFFLOADING, VllmV1Scheduler

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
            raise EngineError(f"vLLM {version} has no connector that can be driven; the first release is 0.29.0")
        self.name = f"vllm-offloading {version}"
        self.capabilities = replace(
            self.capabilities,
            transfers=False,
            sends_aborted=False,
            window=False,
            local_attention=False,
            kv_groups=False,
            block_size_min=BLOCK_SIZE_MIN,
        )

    def make(self, config: SchedulerConfig) -> Any:
        if config.block_size < BLOCK_SIZE_MIN or not config.connector:
            raise Unsupported("a connector, and at least two slots in a block, are needed")
        self._reset_in = -1  # the number of steps at the last reset
        return super().make(config)

    def reset_caches(self, preempts: bool) -> bool:
        if self._reset_in == self.now:
            done: bool = self.scheduler.reset_prefix_cache(reset_running_requests=preempts)
            return done
        self._reset_in = self.now
        return super().reset_caches(preempts)
