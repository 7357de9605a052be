"""The results of a correctness run, as data, and as the data-plane part of the result document.

Reports are rendered from them elsewhere; every text is a sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kvproof.check.data_plane.end_to_end.comparing import EndToEndResult
from kvproof.check.data_plane.memory.pattern import Origin
from kvproof.check.data_plane.steps.moves import Moves
from kvproof.reports.data_plane_result import DataPlane, GeneratedWorkload, InjectedFault, MovedCase

ORIGINS_MAX = 16
BYTES, RACE, MAPPING, END_TO_END = "bytes", "race", "mapping", "end to end"


class WrongClass(StrEnum):
    """The kind of error of a row. The value is its name in reports."""

    UNMOVED = "unmoved"  # the row is as before the step
    MOVED = "moved"  # data of another place
    STALE = "stale"  # data of the right place, of another generation
    POISON = "poison"  # data of a block that was free
    SHIFTED = "shifted"  # data of the right block at another offset
    TORN = "torn"  # some words are right, the others are as before the step
    MIXED = "mixed"  # within words some bytes are right, the others are as before the step
    ZERO = "zero"  # zeros
    ALTERED = "altered"  # some bits are right
    UNKNOWN = "unknown"  # values that were never written


class FindingKind(StrEnum):
    """The kind of fault of an executor, or of a mapping."""

    WRONG_BYTES = "wrong bytes"
    LATE = "late"  # bytes changed after the call had returned: they became right, or became wrong
    RACE = "race"  # nothing orders two accesses to the same memory; only a simulated device can tell
    BROKE_DEVICE = "device broken"  # every later call on the device fails
    RAISED = "raised"
    HANG = "hang"
    CRASHED = "crashed"
    REFUSED_MAPPING = "mapping refused"


class CaseStatus(StrEnum):
    """The status of a case. A case that was not run is skipped with a reason; it does not pass."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class WrongRow:
    """One wrong row.

    pool: 0 is the GPU pool, 1 the CPU pool. memory_row: counts over the whole memory of the pool. block, row_in_block:
    -1 for a guard row, which `text` describes. origin: where its bytes come from; None if they do not decode.
    num_words: the number of wrong words. shift_bytes: for a shifted row, the distance from its right offset.
    """

    pool: int
    memory_row: int
    layer: int
    part: int
    block: int
    row_in_block: int
    wrong_class: WrongClass
    origin: Origin | None
    expected: Origin
    num_words: int
    shift_bytes: int | None
    text: str


@dataclass(frozen=True)
class DataFinding:
    """A fault in one step. wrong: the first wrong rows.

    num_wrong_rows: the number of all wrong rows. num_wrong_words, histogram (rows by class): of the diagnosed rows, at
    most 256 of each pool.
    """

    kind: FindingKind
    text: str
    step: int
    wrong: tuple[WrongRow, ...] = ()
    num_wrong_rows: int = 0
    num_wrong_words: int = 0
    histogram: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseResult:
    """One executor on one layout, element type and kind of mapping.

    moves: of each step of the mapping, also of those that were not run.
    stream: `none` in main memory. reason: why the case was skipped. bytes_proven: bytes compared; each comparison
    counts both pools, guards included.
    """

    executor: str
    layout: str
    dtype: str
    mapping: str
    device: str
    stream: str
    seed: int
    status: CaseStatus
    reason: str = ""
    num_steps: int = 0
    num_pairs: int = 0
    bytes_moved: int = 0
    bytes_proven: int = 0
    seconds: float = 0.0
    finding: DataFinding | None = None
    moves: tuple[Moves, ...] = ()


@dataclass(frozen=True)
class FaultResult:
    """A fault that was planted into this run.

    message: the finding of the harness. class_is_true: whether each diagnosed row has a class that the fault allows.
    origin_is_true: whether the diagnosed origin is the true one; None if the bytes have no origin.
    """

    name: str
    sentence: str
    is_caught: bool
    message: str
    wrong_class: str = ""
    class_is_true: bool = False
    origin_is_true: bool | None = None

    @property
    def is_understood(self) -> bool:
        """Whether the fault was caught, with the true class and, if there is one, the true origin."""
        return self.is_caught and self.class_is_true and self.origin_is_true is not False


