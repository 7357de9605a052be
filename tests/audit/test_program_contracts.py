"""While judges and explorers fire programs of operations, each firing is held against the contract of the operation."""

import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.audit.program_contracts import PARTS, Followed, followed
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.strategies import strategy_of
from kvproof.check.search.worlds import has_large_sizes
from kvproof.check.subjects.registry import find
from kvproof.models.translation.text import specification
from kvproof.spec.contract_run import ContractBroken
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text import operations
from kvproof.spec.text.operations import Program, RuleCall
from kvproof.spec.text.state import FREE, State
from kvproof.spec.trace import Operation

NO_LIMIT = 1_000_000  # seconds, or transitions
SENDING = "what_is_sent_is_read_back_when_it_has_arrived"  # in flight: only explorers send
SWAP = Scope(3, 3, 2, 4, 2, swap=True)
SWAP_AND_CACHE = Scope(2, 1, 2, 2, 2, caching=True, swap=True)
FLIGHTS = Scope(2, 1, 1, 2, 1, fork=False, swap=True, num_flights=2)
WITHOUT_CONTRACT = {  # programs, each with the reason
    "admit_past_window": "its table is explained by a prefill entry by entry; admission is proved without a window",
    "admit_past_window_hit": "admission is proved without a window",
    "hit_past_window": "admission is proved without a window",
    "exchange_entries": "each firing stands alone, and the checks of its rule say all of it",
    "reserve_entries": "it is a part of an admission; alone it promises no more than its rule",
    "drop_reserved": "each firing stands alone, and the checks of its rule say all of it",
    "slide_window": "each firing stands alone, and the checks of its rule say all of it",
    "compute_tokens": "each firing stands alone, and the checks of its rule say all of it",
    "catch_up": "each firing stands alone, and the checks of its rule say all of it",
    "mark_computed": "each firing stands alone, and the checks of its rule say all of it",
    "register_entries": "each firing stands alone, and the checks of its rule say all of it",
    "fork_sequence": "it is one firing",
    "arrive": "it ends a transfer that an earlier program sent; `swap_group` is followed until all has arrived",
    "launch_step": "each firing stands alone, and the checks of its rule say all of it",
    "land_step": "each firing stands alone, and the checks of its rule say all of it",
    "set_aside": "it is one firing, after an eviction, which is followed",
}
REASONS = {  # why no contract speaks of a program that has one
    ("know_tokens", "it takes up cached blocks, and the contract of an append knows none"),
    ("know_tokens", "another sequence holds entries beyond the tail, which the contract excludes"),
    ("admit_sequence", "after its hits it takes up cached blocks that are not computed, which the contract excludes"),
    ("swap_group", "the contract of sending is about one sequence all of whose blocks are sent"),
}


def test_every_program_has_a_contract_or_a_reason() -> None:
    module = vars(operations).values()
    programs = {
        one.__name__ for one in module if inspect.isgeneratorfunction(one) and one.__module__ == operations.__name__
    }
    assert programs == PARTS.keys() | WITHOUT_CONTRACT.keys()
    assert not PARTS.keys() & WITHOUT_CONTRACT.keys()


def walked(name: str, seed: int, max_operations: int) -> None:
    """Run after run, each in a drawn configuration and for as long as it takes. A finding is an error.

    Large worlds are skipped: a contract looks at every block and entry of the world at each firing, so one run in a
    world of 2,000 blocks would take longer than thousands of runs in small ones.
    """
    subject, random, num_operations = find(name)(), Random(seed), 0
    strategy = strategy_of(subject)
    while num_operations < max_operations:
        config, run = strategy.draw_config(random, capabilities_of(subject), None), list[Operation]()
        if has_large_sizes(config):
            continue
        with suppress(Unsupported):
            strategy.generator(subject, random, config, frozenset()).run(run, min(60, max_operations - num_operations))
        num_operations += len(run)


