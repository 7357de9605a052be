"""Ask Z3 one question, in a context of its own, or several questions with the same hypotheses, in one context.

A question that is asked alone does not depend on others. Together they take half the time, since Z3 reads and prepares
the hypotheses once; what is not proved so is asked again alone. So whatever is proved alone is proved together.

The effort is Z3's own count of work: the same each time the same version gets the same question with the same seed,
and, if questions are asked together, after the same questions. Which ones are asked together never depends on time.
"""

import functools
import time
from dataclasses import dataclass, replace

import z3

from kvproof.models.obligation import NO_GOAL, Obligation
from kvproof.spec.verdict import Verdict

TIMEOUT_SECONDS = 20.0
EFFORT_PER_SECOND = 3_000_000  # in Z3's units, on an idle machine
QUICK_EFFORT = EFFORT_PER_SECOND
SEARCH_EFFORT = 200_000  # for a contradiction of hypotheses: more than nearly every proof takes
LOAD_MAX = 30  # how much longer than on an idle machine a question may take
SEED_MAX = 2**31 - 1  # the largest that Z3 accepts

VERDICTS = {"unsat": Verdict.PROVED, "sat": Verdict.REFUTED, "unknown": Verdict.UNKNOWN}


@dataclass(frozen=True)
class Settings:
    """How to ask a solver.

    timeout_seconds: for each question. effort_max: in Z3's units, for each question; 0 for no limit. With it, the
    answer does not depend on the load of the machine. wants_core: also report which hypotheses the proof needed.
    is_alone: ask each question in a context of its own, so that its effort does not depend on other questions.
    """

    seed: int = 0
    timeout_seconds: float = TIMEOUT_SECONDS
    wants_core: bool = False
    effort_max: int = 0
    is_alone: bool = False

    @classmethod
    def by_effort(cls, seconds: float, seed: int = 0, wants_core: bool = False, is_alone: bool = False) -> "Settings":
        """Settings that limit the effort to that of so many seconds on an idle machine.

        Time is limited too, so that a solver that hangs ends, but so late that a busy machine gives the same answers.
        """
        return cls(seed, seconds * LOAD_MAX, wants_core, max(1, int(seconds * EFFORT_PER_SECOND)), is_alone)


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
    that does not decide it within a fixed effort, Z3's default solver is asked. Whether hypotheses contradict each
    other (`NO_GOAL`) is asked of the quick solver only.
    """
    context = z3.Context()
    hypotheses = list(_parsed(assumed).translate(context))
    negated_goal = list(z3.parse_smt2_string(goal, ctx=context))
    began = time.perf_counter()
    solver = _quick(context, goal, settings)
    answer = _check(solver, hypotheses, negated_goal, settings)
    if answer == "unknown" and goal != NO_GOAL:
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


class IncrementalSolver:
    """Asks questions as `ask` does, but with one solver as long as the hypotheses stay the same.

    Each goal is asked in a scope of its own, which is left afterwards.
    """

    def __init__(self) -> None:
        self._assumed: str | None = None  # the hypotheses that the solver has; None if it cannot be used
        self._context = z3.Context()
        self._solver = z3.SimpleSolver(ctx=self._context)
        self._effort = 0

    def __call__(self, assumed: str, goal: str, settings: Settings) -> Answer:
        """The answer to one question."""
        if settings.is_alone or settings.wants_core:
            return ask(assumed, goal, settings)
        began = time.perf_counter()
        known, self._assumed = self._assumed, None  # after an error in a scope, its solver is not used again
        if assumed != known:
            self._context, self._effort = z3.Context(), 0
            self._solver = _quick(self._context, goal, settings)
            self._solver.add(*z3.parse_smt2_string(assumed, ctx=self._context))
        negated_goal = list(z3.parse_smt2_string(goal, ctx=self._context))
        self._solver.set(rlimit=_quick_effort(goal, settings))
        self._solver.push()
        answer = _check(self._solver, [], negated_goal, settings)
        reason = self._solver.reason_unknown() if answer == "unknown" else ""
        before, self._effort = self._effort, _effort(self._solver)
        self._solver.pop()
        self._assumed, effort = assumed, self._effort - before
        if answer == "unsat" or goal == NO_GOAL:
            return Answer(VERDICTS[answer], time.perf_counter() - began, effort, reason)
        alone = ask(assumed, goal, settings)
        return replace(alone, seconds=time.perf_counter() - began, effort=effort + alone.effort)


@functools.lru_cache(maxsize=2)
def _parsed(assumed: str) -> z3.AstVector:
    """The hypotheses, parsed in a context of their own, from which they are copied to the context of each question."""
    return z3.parse_smt2_string(assumed, ctx=z3.Context())


def _quick(context: z3.Context, goal: str, settings: Settings) -> z3.Solver:
    quick = z3.SimpleSolver(ctx=context)
    quick.set(auto_config=False, mbqi=False, rlimit=_quick_effort(goal, settings))
    return quick


def _quick_effort(goal: str, settings: Settings) -> int:
    return SEARCH_EFFORT if goal == NO_GOAL else min(QUICK_EFFORT, settings.effort_max or QUICK_EFFORT)


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
