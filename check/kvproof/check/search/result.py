"""The result of a search: what it found, and how much it did. Walks, exhaustive searches and Hypothesis share it."""

import sys
from collections import Counter
from dataclasses import dataclass, field

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding

UNLIMITED = sys.maxsize  # operations, transitions or runs


@dataclass
class SearchResult:
    """What a search found, and how much it did. A count that a search does not have stays zero.

    num_operations: operations done; in an exhaustive search, transitions. num_drawn: runs, and configurations that the
    subject refused. depth: operations on the longest of the shortest paths. kinds: operations done, by name. coverage:
    how often each rule fired and each witness was observed. notes: observations that are no failures, by property.
    refusals: why the subject refused configurations before the first run. text: how the search ended, where its counts
    do not say it. claims, claims_left_out: of a search of the specification, by property, the claims that were
    evaluated in every state, and those that were not. num_past: operations at which a finding was that the search was
    told to go past.
    """

    counterexample: Counterexample | None = None
    num_operations: int = 0
    num_runs: int = 0
    num_drawn: int = 0
    num_states: int = 0
    depth: int = 0
    is_exhausted: bool = False
    is_unsupported: bool = False
    seconds: float = 0.0
    text: str = ""
    kinds: Counter[str] = field(default_factory=Counter)
    coverage: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    claims: dict[str, list[str]] = field(default_factory=dict)
    claims_left_out: dict[str, list[str]] = field(default_factory=dict)
    num_past: int = 0

    @property
    def finding(self) -> Finding | None:
        """The finding of the counterexample, if there is one."""
        return None if self.counterexample is None else self.counterexample.finding

    @property
    def refusal(self) -> str:
        """The most frequent reason why a configuration was refused, as a clause; empty if there is none."""
        return f"; the most frequent reason: {self.refusals.most_common(1)[0][0]}" if self.refusals else ""

    def continue_with(self, later: "SearchResult") -> None:
        """Add the counts of a search that continued this one, and take over its counterexample."""
        self.num_operations += later.num_operations
        self.num_runs += later.num_runs
        self.num_drawn += later.num_drawn
        self.num_past += later.num_past
        self.seconds += later.seconds
        self.is_unsupported = later.is_unsupported
        self.kinds.update(later.kinds)
        self.coverage.update(later.coverage)
        self.notes.update(later.notes)
        self.refusals.update(later.refusals)
        self.counterexample = later.counterexample
