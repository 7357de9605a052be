"""The result of a search: what it found, and how much it did. Walks, exhaustive searches and Hypothesis share it."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text import mapping

UNLIMITED = sys.maxsize  # operations, transitions or runs
MOVED_OF_A_KIND = 12  # steps whose lists are kept, for each choice of the lists that have a pair
REASONS_MAX, REASON_MAX = 50, 200  # different reasons of refusals that are kept apart; characters of one
OTHER_REASONS = "other reasons"
DRAWN_OFTEN = 10  # configurations of one size: fewer may all be refused for something else

# In the order of a worker, the blocks of each list: source, target, source, target, ... Ids count from 0 in each pool.
MovedLists = list[list[int]]


def is_step_of_pairs(lists: MovedLists) -> bool:
    """Whether these are the lists of one step, and each is a list of pairs."""
    return len(lists) == len(mapping.WORKER_ORDER) and all(len(blocks) % 2 == 0 for blocks in lists)


Lines = dict[str, list[int]]  # of code, by file; sorted


def lines_of_both(one: Lines, other: Lines) -> Lines:
    """The lines of either."""
    return {file: sorted({*one.get(file, ()), *other.get(file, ())}) for file in sorted({*one, *other})}


@dataclass
class SearchResult:
    """What a search found, and how much it did. A count that a search does not have stays zero.

    num_operations: operations done; in an exhaustive search, transitions. num_drawn: runs, and configurations that the
    subject refused. depth: operations on the longest of the shortest paths. kinds: operations done, by name. coverage:
    how often each rule fired and each witness was observed. notes: observations that are no failures, by property.
    refusals: why the subject refused configurations. vain: the known findings that came before the first operation of a
    run. sizes: how many configurations of each size were drawn (`worlds.sizes_of`). text: how the search ended, where
    its counts do not say it. claims, claims_left_out: of a search of the specification, by property, the claims that
    were evaluated in every state, and those that were not. num_past: operations at which a finding was that the search
    was told to go past. moved: the lists of pairs of some different steps of a block manager, by the names of those
    that have a pair. lines: of the subject's code that ran, by file; none before Python 3.12. What
    is cached runs once in a process, so they depend on the processes, and two equal results may have others.
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
    vain: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    moved: dict[str, list[MovedLists]] = field(default_factory=dict)
    lines: Lines = field(default_factory=dict, compare=False)

    @property
    def finding(self) -> Finding | None:
        """The finding of the counterexample, if there is one."""
        return None if self.counterexample is None else self.counterexample.finding

    @property
    def refusal(self) -> str:
        """The most frequent reason why a run did not begin, as a clause; empty if there is none."""
        reasons = self.refusals + self.vain
        return f"; the most frequent reason: {reasons.most_common(1)[0][0]}" if reasons else ""

    def lacking(self, planned: int) -> str:
        """How little a walk that ended by itself did of the planned operations; empty if it did them."""
        if self.num_operations >= min(planned, UNLIMITED):
            return ""
        return f"{self.num_operations:,} of {planned:,} operations; then no configuration gave a run{self.refusal}"

    def refuse(self, reason: str) -> None:
        """Count a configuration that the subject refused. Its text may be long, and different each time."""
        text = reason.partition("\n")[0][:REASON_MAX]
        self.refusals[text if text in self.refusals or len(self.refusals) < REASONS_MAX else OTHER_REASONS] += 1

    def keep_moved(self, lists: MovedLists) -> None:
        """Keep the lists of a step, if they are different ones and not many of their kind are kept."""
        kind = ", ".join(name for name, blocks in zip(mapping.WORKER_ORDER, lists, strict=True) if blocks)
        kept = self.moved.setdefault(kind, [])
        if len(kept) < MOVED_OF_A_KIND and lists not in kept:
            kept.append(lists)

    def sizes_missed(self) -> list[str]:
        """The sizes that were drawn often, and of which no run began because the subject refused each."""
        return [name for name, count in self.sizes.items() if count >= DRAWN_OFTEN and not self.coverage[name]]

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
        self.vain.update(later.vain)
        self.sizes.update(later.sizes)
        for lists in chain(*later.moved.values()):
            self.keep_moved(lists)
        self.lines = lines_of_both(self.lines, later.lines)
        self.counterexample = later.counterexample
