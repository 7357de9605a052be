"""The states of the specification as a space to search: what single rules and whole calls have in common.

Which tokens are tried: enough of them for every pattern of equal and different identities, and no more. An identity is
a number for everything before a position together with the token there; equal prefixes give equal identities, by
construction and not by luck. What a rule compares, it compares for equality, and only to *allow* something (no guard
asks that two contents differ). So merging token values keeps a run possible, and a run that makes two slots differ
which must be equal can be renamed, position by position, until each position has only two values: the one in the first
slot, and every other. Two raw values for each position are therefore enough where contents are compared (caching); a
value that nothing in the state uses is tried once. Where nothing is compared, a fresh token for each append is the most
that can differ.

Every state is checked against an independent count, and against the claims of the specification. The count alone checks
the references, the lists, what is shared and what is read back. Where states are so many that evaluating each claim
would take longer than the search, a scope leaves the claims out, and its result says so.
"""

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.check.search.exhaustive.canonical import StateKeys
from kvproof.check.search.exhaustive.enumerations import enumerate_ghosts, with_ghosts
from kvproof.check.search.exhaustive.independent_count import miscounts
from kvproof.check.search.exhaustive.left_out import EVERY, NUM_FIRST, READS_LEFT_OUT, LeftOutCells, not_alike
from kvproof.check.search.result import SearchResult
from kvproof.spec.compilation import CheckFailed, Guard
from kvproof.spec.language import COLLECTED, Claim
from kvproof.spec.native import Machine
from kvproof.spec.syntax_trees import Functions, functions, reads_ghosts
from kvproof.spec.text.operations import RuleCall
from kvproof.spec.text.state import NONE, State
from kvproof.spec.text.witnesses import SEEN_AFTER, SEEN_BEFORE, witnesses_after, witnesses_before

Predicate = Callable[[State], bool]
NUM_VALUES = 2
ROOT = 0  # the identity before the first position


class Continuations:
    """The identities of one exploration, as a tree: each identity knows the one before it."""

    def __init__(self) -> None:
        self.before: list[int] = [ROOT]
        self._after: list[list[int]] = [[]]

    def resume(self, before: list[int]) -> None:
        """Begin again with these identities: for each, the one of the position before it, which has a lower number."""
        self.before[:] = before
        self._after[:] = [[] for _ in before]
        for identity, one in enumerate(before):
            if identity != ROOT:
                self._after[one].append(identity)

    def rotate(self) -> None:
        """Give each identity another value: the identities after the same one change their places."""
        for following in self._after:
            following[:] = following[1:] + following[:1]

    def after(self, identity: int, value: int) -> int:
        """The identity of the next position, when the raw token there is `value`."""
        following = self._after[identity]
        while len(following) <= value:
            following.append(len(self.before))
            self.before.append(identity)
            self._after.append([])
        return following[value]

    def raw(self, identity: int) -> list[int]:
        """The raw tokens from the first position up to this identity."""
        values: list[int] = []
        while identity != ROOT:
            before = self.before[identity]
            values.append(self._after[before].index(identity))
            identity = before
        return values[::-1]

    def fresh(self, identity: int, used: set[int]) -> int:
        """The first identity of the next position that is not among `used`."""
        value = 0
        while (following := self.after(identity, value)) in used:
            value += 1
        return following

    def choices(self, identity: int, used: set[int]) -> list[int]:
        """What is tried for the next position: every identity that the state uses, and one that it does not."""
        following = [self.after(identity, value) for value in range(NUM_VALUES)]
        unused = [each for each in following if each not in used]
        return [each for each in following if each in used] + unused[:1]

    def rows(self, identity: int, num_slots: int, used: set[int]) -> list[list[int]]:
        """Every choice for the next `num_slots` positions."""
        rows: list[list[int]] = [[]]
        for _ in range(num_slots):
            rows = [[*row, choice] for row in rows for choice in self.choices(row[-1] if row else identity, used)]
        return rows

    def with_all_before(self, identities: Iterable[int]) -> set[int]:
        """These identities and every identity on the way to them."""
        found: set[int] = set()
        for identity in identities:
            while identity > ROOT and identity not in found:
                found.add(identity)
                identity = self.before[identity]
        return found


