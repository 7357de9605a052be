"""Simulations: run real code on every path, and make obligations that its final state agrees with that of a rule.

Every answer to a question counts as possible here, so some paths may be infeasible; their claims hold because no state
takes them. A call ends by returning, by an error, or, in a loop of any length, by asking for the item after an
arbitrary one (`loops`). If it may not raise that error, the obligation is that no state takes the path. So it is if the
proof cannot follow the code (`concolic.constructs`), or if the path, replayed with plain numbers, does something else
(`replay`). Claims with the same sentence, on paths with the same ending, are one obligation; of a loop that is cut,
each path has its own.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import z3

from kvproof.models.concolic.constructs import watched
from kvproof.models.concolic.exploration import Exploration
from kvproof.models.concolic.frame import Frame, fields_of
from kvproof.models.concolic.refusal import short
from kvproof.models.concolic.scenario import Outcome, called
from kvproof.models.concolic.symbolic import truth
from kvproof.models.obligation import WELL_DEFINED, Hypothesis, Obligation
from kvproof.models.refinement.abstraction import Agreement
from kvproof.models.refinement.cuts import Cutting, Everywhere, Loop, cut, of_any_number
from kvproof.models.refinement.loops import Items, NextItem
from kvproof.models.refinement.replay import Specified, Twin, agrees, numbers_for, plain
from kvproof.models.refinement.unbounded import REPLACED
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
    replaced: those that may be another number. others: further objects that the call can reach. loops: those that are
    cut (`cuts`). small: what the solver need not know, as it follows, but a replay needs to find numbers.
    """

    subject: Any
    name: str
    claims: Callable[[Outcome], Iterable[Agreement]]
    arguments: tuple[Any, ...] = ()
    changes: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    others: tuple[Any, ...] = ()
    loops: tuple[Loop, ...] = ()
    small: tuple[z3.BoolRef, ...] = ()

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
    call may raise. sizes: conditions on the sizes of which a replay meets one. everywhere: that a formula holds of
    every number, or of all in an instance.
    """

    subject: str
    function: Callable[..., Any]
    hypotheses: tuple[Hypothesis, ...]
    start: Callable[[], Call]
    raises: tuple[type[Exception], ...] = ()
    sizes: tuple[z3.BoolRef, ...] = (z3.BoolVal(True),)
    everywhere: Everywhere = of_any_number


@dataclass(frozen=True)
class Path:
    """One path of the call: its condition, how it ends, and the claims about that.

    is_replayed: with plain numbers. is_within: it ends in an arbitrary iteration of a loop that is cut.
    """

    condition: z3.BoolRef
    ending: str
    agreements: tuple[Agreement, ...]
    is_replayed: bool
    is_within: bool = False


@dataclass
class Run:
    """A call that was made: what it was made on, and how it ended."""

    call: Call
    twin: Twin
    outcome: Outcome
    cutting: Cutting
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
        is_within = done.cutting.is_within
        yield Path(taken, done.ending, tuple(done.agreements), difference is not None, is_within)


def obligations(simulation: Simulation) -> Iterator[Obligation]:
    """One obligation for each ending and sentence, and one that states that there is no other path."""
    paths: list[z3.BoolRef] = []
    claims: dict[tuple[str, str], list[z3.BoolRef]] = {}
    num_within = 0
    for one in explore(simulation):
        paths.append(one.condition)
        ending = one.ending
        if one.is_within and ending == NEXT:  # its claims are large, and each path gets its own
            num_within += 1
            ending = f"{ending}, case {num_within}"
        for sentence, property, formula in one.agreements:
            claims.setdefault((f"{ending}: {sentence}", property), []).append(z3.Implies(one.condition, formula))
    function = inspect.unwrap(simulation.function)
    place = f"{short(inspect.getsourcefile(function) or '')}:{inspect.getsourcelines(function)[1]}"
    for (claim, property), parts in claims.items():
        goal = every(parts)
        yield Obligation(SUITE, simulation.subject, claim, property, simulation.hypotheses, goal, place)
    yield Obligation(SUITE, simulation.subject, "no other path", WELL_DEFINED, (), some(paths), place)


def _run(simulation: Simulation) -> Run:
    call = simulation.start()
    reached = (call.subject, *call.others)
    reached += tuple(one for each in reached for one in fields_of(each).values() if isinstance(one, Specified))
    frame = Frame(*reached, changes=call.changes, replaced=call.replaced)
    cutting = Cutting(call.loops, reached, simulation.everywhere)
    with watched() as ran, cut(cutting):
        done = Run(call, Twin(*reached, *call.arguments), called(call.made), cutting)
    refusals = [*filter(None, [done.outcome.refusal]), *ran.refusals(tuple(REPLACED.values()))]
    optional = {name for name in done.twin.optional() if any(name in code.co_names for code in ran.functions)}
    refusals += [
        f"a value that may be None is compared with it ({place})"
        for name, place in ran.none_tests()
        if optional and (not name or name in optional)
    ]
    done.ending, done.agreements = _ended(simulation, done, refusals)
    if cutting.is_ended:
        return done
    if call.subject is not None and done.agreements[0][0] != NO_STATE:
        done.agreements += _frame(frame)
    done.agreements = [*cutting.agreements, *map(cutting.relying, done.agreements)]
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
    if done.cutting.is_ended:
        return (NEXT, done.cutting.agreements) if outcome.value == NEXT else ("goes on after a loop has ended", never)
    if done.cutting.is_within:
        return f"{ending} within a loop", never
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
    if done.call.subject is None or done.ending.startswith(REFUSED) or done.cutting.is_within:
        return None  # or the path ends in an arbitrary iteration: the one behind the loop is replayed, as a whole
    limits = chain(done.twin.limits(), done.cutting.instances, done.call.small)
    value = numbers_for(condition, limits, simulation.sizes)
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
