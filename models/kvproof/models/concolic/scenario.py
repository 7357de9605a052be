"""Scenarios: a call of one method, from any state that satisfies the invariant, and claims about its result.

A `Scenario` makes an object of the class from `Inputs`, assumes the invariant, calls the method, and claims what the
method returns or raises and how the object looks afterwards, including the invariant. The same code runs in two ways:
on symbolic inputs, where the invariant and the path condition must imply the claims on every path; and on concrete
numbers, to confirm a refutation, and to check that a path does what its terms say.

Containers of the object have a concrete shape, with at most four blocks; counts, times and ids in them are arbitrary.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.models.concolic.constructs import watched
from kvproof.models.concolic.exploration import Exploration
from kvproof.models.concolic.refusal import EndsProof, Refused, noting
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicId, SymbolicInt, truth
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.translation.terms import every, some

SUITE = "concolic"
SMALL = 9  # numbers up to this one are easy to read, and are tried first


class NotAssumed(Exception):
    """Concrete numbers do not satisfy the assumptions of the scenario."""


Assume = Callable[[Callable[[], z3.BoolRef]], None]


class Inputs:
    """The initial values of a scenario: symbolic ones, or the numbers in `values`, 0 for names that it lacks."""

    def __init__(self, values: Mapping[str, int] | None = None, assume: Assume | None = None):
        self._values, self._assume = values, assume
        self.names: list[str] = []

    def integer(self, name: str) -> Any:
        return self._made(name, SymbolicInt)

    def identifier(self, name: str) -> Any:
        """The id of a block, for containers that hold such ids only."""
        return self._made(name, SymbolicId)

    def count(self, name: str) -> Any:
        """Any integer of at least 0."""
        made = self.integer(name)
        self.assume(lambda: made >= 0)
        return made

    def below(self, name: str, stop: int) -> Any:
        """Any integer from 0 up to `stop` - 1."""
        made = self.count(name)
        self.assume(lambda: made < stop)
        return made

    def assume(self, condition: Callable[[], Any]) -> None:
        """Restrict the values to those for which the condition is true. Raises NotAssumed for concrete ones."""
        if self._assume is not None:
            self._assume(lambda: truth(condition()))
        elif not condition():
            raise NotAssumed("these numbers do not satisfy the assumptions of the scenario")

    def _made(self, name: str, kind: Callable[[z3.ArithRef], SymbolicInt]) -> Any:
        self.names.append(name)
        return kind(_variable(name)) if self._values is None else self._values.get(name, 0)


@functools.lru_cache(maxsize=1024)
def _variable(name: str) -> z3.ArithRef:
    return z3.Int(name)


@dataclass
class Outcome:
    """The value that a call returned, or the error that it raised. refusal: why a proof cannot follow it."""

    value: Any = None
    error: Exception | None = None
    refusal: str = ""

    def raised(self, *kinds: type[Exception]) -> bool:
        """Whether the call raised one of these errors."""
        return isinstance(self.error, kinds)


def called(call: Callable[[], Any]) -> Outcome:
    """The outcome of a call of proved code. Raises what ended the proof in it, unless it was refused."""
    outcome = Outcome()
    with noting() as noted:
        try:
            outcome.value = call()
        except EndsProof:
            pass  # noted, like those that the code caught
        except Exception as error:  # the claims are about any error that the code raises
            outcome.error = error
    for one in noted:
        if not isinstance(one, Refused):
            raise one
        outcome.refusal = outcome.refusal or str(one)
    return outcome


@dataclass(frozen=True)
class Claim:
    """A claim about the state after a call: a sentence, and a truth value or term."""

    sentence: str
    holds: Any


@dataclass(frozen=True)
class Step:
    """A call, the errors that it may raise, and the claims about its outcome."""

    call: Callable[[], Any]
    claims: Callable[[Outcome], Iterable[Claim]]
    raises: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A method, the shapes of the objects that it is called on, and a function that makes the step.

    subject: the class or function, unmodified. shapes: names, each with arguments of `make`. make: called with the
    inputs, the subject (or a mutant of it) and the arguments of a shape; returns the step.
    """

    name: str
    property: str
    subject: Any
    make: Callable[..., Step]
    shapes: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: {"": ()})


@dataclass(frozen=True)
class Path:
    """One path of a scenario: its condition, values that take it, how the call ended, and the claims about that."""

    condition: tuple[z3.BoolRef, ...]
    example: Mapping[str, int]
    ending: str
    claims: tuple[Claim, ...]

    @property
    def goal(self) -> z3.BoolRef:
        """The conjunction of all claims."""
        return every(truth(claim.holds) for claim in self.claims)


@dataclass(frozen=True)
class Shape:
    """The assumptions and all paths of a scenario for one shape."""

    name: str
    assumptions: tuple[z3.BoolRef, ...]
    paths: tuple[Path, ...]
    num_checks: int


def explore(scenario: Scenario, shape: str) -> Shape:
    exploration = Exploration()
    paths = tuple(_paths(scenario, shape, scenario.subject, exploration))
    return Shape(shape, tuple(exploration.assumptions), paths, exploration.num_checks)


def _paths(scenario: Scenario, shape: str, subject: Any, exploration: Exploration) -> Iterator[Path]:
    """Yields the paths in the order in which they are found, each after it was replayed with plain numbers."""
    names: list[str] = []  # of the latest run, like the next two
    ending, claims = "", tuple[Claim, ...]()

    def run() -> None:
        nonlocal names, ending, claims
        inputs = Inputs(assume=exploration.assume)
        ending, claims = run_step(scenario.make(inputs, subject, *scenario.shapes[shape]))
        names = inputs.names

    for condition in exploration.paths(run):
        values = exploration.values(names)
        assert values is not None, "a path was found with values that take it"
        if reason := _not_followed(scenario, shape, subject, values, ending, claims):
            ending, claims = f"{ending}, {reason}", (Claim(reason, False),)
        yield Path(condition, values, ending, claims)


