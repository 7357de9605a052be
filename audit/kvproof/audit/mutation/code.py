"""The first obligation about kvproof's own code that is not proved: what a fault of a proved method must leave open.

The faults are planted in a copy of `impl/`. There this module is run as a program: it makes and asks the obligations of
the suites about code, and prints the first one that is not proved. Its arguments are the suites; by default all.
"""

import sys

from kvproof.models.solvers.solving import IncrementalSolver, Settings
from kvproof.models.suites import obligations_of

SUITES_OF_CODE = ("refinement", "concolic")
EFFORT = 2.0  # of `Settings.by_effort`; each obligation of the code as it is takes a hundredth of it


def first_open(suites: tuple[str, ...]) -> str:
    """The first obligation about code that is not proved, with its verdict; empty if all are proved."""
    solver, settings = IncrementalSolver(), Settings.by_effort(EFFORT)
    for suite in suites:
        for one in obligations_of(suite):
            if one.is_trivial():
                continue
            verdict = solver(*one.question(), settings).verdict.value
            if verdict != "proved":
                return f"{one.id} ({verdict})"
    return ""


if __name__ == "__main__":
    print(first_open(tuple(sys.argv[1:]) or SUITES_OF_CODE))
