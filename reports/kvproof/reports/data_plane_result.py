"""What the data plane of one machine did, as a part of the result document: moved, proven, caught, and how fast.

Speeds are in 1e9 bytes of payload a second: a byte that is copied once counts once, though memory reads and writes it.
Every speed has beside it the ratio to a plain copy of as many bytes that the same machine made in the same round, and
it is this ratio that is compared between runs.
"""

from dataclasses import dataclass, field


@dataclass
class Spread:
    """A quantity over the rounds of a run: the median, and what 5 and 95 of 100 rounds were below."""

    median: float
    p5: float
    p95: float


@dataclass
class MovedCase:
    """One executor on one layout, element type and kind of mapping.

    status: passed, failed or skipped. text: why it was skipped, or what is wrong. origins: of the first wrong rows,
    where their bytes come from. histogram: wrong rows by class. bytes_proven counts both pools, guards included, at
    each comparison.
    """

    executor: str
    layout: str
    dtype: str
    mapping: str
    stream: str
    status: str
    num_pairs: int = 0
    bytes_moved: int = 0
    bytes_proven: int = 0
    seconds: float = 0.0
    text: str = ""
    origins: list[str] = field(default_factory=list)
    histogram: dict[str, int] = field(default_factory=dict)


@dataclass
class InjectedFault:
    """A fault that was planted into this very run, and what was said of it. kind: bytes, race, mapping, end to end."""

    kind: str
    name: str
    is_caught: bool
    text: str


@dataclass
class GeneratedStorm:
    """A load under which text was generated in paged memory. differences: tokens that it has not without pages."""

    name: str
    num_sequences: int
    num_tokens: int
    num_steps: int
    differences: list[str]
    met: dict[str, int]


@dataclass
class Speed:
    """How fast something was.

    name: an executor, or a way to compare. mapping: what it did. reference: the plain copy it is measured against.
    traffic_bytes: read and written together. noise: three standard errors of the median ratio, relative.
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
    """What an executor costs the host for each pair of a mapping, in microseconds."""

    executor: str
    mapping: str
    num_pairs: int
    microseconds_per_pair: Spread


@dataclass
class SpeedGoal:
    """What a speed should be, what was measured, and whether that is enough. is_met: None where it was not measured."""

    name: str
    wanted: str
    measured: str
    is_met: bool | None


@dataclass
class Comparison:
    """One ratio against that of the baseline. change: relative, below 0 is slower. band: what is still noise."""

    name: str
    mapping: str
    before: float
    now: float
    change: float
    band: float
    is_worse: bool


@dataclass
class Bandwidth:
    """The speeds of a run. Two runs are compared if they agree in everything up to `block_bytes`.

    references: plain copies of as many bytes as are moved. busy: the share of the time in which this process had its
    core; below 0.9 the machine was doing other things. drift: how far two measurements of one plain copy in the same
    rounds differ, relative. skipped: what was not measured, and why. goals: of kvproof's own parts, in main memory.
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
    """Everything about the bytes. baseline: what the comparison was made with, or why none was made."""

    device: str
    cases: list[MovedCase] = field(default_factory=list)
    num_combinations: int = 0
    faults: list[InjectedFault] = field(default_factory=list)
    storms: list[GeneratedStorm] = field(default_factory=list)
    bandwidth: Bandwidth | None = None
    comparisons: list[Comparison] = field(default_factory=list)
    baseline: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def is_worse(self) -> bool:
        """Whether something is slower than the baseline by more than noise."""
        return any(comparison.is_worse for comparison in self.comparisons)
