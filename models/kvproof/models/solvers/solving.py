"""Asking Z3: one question at a time, in a context of its own, so that an answer never depends on those before it.

The effort, as Z3 counts it, is the same each time the same version is asked the same question with the same seed.
"""

import functools
import time
from dataclasses import dataclass

import z3

from kvproof.models.proofs.obligation import Obligation
from kvproof.spec.verdict import Verdict

TIMEOUT_SECONDS = 20.0
QUICK_EFFORT = 3_000_000  # as Z3 counts it: about a second
SEED_MAX = 2**31 - 1  # a larger one Z3 does not take

VERDICTS = {"unsat": Verdict.PROVED, "sat": Verdict.REFUTED, "unknown": Verdict.UNKNOWN}


@dataclass(frozen=True)
class Settings:
    """How to ask. timeout: in seconds, for each question."""

    seed: int = 0
    timeout_seconds: float = TIMEOUT_SECONDS
    wants_core: bool = False


@dataclass(frozen=True)
class Answer:
    """What came of one question.

    verdict: proved, refuted (there is a model of the hypotheses in which the goal is false) or unknown. effort: Z3's
    own count of work; 0 where no solver was asked, for the goal is word for word a hypothesis. reason: why it is
    unknown. core: the places of hypotheses that suffice, if they were asked for.
    """

    verdict: Verdict
    seconds: float = 0.0
    effort: int = 0
    reason: str = ""
    core: tuple[int, ...] | None = None


TRIVIAL = Answer(Verdict.PROVED)


@dataclass(frozen=True, eq=False)
class ProofOutcome:
    """An obligation and its answer."""

    obligation: Obligation
    answer: Answer
    is_trivial: bool = False

    def core_names(self) -> list[str]:
        """The names of the hypotheses that suffice, if they were asked for."""
        return [self.obligation.hypotheses[place].name for place in self.answer.core or ()]


def ask(assumed: str, goal: str, settings: Settings) -> Answer:
    """Ask Z3 whether hypotheses and a negated goal, as `Obligation.question` gives them, have a model.

    First quickly: quantified hypotheses are only instantiated at terms that are there. What that leaves open within
    a fixed effort is asked with everything that Z3 has.
    """
    context = z3.Context()
    hypotheses = list(_parsed(assumed).translate(context))
    negated_goal = list(z3.parse_smt2_string(goal, ctx=context))
    began = time.perf_counter()
    quick = z3.SimpleSolver(ctx=context)
    quick.set(auto_config=False, mbqi=False, rlimit=QUICK_EFFORT)
    said, solver = _asked(quick, hypotheses, negated_goal, settings)
    if said == "unknown":
        said, solver = _asked(z3.Solver(ctx=context), hypotheses, negated_goal, settings)
    seconds = time.perf_counter() - began
    core = None
    if settings.wants_core and said == "unsat":
        core = tuple(sorted(int(str(name).rpartition("-")[2]) for name in solver.unsat_core()))
    reason = solver.reason_unknown() if said == "unknown" else ""
    return Answer(VERDICTS[said], seconds, _effort(solver), reason, core)


@functools.lru_cache(maxsize=2)
def _parsed(assumed: str) -> z3.AstVector:
    """The hypotheses, in a context of their own; each question is asked in another, to which they are copied."""
    return z3.parse_smt2_string(assumed, ctx=z3.Context())


def _asked(
    solver: z3.Solver, hypotheses: list[z3.BoolRef], negated_goal: list[z3.BoolRef], settings: Settings
) -> tuple[str, z3.Solver]:
    solver.set(random_seed=settings.seed, timeout=max(1, int(settings.timeout_seconds * 1000)))
    if settings.wants_core:
        for place, formula in enumerate(hypotheses):
            solver.assert_and_track(formula, f"hypothesis-{place}")
        solver.add(*negated_goal)
    else:
        solver.add(*hypotheses, *negated_goal)
    return str(solver.check()), solver


def _effort(solver: z3.Solver) -> int:
    """What Z3 has counted in the solver's context."""
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118


def decide(obligation: Obligation, settings: Settings | None = None) -> ProofOutcome:
    """Decide one obligation here, without another process."""
    if obligation.is_trivial():
        return ProofOutcome(obligation, TRIVIAL, is_trivial=True)
    return ProofOutcome(obligation, ask(*obligation.question(), settings or Settings()))
