"""The suites of obligations, by name, in the order in which they are proved. Each is imported when it is asked for."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from kvproof.models.obligation import Obligation

SUITES: dict[str, str] = {  # name of the suite -> module:function that gives its obligations
    "specification": "kvproof.models.induction:obligations",
    "operations": "kvproof.models.operations:obligations",
    "arithmetic": "kvproof.models.arithmetic.theorems:obligations",
    "mapping": "kvproof.models.mapping.theorems:obligations",
    "refinement": "kvproof.models.refinement.suite:obligations",
    "concolic": "kvproof.models.concolic.suite:obligations",
}

REFUTATIONS: dict[str, str] = {  # name of the suite -> module:function that shows a refuted obligation by running code
    "concolic": "kvproof.models.concolic.suite:refutation_of",
}


def obligations_of(suite: str) -> Iterable[Obligation]:
    """The obligations of one suite, made as they are asked for."""
    made: Iterable[Obligation] = _named(SUITES[suite])()
    return made


def refutation_of(obligation: Obligation) -> str:
    """What running the code shows of a refuted obligation; nothing where the suite runs none."""
    name = REFUTATIONS.get(obligation.suite)
    return str(_named(name)(obligation)) if name else ""


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def all_obligations() -> Iterator[Obligation]:
    """Every obligation there is."""
    for suite in SUITES:
        yield from obligations_of(suite)
