"""Faults of kvproof's own code: changes of a proved method after which an obligation about it must be open.

They are planted in a copy of `impl/`, and the obligations of the suites about code are made and asked there. A fault
that no run of the manager can show has the reason beside it; then it is equivalent, and all obligations are proved.

Run as a program, this module prints the first obligation about its own `impl/` that is not proved. Its arguments are
the suites that are asked; by default all about code.
"""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from kvproof.audit.mutation.machinery import Plant
from kvproof.models.solvers.solving import IncrementalSolver, Settings
from kvproof.models.suites import obligations_of

CODE = "code"
FOLDER = "impl/kvproof/impl"
FILE = Path(__file__).with_name("code_faults.toml")
SUITES_OF_CODE = ("refinement", "concolic")
EFFORT = 2.0  # of `Settings.by_effort`; each obligation of the code as it is takes a hundredth of it


@cache
def code_faults() -> tuple[Plant, ...]:
    """Every fault of the file beside this module, in its order."""
    return tuple(_faults())


def _faults() -> Iterator[Plant]:
    methods = msgspec.toml.decode(FILE.read_bytes(), type=dict[str, dict[str, dict[str, list[str]]]])
    for file, by_method in methods.items():
        for method, faults in by_method.items():
            for name, (old, new, *reason) in faults.items():
                full = f"{file.removesuffix('.py')}.{method}: {name}"
                yield Plant(full, f"{FOLDER}/{file}", old, new, kind=CODE, equivalent="".join(reason))


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
