"""What a manager moves in its random walk, for the judge of the data plane.

That judge looks at the walk of the walker after it has ended. If there was none, it lets the first unit of the walk be
done. What refutes a run of that unit is no finding of the judge: later runs avoid it, and if no block moved before it,
the judge says only that it has nothing to move.
"""

import time
from collections.abc import Callable
from contextlib import closing
from itertools import chain

from kvproof.check.hunting.findings import Saving, features_of_both
from kvproof.check.hunting.head import Head
from kvproof.check.hunting.unit import Walk
from kvproof.check.runs.data_plane_stage import Moved
from kvproof.check.runs.session import StageBudget
from kvproof.check.runs.verdicts import NO_TIME, NOTHING_ACCEPTED

WALKING_SHARE = 0.3  # of the time of the judge, for a walk of its own


def moved_in(walk: Walk, saving: Saving, head: Head) -> Callable[[StageBudget], Moved]:
    """What the subject moves in this walk, once it is asked for."""

    def moved(budget: StageBudget) -> Moved:
        if not walk.total.num_drawn:
            head.on_progress = lambda count: None
            with closing(head.walk_on(walk, time.monotonic() + WALKING_SHARE * budget.seconds)) as units:
                for done in units:
                    if walk.index:
                        break
                    if (found := done.counterexample) is not None:
                        walk.avoid(found, features_of_both(found, found))
        lists = list(chain(*walk.total.moved.values()))
        return Moved(lists, *_lacking(walk, saving))

    return moved


def _lacking(walk: Walk, saving: Saving) -> tuple[str, bool]:
    """Why the walk may have moved nothing, and whether only known findings are the reason."""
    if walk.found:
        names = ", ".join(dict.fromkeys(found.finding.property for found in walk.found))
        are_known = all(map(saving.is_excused, walk.found))
        what = "known findings" if are_known else "findings"
        return f"{what} ({names}) ended the runs of {saving.subject} before they moved a block", are_known
    if walk.total.is_unsupported:
        return NOTHING_ACCEPTED + walk.total.refusal, False
    nothing = f"{saving.subject} emitted no swaps and no copies in lists whose order does not matter"
    return (nothing if walk.total.num_operations else NO_TIME), False
