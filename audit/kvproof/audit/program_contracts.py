"""Which programs of operations have which contracts, and whether they keep them.

Engines are explained by programs (`kvproof.spec.text.operations`); what operations guarantee is proved of contracts.
`followed` is a mode in which each program that runs is held against the contract of its operation: each firing against
the choice and the loop invariant, the end against the postcondition. Outside of this mode nothing of it runs.

A contract speaks of a part of its program. *Before* that part come the evictions, since contracts take free blocks;
*after* it come promotions, or what ends a swap. A program fires some of these in between; they are independent of the
part, so the follower fires them earlier or later, and the state must be the same in the end. What a contract is given
and a program is not, such as the order of steps, is read off the firings of the finished program.
"""

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvproof.spec.contract_run import PARAMETERS, ContractBroken, ContractRun, Values
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import SLOTS
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text import operations
from kvproof.spec.text.operations import Program, RuleCall, row_of
from kvproof.spec.text.state import EVICTABLE, GPU, NONE, State

BY_RULE = {contract.rule: contract for contract in CONTRACTS}
REAL = tuple(name for name, one in FIELDS.items() if one.kind != "ghost")
ROUNDED_TO = 2  # numbers of sequences and entries, so that few machines are made
MOVES = ("move_entry", "follow_entry", "rehit_entry")


@dataclass(frozen=True)
class Finished:
    """A program that has run to its end: what it was given, the state before it, and its firings."""

    given: Values
    start: State
    sizes: Sizes
    calls: tuple[RuleCall, ...]

    def of(self, *rules: str) -> tuple[RuleCall, ...]:
        """The firings of these rules."""
        return tuple(call for call in self.calls if call[0] in rules)


@dataclass(frozen=True)
class Part:
    """The part of a program that a contract speaks of.

    rule: the first rule of the contract. before, after: the other firings of the program. later: firings that end the
    operation, and come in later programs.
    """

    rule: str
    values: Values
    during: tuple[RuleCall, ...]
    before: tuple[RuleCall, ...] = ()
    after: tuple[RuleCall, ...] = ()
    later: tuple[RuleCall, ...] = ()


@dataclass
class Followed:
    """What was followed.

    machine_of: makes the machines on which programs are fired again. firings, ends: of parts of programs, by program
    and contract. outside: parts of programs that no contract speaks of, by program and reason.
    """

    machine_of: Callable[[Sizes], Machine]
    firings: Counter[tuple[str, str]] = field(default_factory=Counter)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    outside: Counter[tuple[str, str]] = field(default_factory=Counter)

    def hold(self, program: str, finished: Finished, end: State) -> None:
        """Hold a finished program against the contracts of its operation. Raises ContractBroken."""
        start = finished.start
        _enumerate(start, finished.sizes)
        for part in PARTS[program](finished):
            if isinstance(part, str):
                self.outside[program, part] += 1
                continue
            machine, contract = self.machine_of(finished.sizes), BY_RULE[part.rule]
            state = machine.copy(start)
            _fire(machine, state, part.before, program)
            run = ContractRun(machine, contract, state, part.values)
            if not run.can_begin():
                raise ContractBroken(f"{program} runs to its end although {contract.precondition} does not hold")
            run.begin()
            for rule, arguments in part.during:
                run.fire(rule, _chosen(run, rule, arguments))
            if not part.later:
                run.end()
            _fire(machine, run.state, part.after, program)
            changed = [name for name in REAL if getattr(run.state, name) != getattr(end, name)]
            if changed:
                raise ContractBroken(f"{program}: its firings, reordered for {contract.name}, leave another {changed}")
            for rule, arguments in part.later:
                run.fire(rule, _chosen(run, rule, arguments))
            if part.later:
                run.end()
            self.firings[program, contract.name] += len(part.during)
            self.ends[program, contract.name] += 1


def _chosen(run: ContractRun, rule: str, arguments: Sequence[Any]) -> Values:
    """The arguments that are chosen for a firing; the others must be those that the contract is given."""
    named = dict(zip(PARAMETERS[rule], arguments, strict=True))
    chosen = {name: value for name, value in named.items() if name in run.contract.witnesses.get(rule, {})}
    for name in named.keys() - chosen.keys():
        if named[name] != run.values[name]:
            raise ContractBroken(f"{run.contract.name}: {rule} fires for {name} {named[name]}, not {run.values[name]}")
    return chosen


