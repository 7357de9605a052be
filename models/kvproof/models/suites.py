"""The suites of obligations, by name, in the order in which they are proved. A suite is imported when it is used."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kvproof.models.obligation import Obligation, Unit, made
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.text import Text

SUITES: dict[str, str] = {  # name of the suite -> module:function that yields its units
    "specification": "kvproof.models.proofs.induction:units",
    "operations": "kvproof.models.proofs.contracts:units",
    "store": "kvproof.models.proofs.stores:units",
    "arithmetic": "kvproof.models.arithmetic:units",
    "mapping": "kvproof.models.mapping:units",
    "refinement": "kvproof.models.refinement:units",
    "concolic": "kvproof.models.concolic:units",
}

OF_A_TEXT = ("specification", "operations")  # the suites about the text of block managers, which can be replaced
OF_TEXTS = (*OF_A_TEXT, "store")  # the suites about the text of a specification

BOUNDED = {"concolic": "objects of at most four blocks"}  # every other suite is proved for every size

OF_OPERATIONS = "operations"
OF_CODE = "concolic"
REFUTATION_SECONDS = 20.0


@dataclass(frozen=True)
class Refutation:
    """A run that breaks an obligation. text: lines for people. data: the states and arguments, if there are any."""

    text: str
    data: dict[str, Any] | None = None


def units_of(suite: str, text: Text | None = None) -> Iterable[Unit]:
    """The units of one suite. text: replaces the text of the specification, only for suites in `OF_A_TEXT`."""
    found: Iterable[Unit] = _named(SUITES[suite])(*([] if text is None else [text]))
    return found


def obligations_of(suite: str) -> Iterator[Obligation]:
    """The obligations of one suite."""
    return made(units_of(suite))


def refutation_of(
    obligation: Obligation, text: Text | None = None, allowance: Allowance | None = None
) -> Refutation | None:
    """Search for a run that breaks an obligation. None if none is found or nothing can be run.

    allowance: the effort of the search, by default that of 20 seconds on an idle machine.
    """
    if obligation.suite == OF_CODE:
        report = str(_named("kvproof.models.concolic:refutation_of")(obligation))
        return Refutation(report) if report else None
    if not is_searched(obligation):
        return None
    from kvproof.models.counterexamples.contracts import broken_contract
    from kvproof.models.counterexamples.picture import contract_data, contract_lines, data, lines
    from kvproof.models.counterexamples.search import counterexample

    allowance = allowance or Allowance(REFUTATION_SECONDS)
    if obligation.suite == OF_OPERATIONS:
        broken = broken_contract(obligation, text, allowance)
        return None if broken is None else Refutation("\n".join(contract_lines(broken)), contract_data(broken))
    found = counterexample(obligation, text, allowance)
    return None if found is None else Refutation("\n".join(lines(found)), data(found))


def is_searched(obligation: Obligation) -> bool:
    """Whether `refutation_of` searches small instances of the specification for a counterexample to this obligation."""
    from kvproof.models.counterexamples.contracts import contract_case
    from kvproof.models.counterexamples.instances import case_of

    return (contract_case if obligation.suite == OF_OPERATIONS else case_of)(obligation) is not None


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
