"""How much a run does: the operations, states and examples of its searches.

The effort and the seed decide what a run does; the time that it takes does not. So the verdicts, findings and counts of
a run are the same on every machine, whatever else the machine does. A budget in seconds is a stop in addition. What it
leaves undone is reported, and a search that did less than its effort is not complete.

With a budget and no effort, a run does as much as fits into the time, so its counts depend on the machine.
"""

from dataclasses import dataclass

from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.errors import UsageError
from kvproof.check.search.result import UNLIMITED
from kvproof.check.subjects.own import PIPE
from kvproof.reports.result import EFFORTS

NORMAL = "normal"
OPERATIONS_MAX = 10**12
SLOWER_BY_PIPE = 10  # a program behind a pipe takes so many times longer for a call than a subject in Python
OPERATIONS_OF_A_ROUND = 50_000  # of the walk, for each round of Hypothesis


@dataclass(frozen=True)
class Effort:
    """How much each search does.

    name: as the user gave it; empty if only the budget limits the run. operations: of the random walk. rounds: of
    Hypothesis. transitions: of the exhaustive search of one scope. hunted_transitions: of all scopes of a hunt
    together. shrinking_operations: replayed to shorten one finding.
    """

    name: str
    operations: int
    rounds: int
    transitions: int
    hunted_transitions: int
    shrinking_operations: int

    @property
    def is_fixed(self) -> bool:
        """Whether a search that does less is incomplete."""
        return bool(self.name)


BY_BUDGET = Effort("", UNLIMITED, 20, UNLIMITED, UNLIMITED, UNLIMITED)


def effort_of(text: str | None, budget: float | None, subject: str = "") -> Effort:
    """The effort that `--effort` names; without it, `normal`, or what fits into the budget. Raises UsageError."""
    if text is None and budget is not None:
        return BY_BUDGET
    name = NORMAL if text is None else text
    if name in EFFORTS:
        return _effort(name, EFFORTS[name] // (SLOWER_BY_PIPE if subject.startswith(PIPE) else 1))
    number = name.replace("_", "").replace(",", "")
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= OPERATIONS_MAX):
        raise UsageError(
            f"--effort is {', '.join(EFFORTS)} or a number of operations from 1 to {OPERATIONS_MAX:,}; it is "
            f"{name!r}{did_you_mean(name, list(EFFORTS))}",
            "effort",
        )
    return _effort(str(int(number)), int(number))


def _effort(name: str, operations: int) -> Effort:
    return Effort(
        name,
        operations,
        rounds=max(1, operations // OPERATIONS_OF_A_ROUND),
        transitions=max(20_000, operations // 5),
        hunted_transitions=max(1_000, operations // 20),
        shrinking_operations=min(200_000, max(20_000, operations // 4)),
    )
