"""Asking Z3: one question at a time, in a context of its own, so that an answer never depends on those before it.

The effort, as Z3 counts it, is the same each time the same version is asked the same question with the same seed.
"""

import time
from dataclasses import dataclass

import z3

from kvproof.models.obligation import Obligation
from kvproof.spec.verdict import Verdict

TIMEOUT_SECONDS = 20.0
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


KEPT = Answer(Verdict.PROVED)


@dataclass(frozen=True, eq=False)
class Decided:
    """An obligation and its answer."""

    obligation: Obligation
    answer: Answer
    is_kept: bool = False

    def core_names(self) -> list[str]:
        """The names of the hypotheses that suffice, if they were asked for."""
        return [self.obligation.hypotheses[place].name for place in self.answer.core or ()]


def ask(text: str, settings: Settings) -> Answer:
    """Ask Z3 whether the text, in the form that `Obligation.smt2` gives, has a model."""
    context = z3.Context()
    assertions = z3.parse_smt2_string(text, ctx=context)
    solver = z3.Solver(ctx=context)
    solver.set("random_seed", settings.seed)
    solver.set("timeout", max(1, int(settings.timeout_seconds * 1000)))
    if settings.wants_core:
        *hypotheses, negated_goal = assertions
        for place, formula in enumerate(hypotheses):
            solver.assert_and_track(formula, f"hypothesis-{place}")
        solver.add(negated_goal)
    else:
        solver.add(*assertions)
    began = time.perf_counter()
    said = str(solver.check())
    seconds = time.perf_counter() - began
    statistics = solver.statistics()
    effort = int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118
    core = None
    if settings.wants_core and said == "unsat":
        core = tuple(sorted(int(str(name).rpartition("-")[2]) for name in solver.unsat_core()))
    reason = solver.reason_unknown() if said == "unknown" else ""
    return Answer(VERDICTS[said], seconds, effort, reason, core)


def decide(obligation: Obligation, settings: Settings | None = None) -> Decided:
    """Decide one obligation here, without another process."""
    if obligation.is_kept():
        return Decided(obligation, KEPT, is_kept=True)
    return Decided(obligation, ask(obligation.smt2(), settings or Settings()))
