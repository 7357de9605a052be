"""Record a run of one of kvproof's own subjects, as an example and as input for a check in a CI.

The walker drives the subject in this process, with one configuration drawn from the seed. The manager is recorded from
its creation. The walker's judge checks the run as always; a finding ends it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kvproof.check.oracle.level import POOL, SCHEDULER, STORE, level_of
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, Unsupported
from kvproof.check.recording import record
from kvproof.check.recording.recorder import Recorder
from kvproof.check.recording.recording_file import RecordingRefused
from kvproof.check.search import configurations, store_operations
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.search.scheduler_operations import SchedulerOperations
from kvproof.spec.trace import Operation

PATHS_TO_MANAGER = (("manager",), ("_manager",), ("scheduler", "kv_cache_manager"), ("scheduler", "cache"))
Driver = ManagerOperations | SchedulerOperations | store_operations.StoreOperations
NUM_CONFIGURATIONS_MAX = 1000
WITHOUT = {"transfers": False, "connector": ""}  # for schedulers: what cannot be judged from a recording


@dataclass
class ExampleRun:
    """The recorded run. num_lines: of the recording. finding: of the walker's judge, if any."""

    config: Config
    num_operations: int
    num_lines: int
    finding: Finding | None = None


def record_run(
    make: Callable[[], Any], seed: int, num_steps: int, path: Path, fixed: dict[str, Any], **options: Any
) -> ExampleRun:
    """Drive a subject for `num_steps` operations, and record its manager to `path`.

    fixed: fields of the configuration to keep. options: of `record`. Raises RecordingRefused if the manager cannot be
    recorded.
    """
    subject = make()
    if level_of(subject) is POOL:
        raise RecordingRefused(
            f"{subject.name} is a pool of blocks; only managers, schedulers and stores can be recorded"
        )
    if capabilities_of(subject).leases:
        raise RecordingRefused(
            f"{subject.name} has leases, which end by the clock of the judge; record a server, whose leases end by time"
        )
    if subject.name.startswith("vllm-v0") and level_of(subject) is not SCHEDULER:
        raise RecordingRefused(
            f"{subject.name} runs without its scheduler, which informs the manager about steps; "
            "record vllm-v0-scheduler"
        )
    random = Random(seed)
    begun: list[Recorder] = []
    refused: list[RecordingRefused] = []
    open_subject = subject.open

    def opened(config: Config) -> None:
        open_subject(config)
        try:
            begun.append(record(_manager_of(subject), path, **options))
        except RecordingRefused as error:
            refused.append(error)
            raise

    subject.open = opened
    try:
        driver, config = _driver(subject, random, fixed)
    except Finding:
        if refused:  # for the judge, `open` raised; the reason is the file or the kind of manager
            raise refused[0] from None
        raise
    operations: list[Operation] = []
    finding = None
    try:
        driver.run(operations, num_steps)
    except Finding as found:
        finding = found
    begun[-1].close()
    return ExampleRun(config, len(operations), begun[-1].num_lines, finding)


def _driver(subject: Any, random: Random, fixed: dict[str, Any]) -> tuple[Driver, Config]:
    """The walker of one run, with a configuration that the subject supports."""
    is_loop = level_of(subject) is SCHEDULER
    if level_of(subject) is STORE:
        store_config = store_operations.draw_config(random, capabilities_of(subject), fixed)
        return store_operations.StoreOperations(subject, random, store_config), store_config
    for _ in range(NUM_CONFIGURATIONS_MAX):
        try:
            if is_loop:
                loop_config = configurations.draw_for_scheduler(random, capabilities_of(subject), {**WITHOUT, **fixed})
                return SchedulerOperations(subject, random, loop_config), loop_config
            config = configurations.draw(random, capabilities_of(subject), fixed)
            return ManagerOperations(subject, random, config), config
        except Unsupported as error:
            reason = str(error)
    raise RecordingRefused(f"{subject.name} supports no configuration with {fixed}: {reason}")


def _manager_of(subject: Any) -> Any:
    for path in PATHS_TO_MANAGER:
        found = subject
        for name in path:
            found = getattr(found, name, None)
        if found is not None:
            return found
    raise RecordingRefused(f"{subject.name} has no manager that can be recorded")
