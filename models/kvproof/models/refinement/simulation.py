"""Simulations: run real code on every path, and make obligations that its final state agrees with that of a rule.

Every answer to a question counts as possible here, so some paths may be infeasible; their claims hold because no state
takes them. A call ends by returning or by an error. If it may not raise that error, the obligation is that no state
takes the path. Claims with the same sentence, on paths with the same ending, are one obligation.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.concolic.exploration import Exploration, GaveUp, TooManyPaths
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import Undecided
from kvproof.models.proofs.obligation import WELL_DEFINED, Hypothesis, Obligation
from kvproof.models.refinement.abstraction import Agreement
from kvproof.models.translation.terms import every, some

SUITE = "refinement"


@dataclass(frozen=True)
class Simulation:
    """A call of real code, and the claims about its outcome.

    subject: the function, and the rule, step or predicate that it refines. hypotheses: assumptions about the state
    before. start: makes the objects; returns the call, and a function from its outcome to the claims. raises: the
    errors that the call may raise.
    """

    subject: str
    function: Callable[..., Any]
    hypotheses: tuple[Hypothesis, ...]
    start: Callable[[], tuple[Callable[[], Any], Callable[[Outcome], Iterable[Agreement]]]]
    raises: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Path:
    """One path of the call: its condition, how it ends, and the claims about that."""

    condition: z3.BoolRef
    ending: str
    agreements: tuple[Agreement, ...]


def explore(simulation: Simulation) -> Iterator[Path]:
    latest: list[tuple[str, list[Agreement]]] = []

    def run() -> None:
        latest[:] = [_run(simulation)]

    for condition in Exploration(asks_solver=False).paths(run):
        ending, agreements = latest[0]
        yield Path(every(condition), ending, tuple(agreements))


def obligations(simulation: Simulation) -> Iterator[Obligation]:
    """One obligation for each ending and sentence, and one that states that there is no other path."""
    paths: list[z3.BoolRef] = []
    claims: dict[tuple[str, str], list[z3.BoolRef]] = {}
    for one in explore(simulation):
        paths.append(one.condition)
        for sentence, property, formula in one.agreements:
            claims.setdefault((f"{one.ending}: {sentence}", property), []).append(z3.Implies(one.condition, formula))
    file = (inspect.getsourcefile(simulation.function) or "").rpartition("kvproof/")[2]
    place = f"{file}:{inspect.getsourcelines(simulation.function)[1]}"
    for (claim, property), parts in claims.items():
        goal = every(parts)
        yield Obligation(SUITE, simulation.subject, claim, property, simulation.hypotheses, goal, place)
    yield Obligation(SUITE, simulation.subject, "no other path", WELL_DEFINED, (), some(paths), place)


def _run(simulation: Simulation) -> tuple[str, list[Agreement]]:
    call, claims = simulation.start()
    outcome = Outcome()
    try:
        outcome.value = call()
    except (GaveUp, TooManyPaths, Undecided):
        raise
    except Exception as error:  # the claims are about any error that the code raises
        outcome.error = error
    if outcome.error is None:
        return "returns", list(claims(outcome))
    kind = type(outcome.error)
    if kind in simulation.raises:
        return f"raises {kind.__name__}", list(claims(outcome))
    return f"raises {kind.__name__}", [("no state leads here", WELL_DEFINED, z3.BoolVal(False))]
