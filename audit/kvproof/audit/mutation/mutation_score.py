"""The judge that notices each planted fault: a proof, the explorer, the pin, the cross-check, a test, or none.

What a proof does not notice of a changed rule may be the same rule in other words, which is proved as well; or a rule
that forbids what it need not, or allows what does no harm, which the explorer notices by what can be reached. A claim
that asks less is noticed by the pin. Anything else is alive: no judge watches what was changed.
"""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from time import monotonic
from types import FrameType

from kvproof.audit.mutation.code import CODE
from kvproof.audit.mutation.handmade import HANDMADE
from kvproof.audit.mutation.machinery import Plant
from kvproof.audit.mutation.mutants import noticed
from kvproof.audit.mutation.operators import Mutant
from kvproof.audit.mutation.planting import CROSSCHECK, NotJudged, pin_notices, proof_notices, suite_notices
from kvproof.audit.mutation.prover import MutantProver
from kvproof.audit.mutation.text_judges import TextJudges
from kvproof.audit.mutation.weakenings import GUARDS, Weakening
from kvproof.check.hosts.pool import LocalWorkers
from kvproof.check.hosts.workers import UNORDERED
from kvproof.models.translation.errors import NotInLanguage

Fault = Mutant | Weakening | Plant

PROVER, EXPLORER, PIN, CROSS_CHECK, SUITE = "prover", "explorer", "pin", "cross-check", "suite"
JUDGES = (PROVER, EXPLORER, PIN, CROSS_CHECK, SUITE)
EQUIVALENT, ALIVE = "equivalent", "alive"
COLUMNS = (*JUDGES, EQUIVALENT, ALIVE)
NO_TEXT = "the changed text is not in the language of the specification"


@dataclass(frozen=True)
class MutantResult:
    """The result of one fault. by: one of `COLUMNS`. evidence: the obligation that broke, or what was noticed."""

    mutant: Fault
    by: str
    evidence: str = ""
    seconds: float = 0.0


def judge_all(mutants: Iterable[Fault], judges: tuple[str, ...], num_processes: int) -> Iterator[MutantResult]:
    """Judge every mutant; results come in the order in which they are done. Closing it ends the processes."""
    asked = ((mutant, judges) for mutant in mutants)
    with closing(LocalWorkers(num_processes)) as workers:
        yield from workers.results(_judged, asked, UNORDERED)


def _judged(asked: tuple[Fault, tuple[str, ...]]) -> MutantResult:
    """Judge one mutant in a process of the pool. If that is ended meanwhile, it ends the process of a test before.

    At any other time SIGTERM ends the process at once. An exception in its exit handlers would be printed.
    """
    signal.signal(signal.SIGTERM, _leave if isinstance(asked[0], Plant) else signal.SIG_DFL)
    try:
        return judged(*asked)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def judged(mutant: Fault, judges: tuple[str, ...] = JUDGES) -> MutantResult:
    """Ask one judge after the other, until one notices the mutant or shows that there is nothing to notice."""
    began = monotonic()
    by, evidence = _verdict(mutant, judges)
    return MutantResult(mutant, by, evidence, monotonic() - began)


def _verdict(fault: Fault, judges: tuple[str, ...]) -> tuple[str, str]:
    if isinstance(fault, Mutant):
        return _mutant_verdict(fault, judges)
    try:
        found = ((judge, ask()) for judge, ask in _judges_of(fault) if judge in judges)
        return next((one for one in found if one[1]), _unnoticed(fault, judges))
    except NotInLanguage:
        return PROVER, NO_TEXT
    except NotJudged as error:
        return ALIVE, str(error)


def _unnoticed(fault: Weakening | Plant, judges: tuple[str, ...]) -> tuple[str, str]:
    """The verdict on a fault that no judge noticed. Of faults of code, some cannot be noticed."""
    reason = fault.equivalent if isinstance(fault, Plant) and PROVER in judges else ""
    return (EQUIVALENT, reason) if reason else (ALIVE, "")


def _mutant_verdict(mutant: Mutant, judges: tuple[str, ...]) -> tuple[str, str]:
    if PROVER in judges:
        try:
            if obligation := _prover(mutant.suite).killer(mutant):
                return PROVER, obligation
            if _prover(mutant.suite).is_equivalent(mutant):
                return EQUIVALENT, "proved to be enabled alike and to leave every real field the same"
        except NotInLanguage:
            return PROVER, NO_TEXT
    if EXPLORER in judges and (found := noticed(mutant)):
        return EXPLORER, found
    return ALIVE, ""


def _judges_of(fault: Weakening | Plant) -> Iterator[tuple[str, Callable[[], str]]]:
    """The judges that may notice a fault, in the order in which they are asked.

    Proofs cannot notice that a claim asks less or that a guard forbids more, so they are asked about those faults only
    that were written by hand.
    """
    if isinstance(fault, Plant) and fault.kind == CODE:
        yield PROVER, partial(proof_notices, fault)
        return
    if isinstance(fault, Plant):
        if fault.is_compared:
            yield CROSS_CHECK, partial(suite_notices, fault, (CROSSCHECK,))
        yield (SUITE, partial(suite_notices, fault, fault.tests)) if fault.tests else (PIN, partial(pin_notices, fault))
        return
    if fault.kind == HANDMADE:
        yield PROVER, partial(_text_judges(fault.suite).lint, fault)
        yield PROVER, partial(_text_judges(fault.suite).open_obligation, fault)
    if fault.kind in (HANDMADE, GUARDS):
        yield EXPLORER, partial(noticed, fault)
    yield PIN, partial(_text_judges(fault.suite).pin_difference, fault)


@cache
def _prover(suite: str) -> MutantProver:
    return MutantProver(suite)


@cache
def _text_judges(suite: str) -> TextJudges:
    return TextJudges(suite)
