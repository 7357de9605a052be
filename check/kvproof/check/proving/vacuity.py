"""The vacuity checks of a run: rules fire, contracts run to their end, and sets of hypotheses have models.

Rules and contracts are fired, and models looked for, in this process while the solvers answer what is left. The
hypotheses are those of the obligations that are asked.
"""

from collections.abc import Iterator

from kvproof.check.proving.checks import firing_check, hypotheses_check, hypotheses_result, run_check
from kvproof.check.proving.selection import Selection
from kvproof.models.counterexamples.instances import RULES
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.contract_instances import runs
from kvproof.models.proofs.satisfied import NativeStates
from kvproof.models.solvers.solving import ProofOutcome
from kvproof.models.translation.text import Text
from kvproof.models.vacuity import (
    FIRES,
    HYPOTHESES,
    RUNS,
    VACUITY,
    Hypotheses,
    firings,
    firings_of_stores,
)
from kvproof.reports.result import Check
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.store.machine import STORES

OF_HYPOTHESES = f"{VACUITY}/{HYPOTHESES}"
OF_STORES = [rule.__name__ for rule in STORES.collected.rules]


def vacuity_names() -> list[str]:
    """The names of these checks."""
    rules = (*RULES, *(_of_stores(name) for name in OF_STORES))
    return [VACUITY, *map(_fires, rules), *(_runs(one.name) for one in CONTRACTS), OF_HYPOTHESES]


def _fires(rule: str) -> str:
    return f"{VACUITY}/{FIRES}/{rule}"


def _of_stores(rule: str) -> str:
    return f"{STORES.name}/{rule}"


def _runs(contract: str) -> str:
    return f"{VACUITY}/{RUNS}/{contract}"


class Vacuity:
    """The checks that a selection asks for. text: replaces that of the specification of block managers."""

    def __init__(self, selection: Selection, text: Text | None) -> None:
        self.text = text
        self.fired: list[Check] = []
        self._rules = [name for name in RULES if selection.has(_fires(name))]
        self._of_stores = [name for name in OF_STORES if text is None and selection.has(_fires(_of_stores(name)))]
        self._contracts = [one.name for one in CONTRACTS if selection.has(_runs(one.name))]
        self._wants_models = selection.has(OF_HYPOTHESES)
        self._hypotheses: dict[str, Hypotheses] = {}

    def noted(self, obligations: Iterator[Obligation]) -> Iterator[Obligation]:
        """The same obligations. Before the first one with a set of hypotheses comes the search for a contradiction.

        Nothing pins the hypotheses of another text, so there it is searched whatever is selected.
        """
        for one in obligations:
            search = self._hypotheses.setdefault(one.suite, Hypotheses()).note(one)
            if search is not None and (self._wants_models or self.text is not None):
                yield search
            yield one

    def searched(self, outcome: ProofOutcome) -> None:
        """Note what the search for a contradiction has found."""
        self._hypotheses[outcome.obligation.suite].searched(outcome)

    def meanwhile(self) -> Iterator[None]:
        """Fire the rules and contracts, then look for models in native states, one after the other."""
        for one in self._firings():
            self.fired.append(one)
            yield
        if self._wants_models and any(sets.sets for sets in self._hypotheses.values()):
            states = NativeStates(self.text)
            for sets in self._hypotheses.values():
                yield from sets.look_in(states)

    def _firings(self) -> Iterator[Check]:
        yield from (firing_check(name, is_fired) for name, is_fired in firings(self._rules, self.text))
        for name, is_fired in firings_of_stores(self._of_stores):
            yield firing_check(_of_stores(name), is_fired)
        yield from (run_check(name, wrong, has_run) for name, wrong, has_run in runs(self._contracts, self.text))

    def checks_of_hypotheses(self) -> Iterator[Check]:
        """The check of each suite, when every search is decided; of a contradiction even if it is not selected."""
        for suite, sets in self._hypotheses.items():
            if self._wants_models:
                yield hypotheses_check(suite, sets)
            elif sets.contradictory:
                yield hypotheses_result(suite, sets)
