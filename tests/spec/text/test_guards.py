"""Each guard is needed: in some reachable state, for some arguments, it alone stands between a rule and its writes."""

import ast
from collections import deque
from functools import cache

import pytest

from kvproof.audit.faults.edits import Fault
from kvproof.audit.mutation.mutants import mutated
from kvproof.audit.mutation.operators import deletions
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.compilation import Guard
from kvproof.spec.native import Machine
from kvproof.spec.text.state import State

# The states of each scope that are searched, nearest first: enough for the guards that no scope before it shows alone.
SCOPES = {
    Scope(2, 1, 2, 1, 1, caching=True, fork=False, swap=True, level="rules"): 720,
    Scope(1, 2, 1, 1, 1, swap=True, num_flights=2, level="rules"): 150,
    Scope(2, 0, 1, 2, 1, caching=True, window=2, fork=False, level="rules"): 220,
    Scope(2, 2, 2, 1, 1, lookahead=1, swap=True, level="rules"): 300,
    Scope(2, 0, 2, 1, 1, caching=True, reserving=True, level="rules"): 20,
    Scope(2, 2, 1, 2, 1, window=1, fork=False, swap=True, level="rules"): 20,
    Scope(2, 0, 2, 2, 2, caching=True, level="rules"): 100,
    Scope(2, 0, 2, 1, 1, caching=True, window=1, fork=False, level="rules"): 100,
    Scope(1, 2, 2, 2, 2, swap=True, num_flights=1, level="rules"): 130,
    Scope(1, 0, 1, 1, 1, caching=True, fork=False, num_flights=2, level="rules"): 60,
}

# Guards that never stand alone. Their sentence says first what a reader should know; another guard follows from it.
ELSEWHERE = "no other entry of the sequence names the block"
ONE_PLACE = "an identity covers what comes before it, so no sequence has it at two indexes; a proof needs the guard"
IMPLIED: dict[tuple[str, str], str] = {
    **{(rule, ELSEWHERE): ONE_PLACE for rule in ("hit", "share", "follow_entry", "rehit_entry")},
    ("compute", "the tokens to compute have slots"): "no token is known where there is no slot",
    ("catch_up", "the tokens to read have slots"): "no token is known where there is no slot",
    ("follow_entry", "the sequence is being swapped"): "at rest the next entry is NONE, and no leader has it",
    ("slide", "the first entry is full"): "what is not full is not done, so a later token still reads it",
}


def guards() -> list[Fault]:
    return [mutant for mutant in deletions() if mutant.plant[0].old.startswith("require(")]


def sentence_of(guard: Fault) -> str:
    statement = ast.parse(guard.plant[0].old).body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    return str(ast.literal_eval(statement.value.args[1]))


@cache
def alone() -> set[tuple[str, str]]:
    """The rule and the sentence of each guard that refuses some firing which all other guards allow."""
    found: set[tuple[str, str]] = set()
    sought = {(guard.row, sentence_of(guard)) for guard in guards()}
    for scope, num_states in SCOPES.items():
        sizes = sizes_of(scope)
        without = {
            (guard.row, sentence_of(guard)): mutated(guard, sizes, with_ghosts=True, with_checks=False)
            for guard in guards()
            if (guard.row, sentence_of(guard)) not in found | IMPLIED.keys()
        }
        level = RuleSpace(scope)
        seen = {level.state_key(level.machine.first_state())}
        waiting = deque([level.machine.first_state()])
        while waiting and found | IMPLIED.keys() != sought:
            state = waiting.popleft()
            found |= alone_in(level, state, {name: m for name, m in without.items() if name not in found})
            for _, successor in level.successors(state):
                if (form := level.state_key(successor)) not in seen and len(seen) < num_states:
                    seen.add(form)
                    waiting.append(successor)
    return found


def alone_in(level: RuleSpace, state: State, without: dict[tuple[str, str], Machine]) -> set[tuple[str, str]]:
    found = set()
    for rule, *arguments in level.candidates(state):
        work = level.machine.copy(state)
        refused = level.machine.rules[rule](work, *arguments)
        if isinstance(refused, Guard) and (machine := without.get((rule, refused.sentence))):
            try:
                is_allowed = machine.rules[rule](work, *arguments) is None
            except (IndexError, TypeError):
                is_allowed = True  # it went on to its writes
            if is_allowed:
                found.add((rule, refused.sentence))
    return found


@pytest.mark.parametrize("guard", guards(), ids=lambda guard: f"{guard.row}: {sentence_of(guard)}")
def test_a_guard_alone_refuses_somewhere(guard: Fault) -> None:
    name = guard.row, sentence_of(guard)
    assert (name in alone()) != (name in IMPLIED)
