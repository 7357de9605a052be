"""Units: obligations that are made together, from a part of the text of a specification.

A unit can read nothing of the text but its part (`Functions.reading_only`). So its obligations are the same as long as
that part, the heads of all functions and the prover stay the same.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from kvproof.models.concolic.refusal import EndsProof
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.translation.dependencies import part_of
from kvproof.models.translation.text import Text


class NoProof(Exception):
    """A proof about code came to no end; the message says why. No such code can catch it."""


def every_subject(subject: str) -> bool:
    """Selects the units of all subjects."""
    return True


@dataclass(frozen=True, eq=False)
class Unit:
    """Obligations that are made together.

    name: of their subject, or of the suite. roots: the functions from which the part of the text is reached. make:
    makes the obligations.
    """

    suite: str
    name: str
    text: Text
    roots: tuple[str, ...]
    make: Callable[[], Iterable[Obligation]]

    @cached_property
    def part(self) -> frozenset[str]:
        """The names of the functions that can be read."""
        return part_of(self.text, self.roots)

    def obligations(self) -> list[Obligation]:
        """The obligations. Raises NotInLanguage, NoProof, and NotInPart if more is read than the part."""
        with self.text.functions.reading_only(self.part):
            try:
                return list(self.make())
            except EndsProof as error:
                raise NoProof(f"{self.suite}/{self.name}: {error}") from error


def made(units: Iterable[Unit], wants: Callable[[str], bool] = every_subject) -> Iterator[Obligation]:
    """The obligations of the units whose names are wanted."""
    for unit in units:
        if wants(unit.name):
            yield from unit.obligations()