def test_judges_and_explorers_fire_what_the_contracts_allow() -> None:
    with followed() as found:
        for scope in (SWAP, SWAP_AND_CACHE, FLIGHTS):
            assert explore_specification(scope, seconds=NO_LIMIT).is_exhausted
        for name, max_operations in (("kvproof-pool", 1200), ("kvproof-scheduler", 150), ("kvproof", 150)):
            walked(name, 1, max_operations)
    assert found.firings.total() > 18_000
    assert {contract for _, contract in found.ends} == {one.name for one in CONTRACTS}
    assert {program for program, _ in found.ends} == PARTS.keys()
    assert found.outside.keys() <= REASONS


NUM_FIRINGS, NUM_SHARDS = 1_000_000, 8
EXPLORED = (  # what a shard explores before it walks, and how many transitions of it
    (Scope(4, 0, 2, 5, 2, caching=True, lookahead=1, window=2), 11_295),
    (Scope(3, 2, 2, 4, 2, caching=True, swap=True), 14_252),
    (Scope(3, 3, 2, 4, 2, swap=True, num_flights=4), 31_287),
    (Scope(3, 0, 2, 4, caching=True, lookahead=2), NO_LIMIT),
    (Scope(4, 0, 1, 4, 2, caching=True), 2_726),
    (Scope(2, 2, 1, 3, 3, caching=True, swap=True), NO_LIMIT),
    (Scope(3, 2, 2, 3, 1, swap=True, num_flights=3), 37_598),
    (Scope(5, 0, 3, 6, 2, lookahead=1, window=3, num_flights=1), 20_732),
)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shard", range(NUM_SHARDS))
def test_a_million_firings_are_what_the_contracts_allow(shard: int) -> None:
    """Each shard has states and seeds of its own and no limit in seconds, so it does the same every time.

    `pytest -m long -n 2 -rP` also prints what was followed.
    """
    scope, max_transitions = EXPLORED[shard]
    seeds = itertools.count(1 + 10_000 * shard)
    with followed() as found:
        explore_specification(scope, seconds=NO_LIMIT, max_transitions=max_transitions)
        while found.firings.total() < NUM_FIRINGS // NUM_SHARDS:
            for name in ("kvproof-pool", "kvproof-scheduler", "kvproof", "kvproof-generation1"):
                walked(name, next(seeds), 2000)
    print({kind: getattr(found, kind) for kind in ("firings", "ends", "outside")})
    assert {contract for _, contract in found.ends} >= {one.name for one in CONTRACTS} - {SENDING}
    assert {program for program, _ in found.ends} == PARTS.keys()
    assert found.outside.keys() <= REASONS


# What does not keep its contract is noticed --------------------------------------------------------------------------


def explored(machine_of: Callable[[Sizes], Machine] | None = None, scope: Scope = SWAP) -> Followed:
    with followed(machine_of) if machine_of else followed() as found:
        explore_specification(scope, seconds=NO_LIMIT)
    return found


def changed(name: str, old: str, new: str) -> Callable[[Sizes], Machine]:
    """Machines of a text in which one function is rewritten."""
    functions = text_with(specification(), Edit(name, old, new)).functions
    return lambda sizes: Machine(sizes, with_ghosts=True, with_checks=False, text=functions)


@pytest.mark.parametrize(
    ("name", "old", "new", "wrong"),
    [
        ("freeing_can_continue", "freeing_begins(state, seq) or ", "", "where can_choose is false"),
        ("next_append", "state.num_filled[given.seq] < stop", "False", "is not what next_append allows"),
        ("free_invariant", "state.live[seq]", "not state.live[seq]", "the loop invariant does not hold at the start"),
        ("append_invariant", "num_tokens_known(state, given.seq) <=", "1 >=", "the loop invariant does not hold"),
        ("append_precondition", "at_rest(start, given.seq)", "False", "although append_precondition does not hold"),
        ("swap_variant", "- swap.num_fired", "", "was left before"),
    ],
)
def test_a_contract_that_programs_do_not_keep_is_noticed(name: str, old: str, new: str, wrong: str) -> None:
    with pytest.raises(ContractBroken, match=wrong):
        explored(changed(name, old, new))


