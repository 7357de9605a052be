"""The compiled text: ghosts change nothing real, refused rules change nothing, and obligations are raised."""

import ast
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from kvproof.audit.mutation.mutants import mutated
from kvproof.audit.mutation.operators import changed_statement
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec import syntax_trees
from kvproof.spec.compilation import CheckFailed
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

ALL_FEATURES = Scope(5, 3, 3, 6, 2, caching=True, lookahead=2, swap=True, num_flights=4, level="rules", reserving=True)
WITH_WINDOW = Scope(5, 3, 3, 6, 2, caching=True, window=2, lookahead=2, swap=True, num_flights=2, level="rules")
Step = tuple[str, tuple[Any, ...], bool]  # rule, arguments, whether it is enabled
REAL = [name for name, f in FIELDS.items() if f.kind != "ghost"]


def walked(scope: Scope, seed: int, num_steps: int) -> list[Step]:
    """A random walk over rules and arguments, each with whether it was enabled."""
    source, level = random.Random(seed), RuleSpace(scope)
    state = level.machine.first_state()
    steps: list[Step] = []
    while len(steps) < num_steps:
        by_rule: dict[str, list[tuple[Any, ...]]] = {}
        for rule, *arguments in level.candidates(state):
            by_rule.setdefault(rule, []).append(tuple(arguments))
        for rule in source.sample(sorted(by_rule), min(6, len(by_rule))):
            drawn = source.choice(by_rule[rule])
            steps.append((rule, drawn, level.machine.rules[rule](state, *drawn) is None))
    return steps


def real_fields(state: State) -> dict[str, Any]:
    return {name: getattr(state, name) for name in REAL}


@pytest.mark.parametrize("scope", [ALL_FEATURES, WITH_WINDOW])
@pytest.mark.parametrize("seed", range(3))
def test_without_ghosts_and_obligations_every_real_field_is_the_same(scope: Scope, seed: int) -> None:
    machines = [Machine(sizes_of(scope), ghosts, checks) for ghosts in (True, False) for checks in (True, False)]
    states = [machine.first_state() for machine in machines]
    enabled: Counter[str] = Counter()
    for rule, arguments, is_enabled in walked(scope, seed, 1500):
        results = [m.rules[rule](s, *arguments) for m, s in zip(machines, states, strict=True)]
        assert [result is None for result in results] == [is_enabled] * 4
        assert len({result and result.sentence for result in results}) == 1
        enabled[rule] += is_enabled
        reference = real_fields(states[0])
        assert all(real_fields(state) == reference for state in states[1:])
    assert len(enabled) > 15


@pytest.mark.parametrize("seed", range(3))
def test_a_rule_that_is_refused_changes_no_field(seed: int) -> None:
    machine = Machine(sizes_of(ALL_FEATURES))
    state = machine.first_state()
    refused = 0
    for rule, arguments, is_enabled in walked(ALL_FEATURES, seed, 1500):
        before = repr(vars(state))
        machine.rules[rule](state, *arguments)
        if not is_enabled:
            refused += 1
            assert repr(vars(state)) == before
    assert refused > 300


def test_a_walk_satisfies_every_claim() -> None:
    machine = Machine(sizes_of(WITH_WINDOW))
    state = machine.first_state()
    for rule, arguments, _ in walked(WITH_WINDOW, 7, 1500):
        machine.rules[rule](state, *arguments)
        assert machine.broken_claims(state) == []


def test_an_obligation_that_does_not_hold_is_raised_with_its_property() -> None:
    sizes = Sizes(2, 0, 2, 2, 2)
    machine = mutated(changed_statement("admit", "state.live[seq] = True"), sizes)
    with pytest.raises(CheckFailed) as raised:
        machine.rules["admit"](machine.first_state(), 0, 0)
    assert (raised.value.rule, raised.value.property) == ("admit", "frame-kept")
    assert "at_rest(state, seq)" in raised.value.text


