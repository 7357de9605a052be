"""What every walk has in common, of a manager or of a whole scheduler: what it reports, its limits, its words."""

from collections import Counter
from dataclasses import dataclass, field

from kvproof.check.finding import Finding
from kvproof.check.subject import Config
from kvproof.spec.trace import Operation

RUN_SECONDS_MAX = 20.0
NUM_REFUSED_CONFIGS_MAX = 1000
ADAPTERS = ((None, 0), ("X", 1), ("X", 2), ("Y", 3))  # ids are unique, names need not be
SALTS = (None, "X", "Y")  # one small alphabet for every string, so that any two can meet


@dataclass
class Walk:
    """What a walk found, and how much it did. With a finding: the configuration and the operations up to it."""

    finding: Finding | None = None
    config: Config = field(default_factory=Config)
    operations: list[Operation] = field(default_factory=list)
    num_operations: int = 0
    num_runs: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    witnesses: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    is_unsupported: bool = False
