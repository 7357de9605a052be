"""Every reachable state of a scope, on the specification alone.

A breadth-first search over canonical states. In each new state every claim is evaluated and the references are counted
again; every transition evaluates the obligations of its rules. The first thing that breaks ends the search, and the
path to it is as short as any, because shorter paths were tried before. A search that ran out of time is not exhausted
and proves nothing about what it did not reach; a rule that never fired and a witness that was never met say that a
scope is about less than it seems.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.specification_calls import CallLevel
from kvproof.check.search.exhaustive.specification_firing import Level, Operation
from kvproof.check.search.exhaustive.specification_rules import RuleLevel
from kvproof.check.search.exhaustive.specification_violation import Violated, Violation
from kvproof.spec.language import COLLECTED
from kvproof.spec.text.witnesses import WITNESSES

PROGRESS_EVERY = 500  # states


@dataclass
class Exploration:
    """What was searched, how far, and what was found.

    depth: transitions on the longest of the shortest paths. operations: the path to the finding, its last operation
    the one that broke something. fired, witnesses: how often over all transitions.
    """

    scope: Scope
    states: int = 0
    transitions: int = 0
    depth: int = 0
    is_exhausted: bool = False
    finding: Violation | None = None
    operations: list[Operation] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    witnesses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def explore_specification(
    scope: Scope, *, seconds: float, progress: Callable[[int], None] | None = None
) -> Exploration:
    """Search a scope for at most so many seconds. `progress` is told the number of states now and then."""
    level: Level = RuleLevel(scope) if scope.level == "rules" else CallLevel(scope)
    return explore(level, scope, seconds=seconds, progress=progress)


def explore(
    level: Level, scope: Scope, *, seconds: float, progress: Callable[[int], None] | None = None
) -> Exploration:
    """The search itself, for a level of any machine.

    Nothing here is cyclic, and millions of small tuples live on: the collector of cycles would only look at them again
    and again, so it pauses.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _searched(level, scope, seconds, progress)
    finally:
        if is_collecting:
            gc.enable()


def _searched(level: Level, scope: Scope, seconds: float, progress: Callable[[int], None] | None) -> Exploration:
    began = time.perf_counter()
    found = Exploration(scope, fired=level.firings.fired, witnesses=level.firings.witnesses)
    first = level.machine.first_state()
    came_from: dict[Hashable, tuple[Hashable, Operation]] = {}
    root = level.form(first)
    came_from[root] = (root, ())

    def path(form: Hashable) -> list[Operation]:
        operations = []
        while form != root:
            form, operation = came_from[form]
            operations.append(operation)
        return operations[::-1]

    found.finding = level.violation(first)
    frontier = [(root, first)]
    while frontier and found.finding is None:
        following = []
        for form, state in frontier:
            if time.perf_counter() - began > seconds:
                break
            try:
                for operation, successor in level.successors(state):
                    found.transitions += 1
                    reached = level.form(successor)
                    if reached in came_from:
                        continue
                    came_from[reached] = (form, operation)
                    if violation := level.violation(successor):
                        raise Violated(violation, operation)
                    following.append((reached, successor))
                    if progress and not len(came_from) % PROGRESS_EVERY:
                        progress(len(came_from))
            except Violated as violated:
                found.finding = violated.violation
                found.operations = [*path(form), *([violated.operation] if violated.operation else [])]
                break
        else:
            found.depth += bool(following)
            frontier = following
            continue
        break
    found.is_exhausted = not frontier
    found.states = len(came_from)
    found.seconds = time.perf_counter() - began
    return found


def unexercised(explorations: Iterable[Exploration]) -> list[str]:
    """The rules that never fired and the witnesses that were never met: each makes a set of searches fail."""
    fired: Counter[str] = Counter()
    witnesses: Counter[str] = Counter()
    for exploration in explorations:
        fired.update(exploration.fired)
        witnesses.update(exploration.witnesses)
    silent = [f"rule {rule.__name__} never fired" for rule in COLLECTED.rules if not fired[rule.__name__]]
    return silent + [f"witness {name} was never met" for name in WITNESSES if not witnesses[name]]
