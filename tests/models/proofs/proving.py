"""What is done with the obligations of some suites: they are compared with the pin, and proved or sampled.

`make proofs-record` writes the record after both solvers have proved everything that is pinned. While the obligations
of today are those of the pin, and the solver is that of the record, a sample of them is proved again.
"""

from collections import defaultdict
from collections.abc import Container, Iterable
from pathlib import Path

import msgspec
import pytest
import z3

from kvproof.check.proving.questions import deciding
from kvproof.models import proof_record
from kvproof.models.obligation import Obligation
from kvproof.models.pin import Pin, pinned_lines
from kvproof.models.solvers.solver_effort import Efforts, efforts, worse
from kvproof.models.solvers.solving import ProofOutcome, Settings, decide
from kvproof.spec.verdict import Verdict

EFFORTS = Path(__file__).with_name("efforts.json")
SOLVER = f"z3 {z3.get_version_string()}"
SAMPLED = 20  # of so many obligations that are recorded as proved, one is proved again


def differences(obligations: Iterable[Obligation], suites: Container[str]) -> list[str]:
    """What differs between all obligations of these suites and the pin."""
    pin = Pin()
    for one in obligations:
        pin.add(one)
    return list(pin.differences(pinned_lines(suites)))


def proved(obligations: list[Obligation]) -> list[ProofOutcome]:
    """The solver's answers to a sample of the obligations, or to all of them if the record is not about the pin."""
    return [decide(one) for one in sample(obligations)] if is_recorded() else decided(obligations)


def decided(obligations: Iterable[Obligation], seed: int = Settings().seed) -> list[ProofOutcome]:
    with deciding("2") as decide_all:
        return list(decide_all(obligations, Settings(seed=seed, is_alone=True)))


def is_recorded() -> bool:
    """Whether the record is about proofs of what is pinned, by this version of the solver."""
    record = msgspec.json.decode(proof_record.FILE.read_bytes(), type=proof_record.ProofRecord)
    return record.obligations == proof_record.digest_of_pin() and SOLVER in record.solvers


def sample(obligations: Iterable[Obligation]) -> list[Obligation]:
    """One in `SAMPLED` obligations of each suite, of those that need a solver and of the others."""
    groups = defaultdict[tuple[str, bool], list[Obligation]](list)
    for one in obligations:
        groups[one.suite, one.is_trivial()].append(one)
    return [one for group in groups.values() for one in group[::SAMPLED]]


def not_proved(outcomes: Iterable[ProofOutcome]) -> list[str]:
    return [one.obligation.id for one in outcomes if one.answer.verdict is not Verdict.PROVED]


def baseline() -> Efforts:
    """The efforts that were recorded."""
    return msgspec.json.decode(EFFORTS.read_bytes(), type=Efforts)


def grown(outcomes: Iterable[ProofOutcome]) -> list[str]:
    """The proofs that take half as much effort again as in the baseline."""
    before = baseline()
    if before.solver != SOLVER:
        pytest.skip(f"the baseline was written with {before.solver}, this is {SOLVER}")
    assert before.seed == Settings().seed
    assert before.subjects.keys() & efforts(outcomes, SOLVER, before.seed).subjects.keys() != set()
    return list(worse(before, outcomes))