def _not_followed(
    scenario: Scenario, shape: str, subject: Any, values: Mapping[str, int], ending: str, claims: Iterable[Claim]
) -> str:
    """Why the proof cannot follow a path: what the code that ran contains, or what it does with plain numbers."""
    step = scenario.make(Inputs(values), subject, *scenario.shapes[shape])
    with watched() as ran:
        outcome = called(step.call)
    if refusals := ran.refusals():
        return f"is refused: {refusals[0]}"
    plain_ending, plain_claims = _judged(step, outcome)
    if plain_ending != ending:
        return f"with plain numbers it {plain_ending}"
    for ours, theirs in zip(claims, plain_claims, strict=True):
        if not theirs.holds and _is_true(ours.holds, values):
            return f"with plain numbers it is false that {ours.sentence}"
    return ""


def _is_true(holds: Any, values: Mapping[str, int]) -> bool:
    """Whether a claim is true for these values, by its term."""
    numbers = [(_variable(name), z3.IntVal(value)) for name, value in values.items()]
    return z3.is_true(z3.simplify(z3.substitute(truth(holds), *numbers)))


def run_step(step: Step) -> tuple[str, tuple[Claim, ...]]:
    """Make the call. Returns how it ended, and the claims about that."""
    return _judged(step, called(step.call))


def _judged(step: Step, outcome: Outcome) -> tuple[str, tuple[Claim, ...]]:
    if outcome.refusal:
        return f"is refused: {outcome.refusal}", (Claim(outcome.refusal, False),)
    if outcome.error is not None and type(outcome.error) not in step.raises:
        kind = type(outcome.error).__name__
        return f"raises {kind}", (Claim(f"it raises no {kind}", False),)
    ending = "returns" if outcome.error is None else f"raises {type(outcome.error).__name__}"
    try:
        return ending, tuple(step.claims(outcome))
    except Exception as error:  # it leaves other objects than claims can be about
        reason = f"leaves what no claim is about ({type(error).__name__}: {error})"
        return f"{ending}, and {reason}", (Claim(f"it {reason}", False),)


def obligations(scenario: Scenario) -> Iterator[Obligation]:
    """For each shape: one obligation for each way to end, and one that states that there is no other path."""
    for name in scenario.shapes:
        yield from obligations_of(scenario, explore(scenario, name))


def obligations_of(scenario: Scenario, shape: Shape) -> Iterator[Obligation]:
    """The obligations of one shape. Each path gives `condition implies claims`; paths with equal endings are joined."""
    invariant = (Hypothesis("invariant", every(shape.assumptions)),)
    where = f"{shape.name}: " if shape.name else ""
    for ending in dict.fromkeys(path.ending for path in shape.paths):
        alike = [path for path in shape.paths if path.ending == ending]
        goal = every(z3.Implies(every(path.condition), path.goal) for path in alike)
        yield Obligation(SUITE, scenario.name, f"{where}where it {ending}", scenario.property, invariant, goal)
    some_path = some(every(path.condition) for path in shape.paths)
    yield Obligation(SUITE, scenario.name, f"{where}no other path", scenario.property, invariant, some_path)


# Refutations ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refutation:
    """Concrete numbers for which a claim is false, confirmed by calling the method with them."""

    scenario: str
    shape: str
    values: Mapping[str, int]
    ending: str
    broken: tuple[str, ...]

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"{self.scenario} {self.shape}: with {numbers} it {self.ending}, but {'; '.join(self.broken)}"


class NotReplayed(Exception):
    """The solver has numbers for which a path breaks a claim, but calling the method with them does not confirm it."""


def refutations(scenario: Scenario, subject: Any = None, shapes: Iterable[str] | None = None) -> Iterator[Refutation]:
    """Every path whose claims are false for some values, confirmed by a replay. Yields them as paths are explored.

    subject: a mutant that replaces the scenario's own subject. shapes: explore only these. Raises NotReplayed.
    """
    subject = scenario.subject if subject is None else subject
    for name in scenario.shapes if shapes is None else shapes:
        exploration = Exploration()
        for path in _paths(scenario, name, subject, exploration):
            broken = z3.Not(path.goal)
            few = every(z3.And(z3.Int(one) >= -SMALL, z3.Int(one) <= SMALL) for one in path.example)
            values = exploration.values(path.example, z3.And(broken, few)) or exploration.values(path.example, broken)
            if values is None:
                continue
            ending, claims = replay(scenario, name, values, subject)
            false = tuple(claim.sentence for claim in claims if not claim.holds)
            if not false or ending != path.ending:
                raise NotReplayed(f"{scenario.name} {name}: {values}")
            yield Refutation(scenario.name, name, values, ending, false)


def replay(
    scenario: Scenario, shape: str, values: Mapping[str, int], subject: Any = None
) -> tuple[str, tuple[Claim, ...]]:
    """Call the method with concrete numbers. Returns how it ended, and the claims, each true or false."""
    subject = scenario.subject if subject is None else subject
    step = scenario.make(Inputs(values), subject, *scenario.shapes[shape])
    ending, claims = run_step(step)
    assert not any(isinstance(claim.holds, (SymbolicBool, SymbolicInt)) for claim in claims)
    return ending, claims
