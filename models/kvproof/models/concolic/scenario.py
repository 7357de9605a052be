"""One method of one class, from any state that satisfies the invariant: what it does is stated, and proved by paths.

A `Scenario` makes an object of the class from `Inputs`, assumes the invariant, calls the method, and claims what
is then returned or raised and how the object looks, the invariant included. The same text runs twice: on symbolic
inputs, where invariant and path condition must imply the claims on every path, and on concrete numbers, where it
shows that a refutation is one, and that a path does what its terms say.

Containers of the object have a concrete shape, over at most four blocks; counts, times and ids in them are any.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.models.concolic.exploration import Exploration, GaveUp, NoSuchState, TooManyPaths
from kvproof.models.concolic.symbolic import SymbolicBool, SymbolicId, SymbolicInt, Undecided, every, some, truth
from kvproof.models.proofs.obligation import Hypothesis, Obligation

SUITE = "concolic"
SMALL = 9  # numbers up to it read well, and are tried first


class NotAssumed(Exception):
    """Concrete numbers do not satisfy what the scenario assumes."""


Assume = Callable[[Callable[[], z3.BoolRef]], None]


class Inputs:
    """The values a scenario starts from: symbolic ones, or the numbers of `values`."""

    def __init__(self, values: Mapping[str, int] | None = None, assume: Assume | None = None):
        self._values, self._assume = values, assume
        self.names: list[str] = []

    def integer(self, name: str) -> Any:
        """Any integer."""
        return self._made(name, SymbolicInt)

    def identifier(self, name: str) -> Any:
        """The id of a block, for containers that hold such ids only."""
        return self._made(name, SymbolicId)

    def count(self, name: str) -> Any:
        """Any integer from 0."""
        made = self.integer(name)
        self.assume(lambda: made >= 0)
        return made

    def below(self, name: str, stop: int) -> Any:
        """Any integer from 0 up to `stop` - 1."""
        made = self.count(name)
        self.assume(lambda: made < stop)
        return made

    def assume(self, condition: Callable[[], Any]) -> None:
        """Take only values for which the condition is true."""
        if self._assume is not None:
            self._assume(lambda: truth(condition()))
        elif not condition():
            raise NotAssumed("these numbers do not satisfy what the scenario assumes")

    def _made(self, name: str, kind: Callable[[z3.ArithRef], SymbolicInt]) -> Any:
        self.names.append(name)
        return kind(z3.Int(name)) if self._values is None else self._values.get(name, 0)


@dataclass
class Outcome:
    """What a call returned, or the error it raised."""

    value: Any = None
    error: Exception | None = None

    def raised(self, *kinds: type[Exception]) -> bool:
        """Whether it raised one of these."""
        return isinstance(self.error, kinds)


@dataclass(frozen=True)
class Claim:
    """What holds after a call: a sentence, and whether it does."""

    sentence: str
    holds: Any


@dataclass(frozen=True)
class Step:
    """A call that is ready to be made, the errors it may raise, and what is claimed of its outcome."""

    call: Callable[[], Any]
    claims: Callable[[Outcome], Iterable[Claim]]
    raises: tuple[type[Exception], ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A method, the shapes of object it is called on, and how such a step is made.

    subject: the class or function that is unmodified. shapes: a name and the arguments of `make` for each.
    make: gives the step, of the inputs, the subject (or a mutant of it) and the shape.
    """

    name: str
    property: str
    subject: Any
    make: Callable[..., Step]
    shapes: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: {"": ()})


@dataclass(frozen=True)
class Path:
    """One path through a scenario: when it is taken, values that take it, how it ended, what was claimed of that."""

    condition: tuple[z3.BoolRef, ...]
    example: Mapping[str, int]
    ending: str
    claims: tuple[Claim, ...]

    @property
    def goal(self) -> z3.BoolRef:
        """All claims together."""
        return every(truth(claim.holds) for claim in self.claims)


