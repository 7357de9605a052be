"""Whether a run repeats: the same operations on a fresh subject give the same finding and the same answers.

A finding is believed when two runs of its operations, each on a fresh subject, give it again with the same answers
in every call. Answers are compared as they come from the subject, in order, so that a manager whose choices depend on
time, on memory addresses or on an earlier run is not taken for one that is wrong.
"""

import marshal
from collections.abc import Callable, Sequence
from typing import Any

from kvproof.check.oracle.replay import Counterexample, ReplayResult, SubjectCall, is_cut_short, is_hang, replay
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config, Observation
from kvproof.spec.trace import Operation

USUAL_CAUSES = "usual causes: state kept from an earlier open, random choices, the clock, or the order of a set"


def difference(one: ReplayResult, other: ReplayResult) -> str | None:
    """The first difference between two runs of the same operations, as text; None if there is none."""
    return _difference(one, other)[0]


def _difference(one: ReplayResult, other: ReplayResult) -> tuple[str | None, int | None]:
    """The first difference of two runs, and the number of the call that answered differently, if one did."""
    calls, others, ends_alike = one.calls(), other.calls(), is_same_failure(one.finding, other.finding)
    for number, (first, second) in enumerate(zip(calls, others, strict=False), start=1):
        is_end_of_failure = one.finding is not None and ends_alike and number == len(calls) == len(others)
        if not first.is_as(second) or is_end_of_failure:
            break
        if first.comparable != second.comparable:
            answer, again = _answers(first, second)
            return f"call {number}, {first}; it answered {_cut(answer)}, then {_cut(again)}", number
    if not ends_alike:
        return f"first {_outcome(one.finding)}, then {_outcome(other.finding)}", None
    return None, None


def _answers(one: SubjectCall, other: SubjectCall) -> tuple[str, str]:
    """Two answers to one call as texts; of two observations the fields that differ, by their names."""
    if isinstance(one.comparable, str) or isinstance(other.comparable, str):
        return one.text, other.text
    fields = zip(Observation._fields, marshal.loads(one.comparable), marshal.loads(other.comparable), strict=True)
    parted = [(name, first, second) for name, first, second in fields if first != second]
    if not parted:  # they differ in the types of equal values
        return one.text, other.text
    texts = [(f"{name} {_plain(name, first)}", f"{name} {_plain(name, second)}") for name, first, second in parted]
    return ", ".join(text for text, _ in texts), ", ".join(text for _, text in texts)


def _plain(name: str, value: Any) -> Any:
    return dict(value) if name == "tables" else value


def is_same_failure(one: Finding | None, other: Finding | None) -> bool:
    """Whether two runs refute the same property in the same way, or nothing.

    Several limits watch a call: the time of a call, the time of a run, and the memory. Which of them ends a call that
    does not end by itself depends on the speed of the machine. So a hang is the same failure as another hang, and as
    an exception of the same call.
    """
    if one is None or other is None:
        return one is other
    if one.kind == other.kind or (is_hang(one) and is_hang(other)):
        return True
    is_limited = is_hang(one) or is_hang(other)
    return is_limited and one.cause.partition(" ")[0] == other.cause.partition(" ")[0]


def _outcome(finding: Finding | None) -> str:
    return "nothing was refuted" if finding is None else f"{finding.property}: {finding.text}"


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."


def replay_twice(
    make: Callable[[], Any], config: Config, operations: Sequence[Operation]
) -> tuple[ReplayResult, str | None]:
    """The first of two runs, and the first difference between them."""
    first, second = replay(make, config, operations), replay(make, config, operations, keeps_answers=False)
    return first, difference(first, second)


def unrepeated(
    make: Callable[[], Any],
    config: Config,
    operations: Sequence[Operation],
    finding: Finding | None,
    earlier: ReplayResult | None = None,
) -> Counterexample | None:
    """The finding `nondeterministic`, if two runs of the operations do not both give `finding`, in the same calls.

    Its run ends with the operation in which the first call answered differently, if that differs again without the
    operations behind it.

    finding: what a run before these refuted, None for nothing. earlier: the first of the two, if it was recorded when
    the operations were drawn. A sparse judge calls a subject otherwise then, so its run is repeated twice.
    """
    first = earlier or _replayed(make, config, operations, finding)
    second = _replayed(make, config, operations, finding)
    if first.is_out_of_time or second.is_out_of_time:
        return None
    if finding is not None and (is_cut_short(first) or is_cut_short(second)):
        return None  # this machine is too slow now to repeat the run; that is no doubt about the finding
    parted, number = _difference(first, second)
    if parted is None and not is_same_failure(first.finding, finding):
        parted = f"first {_outcome(finding)}, then, on a fresh subject, {_outcome(first.finding)}"
    if parted is None:
        return None
    short = [] if number is None else operations[: second.num_operations_up_to(number)]
    is_whole = number is None or len(short) == len(operations)
    kept = operations if is_whole or unrepeated(make, config, short, None) is None else short
    return Counterexample(config, list(kept), nondeterministic(parted))


def _replayed(
    make: Callable[[], Any], config: Config, operations: Sequence[Operation], finding: Finding | None
) -> ReplayResult:
    """A run of the operations. It is done once more if a call hangs that did not before: a process can stand still."""
    done = replay(make, config, operations, finding, keeps_answers=False)
    hangs = done.finding is not None and is_hang(done.finding) and not is_cut_short(done)
    if not hangs or is_same_failure(done.finding, finding):
        return done
    return replay(make, config, operations, finding, keeps_answers=False)


def confirm(make: Callable[[], Any], found: Counterexample) -> Counterexample:
    """The counterexample if two more runs repeat it; else its finding is that the subject does not repeat itself."""
    if found.finding.property == "nondeterministic":
        return found
    return unrepeated(make, found.config, found.operations, found.finding) or found


def nondeterministic(parted: str) -> Finding:
    """The finding that the same calls gave other answers."""
    return Finding(
        "nondeterministic", f"the same calls, other answers: $answers\n{USUAL_CAUSES}", values={"answers": parted}
    )
