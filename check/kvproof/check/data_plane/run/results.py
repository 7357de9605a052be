"""What a correctness run found, as data. Reports are rendered from it elsewhere; every text here is a full sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kvproof.check.data_plane.memory.pattern import Origin


class WrongClass(str, Enum):
    """What is the matter with a row; the value is the name in reports."""

    UNMOVED = "unmoved"  # it still holds what it held before the step
    MOVED = "moved"  # data of another place
    STALE = "stale"  # data of the right place, of an older generation
    POISON = "poison"  # data of a block that was free
    SHIFTED = "shifted"  # the right block at another offset
    TORN = "torn"  # some words are right, the others as before the step
    MIXED = "mixed"  # within words some bytes are right, the others as before the step
    ZERO = "zero"  # zeros
    ALTERED = "altered"  # some bits are right
    UNKNOWN = "unknown"  # words that are none of ours


class FindingKind(str, Enum):
    """What is wrong with an executor, or with a mapping."""

    WRONG_BYTES = "wrong bytes"
    LATE = "late"  # the bytes changed when the call had returned: right only then, or no longer right
    BROKE_DEVICE = "device broken"  # every call on the device fails since
    RAISED = "raised"
    HANG = "hang"
    CRASHED = "crashed"
    REFUSED_MAPPING = "mapping refused"


class CaseStatus(str, Enum):
    """A case that was not run says why, and is not passed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class WrongRow:
    """One row that is wrong: where, how, and where its bytes come from (None where they do not say).

    pool 0 is the GPU's, 1 the CPU's. memory_row counts over the whole memory of the pool. block and row_in_block are -1
    in a guard; then `text` says which.
    shift_bytes: how far from its right offset, for a shifted row. num_words: how many of its words are wrong.
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
    """One executor does wrong in one step. `wrong` are the first rows.

    num_wrong_rows counts all; num_wrong_words and `histogram`, the rows by class, are of those that were diagnosed, at
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
    """One executor on one layout, element type and kind of mapping; `stream` is `none` in main memory.

    bytes_proven counts every byte of both pools, guards included, at every comparison.
    """

    executor: str
    layout: str
    dtype: str
    mapping: str
    device: str
    stream: str
    seed: int
    status: CaseStatus
    reason: str = ""  # why it was skipped
    num_steps: int = 0
    num_pairs: int = 0
    bytes_moved: int = 0
    bytes_proven: int = 0
    seconds: float = 0.0
    finding: DataFinding | None = None


@dataclass(frozen=True)
class FaultResult:
    """A fault that was injected into this very run.

    message: what the harness said of it. origin_is_true: whether the place that was named is the true one; None where
    the bytes come from no place.
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
        """Caught, of the true class, and from the true place if it is from one."""
        return self.is_caught and self.class_is_true and self.origin_is_true is not False


@dataclass(frozen=True)
class RaceResult:
    """One event log with or without a race, and what was said of it.

    corrupt_orders of num_orders random orders that the streams allow left other bytes than program order.
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
        """A race was seen where one is, and only there; orders that end otherwise need a race."""
        return self.has_race == self.found_race == bool(self.corrupt_orders)


@dataclass(frozen=True)
class LintResult:
    """A mapping that is wrong as it stands, and what the linter said of it; message is empty if it missed it."""

    name: str
    sentence: str
    message: str


@dataclass(frozen=True)
class CorrectnessResult:
    """Everything. `notes` say what was adapted, left out or reduced, in full sentences.

    is_cut: the time was over, or an executor given up, before everything that was planned had been run.
    broken: why nothing more can be done on the device since, or nothing.
    """

    seed: int
    device: str
    cases: tuple[CaseResult, ...]
    num_combinations: int  # of the full matrix, of which `cases` cover every pair of values
    faults: tuple[FaultResult, ...]
    races: tuple[RaceResult, ...]
    lints: tuple[LintResult, ...]
    notes: tuple[str, ...]
    seconds: float
    is_cut: bool = False
    broken: str = ""

    @property
    def findings(self) -> list[tuple[CaseResult, DataFinding]]:
        """What is wrong with executors, with the case in which it showed."""
        return [(case, case.finding) for case in self.cases if case.finding is not None]

    @property
    def missed(self) -> list[str]:
        """Names of injected faults, races and bad mappings that the harness itself missed or misjudged."""
        faults = [
            f.name for f in self.faults if not (f.is_caught and f.class_is_true and f.origin_is_true is not False)
        ]
        races = [race.name for race in self.races if not race.is_understood]
        return faults + races + [lint.name for lint in self.lints if not lint.message]

    @property
    def bytes_proven(self) -> int:
        return sum(case.bytes_proven for case in self.cases)

    @property
    def is_right(self) -> bool:
        """No finding, nothing missed by the harness, and at least one case was run."""
        has_run = any(case.status is CaseStatus.PASSED for case in self.cases)
        return has_run and not self.findings and not self.missed