@dataclass(frozen=True)
class Shape:
    """All paths of a scenario for one shape of object."""

    name: str
    assumptions: tuple[z3.BoolRef, ...]
    paths: tuple[Path, ...]
    num_checks: int


def explored(scenario: Scenario, shape: str) -> Shape:
    """Every path for one shape."""
    exploration = Exploration()
    paths = tuple(_paths(scenario, shape, scenario.subject, exploration))
    return Shape(shape, tuple(exploration.assumptions), paths, exploration.num_checks)


def _paths(scenario: Scenario, shape: str, subject: Any, exploration: Exploration) -> Iterator[Path]:
    """The paths as they are found."""
    names: list[str] = []  # of the latest run, as the two below
    ending, claims = "", tuple[Claim, ...]()

    def run() -> None:
        nonlocal names, ending, claims
        inputs = Inputs(assume=exploration.assume)
        ending, claims = judged(scenario.make(inputs, subject, *scenario.shapes[shape]))
        names = inputs.names

    for condition in exploration.paths(run):
        values = exploration.values(names)
        assert values is not None, "what a path was found with takes it"
        yield Path(condition, values, ending, claims)


def judged(step: Step) -> tuple[str, tuple[Claim, ...]]:
    """Make the call; gives how it ended and what is claimed of that."""
    outcome = Outcome()
    try:
        outcome.value = step.call()
    except (NoSuchState, TooManyPaths, GaveUp, Undecided):
        raise
    except Exception as error:  # whatever the method raises is judged
        outcome.error = error
    if outcome.error is not None and type(outcome.error) not in step.raises:
        kind = type(outcome.error).__name__
        return f"raises {kind}", (Claim(f"it raises no {kind}", False),)
    ending = "returns" if outcome.error is None else f"raises {type(outcome.error).__name__}"
    return ending, tuple(step.claims(outcome))


def obligations(scenario: Scenario) -> Iterator[Obligation]:
    """For each shape: one for each way to end, and one that says that there is no other path."""
    for name in scenario.shapes:
        yield from obligations_of(scenario, explored(scenario, name))


def obligations_of(scenario: Scenario, shape: Shape) -> Iterator[Obligation]:
    """The same for one shape. Each path gives `condition implies claims`; what ends alike is one obligation."""
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
    """Concrete numbers for which a claim is false, seen by calling the method on them."""

    scenario: str
    shape: str
    values: Mapping[str, int]
    ending: str
    broken: tuple[str, ...]

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} = {value}" for name, value in self.values.items())
        return f"{self.scenario} {self.shape}: with {numbers} it {self.ending}, but {'; '.join(self.broken)}"


class NotReplayed(Exception):
    """The solver says that a path breaks a claim, and running the method on its numbers does not show it."""


def refutations(scenario: Scenario, subject: Any = None, shapes: Iterable[str] | None = None) -> Iterator[Refutation]:
    """Every path whose claims are false for some values, each replayed; found while the paths are.

    subject: a mutant, in place of the scenario's own. shapes: only these. Raises NotReplayed.
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
            ending, claims = replayed(scenario, name, values, subject)
            false = tuple(claim.sentence for claim in claims if not claim.holds)
            if not false or ending != path.ending:
                raise NotReplayed(f"{scenario.name} {name}: {values}")
            yield Refutation(scenario.name, name, values, ending, false)


def replayed(
    scenario: Scenario, shape: str, values: Mapping[str, int], subject: Any = None
) -> tuple[str, tuple[Claim, ...]]:
    """Call the method on concrete numbers; gives how it ended, and the claims with their truth."""
    subject = scenario.subject if subject is None else subject
    step = scenario.make(Inputs(values), subject, *scenario.shapes[shape])
    ending, claims = judged(step)
    assert not any(isinstance(claim.holds, (SymbolicBool, SymbolicInt)) for claim in claims)
    return ending, claims