class NumberedContinuations(Continuations):
    """Identities whose number says how they came about, so that all processes of one search give the same numbers.

    num_values: more than the values that are tried at one position.
    """

    def __init__(self, num_values: int) -> None:
        super().__init__()
        self._num_values = num_values
        self.before = _Predecessors(num_values)  # type: ignore[assignment]

    def after(self, identity: int, value: int) -> int:
        """The identity of the next position, when the raw token there is `value`."""
        assert value < self._num_values
        return identity * self._num_values + value + 1


class _Predecessors:
    """For each numbered identity the one of the position before it."""

    def __init__(self, num_values: int) -> None:
        self._num_values = num_values

    def __getitem__(self, identity: int) -> int:
        return (identity - 1) // self._num_values if identity > ROOT else ROOT

    def __len__(self) -> int:
        return sys.maxsize


BROKEN = (CheckFailed, IndexError, TypeError, ValueError, ZeroDivisionError)  # what a wrong rule may raise


class Firings:
    """Fires rules of one machine, and counts them and witnesses. An error that a rule raises refutes the rule."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.fired: Counter[str] = Counter()
        self.witnesses: Counter[str] = Counter()

    def fire(self, state: State, rule: str, arguments: tuple[Any, ...], operation: Operation) -> Guard | None:
        """Fire one rule in place; the guard that refuses it, if any. Raises Finding, for `operation`."""
        try:
            return self.machine.rules[rule](state, *arguments)
        except BROKEN as error:
            raise refuted(error, (rule, *arguments), operation) from error

    def run(self, state: State, program: Iterator[RuleCall], operation: Operation) -> Guard | None:
        """Fire a program in place up to the guard that refuses it, if any. Raises Finding, for `operation`."""
        rules, fired, witnesses = self.machine.rules, self.fired, self.witnesses
        firing: tuple[Any, ...] = ()
        try:
            for rule, arguments in program:
                firing = (rule, *arguments)
                observed = witnesses_before(state, rule, arguments) if rule in SEEN_BEFORE else []
                if refused := rules[rule](state, *arguments):
                    return refused
                if rule in SEEN_AFTER:
                    observed += witnesses_after(state, rule, arguments)
                fired[rule] += 1
                for name in observed:
                    witnesses[name] += 1
        except BROKEN as error:
            raise refuted(error, firing, operation) from error
        return None

    def count(self, rule: str, observed: Iterable[str]) -> None:
        """Count that a rule has fired, and that these witnesses were observed."""
        self.fired[rule] += 1
        for name in observed:
            self.witnesses[name] += 1


def refuted(error: Exception, firing: tuple[Any, ...], operation: Operation) -> Finding:
    """The refutation that an error in a rule means."""
    if isinstance(error, CheckFailed):
        return Finding(error.property, f"{error.rule}: {error.text}", tried=operation)
    rule, *arguments = firing or ("nothing",)
    text, values = (
        f"{rule}$arguments raises {type(error).__name__}: $error",
        {"arguments": tuple(arguments), "error": error},
    )
    return Finding("total-calls", text, values=values, tried=operation)


CLAIMS = COLLECTED.invariants + COLLECTED.theorems


def asks_claims(scope: Scope) -> bool:
    """Whether the search in Python evaluates the claims in every state."""
    return scope.claims or scope.level == "rules"


def note_claims(found: SearchResult, are_asked: bool) -> None:
    """Say in a result that the claims were asked, or that they were not, each under its property."""
    names = found.claims if are_asked else found.claims_left_out
    for claim in CLAIMS:
        names.setdefault(claim.property, []).append(claim.name)


class Claims:
    """The claims that are evaluated on states of one machine, after the independent count.

    are_asked: without them, a state is only counted. On a machine without ghosts, claims that read them are asked of
    ghosts made anew (`enumerations`).
    """

    def __init__(self, machine: Machine, are_asked: bool) -> None:
        self.machine, self.are_asked = machine, are_asked
        self._predicates: list[tuple[Claim, Predicate]] = [
            (claim, machine.function(claim.name)) for claim in CLAIMS if are_asked
        ]
        self._of_ghosts = [
            holds for claim, holds in self._predicates if machine.with_ghosts and reads_ghosts(claim.name, functions())
        ]

    def broken(self, state: State) -> Finding | None:
        """The first thing that does not hold; counting comes first, since it needs no sound state."""
        try:
            if found := miscounts(self.machine.sizes, state):
                return Finding(*found)
            if self._predicates and not self.machine.with_ghosts:
                state = with_ghosts(self.machine, state)
            for claim, holds in self._predicates:
                if not holds(state):
                    return Finding(claim.property, f"{claim.name}: {claim.sentence}")
        except (IndexError, ZeroDivisionError):
            return Finding("lists-agree", "a number of the state is out of the range of what it counts")
        return None

    def ghosts_agree(self, state: State) -> bool:
        """Whether the ghosts that the rules have updated satisfy every claim that reads a ghost."""
        try:
            for holds in self._of_ghosts:
                if not holds(state):
                    return False
        except (IndexError, ZeroDivisionError):
            return False
        return True


class SpecificationSpace:
    """The states of one machine.

    are_claims_asked: whether the claims are evaluated in each, in addition to the independent count. text: that of the
    machine, if it is another one than that of the specification. reads_left_out: what was seen to read a cell that keys
    leave out (`left_out`), or takes a name for something else (`names_only`): states with one key may not be the same
    then, so such a search is not exhausted.
    """

    def __init__(
        self,
        scope: Scope,
        machine: Machine,
        are_claims_asked: bool,
        continuations: Continuations | None = None,
        text: Functions | None = None,
    ) -> None:
        self.scope, self.machine = scope, machine
        self.firings = Firings(machine)
        self.claims = Claims(machine, are_claims_asked)
        self.continuations = continuations or Continuations()
        self._keys = StateKeys(machine, self.continuations.before)
        self.left_out, self.num_expanded = LeftOutCells(machine), 0
        self.reads_left_out = not_alike(text)

    def first(self) -> State:
        """The state in which nothing has happened yet."""
        return self.machine.first_state()

    def state_key(self, state: State) -> Hashable:
        """See `StateKeys`. It says nothing of ghosts, so a state whose ghosts are wrong has a key of its own."""
        key = self._keys.of(state)
        return key if self.claims.ghosts_agree(state) else (NONE, key)

    def forget_keys(self, num_max: int) -> None:
        """Free the keys that are kept for speed if they are more than so many."""
        if len(self._keys) > num_max:
            self._keys = StateKeys(self.machine, self.continuations.before)

    def expand(self, state: State) -> State:
        """The state, if it breaks no claim, with its ghosts made anew. Raises Finding."""
        if (finding := self.claims.broken(state)) is not None:
            raise finding
        if self.machine.with_ghosts:
            enumerate_ghosts(self.machine, state)
        return state

    def successors(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Every transition out of a state. Raises Finding. Some states are tried twice, see `left_out`."""
        self.num_expanded += 1
        is_left = self.num_expanded > NUM_FIRST and self.num_expanded % EVERY
        return self.transitions(state) if is_left or self.reads_left_out else self._tried_twice(state)

    def transitions(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Every transition out of a state. Raises Finding."""
        raise NotImplementedError

    def _tried_twice(self, state: State) -> Iterator[tuple[Operation, State]]:
        by_sequence = self.scope.level != "rules"
        are_far = by_sequence or self.num_expanded % (2 * EVERY) < EVERY
        changed = self.left_out.changed(state, are_far=are_far, by_sequence=by_sequence)
        expected: list[tuple[Operation, Hashable]] = []
        for operation, reached in self.transitions(state):
            expected.append((operation, self._keys.of(reached)))
            yield operation, reached
        firings, self.firings = self.firings, Firings(self.machine)
        found: list[tuple[Operation, Hashable]] = []
        try:
            found += [(operation, self._keys.of(reached)) for operation, reached in self.transitions(changed)]
        except Finding as finding:
            found.append((finding.tried or (), NONE))
        finally:
            self.firings = firings
        if found != expected:
            differing = (one for one, other in zip_longest(found, expected) if one != other)
            operation = next((one[0] for one in differing if one is not None), ())
            name = str(operation[0]) if operation else "an operation"
            self.reads_left_out = READS_LEFT_OUT.format(name)
