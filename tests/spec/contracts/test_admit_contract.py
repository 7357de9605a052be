"""The contract of an admission, run: prompts that are partly cached are admitted on a small machine, rule by rule."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvproof.audit.faults.edits import Fault
from kvproof.audit.mutation.mutants import mutated
from kvproof.audit.mutation.operators import changed_statement
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.spec.contract_run import ContractBroken, ContractRun
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.native import Machine
from kvproof.spec.text.state import EVICTABLE, FREE, GPU, NONE, State

SCOPE = Scope(5, 1, 3, 6, 2, caching=True, lookahead=1, level="rules")
(CONTRACT,) = [one for one in CONTRACTS if one.rule == "admit"]
Given = dict[str, Any]


def a_prompt(state: State, source: random.Random) -> Given:
    """A prompt out of few, its hits, and what the contract counts of them."""
    size, width = SCOPE.block_size, SCOPE.num_indexes + 1
    path = [source.randint(1, 2) for _ in range(width)]
    rows = [[int("".join(map(str, path[: i + 1]))) * 10 + slot for slot in range(size)] for i in range(width)]
    num_rows, num_tail = source.randrange(SCOPE.num_indexes - 1), source.randrange(size)
    found: list[int] = []
    for row in rows[:num_rows]:
        blocks = [b for b in range(SCOPE.num_gpu_blocks) if state.computed[b] and state.content[b] == row]
        if not blocks:
            break
        found.append(source.choice(blocks))
    num_hit = source.randint(0, len(found))
    wakes = [state.status[b] == EVICTABLE for b in found[:num_hit]]
    num_woken = [sum(wakes[i:]) for i in range(width)]
    num_entries = num_rows + (num_tail > 0) + source.randrange(2)
    num_unused = state.count[GPU][FREE] + state.count[GPU][EVICTABLE]
    num_spared_max = min(state.count[GPU][EVICTABLE], num_unused - num_entries + num_hit) - num_woken[0]
    return {
        "seq": state.live.index(False),
        "rows": rows,
        "num_rows": num_rows,
        "num_tail": num_tail,
        "num_entries": num_entries,
        "num_hit": num_hit,
        "found": found[:num_hit] + [NONE] * (width - num_hit),
        "num_woken": num_woken,
        "num_spared": source.randint(0, max(0, num_spared_max)),
        "num_watermark": source.randrange(2),
        "caching": source.randrange(3) > 0,
    }


def admitted(machine: Machine, start: State, given: Given, source: random.Random) -> ContractRun | None:
    """Fire rule by rule, and hold each state against the contract; None if admission does not say OK."""
    run = ContractRun(machine, CONTRACT, start, given)
    if not run.can_begin():
        return None
    run.begin()
    while run.left() > 0:
        choices = [
            (rule, chosen)
            for rule, choice in CONTRACT.firings
            for chosen in chosen_for(rule, run.state, given)
            if run.value(str(choice), **chosen)
        ]
        run.fire(*source.choice(choices))
    run.end()
    return run


def chosen_for(rule: str, state: State, given: Given) -> Iterator[Given]:
    """What may be chosen for a firing, allowed or not, in the order of the rule's parameters."""
    row = given["rows"][state.num_blocks[given["seq"]]]
    match rule:
        case "admit":
            yield {"window": 0}
        case "promote":
            yield from ({"index": index} for index in range(SCOPE.num_indexes))
        case _:
            for block in range(len(state.status)):
                if rule == "append":
                    stops = range(1, SCOPE.block_size + 1)
                    yield from ({"block": block, "row": row, "stop": stop} for stop in stops)
                else:
                    yield {"block": block, "row": row} if rule == "hit" else {"block": block}


def moved_on(machine: Machine, state: State, source: random.Random) -> None:
    """Some sequences compute what they know, which can be hit from then on; one is freed if none is left to admit."""
    for seq, is_live in enumerate(state.live):
        if is_live and source.randrange(2):
            while machine.rules["compute"](state, seq, SCOPE.block_size) is None:
                pass
    for block in range(len(state.status)):
        machine.rules["mark_computed"](state, block)
    if False not in state.live or not source.randrange(3):
        seq = source.choice([one for one, is_live in enumerate(state.live) if is_live])
        machine.rules["begin_free"](state, seq)
        while machine.rules["drop_last"](state, seq) is None:
            pass
        assert machine.rules["finish"](state, seq) is None


def admitted_again_and_again(machine: Machine, seed: int) -> Counter[str]:
    """Admit prompt after prompt; how often each rule fired, and how often admission refused."""
    source, fired = random.Random(seed), Counter[str]()
    state = machine.first_state()
    for _ in range(80):
        done = admitted(machine, state, a_prompt(state, source), source)
        if done is None:
            fired["refused"] += 1
        else:
            state, fired = done.state, fired + done.fired
        if any(state.live):
            moved_on(machine, state, source)
    return fired


def test_an_admission_does_what_its_contract_says() -> None:
    fired = sum((admitted_again_and_again(Machine(sizes_of(SCOPE)), seed) for seed in range(3)), Counter[str]())
    rules = [rule for rule, _ in CONTRACT.firings]
    assert all(fired[one] > 5 for one in (*rules, "refused")), fired


@pytest.mark.parametrize(
    "mutant",
    [
        changed_statement("hit", "state.done_full[seq] = index + 1", "state.done_full[seq] = index"),
        changed_statement("know", "state.num_full[seq] = index + 1", "state.num_full[seq] = index + 2"),
        changed_statement("gain", "state.refcount[block] += 1", "state.refcount[block] += 2"),
        changed_statement("evict", "forget(state, block)", "move_to(state, block, RESERVED)"),
    ],
)
def test_an_admission_that_does_something_else_breaks_its_contract(mutant: Fault) -> None:
    with pytest.raises(ContractBroken):
        admitted_again_and_again(mutated(mutant, sizes_of(SCOPE), with_checks=False), 0)
