"""Simulations: run real code on every path, and make obligations that its final state agrees with that of a rule.

Every answer to a question counts as possible here, so some paths may be infeasible; their claims hold because no state
takes them. A call ends by returning, by an error, or, in a loop of any length, by asking for the item after an
arbitrary one (`loops`). If it may not raise that error, the obligation is that no state takes the path. So it is if the
proof cannot follow the code (`concolic.constructs`), or if the path, replayed with plain numbers, does something else
(`replay`). Claims with the same sentence, on paths with the same ending, are one obligation.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.models.concolic.constructs import watched
from kvproof.models.concolic.exploration import Exploration
from kvproof.models.concolic.frame import Frame
from kvproof.models.concolic.refusal import short
from kvproof.models.concolic.scenario import Outcome, called
from kvproof.models.concolic.symbolic import truth
from kvproof.models.obligation import WELL_DEFINED, Hypothesis, Obligation
from kvproof.models.refinement.abstraction import Agreement
from kvproof.models.refinement.loops import Items, NextItem
from kvproof.models.refinement.replay import Twin, agrees, numbers_for, plain
from kvproof.models.refinement.unbounded import symbolic_length
from kvproof.models.translation.terms import every, some

SUITE = "refinement"
NEXT = "asks for the next block"
REFUSED = "is refused"
NO_STATE = "no state leads here"


@dataclass(frozen=True)
class Call:
    """A call of real code on objects of any state, and the claims about its outcome.

    subject: the object whose method is called; None if the claims are about the relation alone. name: of the method or
    property. changes: attributes, such as `Table.ids`, whose content the claims are about; the object stays the same.
    replaced: those that may be another number. others: further objects that the call can reach.
    """

    subject: Any
    name: str
    claims: Callable[[Outcome], Iterable[Agreement]]
    arguments: tuple[Any, ...] = ()
    changes: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    others: tuple[Any, ...] = ()

    @property
    def items(self) -> Items | None:
        """What the call goes over, if it is a loop of any length."""
        return next((one for one in self.arguments if isinstance(one, Items)), None)

    def made(self) -> Any:
        """The result. NEXT if a loop of any length asks for the item after the one that it got."""
        if self.subject is None:
            return None
        try:
            part = getattr(self.subject, self.name)
            return part(*self.arguments) if callable(part) else part
        except NextItem:
            return NEXT


@dataclass(frozen=True)
class Simulation:
    """A function, the rule, step or predicate that it refines, and a call of it.

    hypotheses: assumptions about the state before. start: makes the objects, and the call. raises: the errors that the
    call may raise. sizes: conditions on the sizes of which a replay meets one.
    """

    subject: str
    function: Callable[..., Any]
    hypotheses: tuple[Hypothesis, ...]
    start: Callable[[], Call]
    raises: tuple[type[Exception], ...] = ()
    sizes: tuple[z3.BoolRef, ...] = (z3.BoolVal(True),)


@dataclass(frozen=True)
class Path:
    """One path of the call: its condition, how it ends, and the claims about that. is_replayed: with plain numbers."""

    condition: z3.BoolRef
    ending: str
    agreements: tuple[Agreement, ...]
    is_replayed: bool


@dataclass
class Run:
    """A call that was made: what it was made on, and how it ended."""

    call: Call
    twin: Twin
    outcome: Outcome
    ending: str = ""
    agreements: list[Agreement] = field(default_factory=list)


def explore(simulation: Simulation) -> Iterator[Path]:
    latest: list[Run] = []

    def run() -> None:
        latest[:] = [_run(simulation)]

    for condition in Exploration(asks_solver=False).paths(run):
        done, taken = latest[0], every(condition)
        difference = _replayed(simulation, done, taken)
        if difference:
            done.ending = f"{done.ending}, and with plain numbers it does not: {difference}"
            done.agreements = [(NO_STATE, WELL_DEFINED, z3.BoolVal(False))]
        yield Path(taken, done.ending, tuple(done.agreements), difference is not None)


def obligations(simulation: Simulation) -> Iterator[Obligation]:
    """One obligation for each ending and sentence, and one that states that there is no other path."""
    paths: list[z3.BoolRef] = []
    claims: dict[tuple[str, str], list[z3.BoolRef]] = {}
    for one in explore(simulation):
        paths.append(one.condition)
        for sentence, property, formula in one.agreements:
            claims.setdefault((f"{one.ending}: {sentence}", property), []).append(z3.Implies(one.condition, formula))
    function = inspect.unwrap(simulation.function)
    place = f"{short(inspect.getsourcefile(function) or '')}:{inspect.getsourcelines(function)[1]}"
    for (claim, property), parts in claims.items():
        goal = every(parts)
        yield Obligation(SUITE, simulation.subject, claim, property, simulation.hypotheses, goal, place)
    yield Obligation(SUITE, simulation.subject, "no other path", WELL_DEFINED, (), some(paths), place)


def _run(simulation: Simulation) -> Run:
    call = simulation.start()
    reached = (call.subject, *call.others)
    frame = Frame(*reached, changes=call.changes, replaced=call.replaced)
    with watched() as ran:
        done = Run(call, Twin(*reached, *call.arguments), called(call.made))
    refusals = [*filter(None, [done.outcome.refusal]), *ran.refusals((symbolic_length,))]
    optional = set(done.twin.optional())
    refusals += [
        f"a value that may be None is compared with it ({place})"
        for name, place in ran.none_tests()
        if optional and (not name or name in optional)
    ]
    done.ending, done.agreements = _ended(simulation, done, refusals)
    if call.subject is not None and done.agreements[0][0] != NO_STATE:
        done.agreements += _frame(frame)
    return done


def _ended(simulation: Simulation, done: Run, refusals: list[str]) -> tuple[str, list[Agreement]]:
    """How the call ended, and what must be true then."""
    never: list[Agreement] = [(NO_STATE, WELL_DEFINED, z3.BoolVal(False))]
    outcome, items = done.outcome, done.call.items
    if refusals:
        return f"{REFUSED}: {refusals[0]}", never
    kind = type(outcome.error)
    if outcome.error is not None and kind not in simulation.raises:
        return f"raises {kind.__name__}", never
    ending = "returns" if outcome.error is None else f"raises {kind.__name__}"
    if items is not None and items.is_given and outcome.error is None:
        if outcome.value != NEXT:
            return "leaves the loop early", never
        if items.carried:
            return f"carries {', '.join(items.carried)} from one iteration to the next", never
        ending = NEXT
    try:
        agreements = list(done.call.claims(outcome))
    except Exception as error:  # it leaves other objects than claims can be about
        return f"{ending}, and leaves what no claim is about ({type(error).__name__}: {error})", never
    if items is not None and ending == NEXT:
        agreements.append(("no local goes from one iteration to the next", WELL_DEFINED, items.carries_nothing))
    return ending, agreements


def _frame(frame: Frame) -> Iterator[Agreement]:
    broken = frame.broken()
    for name in broken:
        yield f"{name} is as it was", "frame-kept", z3.BoolVal(False)
    if not broken:
        yield "nothing else has changed", "frame-kept", truth(frame.holds())


# Replays -------------------------------------------------------------------------------------------------------------


def _replayed(simulation: Simulation, done: Run, condition: z3.BoolRef) -> str | None:
    """What a repetition of the path with plain numbers does otherwise; None if no small ones take it."""
    if done.call.subject is None or done.ending.startswith(REFUSED):
        return None
    value = numbers_for(condition, done.twin.limits(), simulation.sizes)
    if value is None:
        return None
    made = done.twin.built(value)
    again = Call(
        made[id(done.call.subject)],
        done.call.name,
        done.call.claims,
        tuple(plain(one, made, value) for one in done.call.arguments),
    )
    outcome = called(again.made)
    if type(outcome.error) is not type(done.outcome.error):
        return f"it raises {type(outcome.error).__name__}" if outcome.error else "it returns"
    if done.outcome.error is None and not agrees(done.outcome.value, outcome.value, made, value):
        return f"it returns {outcome.value}"
    return ", ".join(done.twin.differences(made, value))
