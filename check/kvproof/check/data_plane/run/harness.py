"""Run one case, that is one executor on one layout and one scenario: lint, move and compare, until something is wrong.

When a call of an executor has returned, its work must have ended or be ordered before later work of the current stream.
So on CUDA the harness waits only for that stream before the first comparison. Bytes that are wrong then, and right
after the whole device has finished, are reported as late: the executor did not wait for something.

An executor that raises, hangs, ends its process or breaks the device is a finding, as wrong bytes are. A mapping that
the linter refuses is a finding about the manager that emitted it, and no bytes move.

After the last step the harness waits for work that the executor left running. If there was any, it compares both pools
once more, and so detects an executor that keeps the tensors and writes later.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType

import torch

from kvproof.check.data_plane.compare.diagnosis import count_text, finding_of
from kvproof.check.data_plane.device import broken, is_out_of_memory, own_stream, reason_of, wait_for
from kvproof.check.data_plane.executors.base import Executor
from kvproof.check.data_plane.executors.isolation import Crashed, ExecutorRaised, Hung, Isolation, NoRoom
from kvproof.check.data_plane.memory.layouts import Geometry, UnknownSetting
from kvproof.check.data_plane.memory.world import World
from kvproof.check.data_plane.run.results import CaseResult, CaseStatus, DataFinding, FindingKind
from kvproof.check.data_plane.simulated_cuda import new_races
from kvproof.check.data_plane.speed.stopwatch import one_thread
from kvproof.check.data_plane.steps.linter import lint
from kvproof.check.data_plane.steps.moves import Moves, Scenario, Step
from kvproof.check.hosts.interrupt import is_from_outside
from kvproof.check.hosts.time_limit import time_limit
from kvproof.check.protocol.finding import Finding

STEP_SECONDS_MAX = 20.0
REST_SECONDS_MAX = 2.0  # for threads that an executor left running
NO_STREAM, DEFAULT_STREAM, OWN_STREAM = "none", "default", "own"


@one_thread()
def run_case(
    executor: Executor,
    geometry: Geometry,
    scenario: Scenario,
    device: torch.device,
    stream: str = NO_STREAM,
    *,
    isolation: Isolation | None = None,
    step_seconds_max: float = STEP_SECONDS_MAX,
) -> CaseResult:
    """Run one case. A case whose pools do not fit into memory is skipped.

    stream: NO_STREAM in main memory; on CUDA DEFAULT_STREAM, or OWN_STREAM to call the executor on a new stream.
    isolation: the process of a user's executor, to share it between cases; None starts one for this case.
    Raises UnknownSetting if a user's function cannot be imported.
    """
    began = time.perf_counter()
    case = CaseResult(
        executor.name,
        geometry.layout.value,
        geometry.dtype,
        scenario.kind,
        str(device),
        stream,
        scenario.seed,
        CaseStatus.PASSED,
        moves=tuple(step.moves for step in scenario.steps),
    )
    if reason := executor.unsupported(geometry, device):
        return replace(case, status=CaseStatus.SKIPPED, reason=reason)
    if refused := _refused(scenario, geometry):
        return replace(case, status=CaseStatus.FAILED, finding=refused)
    is_isolated = executor.is_own and device.type == "cpu"
    if is_isolated and isolation is None:
        with Isolation(executor.name, step_seconds_max) as own:
            return run_case(executor, geometry, scenario, device, stream, isolation=own)
    process = isolation if is_isolated else None
    try:
        world = World(geometry, device, process.share(geometry) if process else None)
    except NoRoom as error:
        return replace(case, status=CaseStatus.SKIPPED, reason=str(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = f"there is no memory for pools of {geometry.num_bytes() / 2**20:.3g} MiB"
        return replace(case, status=CaseStatus.SKIPPED, reason=reason)
    case = _moved(case, executor, world, scenario, process, stream, step_seconds_max)
    return replace(case, seconds=time.perf_counter() - began)


def _moved(
    case: CaseResult,
    executor: Executor,
    world: World,
    scenario: Scenario,
    process: Isolation | None,
    stream: str,
    step_seconds_max: float,
) -> CaseResult:
    """The result of a case whose pools are there: the executor moves the blocks of every step until one is wrong."""
    num_steps = num_pairs = 0
    caught = _Caught(step=1, is_prepared=False)
    with caught:
        move = _prepared(executor, world, process, stream, step_seconds_max)
    caught.is_prepared = True
    for number, step in enumerate(scenario.steps, start=1):
        if caught.finding is None:
            caught.step = number
            _run_step(world, move, process, step, caught)
            num_steps, num_pairs = number, num_pairs + step.moves.num_pairs
    if caught.finding is None and num_steps:
        _come_to_rest(world, process, caught)
    if (races := new_races()) and caught.finding is None:
        text = f"until step {num_steps}, {races[0]}; {count_text(len(races), 'race')} in all"
        caught.finding = DataFinding(FindingKind.RACE, text, num_steps)
    finding = caught.finding
    return replace(
        case,
        status=CaseStatus.FAILED if finding else CaseStatus.PASSED,
        num_steps=num_steps,
        num_pairs=num_pairs,
        bytes_moved=num_pairs * world.geometry.block_bytes,
        bytes_proven=num_steps * world.num_bytes,
        finding=finding,
    )


class _Caught:
    """A context manager that turns an exception of the executor into a finding about the step.

    is_prepared: the executor could be imported. Before that, UnknownSetting says that it could not.
    """

    def __init__(self, step: int, is_prepared: bool = True) -> None:
        self.step, self.is_prepared = step, is_prepared
        self.finding: DataFinding | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if error is None or is_from_outside(error) or (isinstance(error, UnknownSetting) and not self.is_prepared):
            return False
        where = f"in step {self.step}, the executor"
        match error:
            case Hung():
                found = FindingKind.HANG, f"{where} gave {error}"
            case Crashed():
                found = FindingKind.CRASHED, f"{where} crashed: {error}"
            case ExecutorRaised():
                found = FindingKind.RAISED, f"{where} raised {error}"
            case Finding():
                found = FindingKind.HANG, f"{where} gave {error.text}"
            case _:
                found = FindingKind.RAISED, f"{where} raised {reason_of(error)}"
        self.finding = DataFinding(*found, self.step)
        return True


def _refused(scenario: Scenario, geometry: Geometry) -> DataFinding | None:
    """The first mapping that the linter refuses, as a finding; None if it refuses none."""
    for number, step in enumerate(scenario.steps, start=1):
        for complaint in lint(step.moves, geometry.num_gpu_blocks, geometry.num_cpu_blocks):
            if complaint.refuses:
                text = f"the mapping of step {number} was refused and nothing was moved: {complaint.text}"
                return DataFinding(FindingKind.REFUSED_MAPPING, text, number)
    return None


def _prepared(
    executor: Executor, world: World, isolation: Isolation | None, stream: str, seconds_max: float
) -> Callable[[Moves], object]:
    """The function that executes a step and waits for its end."""
    if isolation is not None:
        isolation.open(world.geometry)
        return isolation.move
    with time_limit(seconds_max):
        move = executor.prepare(world.caches())

    def within_time(moves: Moves) -> None:
        with time_limit(seconds_max):
            with own_stream(world.device) if stream == OWN_STREAM else nullcontext():
                move(replace(moves))  # a copy, as the executor may change it
            if world.device.type == "cuda":
                wait_for(torch.cuda.current_stream(world.device))

    return within_time


def _run_step(
    world: World, move: Callable[[Moves], object], process: Isolation | None, step: Step, caught: _Caught
) -> None:
    """Move and compare, then poison and write what the step says. A finding is stored in `caught`."""
    world.expect(step.moves)
    with caught:
        move(step.moves)
    if caught.finding is None:
        _compare(world, process, caught)
    if caught.finding is None:
        world.release(step)
        world.compute(step)


def _compare(world: World, process: Isolation | None, caught: _Caught) -> None:
    """Compare every row. Rows that are wrong now but right after all work has ended are a finding of kind LATE."""
    try:
        wrong = world.wrong()
        found = finding_of(world, wrong, caught.step) if wrong else None
    except RuntimeError:
        if not (fault := broken(world.device)):
            raise
        text = f"after step {caught.step}, the device can no longer be used: {fault}"
        caught.finding = DataFinding(FindingKind.BROKE_DEVICE, text, caught.step)
        return
    if found is None:
        return
    caught.finding = found
    world.synchronize()
    with _Caught(caught.step):  # if the process ends now, the finding is still the wrong bytes
        if process:
            process.rest(REST_SECONDS_MAX)
    if not world.wrong():
        text = (
            f"{found.text}; it became right after {_who(process)} had finished: the executor did not wait for its work"
        )
        caught.finding = replace(found, kind=FindingKind.LATE, text=text)


def _come_to_rest(world: World, process: Isolation | None, caught: _Caught) -> None:
    """After the last step, wait for remaining work of the executor, and compare again if there was any."""
    with caught:
        if process and not process.rest(REST_SECONDS_MAX):
            return
    if caught.finding is None and (process or world.device.type == "cuda"):
        world.synchronize()
        _compare(world, process, caught)
        if caught.finding is not None:
            text = f"{caught.finding.text}; it was right before {_who(process)} had finished: the executor wrote later"
            caught.finding = replace(caught.finding, kind=FindingKind.LATE, text=text)


def _who(process: Isolation | None) -> str:
    return "its process" if process else "the device"
