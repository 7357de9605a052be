"""The judge that notices each planted fault: a proof, the explorer, the pin, the cross-check, a test, or none.

What a proof does not notice of a changed rule may be the same rule in other words, which is proved as well; or a rule
that forbids what it need not, or allows what does no harm, which the explorer notices by what can be reached. A claim
that asks less is noticed by the pin. Anything else is alive: no judge watches what was changed.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from time import monotonic

from kvproof.audit.faults.catalogue import CROSS_CHECK, EXPLORER, HANDMADE, PIN, PROVER
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.running import FaultOutcome
from kvproof.audit.mutation.mutants import noticed
from kvproof.audit.mutation.operators import is_mutant
from kvproof.audit.mutation.process_judges import CROSSCHECK, NotJudged, pin_notices, proof_notices, suite_notices
from kvproof.audit.mutation.prover import MutantProver
from kvproof.audit.mutation.text_judges import TextJudges
from kvproof.models.translation.errors import NotInLanguage

SUITE = "suite"  # the tests that a fault names
JUDGES = (PROVER, EXPLORER, PIN, CROSS_CHECK, SUITE)
EQUIVALENT, ALIVE = "equivalent", "alive"
COLUMNS = (*JUDGES, EQUIVALENT, ALIVE)
NO_TEXT = "the changed text is not in the language of the specification"


def judged(fault: Fault, judges: tuple[str, ...] = JUDGES) -> FaultOutcome:
    """Ask one judge after the other, until one notices the fault or shows that there is nothing to notice."""
    began = monotonic()
    by, text = _verdict(fault, judges)
    return FaultOutcome(fault, by, text, monotonic() - began)


def _verdict(fault: Fault, judges: tuple[str, ...]) -> tuple[str, str]:
    try:
        for judge, ask in _judges_of(fault):
            if judge not in judges:
                continue
            if found := ask():
                return judge, found
            if judge == PROVER and (reason := _equivalent(fault)):
                return EQUIVALENT, reason
    except NotInLanguage:
        return PROVER, NO_TEXT
    except NotJudged as error:
        return ALIVE, str(error)
    return ALIVE, ""


def _equivalent(fault: Fault) -> str:
    """Why nobody can notice a fault after which all is proved; empty if somebody may."""
    if is_mutant(fault) and _prover(fault.subject).is_equivalent(fault):
        return "proved to be enabled alike and to leave every real field the same"
    return fault.equivalent


def _judges_of(fault: Fault) -> Iterator[tuple[str, Callable[[], str]]]:
    """The judges that may notice a fault, in the order in which they are asked.

    Proofs cannot notice that a claim asks less or that a guard forbids more, so they are asked about those faults only
    that were written by hand.
    """
    in_text = not fault.plant[0].file
    for finder in fault.found_by:
        if finder == PROVER and is_mutant(fault):
            yield PROVER, partial(_prover(fault.subject).killer, fault)
        elif finder == PROVER and fault.kind == HANDMADE:
            yield PROVER, partial(_text_judges(fault.subject).lint, fault)
            yield PROVER, partial(_text_judges(fault.subject).open_obligation, fault)
        elif finder == PROVER:
            yield PROVER, partial(proof_notices, fault)
        elif finder == EXPLORER:
            yield EXPLORER, partial(noticed, fault)
        elif finder == PIN:
            yield PIN, partial(_text_judges(fault.subject).pin_difference if in_text else pin_notices, fault)
        elif finder == CROSS_CHECK:
            yield CROSS_CHECK, partial(suite_notices, fault, (CROSSCHECK,))
        else:
            yield SUITE, partial(suite_notices, fault, (finder,))


@cache
def _prover(suite: str) -> MutantProver:
    return MutantProver(suite)


@cache
def _text_judges(suite: str) -> TextJudges:
    return TextJudges(suite)