def _fire(machine: Machine, state: State, calls: Sequence[RuleCall], program: str) -> None:
    for rule, arguments in calls:
        refused = machine.rules[rule](state, *arguments)
        if refused is not None:
            raise ContractBroken(f"{program}: {rule}{arguments} is refused at another time: {refused.sentence}")


# The parts of programs ---------------------------------------------------------------------------------------------


def _of_take(finished: Finished) -> Iterator[Part | str]:
    """The rules leave open which block is evicted, so all blocks count as equally old."""
    evictions = finished.of("evict")
    for pool in range(2):
        during = tuple(call for call in evictions if _pool_of(finished, call[1][0]) == pool)
        place = evictions.index(during[0]) if during else 0
        num_wanted = finished.start.count[pool][0] + len(during)
        ages = [0] * len(finished.start.status)
        values = {"pool": pool, "num_wanted": num_wanted, "last_used": ages, "prefix": ages}
        if during:
            yield Part("evict", values, during, evictions[:place], evictions[place + len(during) :])


def _of_free(finished: Finished) -> Iterator[Part | str]:
    """Two contracts speak of it: one of the whole program, one of what the drops give back."""
    values = {"seq": finished.given["seq"]}
    yield Part("begin_free", values, finished.calls)
    yield Part("drop_last", values, finished.calls[1:-1], finished.calls[:1], finished.calls[-1:])


def _of_append(finished: Finished) -> Iterator[Part | str]:
    """Every position of the sequence would do; one after another is looked at."""
    given, start, size = finished.given, finished.start, finished.sizes.block_size
    if finished.of("share", "exchange"):
        yield "it takes up cached blocks, and the contract of an append knows none"
        return
    seq, appends = given["seq"], finished.of("append")
    reserved = start.table[seq][start.num_full[seq] + 1 : start.num_blocks[seq]]
    if any(start.refcount[block] != 1 for block in reserved):
        yield "another sequence holds entries beyond the tail, which the contract excludes"
        return
    num_known = start.num_full[seq] * size + start.num_filled[seq]
    num_tokens = max(num_known, min(len(given["tokens"]), given["num_entries"] * size))
    if appends:
        position = (num_known + sum(start.refcount)) % num_tokens
        index, slot = divmod(position, size)
        tokens = [*given["tokens"], *[NONE] * size]
        values = {"seq": seq, "num_tokens": num_tokens, "token_ids": tokens, "index": index, "slot": slot}
        yield Part("append", values, appends, finished.of("evict"), finished.of("promote"))


def _of_admission(finished: Finished) -> Iterator[Part | str]:
    given, start, size = finished.given, finished.start, finished.sizes.block_size
    if finished.of("share", "exchange"):
        yield "after its hits it takes up cached blocks that are not computed, which the contract excludes"
        return
    num_entries, num_hit, width = given["num_entries"], given["num_hit"], finished.sizes.num_indexes + 1
    tokens = given["tokens"][: num_entries * size]
    found = [arguments[1] for _, arguments in finished.of("hit")]
    num_woken = [0] * width
    for index in reversed(range(num_hit)):
        num_woken[index] = num_woken[index + 1] + (start.status[found[index]] == EVICTABLE)
    values = {
        "seq": given["seq"],
        "rows": [row_of(tokens, index, size) for index in range(width)],
        "num_rows": len(tokens) // size,
        "num_tail": len(tokens) % size,
        "num_entries": num_entries,
        "num_hit": num_hit,
        "found": found + [NONE] * (width - num_hit),
        "num_woken": num_woken,
        "num_spared": start.count[GPU][EVICTABLE] - num_woken[0] - len(finished.of("evict")),
        "num_watermark": 0,
        "caching": int(given["caching"]),
    }
    yield Part("admit", values, finished.calls)


