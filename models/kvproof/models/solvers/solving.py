"""Ask Z3 one question, in a context of its own, or several questions with the same hypotheses, in one context.

A question that is asked alone does not depend on others. Together they take half the time, since Z3 reads and prepares
the hypotheses once; what is not proved so is asked again alone. So whatever is proved alone is proved together.

The effort is Z3's own count of work: the same each time the same version gets the same question with the same seed,
and, if questions are asked together, after the same questions. Which ones are asked together never depends on time.

The questions of obligations come in batches. Z3 is asked those of a batch that have the same hypotheses together
(`IncrementalSolver`). Which questions a batch has depends only on their order. Who asks them, in which processes, is
known to the caller.
"""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

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


BATCH = 16  # questions sent at once: few, so that at the end no process has much more work left than the others
BATCH_MAX = 64  # if so many questions have the same hypotheses
STRATEGIES_MAX = 3  # tried by a solver for one question
GRACE_SECONDS = 10.0  # a solver checks the time only now and then

Asker = Callable[[str, str, Settings], Answer]  # hypotheses, negated goal; a function that a process can import
Question = tuple[str, str]  # hypotheses, negated goal; a batch sends equal hypotheses once
Printer = Callable[[Obligation], Question]


class Decide(Protocol):
    """Decides every obligation; who asks the solvers is known to the object. Answers come in any order.

    asker: the function that asks a solver. It tries at most `STRATEGIES_MAX` strategies, each up to the timeout.
    printer: the text of a question, as the asker wants it. meanwhile: work in steps, which this process does to its
    end after the last question is made, while the others answer.
    """

    def __call__(
        self,
        obligations: Iterable[Obligation],
        settings: Settings,
        *,
        asker: Asker = ask,
        printer: Printer = Obligation.question,
        meanwhile: Iterable[object] = (),
    ) -> Iterator[ProofOutcome]: ...


def is_full(batch: Sequence[Question], following: Question) -> bool:
    """Whether a batch has enough questions, so that the following one belongs to the next batch."""
    return len(batch) >= (BATCH_MAX if following[0] == batch[-1][0] else BATCH)


def patience_seconds(settings: Settings) -> float:
    """How long the answer to one question may take."""
    return STRATEGIES_MAX * settings.timeout_seconds + GRACE_SECONDS


def answers_of(asker: Asker, batch: Iterable[Question], settings: Settings) -> Iterator[Answer]:
    """The answers to the questions of a batch. Z3 is asked together those in a row that have the same hypotheses."""
    one_by_one = IncrementalSolver() if asker is ask else asker
    for assumed, goal in batch:
        yield _answer_of(one_by_one, assumed, goal, settings)


def _answer_of(asker: Asker, assumed: str, goal: str, settings: Settings) -> Answer:
    """The answer to one question; unknown if asking it raises."""
    try:
        return asker(assumed, goal, settings)
    except Exception as error:  # e.g. the solver cannot parse it: this question is unknown, the others are answered
        return Answer(Verdict.UNKNOWN, reason=f"{type(error).__name__}: {error}")
