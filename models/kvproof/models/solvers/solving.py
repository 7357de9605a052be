"""Ask Z3 one question, in a context of its own, so that no answer depends on earlier questions.

The effort is Z3's own count of work: the same each time the same version gets the same question with the same seed.
"""

import functools
import time
from dataclasses import dataclass

import z3

from kvproof.models.proofs.obligation import Obligation
from kvproof.spec.verdict import Verdict

TIMEOUT_SECONDS = 20.0
EFFORT_PER_SECOND = 3_000_000  # in Z3's units, on an idle machine
QUICK_EFFORT = EFFORT_PER_SECOND
LOAD_MAX = 30  # how much longer than on an idle machine a question may take
SEED_MAX = 2**31 - 1  # the largest that Z3 accepts

VERDICTS = {"unsat": Verdict.PROVED, "sat": Verdict.REFUTED, "unknown": Verdict.UNKNOWN}


@dataclass(frozen=True)
class Settings:
    """How to ask a solver.

    timeout_seconds: for each question. effort_max: in Z3's units, for each question; 0 for no limit. With it, the
    answer does not depend on the load of the machine. wants_core: also report which hypotheses the proof needed.
    """

    seed: int = 0
    timeout_seconds: float = TIMEOUT_SECONDS
    wants_core: bool = False
    effort_max: int = 0

    @classmethod
    def by_effort(cls, seconds: float, seed: int = 0, wants_core: bool = False) -> "Settings":
        """Settings that limit the effort to that of so many seconds on an idle machine.

        Time is limited too, so that a solver that hangs ends, but so late that a busy machine gives the same answers.
        """
        return cls(seed, seconds * LOAD_MAX, wants_core, max(1, int(seconds * EFFORT_PER_SECOND)))


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    verdict: proved, refuted (there is a model of the hypotheses in which the goal is false) or unknown. effort: the
    solver's own count of work; 0 if no solver was asked, because the goal is literally one of the hypotheses. reason:
    why the verdict is unknown. core: indexes of hypotheses that suffice for the proof, if they were asked for.
    """

    verdict: Verdict
    seconds: float = 0.0
    effort: int = 0
    reason: str = ""
    core: tuple[int, ...] | None = None


TRIVIAL = Answer(Verdict.PROVED)


@dataclass(frozen=True, eq=False)
class ProofOutcome:
    """An obligation and its answer. is_cached: an earlier run got the answer."""

    obligation: Obligation
    answer: Answer
    is_trivial: bool = False
    is_cached: bool = False

    def core_names(self) -> list[str]:
        """The names of the hypotheses in the core; empty if no core was asked for."""
        return [self.obligation.hypotheses[place].name for place in self.answer.core or ()]


def ask(assumed: str, goal: str, settings: Settings) -> Answer:
    """Ask Z3 whether hypotheses and a negated goal, as given by `Obligation.question`, have a model.

    A quick solver is tried first: it instantiates quantified hypotheses only at terms that occur in the question. If
    that does not decide it within a fixed effort, Z3's default solver is asked.
    """
    context = z3.Context()
    hypotheses = list(_parsed(assumed).translate(context))
    negated_goal = list(z3.parse_smt2_string(goal, ctx=context))
    began = time.perf_counter()
    quick = z3.SimpleSolver(ctx=context)
    quick.set(auto_config=False, mbqi=False, rlimit=min(QUICK_EFFORT, settings.effort_max or QUICK_EFFORT))
    answer, solver = _check(quick, hypotheses, negated_goal, settings), quick
    if answer == "unknown":
        solver = z3.Solver(ctx=context)
        if settings.effort_max:
            solver.set(rlimit=settings.effort_max)
        answer = _check(solver, hypotheses, negated_goal, settings)
    seconds = time.perf_counter() - began
    core = None
    if settings.wants_core and answer == "unsat":
        core = tuple(sorted(int(str(name).rpartition("-")[2]) for name in solver.unsat_core()))
    reason = solver.reason_unknown() if answer == "unknown" else ""
    return Answer(VERDICTS[answer], seconds, _effort(solver), reason, core)


@functools.lru_cache(maxsize=2)
def _parsed(assumed: str) -> z3.AstVector:
    """The hypotheses, parsed in a context of their own, from which they are copied to the context of each question."""
    return z3.parse_smt2_string(assumed, ctx=z3.Context())


def _check(solver: z3.Solver, hypotheses: list[z3.BoolRef], negated_goal: list[z3.BoolRef], settings: Settings) -> str:
    solver.set(random_seed=settings.seed, timeout=max(1, int(settings.timeout_seconds * 1000)))
    if settings.wants_core:
        for place, formula in enumerate(hypotheses):
            solver.assert_and_track(formula, f"hypothesis-{place}")
        solver.add(*negated_goal)
    else:
        solver.add(*hypotheses, *negated_goal)
    return str(solver.check())


def _effort(solver: z3.Solver) -> int:
    """Z3's count of work in the solver's context."""
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118


class Allowance:
    """The effort that several questions to Z3 may take together: that of so many seconds on an idle machine.

    whole: another allowance, of which this one is a part.
    """

    def __init__(self, seconds: float, whole: "Allowance | None" = None) -> None:
        self.seconds, self.whole = seconds, whole
        self._left = int(seconds * EFFORT_PER_SECOND)

    @property
    def left(self) -> int:
        """The effort that is left, in Z3's units; 0 if it is spent."""
        return max(0, self._left if self.whole is None else min(self._left, self.whole.left))

    def check(self, solver: z3.Solver, effort_max: int = 0) -> z3.CheckSatResult:
        """The solver's answer, with what is left, or less. Time is limited too, so late that only a hang is ended."""
        solver.set(rlimit=max(1, min(self.left, effort_max or self.left)))
        solver.set(timeout=max(1, int(self.seconds * LOAD_MAX * 1000)))
        probe = z3.Solver()  # Z3 counts the work of all solvers of a context together
        probe.check()
        before, answer = _effort(probe), solver.check()
        self._spend(_effort(solver) - before)
        return answer

    def _spend(self, effort: int) -> None:
        self._left -= effort
        if self.whole is not None:
            self.whole._spend(effort)


def decide(obligation: Obligation, settings: Settings | None = None) -> ProofOutcome:
    """Decide one obligation in this process."""
    if obligation.is_trivial():
        return ProofOutcome(obligation, TRIVIAL, is_trivial=True)
    return ProofOutcome(obligation, ask(*obligation.question(), settings or Settings()))
