"""Shrink a counterexample: reset every value that can equal the one of the initial state."""

import copy
from collections.abc import Iterator
from typing import Any

from kvproof.models.counterexamples.instances import Candidate
from kvproof.models.counterexamples.replay import Replay
from kvproof.spec.language import IDENTITIES
from kvproof.spec.native import FIELDS

NUM_REPLAYS_MAX = 2_000


def shrink(replay: Replay, candidate: Candidate) -> Candidate:
    """A candidate that the run confirms too, and that differs from the initial state in fewer values."""
    found = _renamed(candidate)
    if replay.run(found) is None:
        found = candidate
    first, num_replays = replay.machine.first_state(), 0
    for name in FIELDS:
        for at, value in cells(getattr(first, name)):
            if value_at(getattr(found.state, name), at) != value and num_replays < NUM_REPLAYS_MAX:
                num_replays += 1
                state = copy.deepcopy(found.state)
                value_at(getattr(state, name), at[:-1])[at[-1]] = value
                changed = Candidate(state, found.arguments)
                if replay.run(changed) is not None:
                    found = changed
    return found


def _renamed(candidate: Candidate) -> Candidate:
    """The candidate with identities renumbered from 1 in the order of occurrence; only their equality matters."""
    numbers: dict[int, int] = {}

    def renamed(values: Any) -> Any:
        if isinstance(values, list):
            return [renamed(value) for value in values]
        return numbers.setdefault(values, len(numbers) + 1)

    state = copy.deepcopy(candidate.state)
    for name, field in FIELDS.items():
        if field.to is IDENTITIES:
            setattr(state, name, renamed(getattr(state, name)))
    arguments = {name: renamed(one) if isinstance(one, list) else one for name, one in candidate.arguments.items()}
    return Candidate(state, arguments)


def cells(values: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Each value in nested lists, with its indexes."""
    if not isinstance(values, list):
        yield (), values
        return
    for index, inner in enumerate(values):
        for at, value in cells(inner):
            yield (index, *at), value


def value_at(values: Any, at: tuple[int, ...]) -> Any:
    """The value, or the inner list, at these indexes."""
    for index in at:
        values = values[index]
    return values
