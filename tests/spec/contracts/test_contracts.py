"""The contracts of operations, run: what is proved for every size is looked at on small machines, firing by firing."""

import inspect
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.mutants import mutated
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.models.mutation.operators import Mutant
from kvproof.spec import contract_texts
from kvproof.spec.language import COLLECTED, Contract
from kvproof.spec.native import Machine
from kvproof.spec.text.state import State

SCOPE = Scope(6, 4, 3, 6, 2, caching=True, lookahead=2, swap=True, num_flights=3, level="rules")
RULES = {rule.__name__: rule for rule in COLLECTED.rules}
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


def followed(machine: Machine, contract: Contract, start: State, given: dict[str, Any], source: random.Random) -> int:
    """Fire the rule of a contract until nothing is left, and hold each state against it; how often it fired."""

    state, fired = machine.copy(start), 0

    def of(name: str, **chosen: Any) -> Any:
        return machine.value(name, {"start": start, "state": state, **contract.arguments(given), **chosen})

    parameters = list(inspect.signature(RULES[contract.rule]).parameters)[1:]
    while (left := of(contract.variant)) > 0:
        assert of(contract.loop_invariant)
        chosen: dict[str, Any] = {}
        if contract.choice:
            assert contract.can_choose is not None
            assert of(contract.can_choose)
            chosen = chosen_for_append(state, given, source, lambda c: bool(of(contract.choice or "", **c)))
        arguments = given | chosen
        assert machine.rules[contract.rule](state, *(arguments[name] for name in parameters)) is None
        fired += 1
        assert 0 <= of(contract.variant) < left
    assert of(contract.loop_invariant)
    assert of(contract.name)
    return fired


def chosen_for_append(state: State, given: dict[str, Any], source: random.Random, is_allowed: Any) -> dict[str, Any]:
    """A block, a row and a stop that the contract allows."""
    seq, tokens, size = given["seq"], given["token_ids"], SCOPE.block_size
    index = state.num_full[seq]
    row = tokens[index * size : (index + 1) * size]
    choices = [
        chosen
        for block in range(len(state.status))
        for stop in range(1, size + 1)
        if is_allowed(chosen := {"block": block, "row": row, "stop": stop})
    ]
    return source.choice(choices)


def appended(machine: Machine, start: State, seq: int, num_tokens: int, source: random.Random) -> int | None:
    """Append up to so many tokens, for every position; how often the rule fired, None if admission refuses."""
    contract, fired = CONTRACTS["append"], 0
    num_positions = SCOPE.num_indexes * SCOPE.block_size
    known = [identity for row in start.tokens[seq] for identity in row]
    num_known = start.num_full[seq] * SCOPE.block_size + start.num_filled[seq]
    tokens = [*known[:num_known], *range(1000, 1000 + num_positions - num_known)]
    for position in range(num_positions):
        index, slot = divmod(position, SCOPE.block_size)
        given = {"seq": seq, "num_tokens": num_tokens, "token_ids": tokens, "index": index, "slot": slot}
        if not machine.value(contract.precondition, {"start": start, **contract.arguments(given)}):
            return None
        fired = followed(machine, contract, start, given, source)
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
                fired[followed(machine, CONTRACTS["drop_last"], start, {"seq": seq}, source)] += 1
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
        Mutant("know", "state.num_full[seq] = index + 1", "state.num_full[seq] = index + 2"),
        Mutant("gain", "state.refcount[block] += 1", "state.refcount[block] += 2"),
    ],
)
def test_an_append_that_does_something_else_breaks_its_contract(mutant: Mutant) -> None:
    with pytest.raises((AssertionError, IndexError)):
        appended_everywhere(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)


def test_a_free_that_gives_back_what_others_use_breaks_its_contract() -> None:
    mutant = Mutant("lose", "if state.refcount[block] == 0:\n    retire(state, block)", "forget(state, block)")
    with pytest.raises(AssertionError):
        freed_everywhere(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)
