"""The contract of ending a sequence, run: every sequence at rest on a small machine is freed, and no rule refuses."""

import random
from collections import Counter
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
from kvproof.spec.text.state import State

SCOPE = Scope(5, 3, 3, 6, 2, window=2, caching=True, lookahead=1, fork=True, swap=True, num_flights=2, level="rules")
(CONTRACT,) = [one for one in CONTRACTS if one.rule == "begin_free"]


def ended(machine: Machine, start: State, seq: int) -> int:
    """Free a sequence, and hold each state against the contract; how often a rule fired."""
    run = ContractRun(machine, CONTRACT, start, {"seq": seq})
    assert run.can_begin()
    run.begin()
    while run.left() > 0:
        (rule,) = [rule for rule, choice in CONTRACT.firings if run.value(str(choice))]
        run.fire(rule, {})
    run.end()
    return run.fired.total()


def ended_everywhere(machine: Machine, seed: int) -> Counter[int]:
    """End each sequence that is at rest in each state of a walk; how often how many rules fired."""
    source, level, fired = random.Random(seed), RuleSpace(SCOPE), Counter[int]()
    state = level.machine.first_state()
    for _ in range(80):
        by_rule: dict[str, list[tuple[Any, ...]]] = {}
        for rule, *arguments in level.candidates(state):
            by_rule.setdefault(rule, []).append(tuple(arguments))
        for rule in source.sample(sorted(by_rule), min(8, len(by_rule))):
            if rule not in ("begin_free", "begin_swap") or not source.randrange(10):
                level.machine.rules[rule](state, *source.choice(by_rule[rule]))
        at_rest = [seq for seq in range(SCOPE.num_seqs) if machine.function("at_rest")(state, seq)]
        fired += Counter(ended(machine, state, seq) for seq in at_rest)
    return fired


def test_whatever_is_at_rest_can_be_freed() -> None:
    assert max(ended_everywhere(Machine(sizes_of(SCOPE)), 0)) > 3


@pytest.mark.parametrize(
    "mutant",
    [
        changed_statement("drop_last", "state.num_blocks[seq] = index", "state.num_blocks[seq] = index - 1"),
        changed_statement("finish", "state.live[seq] = False", "pass"),
        changed_statement("begin_free", "state.ending[seq] = True", "state.live[seq] = False"),
    ],
)
def test_an_end_that_does_something_else_breaks_its_contract(mutant: Fault) -> None:
    with pytest.raises(ContractBroken):
        ended_everywhere(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)
