"""What a subject answers in no order: free ids, blocks that it keeps, pairs of a mapping, entries of a store.

The protocol promises no order of these. A manager may sort its free list when it is asked, or keep its tables in a hash
map whose order differs from process to process. So two answers are compared with these parts sorted. The order of a
table, of the chunks of a step and of the ids that a pool gives is a part of the answer.
"""

from typing import Any

from kvproof.check.protocol.manager import Observation, Reserved
from kvproof.check.protocol.scheduler import ScheduledStep
from kvproof.check.protocol.store import Staged, StoreObservation

SWAPS = ("swap_out", "swap_in")  # calls that answer with the pairs of a mapping
EVICTIONS = ("evict",)  # and with keys


def unordered(answer: Any, call: str = "") -> Any:
    """The answer of a call, with every part sorted whose order says nothing. Raises TypeError for a wrong type."""
    match answer:
        case Observation() | StoreObservation() if answer.free_ids is not None:
            answer = answer._replace(free_ids=sorted(answer.free_ids))
    match answer:
        case Observation():
            return answer._replace(reserved=tuple(sorted(answer.reserved)))
        case StoreObservation():
            refs = None if answer.refs is None else dict(sorted(answer.refs.items()))
            return answer._replace(entries=dict(sorted(answer.entries.items())), refs=refs)
        case Staged() if answer.evicted is not None:
            return answer._replace(evicted=sorted(answer.evicted))
        case Reserved():
            return Reserved(sorted(answer.copies))
        case ScheduledStep():
            mapping = {name: sorted(getattr(answer, name)) for name in ("swap_in", "swap_out", "copies")}
            return answer._replace(**mapping)
        case list() | tuple() if call in (*SWAPS, *EVICTIONS):
            return sorted(answer)
    return answer
