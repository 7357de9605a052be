"""Whether `kvproof prove` notices a weakening of the text: by its lints, by a proof that is lost, or by the pin.

Only what reads a changed function can change. If an invariant does, that is everything.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.planting import faulty_text, functions_changed
from kvproof.audit.mutation.operators import SYSTEMS
from kvproof.audit.mutation.prover import first_open, functions_of
from kvproof.audit.mutation.weakenings import contracts_of
from kvproof.models.obligation import Obligation
from kvproof.models.pin import Pin, pinned_lines, subject_of
from kvproof.models.proofs import contracts
from kvproof.models.proofs.contracts import contract_obligations
from kvproof.models.proofs.induction import INITIAL, THEOREM, Induction
from kvproof.models.proofs.lints import lints
from kvproof.models.translation.dependencies import reached
from kvproof.models.translation.text import specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.systems import BLOCK_MANAGERS


@dataclass(frozen=True)
class Group:
    """Obligations that are built together. subjects: each as `suite/subject`. build: makes them for an induction."""

    subjects: frozenset[str]
    build: Callable[[Induction], Iterable[Obligation]]


class TextJudges:
    """The judges of the text of a specification, which know the obligations of the unchanged one."""

    def __init__(self, suite: str = BLOCK_MANAGERS.name) -> None:
        self.plain, self.contracts = specification(SYSTEMS[suite]), contracts_of(suite)
        self.induction = Induction(Translator(text=self.plain))
        self.collected = self.induction.collected

    @cached_property
    def _pinned(self) -> list[str]:
        return pinned_lines()

    def lint(self, weakening: Fault) -> str:
        """A finding of a lint in the changed text; empty if there is none."""
        found = ((name, one) for name, findings in lints(faulty_text(weakening, self.plain)) for one in findings)
        return next((f"lint {name}: {one.text}" for name, one in found), "")

    def open_obligation(self, weakening: Fault) -> str:
        """The name of an obligation that is not proved for the changed text; empty if all are proved."""
        now = self._induction(weakening)
        for group in self._groups(weakening):
            before = {one.id: one for one in group.build(self.induction)}
            if name := first_open(before, list(group.build(now))):
                return name
        return ""

    def pin_difference(self, weakening: Fault) -> str:
        """The first difference between the obligations of the changed text and the pinned ones; empty if none."""
        now = self._induction(weakening)
        for group in self._groups(weakening):
            pin = Pin()
            for one in group.build(now):
                pin.add(one)
            subjects = group.subjects
            found = pin.differences(self._pinned, lambda name: subject_of(name) in subjects)  # noqa: B023  # used at once
            if difference := next(found, ""):
                return difference
        return ""

    def _induction(self, weakening: Fault) -> Induction:
        """The induction over the changed text. Invariants that are unchanged are shared with the plain text."""
        made = Induction(Translator(text=faulty_text(weakening, self.plain)))
        if not self._touches(weakening, (claim.name for claim in self.collected.invariants)):
            made.before = self.induction.before
            vars(made)["invariants"] = self.induction.invariants
        return made

    def _groups(self, weakening: Fault) -> Iterator[Group]:
        """What reads a changed function: the claims, the rules and the contracts."""
        claims = [claim.name for claim in (*self.collected.invariants, *self.collected.theorems)]
        is_all = self._touches(weakening, (claim.name for claim in self.collected.invariants))
        suite = self.induction.suite
        if self._touches(weakening, claims):
            of_claims = frozenset(f"{suite}/{name}" for name in (INITIAL, THEOREM, *claims))
            yield Group(of_claims, _claims)
        for rule in self.collected.rules:
            if is_all or self._touches(weakening, [rule.__name__]):
                yield Group(frozenset([f"{suite}/{rule.__name__}"]), partial(Induction.rule, rule=rule))
        for one in self.contracts:
            if is_all or self._touches(weakening, functions_of(one)):
                subjects = frozenset([f"{contracts.SUITE}/{one.name}"])
                yield Group(subjects, partial(contract_obligations, contract=one))

    def _touches(self, weakening: Fault, names: Iterable[str]) -> bool:
        return any(set(functions_changed(weakening)) & set(reached(self.plain, name)) for name in names)


def _claims(made: Induction) -> Iterator[Obligation]:
    yield from made.initial()
    yield from made.theorems()
    yield from made.claims_are_defined()
