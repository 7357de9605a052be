"""Real code beside a rule: run on every path, and what must agree afterwards, as obligations.

Every answer to a question counts as possible here, so a path may be one that no state takes: then its claims follow
from that. A function ends by returning or by an error; an error that it may not raise gives the claim that it is not.
What all paths with one ending claim under one sentence is one obligation.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import z3

from kvproof.models.concolic.exploration import Exploration, GaveUp, TooManyPaths
from kvproof.models.concolic.scenario import Outcome
from kvproof.models.concolic.symbolic import Undecided, every, some
from kvproof.models.proofs.obligation import WELL_DEFINED, Hypothesis, Obligation
from kvproof.models.refinement.abstraction import Agreement

SUITE = "refinement"


@dataclass(frozen=True)
class Simulation:
    """A call of real code, and what is claimed of how it ends.

    subject: the function and the rule, step or word that it refines. start: makes the objects; gives the call, and the
    claims of its outcome. raises: the errors it may raise. hypotheses: what is known before.
    """

    subject: str
    function: Callable[..., Any]
    hypotheses: tuple[Hypothesis, ...]
    start: Callable[[], tuple[Callable[[], Any], Callable[[Outcome], Iterable[Agreement]]]]
    raises: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Ended:
    """One path: its condition, how it ends, and what must agree then."""

    path: z3.BoolRef
    ending: str
    agreements: tuple[Agreement, ...]


def explored(simulation: Simulation) -> Iterator[Ended]:
    """Every path of the call."""
    latest: list[tuple[str, list[Agreement]]] = []

    def run() -> None:
        latest[:] = [_ended(simulation)]

    for condition in Exploration(asks_solver=False).paths(run):
        ending, agreements = latest[0]
        yield Ended(every(condition), ending, tuple(agreements))


def obligations(simulation: Simulation) -> Iterator[Obligation]:
    """One for each ending and sentence, and one that says that the paths are all there are."""
    paths: list[z3.BoolRef] = []
    claims: dict[tuple[str, str], list[z3.BoolRef]] = {}
    for one in explored(simulation):
        paths.append(one.path)
        for sentence, property, formula in one.agreements:
            claims.setdefault((f"{one.ending}: {sentence}", property), []).append(z3.Implies(one.path, formula))
    file = (inspect.getsourcefile(simulation.function) or "").rpartition("kvproof/")[2]
    place = f"{file}:{inspect.getsourcelines(simulation.function)[1]}"
    for (claim, property), parts in claims.items():
        goal = every(parts)
        yield Obligation(SUITE, simulation.subject, claim, property, simulation.hypotheses, goal, place)
    yield Obligation(SUITE, simulation.subject, "no other path", WELL_DEFINED, (), some(paths), place)


def _ended(simulation: Simulation) -> tuple[str, list[Agreement]]:
    call, claims = simulation.start()
    outcome = Outcome()
    try:
        outcome.value = call()
    except (GaveUp, TooManyPaths, Undecided):
        raise
    except Exception as error:  # whatever the code raises is judged
        outcome.error = error
    if outcome.error is None:
        return "returns", list(claims(outcome))
    kind = type(outcome.error)
    if kind in simulation.raises:
        return f"raises {kind.__name__}", list(claims(outcome))
    return f"raises {kind.__name__}", [("no state leads here", WELL_DEFINED, z3.BoolVal(False))]
