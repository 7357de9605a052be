"""Units: obligations that are made together, such as those of one rule. A run makes only the units that it selects."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kvproof.models.concolic.refusal import EndsProof
from kvproof.models.proofs.obligation import Obligation


class NoProof(Exception):
    """A proof about code came to no end; the message says why. No such code can catch it."""


def every_subject(subject: str) -> bool:
    """Selects the units of all subjects."""
    return True


@dataclass(frozen=True, eq=False)
class Unit:
    """Obligations that are made together. name: of their subject, or of the suite. make: makes the obligations."""

    suite: str
    name: str
    make: Callable[[], Iterable[Obligation]]

    def obligations(self) -> list[Obligation]:
        """The obligations. Raises NotInLanguage and NoProof."""
        try:
            return list(self.make())
        except EndsProof as error:
            raise NoProof(f"{self.suite}/{self.name}: {error}") from error


def made(units: Iterable[Unit], wants: Callable[[str], bool] = every_subject) -> Iterator[Obligation]:
    """The obligations of the units whose names are wanted."""
    for unit in units:
        if wants(unit.name):
            yield from unit.obligations()