def _of_swap(finished: Finished) -> Iterator[Part | str]:
    """Evictions come before, and so does the beginning of each sequence's swap."""
    before = finished.of("begin_swap", "evict")
    if finished.given["is_sent"]:
        if len(finished.given["seqs"]) > 1 or finished.of(*MOVES):
            yield "the contract of sending is about one sequence all of whose blocks are sent"
        else:
            yield _sent(finished, before)
        return
    moves = finished.of(*MOVES)
    yield Part("move_entry", _schedule(finished, moves), moves, before, finished.of("end_swap"))


def _schedule(finished: Finished, moves: tuple[RuleCall, ...]) -> Values:
    """What the contract of a group swap is given, read off the firings."""
    start, sizes, seqs = finished.start, finished.sizes, finished.given["seqs"]
    num_blocks, num_steps_max = len(start.status), sizes.names()["NUM_STEPS"]
    place = [[first] for first in start.first]
    first_step, twin_of, takes = [0] * num_blocks, [NONE] * num_blocks, list[int]()
    moved: set[int] = set()
    for step, (rule, arguments) in enumerate(moves):
        seq = arguments[0]
        block = start.table[seq][place[seq][-1]]
        takes.append(rule == "move_entry")
        if block not in moved:
            first_step[block] = step
            if rule == "rehit_entry":
                twin_of[block] = arguments[1]
        moved.add(block)
        for other, places in enumerate(place):
            places.append(places[-1] + (other == seq))
    num_to_take = [sum(takes[step:]) for step in range(num_steps_max)]
    return {
        "pool": start.home[seqs[0]],
        "num_steps": len(moves),
        "seq_of": [arguments[0] for _, arguments in moves] + [0] * (num_steps_max - len(moves)),
        "next_index": [places + places[-1:] * (num_steps_max - len(places)) for places in place],
        "first_step": first_step,
        "twin_of": twin_of,
        "num_to_take": num_to_take,
    }


def _sent(finished: Finished, before: tuple[RuleCall, ...]) -> Part:
    """Everything arrives after the swap has ended, in the order in which it was sent."""
    start, sizes, (seq,) = finished.start, finished.sizes, finished.given["seqs"]
    sends, first, num_steps_max = finished.of("send_entry"), start.first[seq], sizes.names()["NUM_STEPS"]
    flights = [arguments[2] for _, arguments in sends]
    end = first + len(sends)
    place = [*range(first, end + 2), *[end + 1] * len(sends)]
    arriving = [*[NONE] * (len(sends) + 1), *range(first, end)]
    arrival, flight_of = [0] * sizes.num_indexes, [NONE] * sizes.num_indexes
    entry_of = [NONE] * sizes.num_flights
    for index, flight in enumerate(flights, start=first):
        arrival[index], flight_of[index], entry_of[flight] = arriving.index(index), flight, index
    values = {
        "seq": seq,
        "num_steps": 2 * len(sends) + 1,
        "next_index": place + place[-1:] * (num_steps_max - len(place)),
        "arriving": arriving + [NONE] * (num_steps_max - len(arriving)),
        "arrival": arrival,
        "flight_of": flight_of,
        "entry_of": entry_of,
    }
    later: tuple[RuleCall, ...] = tuple(("arrive", (flight,)) for flight in flights)
    return Part("send_entry", values, finished.of("send_entry", "end_swap"), before, later=later)


def _pool_of(finished: Finished, block: int) -> int:
    return int(block >= finished.sizes.num_gpu_blocks)


PARTS: dict[str, Callable[[Finished], Iterator[Part | str]]] = {  # by the name of the program
    "take": _of_take,
    "reset_cache": _of_take,
    "free_sequence": _of_free,
    "know_tokens": _of_append,
    "admit_sequence": _of_admission,
    "swap_group": _of_swap,
}


SIGNATURES = {name: inspect.signature(getattr(operations, name)) for name in PARTS}


# The mode ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def machine_with_ghosts(sizes: Sizes) -> Machine:
    """The specification for these sizes."""
    return Machine(sizes, with_ghosts=True, with_checks=False)


@contextmanager
def followed(machine_of: Callable[[Sizes], Machine] = machine_with_ghosts) -> Iterator[Followed]:
    """From now on hold each program that runs to its end against its contracts; it raises ContractBroken there.

    machine_of: makes the machines, if not those of the specification, with its contracts.
    """
    found = Followed(machine_of)
    programs = {name: getattr(operations, name) for name in PARTS}
    for name, program in programs.items():
        setattr(operations, name, _following(found, name, program))
    try:
        yield found
    finally:
        for name, program in programs.items():
            setattr(operations, name, program)


