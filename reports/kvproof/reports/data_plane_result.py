"""The data-plane part of the result document: cases, planted faults, generated text, speeds.

Speeds are in 1e9 bytes of payload per second: a copied byte counts once, although memory reads it and writes it. Each
speed comes with its ratio to a plain copy of the same number of bytes, made by the same machine in the same round.
Runs are compared by this ratio.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

# What a file may hold where a number is drawn, or where a status chooses a sign.
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
Status = Annotated[str, Meta(pattern="^(passed|failed|skipped)$")]


@dataclass
class Spread:
    """A quantity over the rounds of a run: its median, 5th and 95th percentile."""

    median: Number
    p5: Number
    p95: Number


@dataclass
class MovedCase:
    """One executor on one layout, element type and kind of mapping.

    status: passed, failed or skipped. text: why it was skipped, or what is wrong. origins: for the first wrong rows, a
    sentence about where their bytes come from. histogram: number of wrong rows by class. bytes_proven: bytes compared;
    each comparison counts both pools, guards included.
    """

    executor: str
    layout: str
    dtype: str
    mapping: str
    stream: str
    status: Status
    num_pairs: int = 0
    bytes_moved: int = 0
    bytes_proven: int = 0
    seconds: float = 0.0
    text: str = ""
    origins: list[str] = field(default_factory=list)
    histogram: dict[str, int] = field(default_factory=dict)


@dataclass
class InjectedFault:
    """A fault that was planted into this run. kind: bytes, race, mapping, end to end. text: the harness's report."""

    kind: str
    name: str
    is_caught: bool
    text: str


@dataclass
class GeneratedWorkload:
    """A workload for which text was generated in paged memory.

    differences: tokens that differ from those of the same model without pages. met: how often each event happened.
    """

    name: str
    num_sequences: int
    num_tokens: int
    num_steps: int
    differences: list[str]
    met: dict[str, int]


@dataclass
class Speed:
    """One measured speed.

    name: an executor, or a way to compare. mapping: what was measured. reference: the plain copy that the ratio divides
    by. traffic_bytes: bytes read plus bytes written. noise: relative uncertainty of the median ratio; the greater of
    three standard errors and the distance between the medians of the trials.
    """

    name: str
    mapping: str
    reference: str
    num_pairs: int
    payload_bytes: int
    traffic_bytes: int
    gb_per_second: Spread
    ratio: Spread
    noise: float


@dataclass
class HostCost:
    """The time that an executor takes on the host for each pair of a mapping, in microseconds."""

    executor: str
    mapping: str
    num_pairs: int
    microseconds_per_pair: Spread


@dataclass
class SpeedGoal:
    """A wanted speed, the measured one, and whether it is enough. is_met: None if it was not measured."""

    name: str
    wanted: str
    measured: str
    is_met: bool | None


@dataclass
class Comparison:
    """One ratio compared with the baseline. change: relative; below 0 is slower. band: changes within it are noise."""

    name: str
    mapping: str
    before: Number
    now: Number
    change: Number
    band: Number
    is_worse: bool


@dataclass
class Bandwidth:
    """The speeds of a run. Two runs are compared if all fields up to `block_bytes` are equal.

    references: plain copies of as many bytes as a call moves; on CUDA also a plain read of what is compared. busy: the
    share of the time in which this process had its core; below 0.9 other work disturbed the measurement. drift: the
    relative difference between two measurements of the same plain copy in the same rounds. skipped: what was not
    measured, and why. goals: wanted speeds of kvproof's own parts.
    """

    device: str
    device_name: str
    layout: str
    dtype: str
    block_bytes: int
    num_rounds: int
    references: list[Speed]
    moves: list[Speed]
    verification: list[Speed]
    host_costs: list[HostCost]
    busy: float
    drift: float
    skipped: list[str] = field(default_factory=list)
    goals: list[SpeedGoal] = field(default_factory=list)


@dataclass
class DataPlane:
    """All results of the data plane. storms: the workloads of the paged decoder.

    baseline: what the speeds were compared with, or why they were not compared.
    """

    device: str
    cases: list[MovedCase] = field(default_factory=list)
    num_combinations: int = 0
    faults: list[InjectedFault] = field(default_factory=list)
    storms: list[GeneratedWorkload] = field(default_factory=list)
    bandwidth: Bandwidth | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    baseline: str = ""
    notes: list[str] = field(default_factory=list)

    def caught_by_kind(self) -> list[tuple[str, int, int]]:
        """For each kind of fault: its name, the number of caught faults, and the number of planted faults."""
        caught = Counter(fault.kind for fault in self.faults if fault.is_caught)
        return [(kind, caught[kind], count) for kind, count in Counter(fault.kind for fault in self.faults).items()]

    @property
    def is_worse(self) -> bool:
        """Whether any speed is below the baseline by more than noise."""
        return any(comparison.is_worse for comparison in self.comparisons)
