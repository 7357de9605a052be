"""The contracts of operations, run: what is proved for every size is looked at on small machines, firing by firing."""

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
from kvproof.spec import contract_texts
from kvproof.spec.contract_run import ContractBroken, ContractRun
from kvproof.spec.native import Machine
from kvproof.spec.text.state import State

SCOPE = Scope(6, 4, 3, 6, 2, caching=True, lookahead=2, swap=True, num_flights=3, level="rules")
CONTRACTS = {contract.rule: contract for contract in contract_texts.CONTRACTS}


def states(seed: int, num_states: int) -> Iterator[State]:
    """States on a random walk."""
    source, level = random.Random(seed), RuleSpace(SCOPE)
    state = level.machine.first_state()
    for _ in range(num_states):
        by_rule: dict[str, list[tuple[Any, ...]]] = {}
        for rule, *arguments in level.candidates(state):
            by_rule.setdefault(rule, []).append(tuple(arguments))
        for rule in source.sample(sorted(by_rule), 8):
            if rule != "begin_free" or not source.randrange(10):
                level.machine.rules[rule](state, *source.choice(by_rule[rule]))
        yield state


def followed(run: ContractRun, source: random.Random) -> int:
    """Fire the rule of a contract until nothing is left, and hold each state against it; how often it fired."""
    run.begin()
    while run.left() > 0:
        run.fire(run.contract.rule, chosen_for_append(run, source) if run.contract.choice else {})
    run.end()
    return run.fired.total()


def chosen_for_append(run: ContractRun, source: random.Random) -> dict[str, Any]:
    """A block, a row and a stop that the contract allows."""
    size = SCOPE.block_size
    index = run.state.num_full[run.values["seq"]]
    row = run.values["token_ids"][index * size : (index + 1) * size]
    choices = [
        chosen
        for block in range(len(run.state.status))
        for stop in range(1, size + 1)
        if run.value(str(run.contract.choice), **(chosen := {"block": block, "row": row, "stop": stop}))
    ]
    return source.choice(choices)


def appended(machine: Machine, start: State, seq: int, num_tokens: int, source: random.Random) -> int | None:
    """Append up to so many tokens, for every position; how often the rule fired, None if admission refuses."""
    fired = 0
    num_positions = SCOPE.num_indexes * SCOPE.block_size
    known = [identity for row in start.tokens[seq] for identity in row]
    num_known = start.num_full[seq] * SCOPE.block_size + start.num_filled[seq]
    tokens = [*known[:num_known], *range(1000, 1000 + num_positions - num_known)]
    for position in range(num_positions):
        index, slot = divmod(position, SCOPE.block_size)
        given = {"seq": seq, "num_tokens": num_tokens, "token_ids": tokens, "index": index, "slot": slot}
        run = ContractRun(machine, CONTRACTS["append"], start, given)
        if not run.can_begin():
            return None
        fired = followed(run, source)
    return fired


def appended_everywhere(machine: Machine, seed: int) -> Counter[int | None]:
    """Append to each sequence of each state of a walk; how often the rule fired."""
    source, fired = random.Random(seed), Counter[int | None]()
    for start in states(seed, 60):
        for seq, is_live in enumerate(start.live):
            if is_live:
                fired[appended(machine, start, seq, source.randrange(SCOPE.num_tokens + 1), source)] += 1
    return fired


def freed_everywhere(machine: Machine, seed: int) -> Counter[int]:
    """Free each sequence of each state of a walk; how often the rule fired."""
    source, fired = random.Random(seed), Counter[int]()
    for state in states(seed, 150):
        for seq in range(SCOPE.num_seqs):
            start = machine.copy(state)
            if machine.rules["begin_free"](start, seq) is None:
                fired[followed(ContractRun(machine, CONTRACTS["drop_last"], start, {"seq": seq}), source)] += 1
    return fired


@pytest.mark.parametrize("seed", range(2))
def test_an_append_does_what_its_contract_says(seed: int) -> None:
    fired = appended_everywhere(Machine(sizes_of(SCOPE)), seed)
    assert fired[None] > 0
    assert max(times for times in fired if times) > 2


@pytest.mark.parametrize("seed", range(2))
def test_a_free_does_what_its_contract_says(seed: int) -> None:
    assert max(freed_everywhere(Machine(sizes_of(SCOPE)), seed)) > 1


@pytest.mark.parametrize(
    "mutant",
    [
        changed_statement("know", "state.num_full[seq] = index + 1", "state.num_full[seq] = index + 2"),
        changed_statement("gain", "state.refcount[block] += 1", "state.refcount[block] += 2"),
    ],
)
def test_an_append_that_does_something_else_breaks_its_contract(mutant: Fault) -> None:
    with pytest.raises(ContractBroken):
        appended_everywhere(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)


def test_a_free_that_gives_back_what_others_use_breaks_its_contract() -> None:
    mutant = changed_statement(
        "lose", "if state.refcount[block] == 0:\n    retire(state, block)", "forget(state, block)"
    )
    with pytest.raises(ContractBroken):
        freed_everywhere(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)
