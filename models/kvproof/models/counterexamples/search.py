"""Search for a counterexample to an obligation that is not proved, in growing instances; a run must confirm it."""

import copy

from kvproof.models.counterexamples.case import CLAIMS, RULES, Case, Counterexample, Kind, case_of
from kvproof.models.counterexamples.clauses import false_clauses
from kvproof.models.counterexamples.instances import Candidate, Search, instances_for
from kvproof.models.counterexamples.replay import Replay, Replayed
from kvproof.models.counterexamples.shrinking import shrink
from kvproof.models.obligation import Obligation
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.text import Text, place_of, specification
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.properties import MEANINGS

SECONDS = 20.0  # of effort


def counterexample(
    obligation: Obligation, text: Text | None = None, allowance: Allowance | None = None
) -> Counterexample | None:
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
) -> Counterexample:
    clauses = false_clauses(text, sizes, case.claim, done.after) if case.kind not in (Kind.CHECK, Kind.RANGE) else ()
    if case.claim in CLAIMS:
        sentence = CLAIMS[case.claim].sentence
        place = place_of(text.functions[case.claim][1], text.functions[case.claim][0])
    else:
        meaning, place = MEANINGS.get(case.property), obligation.place
        sentence = meaning.sentence if meaning else ""
    return Counterexample(
        case, sizes, candidate.arguments, copy.deepcopy(candidate.state), done.after, sentence, place, clauses
    )