def _following(found: Followed, name: str, program: Callable[..., Program]) -> Callable[..., Program]:
    """The program, which is held against its contracts when it has run to its end."""

    @functools.wraps(program)
    def following(*arguments: Any, **named: Any) -> Program:
        bound = SIGNATURES[name].bind(*arguments, **named)
        bound.apply_defaults()
        given = bound.arguments
        state, calls = given["state"], list[RuleCall]()
        sizes, start = None, None
        for call in program(*arguments, **named):
            if sizes is None:  # nothing has fired yet
                sizes = _sizes(given)
                start = _part_of(state, sizes)
            calls.append(call)
            yield call
        if sizes is not None and start is not None:
            found.hold(name, Finished(given, start, sizes, tuple(calls)), _part_of(state, sizes))

    return following


def _sizes(given: Values) -> Sizes:
    """Sizes in which the program has room: unused sequences and entries of a state are left out."""
    state: State = given["state"]
    used = [seq for seq, is_live in enumerate(state.live) if is_live]
    num_seqs = 1 + max([*used, given.get("seq", 0)])
    num_indexes = 1 + max([given.get("num_entries", 0), *(state.num_blocks[seq] for seq in used)])
    return Sizes(
        sum(state.count[0]),
        sum(state.count[1]),
        len(state.content[0]),
        min(len(state.live), _rounded(num_seqs)),
        min(len(state.table[0]), _rounded(num_indexes)),
        len(state.uses),
    )


def _rounded(number: int) -> int:
    return max(ROUNDED_TO, -(-number // ROUNDED_TO) * ROUNDED_TO)


def _part_of(state: State, sizes: Sizes) -> State:
    """A copy of a state for these sizes, without ghost fields."""
    found = State()
    for name, lengths in _lengths(sizes):
        setattr(found, name, _cut(getattr(state, name), lengths))
    return found


@functools.lru_cache(maxsize=256)
def _lengths(sizes: Sizes) -> list[tuple[str, list[int]]]:
    """Each real field, and its length in each of its domains but slots: rows are never changed in place."""
    names, found = sizes.names(), list[tuple[str, list[int]]]()
    for name in REAL:
        domains = (one for one in FIELDS[name].domains if one is not SLOTS)
        found.append((name, [names[one.size] if isinstance(one.size, str) else one.size or 0 for one in domains]))
    return found


def _enumerate(state: State, sizes: Sizes) -> None:
    """Add the ghost fields, which enumerate the holders and flights of each block, and the blocks of each list."""
    num_ranks, num_blocks = sizes.names()["NUM_RANKS"], len(state.status)
    holders, pinners = [list[int]() for _ in range(num_blocks)], [list[int]() for _ in range(num_blocks)]
    state.rank, state.pin_rank = [[0] * sizes.num_seqs for _ in range(num_blocks)], [0] * sizes.num_flights
    for seq, is_live in enumerate(state.live):
        for block in state.table[seq][state.first[seq] : state.num_blocks[seq]] if is_live else ():
            state.rank[block][seq] = len(holders[block])
            holders[block].append(seq)
    for flight, block in enumerate(state.uses):
        if block != NONE:
            state.pin_rank[flight] = len(pinners[block])
            pinners[block].append(flight)
    members, state.place = [[list[int]() for _ in range(4)] for _ in range(2)], [0] * num_blocks
    for block, status in enumerate(state.status):
        listed = members[int(block >= sizes.num_gpu_blocks)][status]
        state.place[block] = len(listed)
        listed.append(block)
    state.holder, state.pinner = ([_longer(one, num_ranks) for one in each] for each in (holders, pinners))
    state.member = [[_longer(one, num_ranks) for one in lists] for lists in members]


def _longer(values: list[int], length: int) -> list[int]:
    return values + [0] * (length - len(values))


def _cut(values: Any, lengths: list[int]) -> Any:
    """A copy of a field, as long as its domains."""
    if len(lengths) == 1:
        return values[: lengths[0]]
    return [_cut(row, lengths[1:]) for row in values[: lengths[0]]]
