"""The correctness run: executors on layouts, element types and mappings, and the harness on planted faults.

The harness tests itself first. Then each executor runs cases that cover every pair of values of the other axes, at two
sizes. In the short form, the first executor covers every pair at the small size, and the other executors cover every
value. Executors take turns, so that each has had its share when the time is over. A case that cannot be run is skipped
with a reason. A note reports everything that was reduced.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, product, zip_longest

import torch

from kvproof.check.data_plane.compare import triton_verify
from kvproof.check.data_plane.compare.diagnosis import count_text
from kvproof.check.data_plane.device import broken
from kvproof.check.data_plane.executors import BUILT_IN, Executor, named
from kvproof.check.data_plane.executors.isolation import Isolation
from kvproof.check.data_plane.faults.judging import judge_faults
from kvproof.check.data_plane.mappings import ADVERSARIAL, KINDS, scenario
from kvproof.check.data_plane.memory.layouts import DTYPES, Geometry, Layout, UnknownSetting, dtype_named, layout_named
from kvproof.check.data_plane.run.harness import DEFAULT_STREAM, NO_STREAM, OWN_STREAM, STEP_SECONDS_MAX, run_case
from kvproof.check.data_plane.run.pairwise import Row, every_pair, every_value
from kvproof.check.data_plane.run.results import CaseResult, CorrectnessResult, FindingKind
from kvproof.check.data_plane.simulated_cuda import is_simulated
from kvproof.check.data_plane.steps.linter import judge_lints, lint
from kvproof.check.data_plane.steps.moves import Scenario
from kvproof.check.data_plane.steps.ordering import judge_races
from kvproof.check.hosts.time_limit import OutOfTime, require_time, search_ends_after
from kvproof.impl import free_bytes

OnWork = Callable[[str, int, int], None]  # the current work, the number of things done, the number of all things
OnCase = Callable[[CaseResult], None]
MIB = 1024 * 1024
BLOCKS_MIN = 8


@dataclass(frozen=True)
class Size:
    """The sizes of a case. block_size in tokens, head_size in elements."""

    name: str
    num_gpu_blocks: int
    num_cpu_blocks: int
    block_size: int
    num_heads: int
    head_size: int
    num_layers: int

    def geometry(self, layout: Layout, dtype: str) -> Geometry:
        """The geometry of a case. The one head of a latent cache has the size of all heads together."""
        heads, head_size = self.num_heads, self.head_size
        if layout is Layout.LATENT:
            heads, head_size = 1, heads * head_size
        return Geometry(
            layout,
            dtype,
            self.block_size,
            heads,
            head_size,
            self.num_layers,
            self.num_gpu_blocks,
            self.num_cpu_blocks,
        )


SMALL = Size("small", 24, 20, 4, 2, 16, 2)
LARGE = Size("large", 64, 48, 16, 2, 128, 3)
SHORT_ROWS = replace(LARGE, head_size=16)  # for a simulated device: the order of work does not depend on this size


@dataclass(frozen=True)
class CorrectnessConfig:
    """The options of a correctness run. An empty tuple means all values; an unknown name raises UnknownSetting.

    executors: built-in names, and module:function of a user's function. is_short: see the top of this file. given: a
    scenario for pools of the small size, which replaces all kinds of mapping. memory_bytes_max: for both pools of a
    case together. seconds_max: no case starts later. step_seconds_max: an executor that takes longer for a step hangs.
    """

    seed: int = 0
    device: str = "cpu"
    executors: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    mappings: tuple[str, ...] = ()
    is_short: bool = False
    given: Scenario | None = None
    memory_bytes_max: int = 256 * MIB
    step_seconds_max: float = STEP_SECONDS_MAX
    seconds_max: float = float("inf")


Planned = tuple[Executor, Size, Row]


@dataclass
class _Plan:
    """The cases to run, and what the report must say about them.

    unrun: why planned cases of an executor were not run. broken: why the device can no longer be used; empty if it can.
    """

    config: CorrectnessConfig
    executors: list[Executor]
    layouts: list[str]
    dtypes: list[str]
    mappings: list[str]
    streams: list[str]
    device: torch.device
    notes: list[str] = field(default_factory=list)
    scenarios: dict[tuple[str, Size], Scenario] = field(default_factory=dict)
    unrun: dict[str, str] = field(default_factory=dict)
    broken: str = ""

    @property
    def axes(self) -> list[list[str]]:
        return [self.layouts, self.dtypes, self.mappings, self.streams]

    def cases(self) -> Iterator[Planned]:
        """All cases. Executors take turns, small cases first; each executor and size has other combinations."""
        large = SHORT_ROWS if is_simulated() else LARGE
        sizes = [self._fitting(size) for size in ((SMALL,) if self.config.is_short else (SMALL, large))]
        of_executors: dict[str, list[Planned]] = {}
        for number, (executor, size) in enumerate(product(self.executors, sizes)):
            axes = [[*axis[number % len(axis) :], *axis[: number % len(axis)]] for axis in self.axes]
            rows = every_value(axes) if self.config.is_short and number else every_pair(axes)
            of_executors.setdefault(executor.name, []).extend((executor, size, row) for row in rows)
        yield from (case for case in chain(*zip_longest(*of_executors.values())) if case is not None)

    def scenario(self, kind: str, size: Size) -> Scenario:
        key = kind, size
        if self.config.given is not None:
            self.scenarios[key] = self.config.given
        elif key not in self.scenarios:
            seed = self.config.seed
            self.scenarios[key] = scenario(kind, seed, size.num_gpu_blocks, size.num_cpu_blocks, size.block_size)
        return self.scenarios[key]

    def _fitting(self, size: Size) -> Size:
        """The size, with fewer blocks if the largest case would not fit into memory."""
        bytes_max = min(self.config.memory_bytes_max, free_bytes("cpu") // 2, free_bytes(self.device) // 2)
        fitting = size
        if self.config.given is not None:  # its ids are for pools of this size
            return fitting
        while fitting.num_cpu_blocks > BLOCKS_MIN and self._bytes_max(fitting) > bytes_max:
            fitting = replace(
                fitting, num_gpu_blocks=fitting.num_gpu_blocks // 2 + 2, num_cpu_blocks=fitting.num_cpu_blocks // 2
            )
        if fitting != size:
            self.notes.append(
                f"Memory allows {bytes_max // MIB} MiB, so {size.name} cases have {fitting.num_gpu_blocks} GPU and "
                f"{fitting.num_cpu_blocks} CPU blocks instead of {size.num_gpu_blocks} and {size.num_cpu_blocks}."
            )
        return fitting

    def _bytes_max(self, size: Size) -> int:
        return max(
            size.geometry(layout_named(layout), dtype).num_bytes() for layout in self.layouts for dtype in self.dtypes
        )


def run_correctness(
    config: CorrectnessConfig, on_progress: OnWork | None = None, on_case: OnCase = lambda case: None
) -> CorrectnessResult:
    """Test the harness, then run all cases. Raises UnknownSetting, with a message for the user, for an unknown name.

    on_case: is called with each case after it has run. Raises OutOfTime if the time of the run (`calls_end_at`) is over
    before the first case.
    """
    began = time.perf_counter()
    plan = _plan(config)
    report = on_progress or (lambda what, done, total: None)

    def report_fault(done: int, total: int) -> None:
        require_time()
        report("planted faults", done, total)

    faults = judge_faults(plan.device, report_fault)
    report("event logs", 0, 1)
    races, lints = judge_races(config.seed), judge_lints()
    report("event logs", 1, 1)
    cases = _run_cases(plan, began + config.seconds_max, report, on_case)
    plan.notes += _warnings(plan)
    axes = [*plan.axes, [executor.name for executor in plan.executors]]
    num_combinations = 1
    for axis in axes:
        num_combinations *= len(axis)
    if len(cases) < num_combinations:
        text = f"There are {num_combinations} combinations of executor, layout, element type, mapping and stream; "
        if not plan.unrun:
            whose = "the first" if config.is_short else "each"
            text += f"{len(cases)} cases were chosen that cover every pair of values for {whose} executor."
        else:
            were = "case was" if len(cases) == 1 else "cases were"
            text += f"{len(cases)} {were} run, too few to cover every pair of values."
        plan.notes.append(text)
    return CorrectnessResult(
        config.seed,
        str(plan.device),
        tuple(cases),
        num_combinations,
        tuple(faults),
        tuple(races),
        tuple(lints),
        tuple(plan.notes),
        time.perf_counter() - began,
        plan.unrun,
        plan.broken,
    )


def _plan(config: CorrectnessConfig) -> _Plan:
    """Look up all names of the configuration. Raises UnknownSetting."""
    device = _device(config.device)
    plan = _Plan(
        config,
        [named(name) for name in config.executors or tuple(BUILT_IN)],
        [layout_named(name).value for name in config.layouts or tuple(layout.value for layout in Layout)],
        list(config.dtypes or DTYPES),
        [config.given.kind] if config.given else list(config.mappings or KINDS),
        [DEFAULT_STREAM, OWN_STREAM] if device.type == "cuda" else [NO_STREAM],
        device,
    )
    plan.notes += [executor.note for executor in plan.executors if executor.note]
    for dtype in plan.dtypes:
        dtype_named(dtype)
    for kind in plan.mappings:
        plan.scenario(kind, SMALL)
    if device.type == "cpu":
        plan.notes.append("Both pools lay in main memory, where there are no streams; no CUDA device was used.")
    elif reason := triton_verify.refusal(device):
        plan.notes.append(f"The GPU pool was compared by torch, because {reason}.")
    if is_simulated():
        plan.notes.append(
            f"The device was simulated, so large cases have heads of {SHORT_ROWS.head_size} elements instead of "
            f"{LARGE.head_size}: the order of the work, which is judged, is the same for both."
        )
    return plan


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UnknownSetting(f"no device is named {name!r}; choose cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise UnknownSetting(f"no device is named {name!r}; choose cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnknownSetting("this machine has no CUDA device; choose cpu")
    return device


def _run_cases(plan: _Plan, deadline: float, report: OnWork, on_case: OnCase) -> list[CaseResult]:
    """Run all cases that start before the deadline.

    An executor that supports none of its cases is skipped once, with the reason of its first case. An executor that
    hangs is not run again, because each further case might take as long.
    """
    planned = list(plan.cases())
    able = {e.name for e, size, row in planned if not e.unsupported(_geometry(size, row), plan.device)}
    found: list[CaseResult] = []
    over: set[str] = set()
    late: list[str] = []  # the executor of each case that could not start in time
    with ExitStack() as stack:
        stack.enter_context(search_ends_after(deadline - time.perf_counter()))
        isolations: dict[str, Isolation] = {}
        for number, (executor, size, row) in enumerate(planned):
            report(f"{executor.name}: {', '.join(row[:3])}", number, len(planned))
            if executor.name in over:
                continue
            if time.perf_counter() >= deadline:
                late.append(executor.name)
                continue
            if executor.is_own and executor.name not in isolations:
                isolations[executor.name] = stack.enter_context(Isolation(executor.name, plan.config.step_seconds_max))
            try:
                case = run_case(
                    executor,
                    _geometry(size, row),
                    plan.scenario(row[2], size),
                    plan.device,
                    row[3],
                    isolation=isolations.get(executor.name),
                    step_seconds_max=plan.config.step_seconds_max,
                )
            except OutOfTime:
                late.append(executor.name)
                continue
            found.append(case)
            on_case(case)
            if case.finding is not None and case.finding.kind is FindingKind.HANG:
                over.add(executor.name)
                plan.unrun[executor.name] = "it hung and was not run again"
                plan.notes.append(f"{executor.name} was not run again, because it hung: {case.finding.text}.")
            if case.finding is not None and (fault := broken(plan.device)):
                plan.broken = fault
                plan.unrun |= dict.fromkeys(able - over, f"{executor.name} broke the device: {fault}")
                plan.notes.append(f"After {executor.name}, no more cases could be run on {plan.device}: {fault}.")
                break
            if executor.name not in able:
                over.add(executor.name)
                plan.notes.append(f"{executor.name} was not run: {case.reason}.")
    report("cases", len(planned), len(planned))
    if late:
        plan.unrun |= dict.fromkeys(late, "the time was over")
        plan.notes.append(
            f"{len(late)} of {len(planned)} planned cases were not run, because the time was over; "
            "a longer --budget runs them."
        )
    return found


def _warnings(plan: _Plan) -> Iterator[str]:
    """The linter's warnings about mappings that a manager emitted: the first one of each kind and rule."""
    for (kind, size), made in plan.scenarios.items():
        if kind in ADVERSARIAL:  # these are drawn to cause warnings
            continue
        warnings = [
            (number, complaint)
            for number, step in enumerate(made.steps, start=1)
            for complaint in lint(step.moves, size.num_gpu_blocks, size.num_cpu_blocks)
            if not complaint.refuses
        ]
        for rule in dict.fromkeys(complaint.rule for _, complaint in warnings):
            number, first = next((number, complaint) for number, complaint in warnings if complaint.rule == rule)
            count = sum(complaint.rule == rule for _, complaint in warnings)
            yield (
                f"The linter warns about mapping {kind}, {size.name}, step {number}: {first.text} ({rule}, "
                f"{count_text(count, 'pair')}). The result of such a mapping is defined, and was compared."
            )


def _geometry(size: Size, row: Row) -> Geometry:
    return size.geometry(layout_named(row[0]), row[1])