def test_an_obligation_is_not_evaluated_where_they_are_left_out() -> None:
    machine = mutated(changed_statement("admit", "state.live[seq] = True"), Sizes(2, 0, 2, 2, 2), with_checks=False)
    assert machine.rules["admit"](machine.first_state(), 0, 0) is None


def test_row_operations_within_each_other_keep_their_order() -> None:
    text = """
def nested(one, other, is_first):
    return put(spliced(one, 0, 1, other), 1 if is_first else 2, 7)
def chosen(one, other, is_first):
    return copied(one if is_first else other)[0]
def agree(one, other):
    return same(spliced(one, 0, 1, other), one if len(one) == 0 else other, 1)
"""
    functions = {node.name: (node, "<text>") for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    names = Machine(Sizes(1, 0, 3, 1, 1), text=syntax_trees.functions() | functions).names
    assert names["nested"]([1, 2, 3], [4, 5, 6], True) == [4, 7, 3]
    assert names["nested"]([1, 2, 3], [4, 5, 6], False) == [4, 2, 7]
    assert names["chosen"]([1, 2, 3], [4, 5, 6], True) == 1
    assert names["agree"]([1, 2, 3], [4, 5, 6])


HIDING = """
def lost(i):
    j = 1
    return [[7 for j in SLOTS] if any(j >= i for i in SLOTS) else [9] for c in SLOTS]
def other(j):
    return any([any(j > 0 for i in SLOTS) for j in SLOTS] == [False, True] and j == 3 for i in SLOTS)
def around(i):
    return [[i for i in SLOTS] + [i for j in SLOTS] for i in SLOTS]
def checked(i):
    check(all(i > 0 for i in SLOTS), "some-property")
"""
HIDING_NOTHING = """
def lost(i):
    j = 1
    return [[7 for j_1 in SLOTS] if any((j >= i_1 for i_1 in SLOTS)) else [9] for c in SLOTS]

def other(j):
    return any(([any((j_1 > 0 for i_1 in SLOTS)) for j_1 in SLOTS] == [False, True] and j == 3 for i in SLOTS))

def around(i):
    return [[i_2 for i_2 in SLOTS] + [i_1 for j in SLOTS] for i_1 in SLOTS]

def checked(i):
    check(all((i_1 > 0 for i_1 in SLOTS)), 'some-property')
"""


def test_a_variable_that_hides_a_name_is_its_own_and_has_a_name_of_its_own_in_a_native_run() -> None:
    functions = {node.name: (node, "<text>") for node in ast.parse(HIDING).body if isinstance(node, ast.FunctionDef)}
    names = Machine(Sizes(1, 0, 2, 1, 1), text=syntax_trees.functions() | functions).names
    assert names["lost"](1) == [[7, 7], [7, 7]]
    assert names["other"](3) is True
    assert names["around"](5) == [[0, 1, 0, 0], [0, 1, 1, 1]]
    with pytest.raises(CheckFailed) as raised:
        names["checked"](1)
    assert raised.value.text == "all((i > 0 for i in SLOTS))"
    renamed = [syntax_trees.copied(function) for function, _ in functions.values()]
    for function in renamed:
        syntax_trees.rename_hiding(function)
    assert "\n\n".join(map(ast.unparse, renamed)) == HIDING_NOTHING.strip()


QUANTIFIED = """
def claim(a, b, c, at):
    return all(
        implies(a[s] and 0 <= at[s] and at[s] < NUM_INDEXES and b[at[s]][k], implies(n == k + 1 and a[n], c[s][n]))
        for s in SEQS
        for k in INDEXES
        for n in INDEXES
    )
def every_row(c):
    return all(implies(s == k and n == n, c[s][n]) for s in SEQS for k in INDEXES for n in INDEXES)
def of_transfers(state, a):
    return all(implies(a[s] and state.filler[b] != NONE, a[b]) for s in SEQS for b in BLOCKS)
"""


def quantified(sizes: Sizes) -> dict[str, Any]:
    nodes = (node for node in ast.parse(QUANTIFIED).body if isinstance(node, ast.FunctionDef))
    return Machine(sizes, text=syntax_trees.functions() | {node.name: (node, "<text>") for node in nodes}).names


def test_a_condition_that_is_asked_early_decides_the_same_and_is_read_only_where_it_was() -> None:
    names, source, values = quantified(Sizes(1, 0, 1, 3, 4)), random.Random(1), Counter[bool]()
    for _ in range(300):
        a, at = [source.random() < 0.6 for _ in range(4)], [source.randrange(-1, 5) for _ in range(3)]
        b, c = ([[source.random() < share for _ in range(4)] for _ in range(4)] for share in (0.4, 0.6))
        expected = all(
            not (a[s] and 0 <= at[s] < 4 and b[at[s]][k] and n == k + 1 and a[n]) or c[s][n]
            for s in range(3)
            for k in range(4)
            for n in range(4)
        )
        assert names["claim"](a, b, c, at) == expected
        assert names["every_row"](c) == all(all(row) for row in c[:3])
        values[expected] += 1
    assert min(values.values()) > 40


def test_a_condition_that_no_state_without_transfers_satisfies_is_not_asked() -> None:
    assert quantified(Sizes(1, 0, 1, 1, 1, has_transfers=False))["of_transfers"](None, None)


def test_a_step_that_writes_only_ghosts_is_left_empty_without_them() -> None:
    function = ast.parse("def step(state):\n    state.place[0] = 1").body[0]
    assert isinstance(function, ast.FunctionDef)
    machine = Machine(Sizes(1, 0, 1, 1, 1), False, text=syntax_trees.functions() | {"step": (function, "<text>")})
    before, after = machine.first_state(), machine.first_state()
    machine.names["step"](after)
    assert real_fields(after) == real_fields(before)


def test_contracts_are_loaded_when_something_asks_for_them() -> None:
    program = """
import sys
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
machine = Machine(Sizes(2, 0, 1, 1, 1))
print("kvproof.spec.contracts" in sys.modules)
print(machine.function("free_precondition")(machine.first_state(), 0))
print("kvproof.spec.contracts" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False", "True"]


def test_a_local_name_never_hides_what_the_compiler_adds() -> None:
    """A guard that does not hold is returned under a name that no text can write."""
    source = "def finish(state, seq):\n    require(state.live[seq], 'it is live')\n"
    (function,) = ast.parse(source + "    GUARD_finish_0 = FAILED_finish_0 = 1\n").body
    assert isinstance(function, ast.FunctionDef)
    machine = Machine(sizes_of(ALL_FEATURES), text={**syntax_trees.functions(), "finish": (function, "mine.py")})
    refusal = machine.rules["finish"](machine.first_state(), 0)
    assert refusal is not None
    assert refusal.sentence == "it is live"


def test_without_checks_a_rule_computes_nothing_that_only_a_check_reads() -> None:
    names = [Machine(Sizes(2, 0, 1, 1, 2), False, has).rules["append"].__code__.co_varnames for has in (True, False)]

    assert set(names[0]) - set(names[1]) == {"unused_before", "stays"}


def test_two_first_states_of_the_same_sizes_share_no_table() -> None:
    for sizes in (Sizes(2, 0, 1, 3, 4), Sizes(10_000, 0, 1, 3, 4)):
        machine = Machine(sizes, False, False)
        one, other = machine.first_state(), machine.first_state()
        one.table[0][1] = one.position[0][1] = 7

        assert [row[1] for row in one.table] == [7, 0, 0]
        assert [row[1] for row in one.position] == [7, -1, -1]
        assert [row[1] for row in other.table] == [0, 0, 0]
        assert [row[1] for row in other.position] == [-1, -1, -1]