@dataclass(frozen=True)
class RaceResult:
    """One event log with or without a race, and the result of its check.

    corrupt_orders: how many of num_orders random allowed orders ended with other bytes than program order.
    """

    name: str
    sentence: str
    has_race: bool
    found_race: bool
    message: str
    corrupt_orders: int
    num_orders: int

    @property
    def is_understood(self) -> bool:
        """Whether the check found a race exactly if there is one, and other bytes occurred exactly if there is one."""
        return self.has_race == self.found_race == bool(self.corrupt_orders)


@dataclass(frozen=True)
class LintResult:
    """A mapping of the linter's self-test. message: what the linter reported; empty if it was wrong."""

    name: str
    sentence: str
    message: str


@dataclass(frozen=True)
class CorrectnessResult:
    """The result of a correctness run. notes: sentences about what was adapted, left out or reduced.

    num_combinations: the size of the full matrix. unrun: why planned cases of an executor were not run, by executor.
    broken: why the device can no longer be used; empty if it can.
    """

    seed: int
    device: str
    cases: tuple[CaseResult, ...]
    num_combinations: int
    faults: tuple[FaultResult, ...]
    races: tuple[RaceResult, ...]
    lints: tuple[LintResult, ...]
    notes: tuple[str, ...]
    seconds: float
    unrun: Mapping[str, str] = field(default_factory=dict)
    broken: str = ""

    @property
    def findings(self) -> list[tuple[CaseResult, DataFinding]]:
        return [(case, case.finding) for case in self.cases if case.finding is not None]

    @property
    def missed(self) -> list[str]:
        """Names of the planted faults, races and bad mappings that the harness missed or diagnosed wrong."""
        faults = [fault.name for fault in self.faults if not fault.is_understood]
        races = [race.name for race in self.races if not race.is_understood]
        return faults + races + [lint.name for lint in self.lints if not lint.message]

    @property
    def bytes_proven(self) -> int:
        return sum(case.bytes_proven for case in self.cases)

    @property
    def is_right(self) -> bool:
        """Whether there is no finding, the harness missed nothing, and at least one case passed."""
        has_run = any(case.status is CaseStatus.PASSED for case in self.cases)
        return has_run and not self.findings and not self.missed


def add_correctness(plane: DataPlane, found: CorrectnessResult) -> None:
    """Add every case, and every fault that was planted into this run of the harness."""
    add_cases(plane, found.cases)
    plane.num_combinations = found.num_combinations
    plane.faults += [InjectedFault(BYTES, one.name, one.is_understood, one.message) for one in found.faults]
    plane.faults += [
        InjectedFault(RACE, one.name, one.has_race == one.found_race, one.message or "no race, as expected")
        for one in found.races
    ]
    plane.faults += [InjectedFault(MAPPING, one.name, bool(one.message), one.message) for one in found.lints]
    plane.notes += found.notes


def add_cases(plane: DataPlane, cases: Sequence[CaseResult]) -> None:
    """Add the cases alone; for a run that was interrupted."""
    plane.cases = [_case(case) for case in cases]


def add_end_to_end(plane: DataPlane, found: EndToEndResult) -> None:
    """Add every workload, and every fault that was planted between the block manager and the bytes."""
    plane.storms = [
        GeneratedWorkload(
            workload.name,
            workload.num_sequences,
            workload.num_tokens,
            workload.num_steps,
            [*map(str, workload.differences), *([workload.refusal] if workload.refusal else [])],
            workload.witness_counts,
        )
        for workload in found.workloads
    ]
    plane.faults += [
        InjectedFault(END_TO_END, one.name, one.is_caught, f"{one.fate.value}: {one.detail}") for one in found.faults
    ]


def _case(case: CaseResult) -> MovedCase:
    finding = case.finding
    return MovedCase(
        executor=case.executor,
        layout=case.layout,
        dtype=case.dtype,
        mapping=case.mapping,
        stream=case.stream,
        status=case.status.value,
        num_pairs=case.num_pairs,
        bytes_moved=case.bytes_moved,
        bytes_proven=case.bytes_proven,
        seconds=round(case.seconds, 6),
        text=case.reason if finding is None else finding.text,
        origins=[] if finding is None else [row.text for row in finding.wrong[:ORIGINS_MAX]],
        histogram={} if finding is None else dict(finding.histogram),
    )
