"""The suites of obligations, by name, in the order in which they are proved. Each is imported when it is asked for."""

from collections.abc import Iterable, Iterator
from importlib import import_module

from kvproof.models.obligation import Obligation

SUITES: dict[str, str] = {  # name of the suite -> module:function that gives its obligations
    "specification": "kvproof.models.induction:obligations",
    "operations": "kvproof.models.operations:obligations",
    "arithmetic": "kvproof.models.arithmetic.theorems:obligations",
    "mapping": "kvproof.models.mapping.theorems:obligations",
    "refinement": "kvproof.models.refinement.suite:obligations",
    "concolic": "kvproof.models.concolic.suite:obligations",
}


def obligations_of(suite: str) -> Iterable[Obligation]:
    """The obligations of one suite, made as they are asked for."""
    module, _, function = SUITES[suite].partition(":")
    made: Iterable[Obligation] = getattr(import_module(module), function)()
    return made


def all_obligations() -> Iterator[Obligation]:
    """Every obligation there is."""
    for suite in SUITES:
        yield from obligations_of(suite)
