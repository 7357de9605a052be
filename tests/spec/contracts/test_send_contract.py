"""The contract of a swap that nobody waits for, run: entries are sent and arrive in any order on small machines."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.audit.faults.edits import Fault
from kvproof.audit.mutation.mutants import mutated
from kvproof.audit.mutation.operators import changed_statement
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.contract_run import ContractBroken, ContractRun
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.native import Machine
from kvproof.spec.text.state import NONE, State

SCOPE = Scope(6, 5, 3, 6, 2, caching=True, lookahead=1, swap=True, num_flights=4, level="rules")
(CONTRACT,) = [one for one in CONTRACTS if one.rule == "send_entry"]
Given = dict[str, Any]


def states(seed: int, num_states: int) -> Iterator[State]:
    """States on a random walk, in which nothing is in flight that the walk has not landed."""
    source, level = random.Random(seed), RuleSpace(SCOPE)
    state = level.machine.first_state()
    for _ in range(num_states):
        by_rule: dict[str, list[tuple[Any, ...]]] = {}
        for rule, *arguments in level.candidates(state):
            by_rule.setdefault(rule, []).append(tuple(arguments))
        for rule in source.sample(sorted(by_rule), min(8, len(by_rule))):
            if rule not in ("begin_free", "begin_swap", "launch", "copy_out") or not source.randrange(12):
                level.machine.rules[rule](state, *source.choice(by_rule[rule]))
        yield state


def scheduled(state: State, seq: int, source: random.Random) -> Given | None:
    """The maps of the contract, for a sequence that has begun to be swapped; None if there are too few flights."""
    first, end = state.first[seq], state.num_blocks[seq]
    idle = [f for f, block in enumerate(state.uses) if block == NONE]
    if len(idle) < end - first:
        return None
    source.shuffle(idle)
    num_steps, num_steps_max = 2 * (end - first) + 1, 2 * SCOPE.num_indexes + 2
    arriving, place, under_way = list[int](), [first], list[int]()
    for _ in range(num_steps):
        if under_way and (place[-1] > end or source.randrange(2)):
            arriving.append(under_way.pop(source.randrange(len(under_way))))
        else:
            arriving.append(NONE)
            under_way += [place[-1]] if place[-1] < end else []
        place.append(place[-1] + (arriving[-1] == NONE))
    flight_of = [NONE] * SCOPE.num_indexes
    flight_of[first:end] = idle[: end - first]
    return {
        "seq": seq,
        "num_steps": num_steps,
        "next_index": place + place[-1:] * (num_steps_max - len(place)),
        "arriving": arriving + [NONE] * (num_steps_max - len(arriving)),
        "arrival": [arriving.index(i) if i in arriving else 0 for i in range(SCOPE.num_indexes)],
        "flight_of": flight_of,
        "entry_of": [flight_of.index(f) if f in flight_of else NONE for f in range(len(state.uses))],
    }


def sent(machine: Machine, start: State, given: Given, source: random.Random) -> Counter[str] | None:
    """Fire rule by rule, and hold each state against the contract; None if there are too few free blocks."""
    run = ContractRun(machine, CONTRACT, start, given)
    if not run.can_begin():
        return None
    run.begin()
    while run.left() > 0:
        choices = [
            (rule, chosen)
            for rule, choice in CONTRACT.firings
            for chosen in chosen_for(rule, run.state)
            if run.value(str(choice), **chosen)
        ]
        run.fire(*source.choice(choices))
    run.end()
    return run.fired


def chosen_for(rule: str, state: State) -> list[dict[str, int]]:
    """What may be chosen for a firing, allowed or not: a block, a flight."""
    blocks, flights = range(len(state.status)), range(len(state.uses))
    match rule:
        case "send_entry":
            return [{"block": block, "flight": flight} for block in blocks for flight in flights]
        case "arrive":
            return [{"flight": flight} for flight in flights]
    return [{}]


def sent_everywhere(machine: Machine, seed: int) -> Counter[str]:
    """Send a sequence of each state of a walk; how often each rule fired, and how often it could not begin."""
    source, fired = random.Random(seed), Counter[str]()
    for state in states(seed, 250):
        at_rest = [s for s in range(len(state.live)) if machine.function("at_rest")(state, s)]
        start = machine.copy(state)
        if at_rest and machine.rules["begin_swap"](start, seq := source.choice(at_rest)) is None:
            given = scheduled(start, seq, source)
            done = given and sent(machine, start, given, source)
            fired += Counter(["refused"]) if done is None else done
    return fired


def test_a_transfer_arrives_as_the_contract_says() -> None:
    fired = sum((sent_everywhere(Machine(sizes_of(SCOPE)), seed) for seed in range(6)), Counter[str]())
    assert all(fired[rule] > 5 for rule in ("send_entry", "arrive", "end_swap", "refused")), fired


@pytest.mark.parametrize(
    "mutant",
    [
        changed_statement("send_entry", "pin(state, flight, old)", "pin(state, flight, block)"),
        changed_statement("send_entry", "state.brings[flight] = state.num_written[old]", "state.brings[flight] = 0"),
        changed_statement("arrive", "state.filler[target] = NONE", "pass"),
        changed_statement("end_swap", "state.home[seq] = 1 - state.home[seq]", "pass"),
        changed_statement("unpin", "state.pins[block] -= 1", "state.pins[block] -= 0"),
    ],
)
def test_a_transfer_that_does_something_else_breaks_the_contract(mutant: Fault) -> None:
    with pytest.raises(ContractBroken):
        sent_everywhere(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)
