"""Which judge of `kvproof verify` finds a fault, and after how many operations.

The searches of a subject are done one after the other, as a run of `kvproof verify` does them: the random walk, then
the small scopes, then Hypothesis. Effort is counted in operations, not in seconds, so that the answer does not depend
on the machine: `EFFORTS` is about what a run with the default budget does on two idle cores. The proofs and the search
of the specification do not see the manager. A fault of what moves bytes is judged as `kvproof device` does (`bytes`).

An engine may have faults of its own. So a run that refutes the faulty copy is repeated on the original, and if it is
refuted there by the same property, the search continues. What shows the fault may be of the same kind, so the search
goes on without this kind only after some findings of it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import monotonic

from kvproof.audit.faults.bytes_judge import EXECUTORS, NotRun, compare_bytes
from kvproof.audit.faults.edits import Fault, NotPlanted, release_of
from kvproof.audit.faults.planting import copied, planted
from kvproof.audit.faults.running import FaultOutcome
from kvproof.check.hunting.head import here
from kvproof.check.hunting.unit import Judged, Walk
from kvproof.check.isolation.remote_search import explore
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.level import MANAGER
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects import UnknownSubject

WALK, SCOPES, HYPOTHESIS, BYTES = "walk", "scopes", "hypothesis", "bytes"
NOBODY, EQUIVALENT, BLIND_SPOT, NOT_JUDGED = "nobody", "equivalent", "blind spot", "not judged"
JUDGES = (WALK, SCOPES, HYPOTHESIS, BYTES)
COLUMNS = (*JUDGES, EQUIVALENT, BLIND_SPOT, NOBODY, NOT_JUDGED)

SEED = 1
UNLIMITED = 1e9  # seconds
NUM_OF_ONE_KIND = 20  # findings that the original has too, until others of their kind are not looked at
NUM_EXAMPLES, NUM_STEPS = 50, 50  # of a round of Hypothesis


@dataclass(frozen=True)
class JudgingEffort:
    """How much is done for one fault. walk: operations. rounds: of Hypothesis, each of up to 2,500 operations."""

    walk: int
    rounds: int


DEFAULT_EFFORT = JudgingEffort(200_000, 8)
EFFORTS = {  # by subject; what is slower does less in the same budget
    "kvproof-scheduler": JudgingEffort(100_000, 0),
    "vllm-v0-scheduler": JudgingEffort(100_000, 0),
    "vllm-v1": JudgingEffort(100_000, 4),
    "lmdeploy": JudgingEffort(100_000, 4),
    "exllamav3": JudgingEffort(40_000, 2),
    "lmcache-l1": JudgingEffort(60_000, 0),
    "vllm-offloading": JudgingEffort(60_000, 0),
    "vllm-simple-offloading": JudgingEffort(60_000, 0),
    "vllm-simple-offload": JudgingEffort(30_000, 0),
    "sglang": JudgingEffort(40_000, 2),
    "sglang-hicache": JudgingEffort(20_000, 0),
    "sglang-pd": JudgingEffort(20_000, 0),
    "vllm-pd": JudgingEffort(20_000, 0),
    "vllm-pd-push": JudgingEffort(20_000, 0),
    "sglang-scheduler": JudgingEffort(100_000, 0),
}


def is_as_stated(one: FaultOutcome) -> bool:
    """Whether the catalogue says so: a fault is found, or has a reason why it is not."""
    has_reason = bool(one.fault.equivalent or one.fault.blind_spot)
    return has_reason if one.by in (EQUIVALENT, BLIND_SPOT) else one.by in JUDGES and not has_reason


def judged(fault: Fault, effort: JudgingEffort | None = None) -> FaultOutcome:
    """Ask one judge after the other until one finds the fault."""
    began = monotonic()
    effort = effort or EFFORTS.get(fault.row, DEFAULT_EFFORT)
    try:
        if fault.subject in EXECUTORS:
            with copied(fault) as folder:
                done = compare_bytes(fault.subject, str(folder))
            by = BYTES if done.property_id else _reason(fault)
            return FaultOutcome(fault, by, done.text, monotonic() - began, done.property_id, done.num_operations)
        with planted(fault) as make:
            judge = Judging(fault, make, effort)
            by = next((name for name, ask in judge.judges() if ask()), _reason(fault))
            finding = judge.counterexample.finding if judge.counterexample else None
            text, property_id = (str(finding.text), finding.property) if finding else ("", "")
            text = text.partition("\n")[0]
            return FaultOutcome(fault, by, text, monotonic() - began, property_id, judge.num_operations)
    except AdapterError as error:  # `kvproof verify` ends with exit code 2, and this is no finding of a judge
        return FaultOutcome(fault, NOT_JUDGED, f"it breaks the protocol: {error}", monotonic() - began)
    except (NotPlanted, UnknownSubject, NotRun, StandInError, AssertionError) as error:  # the last three are kvproof's
        return FaultOutcome(fault, NOT_JUDGED, str(error), monotonic() - began)


def _reason(fault: Fault) -> str:
    """The column of a fault that nothing finds."""
    return EQUIVALENT if fault.equivalent else BLIND_SPOT if fault.blind_spot else NOBODY


class Judging:
    """The searches of one faulty subject."""

    def __init__(self, fault: Fault, make: RemoteFactory, effort: JudgingEffort) -> None:
        self.fault, self.make, self.effort = fault, make, effort
        self.strategy = strategy_of(make())
        self.num_operations = 0
        self.counterexample: Counterexample | None = None
        self._plain: RemoteFactory | None = None

    def judges(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        """The searches of this level, each with its name. A search returns whether it found the fault."""
        yield WALK, self.walk
        if self.strategy.can_explore:
            yield SCOPES, self.scopes
        if self.strategy.level is MANAGER:
            yield HYPOTHESIS, self.hypothesis

    def walk(self) -> bool:
        """Do random runs."""
        walk, kinds = Walk(Judged(self.fault.subject), SEED, self.effort.walk), Counter[tuple[str, str]]()
        for done in here(self.make).walk_on(walk):
            self.num_operations += done.num_operations
            if (found := done.counterexample) is not None:
                if self._is_new(found):
                    return True
                kinds[found.kind] += 1
                if kinds[found.kind] == NUM_OF_ONE_KIND:
                    walk.known.append((*found.kind, ()))
        return False

    def scopes(self) -> bool:
        """Search every state of the small scopes that a run of `kvproof verify` searches."""
        for scope in self.strategy.exhaustive.gate.values():
            try:
                done = explore(self.strategy, self.make(), scope, seconds=UNLIMITED)
            except Unsupported:
                continue
            self.num_operations += done.num_operations
            if done.counterexample is not None and self._is_new(done.counterexample):
                return True
        return False

    def hypothesis(self) -> bool:
        """Drive the state machine of Hypothesis."""
        for number in range(self.effort.rounds):
            done = drive(self.make(), SEED + number, examples=NUM_EXAMPLES, steps=NUM_STEPS)
            self.num_operations += done.num_operations
            if done.counterexample is not None and self._is_new(done.counterexample):
                return True
        return False

    def _is_new(self, found: Counterexample) -> bool:
        """Whether the finding shows the fault: the caller kept the contract, and the original is not refuted alike."""
        if found.finding.contract or (release_of(self.fault) and self._refutes_original(found)):
            return False
        self.counterexample = found
        return True

    def _refutes_original(self, found: Counterexample) -> bool:
        if self._plain is None:
            self._plain = RemoteFactory(self.fault.subject)
        finding = finding_of(self._plain(), found.config, found.operations)
        return finding is not None and finding.property == found.finding.property