def _without(rule: str, program: Callable[..., Program]) -> Callable[..., Program]:
    """The program without its firings of a rule."""

    def less(*arguments: Any, **named: Any) -> Iterator[RuleCall]:
        return (call for call in program(*arguments, **named) if call[0] != rule)

    return less


def half_freed(state: State, seq: int) -> Iterator[RuleCall]:
    yield from [("begin_free", (seq,)), *[("drop_last", (seq,))] * (state.num_blocks[seq] - state.first[seq])]


def appended_to_another_entry(state: State, block_size: int, seq: int, *others: Any) -> Iterator[RuleCall]:
    for rule, arguments in KNOW_TOKENS(state, block_size, seq, *others):
        yield rule, (*arguments[:2], [7] * block_size, *arguments[3:])


KNOW_TOKENS = operations.know_tokens


@pytest.mark.parametrize(
    ("name", "program", "wrong"),
    [
        ("free_sequence", half_freed, "a_sequence_at_rest_can_be_freed: 1 is left at the end"),
        ("know_tokens", appended_to_another_entry, "append.* is not what next_append allows"),
    ],
)
def test_a_program_that_does_not_keep_its_contract_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, program: Callable[..., Program], wrong: str
) -> None:
    monkeypatch.setattr(operations, name, program)
    with pytest.raises(ContractBroken, match=wrong):
        explored()
    assert getattr(operations, name) is program


def test_an_admission_without_its_promotions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "know_tokens", _without("promote", operations.know_tokens))
    with pytest.raises(ContractBroken, match="an_admitted_prompt_takes_what_admission_said"):
        explored(scope=SWAP_AND_CACHE)


def test_blocks_of_equal_content_move_to_their_twin_one_by_one() -> None:
    """Two sequences computed the same tokens apart: the second does not follow the first, it finds the content too."""
    sizes, row = Sizes(2, 2, 2, 3, 2), [1, 2]
    machine = Machine(sizes, with_ghosts=False)
    state = machine.first_state()
    for rule, *arguments in [
        *(("admit", 0, 0), ("append", 0, 0, row, 2), ("compute", 0, 2), ("begin_swap", 0), ("move_entry", 0, 2)),
        *(("end_swap", 0), ("promote", 0, 0), ("mark_computed", 2)),
        *(("admit", 1, 0), ("append", 1, 0, row, 2), ("compute", 1, 2)),
        *(("admit", 2, 0), ("append", 2, 1, row, 2), ("compute", 2, 2)),
    ]:
        assert machine.rules[str(rule)](state, *arguments) is None
    rules = Counter[str]()
    with followed() as found:
        for rule, chosen in operations.swap_group(state, 2, [1, 2], lambda seq, index: 2):
            assert machine.rules[rule](state, *chosen) is None
            rules[rule] += 1
    assert rules == {"begin_swap": 2, "rehit_entry": 2, "end_swap": 2}
    assert (found.firings.total(), state.count[0][FREE]) == (2, 2)


def test_an_append_before_entries_that_are_shared_has_no_contract() -> None:
    machine = Machine(Sizes(3, 0, 2, 2, 2), with_ghosts=False)
    state = machine.first_state()
    for rule, *arguments in [("admit", 0, 0), ("append", 0, 0, [1, 0], 1), ("reserve", 0, 1), ("fork", 0, 1)]:
        assert machine.rules[str(rule)](state, *arguments) is None
    with followed() as found:
        for rule, chosen in operations.know_tokens(state, 2, 0, [1, 2], 1, lambda index: 2, False):
            assert machine.rules[rule](state, *chosen) is None
    reason = "another sequence holds entries beyond the tail, which the contract excludes"
    assert (found.outside, found.firings) == ({("know_tokens", reason): 1}, {})


def test_nothing_is_followed_outside_of_the_mode() -> None:
    before = {name: getattr(operations, name) for name in PARTS}
    with followed() as found:
        assert all(getattr(operations, name) is not before[name] for name in PARTS)
    assert {name: getattr(operations, name) for name in PARTS} == before
    assert explore_specification(SWAP, seconds=NO_LIMIT).is_exhausted
    assert found.firings.total() == 0
