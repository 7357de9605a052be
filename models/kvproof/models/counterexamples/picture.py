"""Print a counterexample: what is false and where, the state before, the rule, and the state after with marks.

Sequences and blocks that are idle before and after are left out. The expected or actual content of a slot is a letter;
equal letters mean equal content, and a dot is content that does not matter.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kvproof.models.counterexamples.contracts import BEGINS, HAS_DONE, IS_ENABLED, BrokenContract
from kvproof.models.counterexamples.instances import Clause, Kind, ProofCounterexample
from kvproof.spec.language import IDENTITIES
from kvproof.spec.native import FIELDS
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import EVICTABLE, FREE, HOST, NONE, RESERVED, USED, State

LISTS = {FREE: "free", USED: "used", EVICTABLE: "evictable", RESERVED: "reserved"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NOTHING = "·"
CONTENTS = tuple(f"state.{name}[" for name, field in FIELDS.items() if field.to is IDENTITIES)


def lines(found: ProofCounterexample) -> list[str]:
    """The lines of the whole counterexample, without its name."""
    return [*_broken_claim(found), *_states(found)]


def data(found: ProofCounterexample) -> dict[str, Any]:
    """The counterexample as data: each field of the states before and after, and the clauses that are false."""
    return {
        "subject": found.case.subject,
        "claim": found.case.claim,
        "sentence": found.sentence,
        "place": found.place,
        "sizes": asdict(found.sizes),
        "arguments": found.arguments,
        "before": _fields(found.before),
        "after": _fields(found.after),
        "clauses": [asdict(clause) for clause in found.clauses],
    }


def _fields(state: State) -> dict[str, Any]:
    return {name: _plain(getattr(state, name)) for name in FIELDS}


def _plain(values: Any) -> Any:
    return [_plain(value) for value in values] if isinstance(values, list) else values


def contract_lines(found: BrokenContract) -> list[str]:
    """The lines about a broken contract: where the operation began, where it is, and the firing that breaks it."""
    case = found.case
    parts = {name: _parts(getattr(found, name), found.sizes) for name in ("start", "before", "after")}
    wanted = [name for name in parts["start"] if any(state[name] not in IDLE for state in parts.values())]
    heads = {BEGINS: "This is false where the operation begins:", HAS_DONE: "This is false where the operation ends:"}
    if case.part and case.kind != IS_ENABLED:
        reason = [heads.get(case.kind, "This is false afterwards:"), f"  {found.reason}"]
    else:
        reason = [f"Here {found.reason}."]
    given = (f"{name} {_plain(value)}" for name, value in found.given.items())
    lines = [case.contract.sentence, *reason, f"Given: {', '.join(given)}", f"Start, with {_sizes(found.sizes)}:"]
    lines += [f"    {name}: {parts['start'][name]}" for name in wanted]
    if case.kind != BEGINS:
        lines.append("Now (* marks what has changed since the start):")
        lines += _marked(wanted, parts["start"], parts["before"])
    if case.rule:
        chosen = (f"{name} {_plain(value)}" for name, value in found.chosen.items())
        lines.append(f"{case.rule} is fired next{''.join(f', {one}' for one in chosen)}")
    if case.rule and case.kind != IS_ENABLED:
        lines += ["After (* marks what changed):", *_marked(wanted, parts["before"], parts["after"])]
    return lines


def contract_data(found: BrokenContract) -> dict[str, Any]:
    """The broken contract as data: each field of the three states."""
    return {
        "subject": found.case.contract.name,
        "claim": found.reason,
        "sentence": found.case.contract.sentence,
        "rule": found.case.rule,
        "sizes": asdict(found.sizes),
        "given": found.given,
        "arguments": found.chosen,
        "start": _fields(found.start),
        "before": _fields(found.before),
        "after": _fields(found.after),
    }


def _marked(wanted: list[str], before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    return (f"  {'*' if before[name] != after[name] else ' '} {name}: {after[name]}" for name in wanted)


# The claim that is false ---------------------------------------------------------------------------------------------


def _broken_claim(found: ProofCounterexample) -> Iterator[str]:
    case = found.case
    if found.sentence:
        yield found.sentence
    match case.kind:
        case Kind.CHECK:
            yield f"This check does not hold ({found.place}):"
            yield f"  {case.claim}"
        case Kind.RANGE:
            yield f"This is false ({found.place}):"
            yield f"  {case.claim}"
        case _:
            for clause in found.clauses:
                yield from _clause(clause, case.is_of_rule)
            if not found.clauses:
                yield f"The claim is false ({found.place})."


def _clause(clause: Clause, is_after: bool) -> Iterator[str]:
    at = ", ".join(f"{name} = {value}" for name, value in clause.at.items())
    when = "Afterwards this is false" if is_after else "This is false"
    yield f"{when}{f' for {at}' if at else ''} ({clause.place}):"
    yield f"  {clause.text}"
    if clause.values:
        yield f"  {', '.join(f'{text} is {_value(text, value)}' for text, value in clause.values.items())}"


def _value(text: str, value: Any) -> str:
    """A value in the notation of the states."""
    is_identity = text.startswith(CONTENTS)
    return _letter(value) if is_identity else str(value)


# States --------------------------------------------------------------------------------------------------------------


def _states(found: ProofCounterexample) -> Iterator[str]:
    before, after = _parts(found.before, found.sizes), _parts(found.after, found.sizes)
    wanted = [name for name in before if not (before[name] == after[name] and before[name] in IDLE)]
    yield f"{'Before' if found.case.is_of_rule else 'The state'}, with {_sizes(found.sizes)}:"
    yield from (f"    {name}: {before[name]}" for name in wanted)
    if not found.case.is_of_rule:
        return
    yield f"{found.case.subject}({', '.join(_arguments(found))})"
    stops = {Kind.CHECK: "At the check", Kind.RANGE: "At the subscript"}
    yield f"{stops.get(found.case.kind, 'After')} (* marks what changed):"
    yield from _marked(wanted, before, after)


def _arguments(found: ProofCounterexample) -> Iterator[str]:
    for name, value in found.arguments.items():
        yield f"{name} {_slots(value, len(value))}" if isinstance(value, list) else f"{name} {value}"


def _sizes(sizes: Sizes) -> str:
    return f"{sizes.num_gpu_blocks} GPU and {sizes.num_host_blocks} host blocks of {sizes.block_size} slots"


ABSENT, ALL_FREE = "none", "free"
IDLE = {ABSENT, ALL_FREE}


def _parts(state: State, sizes: Sizes) -> dict[str, str]:
    """A description of each sequence, block, flight and pool, by name."""
    parts = {f"sequence {seq}": _sequence(state, seq, sizes) for seq in range(sizes.num_seqs)}
    parts |= {f"block {block}": _block(state, block) for block in range(sizes.num_gpu_blocks + sizes.num_host_blocks)}
    parts |= {f"flight {flight}": _flight(state, flight) for flight in range(sizes.num_flights)}
    parts["GPU"] = _counters(state.count[0])
    if sizes.num_host_blocks:
        parts["host"] = _counters(state.count[HOST])
    return parts


def _sequence(state: State, seq: int, sizes: Sizes) -> str:
    if not state.live[seq] and not state.num_blocks[seq]:
        return ABSENT
    entries = [_entry(state, seq, index, sizes) for index in range(min(state.num_blocks[seq], sizes.num_indexes))]
    size = sizes.block_size
    known = state.num_full[seq] * size + state.num_filled[seq]
    done = state.done_full[seq] * size + state.done_filled[seq]
    words = [f"table {', '.join(entries)}" if entries else "empty table", f"knows {known}, may read {done}"]
    words += ["on the host"] if state.home[seq] == HOST else []
    words += [f"window {state.window[seq]}"] if state.window[seq] else []
    words += [f"swapped up to entry {state.moving[seq]}"] if state.moving[seq] != NONE else []
    words += ["being freed"] if state.ending[seq] else []
    words += [] if state.live[seq] else ["not live"]
    return "; ".join(words)


def _entry(state: State, seq: int, index: int, sizes: Sizes) -> str:
    if index < state.first[seq]:
        return "left"
    full, filled = state.num_full[seq], state.num_filled[seq]
    num_known = sizes.block_size if index < full else filled if index == full else 0
    return f"block {state.table[seq][index]} {_slots(state.tokens[seq][index], num_known)}"


def _block(state: State, block: int) -> str:
    words = [LISTS.get(state.status[block], f"status {state.status[block]}")]
    words += [f"refcount {state.refcount[block]}"] if state.refcount[block] or state.status[block] == USED else []
    written = state.num_written[block]
    if written or any(state.memory[block]):
        words.append(f"memory {_slots(state.memory[block], written)}, {written} written")
    words += [f"cached as {_slots(state.content[block], len(state.content[block]))}"] if state.cached[block] else []
    words += ["computed"] if state.computed[block] else []
    words += [f"pins {state.pins[block]}"] if state.pins[block] else []
    words += [f"filled by flight {state.filler[block]}"] if state.filler[block] != NONE else []
    return ", ".join(words)


def _flight(state: State, flight: int) -> str:
    if state.uses[flight] == NONE and state.fills[flight] == NONE:
        return ABSENT
    if state.fills[flight] == NONE:
        return f"a step that uses block {state.uses[flight]}"
    return f"brings {state.brings[flight]} slots from block {state.uses[flight]} to block {state.fills[flight]}"


def _counters(counts: Sequence[int]) -> str:
    return ", ".join(f"{count} {LISTS[status]}" for status, count in enumerate(counts))


def _slots(values: Iterable[int], num_relevant: int) -> str:
    """Letters for the first slots, which matter; of later slots only those that differ from the initial state."""
    return f"[{' '.join(_letter(v) if at < num_relevant or v else NOTHING for at, v in enumerate(values))}]"


def _letter(identity: int) -> str:
    return LETTERS[identity] if 0 <= identity < len(LETTERS) else str(identity)
