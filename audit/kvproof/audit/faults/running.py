"""Judge faults in several processes, and what is known of a fault afterwards."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kvproof.audit.faults.edits import Fault
from kvproof.check.hosts.choice import opened
from kvproof.check.hosts.workers import UNORDERED


@dataclass(frozen=True)
class FaultOutcome:
    """The result of one fault. by: the column of the table that counts it. text: what was noticed.

    property_id: which is refuted, and num_operations: done by then, of all judges, where runs of a subject are judged.
    """

    fault: Fault
    by: str
    text: str = ""
    seconds: float = 0.0
    property_id: str = ""
    num_operations: int = 0


Judge = Callable[[Fault], FaultOutcome]


def judge_all(workers: str, judge: Judge, faults: Iterable[Fault]) -> Iterator[FaultOutcome]:
    """Judge every fault, with the workers that `--workers` names. Results come in the order in which they are done.

    Closing it ends the processes.
    """
    with opened(workers) as pool:
        assert pool is not None
        yield from pool.results(judge, faults, UNORDERED)
