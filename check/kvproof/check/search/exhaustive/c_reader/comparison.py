"""The C reader held to the Python reader.

`compare_searches` visits states in the order of a search, and `compare_states` takes states of a search that has ended:
the strings of what Python reaches from a state must be those that C reaches. Both raise ReadersDiffer at the first
difference. `kvproof.audit.crosscheck.c_reader` compares single firings, those that are refused too.
"""

from collections.abc import Iterable

from kvproof.check.protocol.finding import Finding
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use
from kvproof.check.search.exhaustive.specification_calls import CallSpace
from kvproof.check.search.exhaustive.specification_rules import RuleSpace


class ReadersDiffer(Exception):
    """The two readers say different things about the specification: one of them is wrong."""


def compare_searches(spec: SpecificationInC, num_states: int) -> int:
    """Compare what the first states of a search lead to; the number of states compared. Raises ReadersDiffer."""
    with in_use:
        spec.prepare()
        space = _space(spec)
        first = spec.string(space.first(), space.continuations.before)
        frontier, known, num_compared = [first], {first}, 0
        while frontier and num_compared < num_states:
            following: list[bytes] = []
            for string in frontier[: num_states - num_compared]:
                num_compared += 1
                reached = _compare_successors(spec, string)
                if reached is None:
                    return num_compared
                following += [one for one in dict.fromkeys(reached) if one not in known]
                known.update(reached)
            frontier = following
    return num_compared


def compare_states(spec: SpecificationInC, strings: Iterable[bytes]) -> None:
    """Compare what these states lead to, in which a search in C has found nothing. Raises ReadersDiffer."""
    with in_use:
        for string in strings:
            if _compare_successors(spec, string) is None:
                raise ReadersDiffer(
                    f"both readers refute a state that a search in C went past: {spec.state(string)[0]}"
                )


def _compare_successors(spec: SpecificationInC, string: bytes) -> list[bytes] | None:
    """The strings that a state leads to, the same in both readers; None if both make a finding there."""
    reached, finding = spec.successors(string)
    expected = _reached_by_python(spec, string)
    if expected is None:
        if not finding:
            raise ReadersDiffer(f"Python refutes a state that C does not: {spec.state(string)[0]}")
        return None
    if set(reached) != expected or finding:
        raise ReadersDiffer(_difference(spec, string, set(reached), expected, finding))
    return reached


def _space(spec: SpecificationInC) -> RuleSpace | CallSpace:
    return (RuleSpace if spec.scope.level == "rules" else CallSpace)(spec.scope, spec.machine)


def _reached_by_python(spec: SpecificationInC, string: bytes) -> set[bytes] | None:
    """The strings of the successors in Python of one state; None if something is refuted there.

    As in C, a successor is refuted at once if its ghosts are wrong, or a number of it is out of range.
    """
    space = _space(spec)
    state, before = spec.state(string)
    space.continuations.resume(before)
    found = set[bytes]()
    try:
        for _, reached in space.successors(state):
            found.add(spec.string(reached, space.continuations.before))
            if b"" in found or not space.claims.ghosts_agree(reached):
                return None
    except Finding:
        return None
    return found


def _difference(spec: SpecificationInC, string: bytes, reached: set[bytes], expected: set[bytes], finding: int) -> str:
    lines = [f"finding {finding} in C" if finding else f"C reaches {len(reached)} states, Python {len(expected)}, from"]
    lines += [str(vars(spec.state(string)[0]))]
    lines += [f"only C: {vars(spec.state(one)[0])}" for one in sorted(reached - expected)[:1]]
    lines += [f"only Python: {vars(spec.state(one)[0])}" for one in sorted(expected - reached)[:1]]
    return "\n".join(lines)
