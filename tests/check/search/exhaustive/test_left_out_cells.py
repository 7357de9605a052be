"""What a key or a string leaves out of a state changes no claim: whatever value it has, the same claims hold.

Each test takes reachable states, gives one cell after the other another value, as a wrong rule might, and asks every
claim of what comes of it.
"""

import pickle
import random
import shutil
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any

import pytest

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use
from kvproof.check.search.exhaustive.specification import space_of
from kvproof.check.search.exhaustive.specification_calls import CallSpace
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.native import FIELDS
from kvproof.spec.text.state import State

SMALL = {
    "tables": Scope(2, num_seqs=2, num_tokens=3, level="rules"),
    "calls": Scope(3, num_seqs=2, num_tokens=3),
    "window": Scope(2, num_seqs=2, num_tokens=3, block_size=1, window=1, level="rules"),
    "cache": Scope(2, num_seqs=2, num_tokens=2, block_size=1, caching=True, reserving=True, level="rules"),
    "flights": Scope(2, num_seqs=1, num_tokens=2, num_flights=2, level="rules"),
    "transfers": Scope(1, 2, num_seqs=1, num_tokens=1, block_size=1, swap=True, num_flights=2, level="rules"),
}
VALUES = (-1, 0, 1, 2, 3, -2)
ASKED_IN_C = {"BROKEN_CLAIM": 1, "MISCOUNTED": 5}  # findings about a state, as in `calls.c`
NUM_STATES = 6  # of each scope


@cache
def reached(name: str) -> tuple[RuleSpace | CallSpace, dict[Hashable, State]]:
    """A scope, and every reachable state by its key. Two tests read them; none changes them."""
    space = space_of(SMALL[name])
    waiting = [space.expand(space.first())]
    found = {space.state_key(waiting[0]): waiting[0]}
    while waiting:
        for _, state in space.successors(waiting.pop()):
            if (key := space.state_key(state)) not in found:
                found[key] = space.expand(state)
                waiting.append(state)
    return space, found


def some_of(found: dict[Hashable, State]) -> list[State]:
    return random.Random(1).sample(list(found.values()), min(NUM_STATES, len(found)))


def with_another_cell(state: State) -> Iterator[tuple[str, State]]:
    """The state with each of its cells set to each other value, and what was set."""
    whole = pickle.dumps(state)  # a copy by the machine shares rows, and fields that no rule of the scope writes
    for name, field in FIELDS.items():
        if field.kind == "ghost":
            continue
        for path in places(getattr(state, name)):
            for value in (
                (False, True) if field.to.name == "Flag" else VALUES[: -1 if field.to.name == "Identity" else None]
            ):
                changed = pickle.loads(whole)
                row: Any = getattr(changed, name)
                for place in path[:-1]:
                    row = row[place]
                if row[path[-1]] != value:
                    row[path[-1]] = value
                    yield f"{name}{[*path]} = {value}", changed


def places(value: Any) -> Iterator[tuple[int, ...]]:
    for place, inner in enumerate(value):
        if isinstance(inner, list):
            yield from ((place, *more) for more in places(inner))
        else:
            yield (place,)


@pytest.mark.parametrize("name", SMALL)
def test_a_state_that_breaks_a_claim_has_the_key_of_no_state_that_breaks_none(name: str) -> None:
    space, found = reached(name)
    num_alike = num_broken = 0
    for state in some_of(found):
        for what, changed in with_another_cell(state):
            finding = space.claims.broken(changed)
            num_broken += finding is not None
            if space.state_key(changed) in found:
                num_alike += 1
                assert finding is None, f"{what} is not in the key, and {finding} in {vars(state)}"
    assert (num_alike > 10, num_broken > 250) == (True, True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", SMALL)
def test_the_c_reader_finds_a_claim_broken_exactly_where_python_does(name: str) -> None:
    spec, (space, found) = SpecificationInC(SMALL[name]), reached(name)
    num_alike = num_broken = 0
    with in_use:
        spec.prepare()
        for state in some_of(found):
            before = space.continuations.before
            as_it_is = spec.string(state, before)
            for what, changed in with_another_cell(state):
                is_broken = space.claims.broken(changed) is not None
                string = spec.string(changed, before)
                finding = spec.successors(string)[1] if string else min(ASKED_IN_C.values())
                num_broken += is_broken
                num_alike += string == as_it_is
                assert (finding in ASKED_IN_C.values()) == is_broken, f"{what} in {vars(state)}"
    assert (num_alike > 10, num_broken > 250) == (True, True)
