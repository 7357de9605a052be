"""The contract of a swap, run: groups that share blocks move on small machines, in any order, firing by firing."""

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
from kvproof.spec.text.state import FREE, NONE, State

SCOPE = Scope(5, 3, 3, 6, 2, caching=True, swap=True, level="rules")
(CONTRACT,) = [one for one in CONTRACTS if one.rule == "move_entry"]
CHOSEN = {"move_entry": "block", "follow_entry": "leader", "rehit_entry": "twin"}  # in addition to the sequence
Given = dict[str, Any]


def states(seed: int, num_states: int) -> Iterator[State]:
    """States on a random walk."""
    source, level = random.Random(seed), RuleSpace(SCOPE)
    state = level.machine.first_state()
    for _ in range(num_states):
        by_rule: dict[str, list[tuple[Any, ...]]] = {}
        for rule, *arguments in level.candidates(state):
            by_rule.setdefault(rule, []).append(tuple(arguments))
        for rule in source.sample(sorted(by_rule), min(6, len(by_rule))):
            if rule not in ("begin_free", "begin_swap") or not source.randrange(12):
                level.machine.rules[rule](state, *source.choice(by_rule[rule]))
        yield state


def scheduled(state: State, pool: int, source: random.Random) -> Given:
    """The maps of the contract, for the group that has begun to be swapped, in an order that is drawn."""
    num_seqs, num_blocks = len(state.live), len(state.status)
    num_steps_max = num_seqs * SCOPE.num_indexes + 1
    place = [[state.first[s]] for s in range(num_seqs)]
    group = [s for s in range(num_seqs) if state.moving[s] != NONE and state.home[s] == pool]
    left = [s for s in group for _ in range(state.num_blocks[s] - state.first[s])]
    source.shuffle(left)
    first_step, found = [0] * num_blocks, [NONE] * num_blocks
    named: list[int] = []
    for s in left:
        index = place[s][-1]
        named.append(block := state.table[s][index])
        if block not in named[:-1]:
            first_step[block] = len(named) - 1
            found[block] = twin_of(state, s, index, pool)
        for other, places in enumerate(place):
            places.append(places[-1] + (other == s))
    takes = [first_step[b] == k and found[b] == NONE for k, b in enumerate(named)]
    num_to_take = [sum(takes[k:]) for k in range(num_steps_max)]
    return {
        "pool": pool,
        "num_steps": len(left),
        "seq_of": left + [0] * (num_steps_max - len(left)),
        "next_index": [places + places[-1:] * (num_steps_max - len(places)) for places in place],
        "first_step": first_step,
        "twin_of": found,
        "num_to_take": num_to_take,
    }


def twin_of(state: State, seq: int, index: int, pool: int) -> int:
    """A block of the other pool that has the content of an entry; also if it is another's twin."""
    num_done = SCOPE.block_size if index < state.done_full[seq] else state.done_filled[seq]
    for block in range(SCOPE.num_gpu_blocks) if pool else range(SCOPE.num_gpu_blocks, len(state.status)):
        has_it = state.cached[block] and state.content[block] == state.tokens[seq][index]
        is_written = state.num_written[block] >= (num_done if index <= state.done_full[seq] else 0)
        if index < state.num_full[seq] and has_it and is_written:
            return block
    return NONE


def swapped(machine: Machine, start: State, given: Given, source: random.Random) -> Counter[str] | None:
    """Move entry by entry, and hold each state against the contract; None if admission refuses."""
    run = ContractRun(machine, CONTRACT, start, given)
    if not run.can_begin():
        return None
    run.begin()
    while run.left() > 0:
        seq = given["seq_of"][run.fired.total()]
        choices = [
            (rule, chosen)
            for rule, choice in CONTRACT.firings
            for number in range(len(start.live) if rule == "follow_entry" else len(start.status))
            if run.value(str(choice), **(chosen := {"seq": seq, CHOSEN[rule]: number}))
        ]
        run.fire(*source.choice(choices))
    run.end()
    return run.fired


def swapped_everywhere(machine: Machine, seed: int, num_states: int = 300) -> Counter[str]:
    """Swap a group of each state of a walk; how often each rule fired, and how often admission refused."""
    source, fired = random.Random(seed), Counter[str]()
    for state in states(seed, num_states):
        pool, start = source.randrange(2), machine.copy(state)
        at_rest = [s for s in range(len(state.live)) if machine.function("at_rest")(state, s) and state.home[s] == pool]
        for seq in source.sample(at_rest, source.randrange(len(at_rest) + 1)):
            assert machine.rules["begin_swap"](start, seq) is None
        given = scheduled(start, pool, source)
        done = swapped(machine, start, given, source)
        if done is None:
            fired["refused"] += start.count[1 - pool][FREE] < given["num_to_take"][0]
        else:
            fired += done
    return fired


def test_a_swap_does_what_its_contract_says() -> None:
    fired = sum((swapped_everywhere(Machine(sizes_of(SCOPE)), seed) for seed in range(3)), Counter[str]())
    assert all(fired[rule] for rule in ("move_entry", "follow_entry", "rehit_entry", "refused")), fired


@pytest.mark.parametrize(
    "mutant",
    [
        changed_statement(
            "copy_block",
            "state.memory[target] = copied(state.memory[source])",
            "state.memory[source] = copied(state.memory[target])",
        ),
        changed_statement("move_entry", "state.moving[seq] += 1", "state.moving[seq] += 2"),
        changed_statement("lose", "if state.refcount[block] == 0:\n    retire(state, block)", "forget(state, block)"),
    ],
)
def test_a_swap_that_does_something_else_breaks_its_contract(mutant: Fault) -> None:
    machine = mutated(mutant, sizes_of(SCOPE), with_checks=False)
    with pytest.raises(ContractBroken):
        swapped_everywhere(machine, 0)
