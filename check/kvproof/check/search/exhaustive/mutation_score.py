"""The judge that notices each mutant of the rules: a proof, or else the explorer, or none.

What a proof does not notice may be the same rule in other words, which is proved as well; or a rule that forbids what
it need not, or allows what does no harm, which the explorer notices by what can be reached. Anything else is alive: no
judge watches what was changed.
"""

import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from time import monotonic

from kvproof.check.search.exhaustive.mutants import noticed
from kvproof.models.mutation.operators import Mutant
from kvproof.models.mutation.prover import MutantProver
from kvproof.models.translation.errors import NotInLanguage

PROVER, EXPLORER = "prover", "explorer"
JUDGES = (PROVER, EXPLORER)
EQUIVALENT, ALIVE = "equivalent", "alive"
COLUMNS = (*JUDGES, EQUIVALENT, ALIVE)
NO_TEXT = "the changed text is not in the language of the specification"


@dataclass(frozen=True)
class MutantResult:
    """The result of one mutant. by: one of `COLUMNS`. evidence: the obligation that broke, or what was noticed."""

    mutant: Mutant
    by: str
    evidence: str = ""
    seconds: float = 0.0


def judge_all(mutants: Iterable[Mutant], judges: tuple[str, ...], num_processes: int) -> Iterator[MutantResult]:
    """Judge every mutant; results come in the order in which they are done."""
    asked = ((mutant, judges) for mutant in mutants)
    with multiprocessing.get_context("spawn").Pool(num_processes) as pool:
        yield from pool.imap_unordered(_judged, asked)


def _judged(asked: tuple[Mutant, tuple[str, ...]]) -> MutantResult:
    return judged(*asked)


def judged(mutant: Mutant, judges: tuple[str, ...] = JUDGES) -> MutantResult:
    """Ask one judge after the other, until one notices the mutant or shows that there is nothing to notice."""
    began = monotonic()
    by, evidence = _verdict(mutant, judges)
    return MutantResult(mutant, by, evidence, monotonic() - began)


def _verdict(mutant: Mutant, judges: tuple[str, ...]) -> tuple[str, str]:
    if PROVER in judges:
        try:
            if obligation := _prover().killer(mutant):
                return PROVER, obligation
            if _prover().is_equivalent(mutant):
                return EQUIVALENT, "proved to be enabled alike and to leave every real field the same"
        except NotInLanguage:
            return PROVER, NO_TEXT
    if EXPLORER in judges and (found := noticed(mutant)):
        return EXPLORER, found
    return ALIVE, ""


@cache
def _prover() -> MutantProver:
    return MutantProver()
