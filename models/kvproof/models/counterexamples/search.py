"""Search for a counterexample to an obligation that is not proved, in growing instances; a run must confirm it.

What is found is shrunk: every value that can equal the one of the initial state is reset.
"""

import copy
from collections.abc import Iterator
from typing import Any

from kvproof.models.counterexamples.case import CLAIMS, RULES, Case, Kind, ProofCounterexample, case_of
from kvproof.models.counterexamples.clauses import false_clauses
from kvproof.models.counterexamples.instances import Candidate, Search, instances_for
from kvproof.models.counterexamples.replay import Replay, Replayed
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.text import Text, place_of, specification
from kvproof.spec.language import IDENTITIES
from kvproof.spec.native import FIELDS
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.properties import MEANINGS

SECONDS = 20.0  # of effort
NUM_REPLAYS_MAX = 2_000  # to shrink one counterexample


def counterexample(
    obligation: Obligation, text: Text | None = None, allowance: Allowance | None = None
) -> ProofCounterexample | None:
    """Search for a state from which running the text breaks the obligation; None if none is found.

    text: the text that the obligation is about; by default that of the specification. allowance: the solver's effort.
    """
    case = case_of(obligation)
    if case is None:
        return None
    text = text or specification()
    allowance = allowance or Allowance(SECONDS)
    for sizes in instances_for(case):
        if not allowance.left:
            return None
        candidate = _candidate(case, obligation.id, sizes, text, allowance)
        if candidate is None:
            continue
        replay = Replay(case, sizes, text)
        if replay.run(candidate) is None:
            continue
        if case.kind is not Kind.INITIAL:
            candidate = shrink(replay, candidate)
        done = replay.run(candidate)
        assert done is not None
        return _described(case, sizes, text, obligation, candidate, done)
    return None


def _candidate(case: Case, id: str, sizes: Sizes, text: Text, allowance: Allowance) -> Candidate | None:
    if case.kind is Kind.INITIAL:
        return Candidate(Replay(case, sizes, text).machine.first_state(), {})
    return Search(sizes, text).candidate(case, RULES.get(case.subject), id, allowance)


def _described(
    case: Case, sizes: Sizes, text: Text, obligation: Obligation, candidate: Candidate, done: Replayed
) -> ProofCounterexample:
    clauses = false_clauses(text, sizes, case.claim, done.after) if case.kind not in (Kind.CHECK, Kind.RANGE) else ()
    if case.claim in CLAIMS:
        sentence = CLAIMS[case.claim].sentence
        place = place_of(text.functions[case.claim][1], text.functions[case.claim][0])
    else:
        meaning, place = MEANINGS.get(case.property), obligation.place
        sentence = meaning.sentence if meaning else ""
    return ProofCounterexample(
        case, sizes, candidate.arguments, copy.deepcopy(candidate.state), done.after, sentence, place, clauses
    )


# Shrinking ---------------------------------------------------------------------------------------------------------


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
